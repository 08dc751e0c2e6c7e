"""Two configurations on the same problems: what differs, by how much, and whether that is shown.

    trials of a, trials of b -> problems that count on both sides -> one value a problem -> interval and sign test

A problem is one pair, however often it was repeated: repetitions are averaged first. Where both sides have the same
program, the pair is a tie: two measurements of one text differ by chance alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kforge.metrics.caveats import (
    FEWEST_PAIRS,
    circumstance_caveats,
    difference_caveats,
    question_caveats,
    same_program_caveats,
    text_caveats,
)
from kforge.metrics.intervals import mean_interval, same, share_difference_interval, sign, sign_test
from kforge.metrics.problem_results import Counted, ProblemResult, count, problem_result
from kforge.metrics.records import QUESTIONS, Comparison, PairedDifference, ProblemPair, Question
from kforge.types import Trial

_FARTHEST = math.log(1e6)
"""An interval in logarithms is cut off here, so that a few wild values give a number that can be written."""

_VALUES: dict[Question, Callable[[ProblemResult], float | None]] = {
    "correct": lambda result: result.correct,
    "speedup vs eager": lambda result: result.logs.get("eager"),
    "speedup vs best": lambda result: result.logs.get("best"),
    "fall-back vs eager": lambda result: result.fallback["eager"],
}
"""What a problem is worth on one side: a share, or a logarithm; None leaves it out of that question."""

_Both = Mapping[str, tuple[ProblemResult, ProblemResult]]


@dataclass(frozen=True)
class _PairedValues:
    """What one problem is worth on each side, to one question."""

    a: float
    b: float
    same_program: bool

    @property
    def step(self) -> float:
        """From a to b: a difference of shares, or the logarithm of a ratio."""
        return 0.0 if self.same_program else self.b - self.a


def compare(a: Sequence[Trial], b: Sequence[Trial], names: tuple[str, str], questions: int | None = None) -> Comparison:
    """Every question that the trials can answer.

    `questions` is how many are asked over all comparisons made together (the sum of `questions_of`); None: this one is
    alone. Intervals and tests allow for them by Bonferroni's rule.
    """
    side_a, side_b = count(a), count(b)
    both, other_texts = _common(side_a, side_b)
    values = _question_values(both)
    number = max(len(values), questions or 0, 1)
    differences = tuple(_difference(question, pairs, number) for question, pairs in values.items())
    problem_pairs = tuple(_pair(key, *sides) for key, sides in both.items())
    compared_a, compared_b = (tuple(trial for key in both for trial in side.counting[key]) for side in (side_a, side_b))
    return Comparison(
        names[0],
        names[1],
        pairs=problem_pairs,
        differences=differences,
        questions=number,
        alone_a=tuple(key for key in side_a.counting if key not in side_b.counting),
        alone_b=tuple(key for key in side_b.counting if key not in side_a.counting),
        notes=(
            *text_caveats(other_texts),
            *question_caveats(both, differences, names),
            *same_program_caveats(problem_pairs),
            *difference_caveats(differences, number),
            *circumstance_caveats(compared_a, compared_b, names),
        ),
    )


def questions_of(a: Sequence[Trial], b: Sequence[Trial]) -> int:
    """How many questions a comparison of these trials asks."""
    return len(_question_values(_common(count(a), count(b))[0]))


def _common(a: Counted, b: Counted) -> tuple[_Both, list[str]]:
    """Problems that count on both sides; and keys that are the same, of problems that are not."""
    keys = [key for key in a.counting if key in b.counting]
    texts = {key: {trial.cell.problem_id for side in (a, b) for trial in side.counting[key]} for key in keys}
    both = {
        key: (problem_result(a.counting[key]), problem_result(b.counting[key])) for key in keys if len(texts[key]) == 1
    }
    return both, [key for key in keys if len(texts[key]) > 1]


def _question_values(both: _Both) -> dict[Question, list[_PairedValues]]:
    """The values of each question that enough problems can answer."""
    values: dict[Question, list[_PairedValues]] = {}
    for question in QUESTIONS:
        if question == "fall-back vs eager" and not _has_fallback(both):
            continue
        known = [pair for a, b in both.values() if (pair := _paired_values(question, a, b)) is not None]
        if len(known) >= FEWEST_PAIRS:
            values[question] = known
    return values


def _paired_values(question: Question, a: ProblemResult, b: ProblemResult) -> _PairedValues | None:
    """None where one side has no value."""
    value_a, value_b = _VALUES[question](a), _VALUES[question](b)
    if value_a is None or value_b is None:
        return None
    same_program = question != "correct" and _same_program(a, b)
    if question == "fall-back vs eager":
        # How often a program was not there is a difference, whichever program it was.
        same_program = same_program and a.correct == b.correct
    return _PairedValues(value_a, value_b, same_program)


def _same_program(a: ProblemResult, b: ProblemResult) -> bool:
    return bool(a.programs) and a.programs == b.programs


def _has_fallback(both: _Both) -> bool:
    """Whether what each side is worth with fall-back is known, and one of them has more than the baseline to show.

    A side without a correct program keeps the baseline everywhere. Of one that is correct and was not timed, or ran in
    emulation, nothing is known: what is kept of it would all be baseline.
    """
    sides = list(zip(*both.values(), strict=True))
    timed = [any("eager" in result.logs for result in side) for side in sides]
    wrong = [not any(result.correct or result.emulated for result in side) for side in sides]
    return any(timed) and all(has or none for has, none in zip(timed, wrong, strict=True))


def _difference(question: Question, pairs: Sequence[_PairedValues], questions: int) -> PairedDifference:
    """Shares are subtracted; speedups come as logarithms, so that their difference is a ratio."""
    steps = [pair.step for pair in pairs]
    signs = [sign(step) for step in steps]
    wins, losses = signs.count(1), signs.count(-1)
    level = 1 - 0.05 / questions
    if question == "correct":
        low, high = share_difference_interval(steps, level)
    else:
        low, high = (max(-_FARTHEST, min(_FARTHEST, end)) for end in mean_interval(steps, level))
    sign_p = min(1.0, sign_test(wins, losses) * questions)
    # Measured ratios that are all the same leave no spread to judge by.
    spoken = 0 if question != "correct" and same(steps) else (low > 0) - (high < 0)
    scale = (lambda value: value) if question == "correct" else math.exp
    return PairedDifference(
        question,
        a=scale(math.fsum(pair.a for pair in pairs) / len(pairs)),
        b=scale(math.fsum(pair.b for pair in pairs) / len(pairs)),
        effect=scale(math.fsum(steps) / len(steps)),
        low=scale(low),
        high=scale(high),
        level=level,
        pairs=len(pairs),
        wins=wins,
        losses=losses,
        ties=len(pairs) - wins - losses,
        sign_p=sign_p,
        shown=spoken != 0 and sign_p < 0.05 and spoken == sign(wins - losses),
        same_program=sum(pair.same_program for pair in pairs),
    )


def _pair(key: str, a: ProblemResult, b: ProblemResult) -> ProblemPair:
    of_a, of_b = a.logs.get("eager"), b.logs.get("eager")
    speeds = _paired_values("speedup vs eager", a, b)
    return ProblemPair(
        key,
        a=None if of_a is None else math.exp(of_a),
        b=None if of_b is None else math.exp(of_b),
        a_state=a.state,
        b_state=b.state,
        ratio=None if speeds is None else math.exp(speeds.step),
        a_correct=a.correct,
        b_correct=b.correct,
        same_program=_same_program(a, b),
    )
