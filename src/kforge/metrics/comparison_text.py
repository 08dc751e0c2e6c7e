"""A comparison in sentences, for a terminal and for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kforge.metrics.records import Comparison, PairedDifference, Question

_TOP = 3
"""How many of the largest wins and losses are named."""
_SUBJECTS: dict[Question, str] = {
    "correct": "Correct programs",
    "speedup vs eager": "Speed where both are correct, against eager",
    "speedup vs best": "Speed where both are correct, against the best baseline",
    "fall-back vs eager": "Speed over all problems, the baseline kept where a program is wrong or slower",
}


def comparison_sentences(comparison: Comparison) -> list[str]:
    """The sentences of a comparison: what was found, question by question; who wins where; what to know beforehand."""
    lines = [_sentence(item, comparison) for item in comparison.differences]
    ratios = {pair.problem: pair.ratio for pair in comparison.pairs if pair.ratio is not None}
    won = {key: ratio for key, ratio in ratios.items() if ratio > 1}
    lost = {key: 1 / ratio for key, ratio in ratios.items() if ratio < 1}
    lines += _largest_line(f"{comparison.b} wins most against {comparison.a} on", won)
    lines += _largest_line(f"{comparison.a} wins most against {comparison.b} on", lost)
    lines += _only_correct_line(
        comparison.b, [pair.problem for pair in comparison.pairs if pair.b_correct > pair.a_correct == 0]
    )
    lines += _only_correct_line(
        comparison.a, [pair.problem for pair in comparison.pairs if pair.a_correct > pair.b_correct == 0]
    )
    for name, alone in ((comparison.a, comparison.alone_a), (comparison.b, comparison.alone_b)):
        if alone:
            lines.append(f"Not compared, since they count for {name} only: {_first_names(alone)}.")
    return lines + list(comparison.notes)


def _sentence(item: PairedDifference, comparison: Comparison) -> str:
    answer = _difference_text(item, comparison) if item.shown else _no_difference_text(item, comparison)
    return f"{_SUBJECTS[item.question]}: {answer}; {_tally(item, comparison)}."


def _difference_text(item: PairedDifference, comparison: Comparison) -> str:
    a, b = comparison.a, comparison.b
    if item.question == "correct":
        word = "more" if item.effect > 0 else "fewer"
        return (
            f"{b} has {abs(item.effect) * 100:.1f} points {word} than {a} ({_points(item)}), {item.b:.1%} against "
            f"{item.a:.1%}"
        )
    return (
        f"{b} is {_times(item.effect)} times as fast as {a} ({_range(item)}), {_times(item.b)} against {_times(item.a)}"
    )


def _no_difference_text(item: PairedDifference, comparison: Comparison) -> str:
    """A result that shows no difference: what could still hide is as much part of the answer as what was not found."""
    if item.question == "correct":
        seen = f"seen {item.effect * 100:+.1f} points; what is there may be {_points(item)}"
    elif item.same_program == item.pairs:
        seen = "the same programs on both sides"
    elif item.low == item.high:
        seen = f"seen {_times(item.effect)} times; no interval can be given"
    else:
        seen = f"seen {_times(item.effect)} times; what is there may be {_range(item)}"
    return f"no difference shown between {comparison.a} and {comparison.b} ({seen}){_disagreement(item)}"


def _disagreement(item: PairedDifference) -> str:
    """A remark where the interval and the sign test disagree: one speaks alone, or against the other."""
    none = 0.0 if item.question == "correct" else 1.0
    speaks = item.low < item.high and not item.low <= none <= item.high
    if speaks and item.sign_p < 0.05:
        return "; the mean leans one way and the number of problems won the other"
    if speaks:
        return "; the interval alone would show one, the number of problems won does not"
    if item.sign_p < 0.05:
        return "; the number of problems won alone would show one, the interval does not"
    return ""


def _points(item: PairedDifference) -> str:
    return f"{item.low * 100:+.1f} to {item.high * 100:+.1f}"


def _range(item: PairedDifference) -> str:
    return f"{_times(item.low)} to {_times(item.high)}"


def _times(factor: float) -> str:
    """A factor, with three places where small differences matter."""
    return f"{factor:.3f}" if 0.1 <= factor < 10 else f"{factor:.3g}"


def _tally(item: PairedDifference, comparison: Comparison) -> str:
    same = f" ({item.same_program} with the same program)" if item.same_program else ""
    ties = f", {item.ties} tied{same}" if item.ties else ""
    questions = "one question" if comparison.questions == 1 else f"{comparison.questions} questions asked at once"
    p = "p < 0.0001" if item.sign_p < 0.0001 else f"p = {item.sign_p:.2g}"
    return f"{item.pairs} problems: {item.wins} won, {item.losses} lost{ties}, sign test {p}, {questions}"


def _largest_line(beginning: str, factors: Mapping[str, float]) -> list[str]:
    top = sorted(factors, key=lambda key: (-factors[key], key))[:_TOP]
    return [f"{beginning} " + ", ".join(f"{key} ({_times(factors[key])} times)" for key in top) + "."] if top else []


def _only_correct_line(name: str, keys: Sequence[str]) -> list[str]:
    return [f"Correct for {name} only: {_first_names(keys)}."] if keys else []


def _first_names(keys: Sequence[str]) -> str:
    rest = len(keys) - _TOP
    return ", ".join(keys[:_TOP]) + (f" and {rest} more" if rest > 0 else "")
