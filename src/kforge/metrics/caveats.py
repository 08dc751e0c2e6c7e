"""What a careful reader of a comparison should know, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from kforge.metrics.problem_results import ProblemResult, any_emulated
from kforge.metrics.records import PairedDifference, ProblemPair
from kforge.types import Trial, Verdict

FEWEST_PAIRS = 3
"""With fewer pairs no interval is worth giving."""
_FEW_VALUES = 6
"""With fewer values, intervals of a mean were found too short (docs/metrics.md)."""
_SOME = 3
"""How many names are given before the rest is only counted."""


def text_caveats(keys: Sequence[str]) -> list[str]:
    """A caveat about problems that have one key and different texts."""
    if not keys:
        return []
    return [f"{_first_names(keys)}: not the same text on both sides, so not compared."]


def question_caveats(
    both: Mapping[str, tuple[ProblemResult, ProblemResult]],
    differences: Sequence[PairedDifference],
    names: tuple[str, str],
) -> list[str]:
    """Caveats about questions that could not be asked, and about what the others take for granted."""
    if len(both) < FEWEST_PAIRS:
        counted = f"{len(both)} problems count" if len(both) != 1 else "1 problem counts"
        return [f"{counted} on both sides: too few to compare, an interval takes {FEWEST_PAIRS}."]
    questions = {item.question for item in differences}
    notes = []
    if "speedup vs eager" not in questions:
        notes.append(_untimed_note(both, "fall-back vs eager" in questions, names))
    elif "speedup vs best" not in questions:
        notes.append(f"Nothing is said of the best baseline: fewer than {FEWEST_PAIRS} problems have it on both sides.")
    if "fall-back vs eager" in questions:
        notes += _fallback_notes(both, names)
    return notes


def _untimed_note(both: Mapping[str, tuple[ProblemResult, ProblemResult]], kept: bool, names: tuple[str, str]) -> str:
    """Why speed is not compared problem by problem; `kept`: with fall-back it is."""
    timed = [sum("eager" in pair[side].logs for pair in both.values()) for side in (0, 1)]
    common = sum("eager" in a.logs and "eager" in b.logs for a, b in both.values())
    if not any(timed):
        return "Nothing was timed on either side: only correctness is compared."
    if not all(timed):
        name = names[timed.index(0)]
        if kept:
            return f"No program of {name} is correct: with fall-back it keeps the baseline on every problem."
        return f"One side was not timed ({name}): only correctness is compared."
    problems = "problem was" if common == 1 else "problems were"
    return f"{common} {problems} correct and timed on both sides: too few to compare speed there, only with fall-back."


def _fallback_notes(both: Mapping[str, tuple[ProblemResult, ProblemResult]], names: tuple[str, str]) -> list[str]:
    notes = []
    for side, name in enumerate(names):
        number = sum(pair[side].correct > 0 and "eager" not in pair[side].logs for pair in both.values())
        if number:
            problems = "1 problem is" if number == 1 else f"{number} problems are"
            notes.append(f"{problems} correct for {name} and not timed: with fall-back the baseline is kept there.")
    return notes


def same_program_caveats(pairs: Sequence[ProblemPair]) -> list[str]:
    """Problems on which both sides have the same program, so that their speeds differ by chance alone."""
    same = [pair.problem for pair in pairs if pair.same_program]
    timed = [pair for pair in pairs if pair.ratio is not None]
    if not same:
        return []
    if timed and all(pair.same_program for pair in timed):
        return ["Both sides have the same program wherever both were timed: there is no difference in speed to find."]
    problems = "1 problem" if len(same) == 1 else f"{len(same)} problems"
    return [
        f"Both sides have the same program on {problems} ({_first_names(same)}): a tie, however its two measurements "
        "differ."
    ]


def difference_caveats(differences: Sequence[PairedDifference], questions: int) -> list[str]:
    """Caveats about figures that carry less than they seem to."""
    least = math.floor(math.log2(2 * questions / 0.05)) + 1
    count_text = "1 question" if questions == 1 else f"{questions} questions at once"
    flat = [item for item in differences if item.question != "correct" and item.low == item.high]
    idle = [item for item in flat if item.question == "fall-back vs eager" and item.a == item.b == 1.0]
    measured = [item for item in flat if item.same_program < item.pairs]
    few = [item for item in differences if item not in flat and item.wins + item.losses < least]
    thin = [item for item in few if item.question != "correct" and item.wins + item.losses < _FEW_VALUES]
    notes = [
        f"The ratio is exactly {item.effect:.4g} on every problem ({item.question}), which measurements hardly are: "
        "without a spread there is no interval, and nothing is shown."
        for item in measured
        if item not in idle
    ]
    if idle:
        notes.append("No program of either side beats the baseline: with fall-back there is nothing to compare.")
    if few:
        tally = ", ".join(f"{item.wins + item.losses} ({item.question})" for item in few)
        notes.append(
            f"The sign test of {count_text} takes {least} problems that differ to show anything; here {tally}."
        )
    if thin:
        tally = ", ".join(item.question for item in thin)
        notes.append(f"With fewer than {_FEW_VALUES} problems that differ an interval may be too short: {tally}.")
    return notes


def circumstance_caveats(a: Sequence[Trial], b: Sequence[Trial], names: tuple[str, str]) -> list[str]:
    """Caveats about what else differs between the sides."""
    notes = []
    for what, read in _CIRCUMSTANCES.items():
        values = [sorted({word for trial in side if (word := read(trial))}) for side in (a, b)]
        if values[0] and values[1] and values[0] != values[1]:
            notes.append(
                f"Different {what}: {names[0]} {_first_names(values[0])}; {names[1]} {_first_names(values[1])}."
            )
    if any_emulated((*a, *b)):
        notes.append("Programs were verified in emulation, where nothing is timed.")
    for side, name in zip((a, b), names, strict=True):
        judged = [(trial.cell.problem, trial.verdict) for trial in side if trial.verdict is not None]
        contended = [_contended(problem, verdict) for problem, verdict in judged if verdict.contended]
        if contended:
            what = "Timed while others used the machine (contended), so not sure"
            notes.append(f"{what}: {len(contended)} of {name} ({_first_names(contended)}).")
    return notes


def _contended(problem: str, verdict: Verdict) -> str:
    """A problem that was timed beside others' work, with the workloads that were, where it has several."""
    workloads = verdict.contended_workloads
    return f"{problem} on {', '.join(workloads)}" if workloads else problem


def _machine(trial: Trial) -> str:
    evidence = trial.verdict.evidence if trial.verdict else None
    device = evidence.device if evidence else {}
    cores = f", {device['cores']} cores" if "cores" in device else ""
    return device.get("processor", "") + cores


def _torch(trial: Trial) -> str:
    evidence = trial.verdict.evidence if trial.verdict else None
    return evidence.versions.get("torch", "") if evidence else ""


def _baseline(trial: Trial) -> str:
    return trial.verdict.timing.baseline if trial.verdict and trial.verdict.timing else ""


def _measurement(trial: Trial) -> str:
    """How the winner was measured. The best of several measurements is a lucky one; a single one was not chosen."""
    timed = {attempt.candidate.id for attempt in trial.history if attempt.candidate and attempt.speedup is not None}
    if len(timed) < 2:
        return ""
    return "judged once more" if trial.confirmation else "as first measured"


_CIRCUMSTANCES: dict[str, Callable[[Trial], str]] = {
    "platforms": lambda trial: trial.cell.platform,
    "machines": _machine,
    "versions of torch": _torch,
    "baselines beside the program": _baseline,
    "measurements of winners": _measurement,
    "seeds": lambda trial: str(trial.cell.seed),
}


def _first_names(names: Sequence[str]) -> str:
    rest = len(names) - _SOME
    return ", ".join(names[:_SOME]) + (f" and {rest} more" if rest > 0 else "")
