"""The head of a report: what it is about, what to beware of, and the summary table's lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from kforge.metrics.fast import fast_p
from kforge.metrics.problem_results import count
from kforge.metrics.records import AGAINST, Against, Mean, Share, Summary
from kforge.reports import number_format
from kforge.reports.circumstances import circumstances
from kforge.reports.findings import StudyFindings, any_timed
from kforge.reports.left_out import group_name
from kforge.reports.pictures import series
from kforge.reports.trial_rows import row

_BASELINES: dict[Against, str] = {"eager": "eager PyTorch", "best": "the fastest baseline"}


@dataclass(frozen=True)
class Worth:
    """A figure and its interval."""

    value: str
    range: str = ""


@dataclass(frozen=True)
class SummaryLine:
    """One configuration on one platform."""

    summary: Summary
    series: int
    correct: Worth
    cells: tuple[tuple[Worth, ...], ...]
    """For each baseline: fast_1, fast_1.5, mean, mean with fall-back."""
    passes: str
    score: Worth


def lead(findings: StudyFindings) -> str:
    """What was run, in a sentence."""
    study = findings.study
    problems = len({trial.cell.problem for trial in study.trials})
    names = list(dict.fromkeys(summary.configuration for summary in findings.summaries))
    platforms = list(dict.fromkeys(summary.platform for summary in findings.summaries))
    seeds = len({trial.cell.seed for trial in study.trials})
    suite = f" of {study.suite}" if study.suite else ""
    version = f" ({study.suite_version})" if study.suite_version else ""
    ways = number_format.several(len(names), "configuration")
    times = f", each with {seeds} seeds" if seeds > 1 else ""
    what = f"{number_format.several(problems, 'problem')}{suite}{version}"
    return f"{what}, {ways} on {', '.join(platforms) or 'no platform'}{times}."


def warnings(findings: StudyFindings) -> list[str]:
    """What a reader should know before any figure."""
    notes = []
    if not findings.study.trials:
        notes.append("No trial is in this report: nothing was run yet, or the filter left nothing.")
    emulated = [_name(findings, summary) for summary in findings.summaries if summary.emulated]
    if emulated:
        notes.append(
            f"Emulated: {', '.join(emulated)}. Programs were verified on an emulator and not on the hardware they are "
            "for: they have no time and no speedup."
        )
    wrong = [_name(findings, item) for item in findings.summaries if item.correct and not item.correct.value]
    if wrong:
        notes.append(f"No program is correct: {', '.join(wrong)}. The table of problems says what was wrong with each.")
    untimed = [_name(findings, item) for item in findings.summaries if _is_untimed(item)]
    if untimed:
        notes.append(f"Nothing was timed for {', '.join(untimed)}: there is correctness, and no speedup.")
    for notes_of in (_untimed_notes, _unsure_notes):
        notes += [line for summary in findings.summaries for line in notes_of(findings, summary)]
    pending = sum(trial.state not in ("finished", "failed") for trial in findings.study.trials)
    if pending:
        trials = number_format.several(len(findings.study.trials), "trial")
        notes.append(f"Unfinished: {pending} of {trials} not through; the same command goes on with them.")
    notes += _hardware_notes(findings)
    differing = circumstances(findings.study).differing
    if differing:
        notes.append(f"Sessions differ in {', '.join(differing)}: compare figures from different sessions with care.")
    return [*notes, *findings.study.notes]


def _hardware_notes(findings: StudyFindings) -> list[str]:
    """Where programs of one platform were judged on several models of device, as their evidence names them."""
    judged: dict[str, Counter[str]] = {}
    for trial in findings.study.trials:
        verdict = trial.verdict
        if verdict is not None and verdict.evidence is not None and verdict.evidence.hardware:
            judged.setdefault(trial.cell.platform, Counter())[verdict.evidence.hardware] += 1
    return [
        f"Different hardware: of {platform}, "
        + ", ".join(f"{number_format.several(count, 'trial')} on {name}" for name, count in sorted(models.items()))
        + ". Figures over all of them mix these."
        for platform, models in judged.items()
        if len(models) > 1
    ]


def columns(findings: StudyFindings) -> dict[str, Any]:
    """The summary table: its lines, and which columns it needs."""
    used = [against for against in AGAINST if any_timed(findings.summaries, against)]
    numbers = series(findings)
    passes = sorted({k for summary in findings.summaries for k in summary.pass_at if k > 1})
    ks = [1, *passes] if passes else []
    return {
        "lines": [
            SummaryLine(
                summary,
                numbers[summary.configuration],
                _worth(summary.correct),
                tuple(_cells(findings, summary, against) for against in used),
                ", ".join(number_format.percent(summary.pass_at.get(k)) for k in ks),
                _score(summary.score),
            )
            for summary in findings.summaries
        ],
        "baselines": [_BASELINES[against] for against in used],
        "several": len({summary.platform for summary in findings.summaries}) > 1,
        "priced": any(summary.dollars_per_correct for summary in findings.summaries),
        "roofed": any(summary.roofline_of for summary in findings.summaries),
        "scored": any(summary.scored for summary in findings.summaries),
        "passes": ks,
    }


def fast(findings: StudyFindings, summary: Summary, p: float, against: Against) -> Share | None:
    """fast_p at exactly p; None where speeds are not known."""
    if not summary.fast.get(against):
        return None
    return fast_p(findings.study.groups()[summary.platform, summary.configuration], p, against)


def _cells(findings: StudyFindings, summary: Summary, against: Against) -> tuple[Worth, ...]:
    return (
        _worth(fast(findings, summary, 1.0, against)),
        _worth(fast(findings, summary, 1.5, against)),
        _worth(summary.mean_correct.get(against)),
        _worth(summary.mean_fallback.get(against)),
    )


def _worth(figure: Share | Mean | None) -> Worth:
    if figure is None:
        return Worth(number_format.NONE)
    if isinstance(figure, Share):
        return Worth(number_format.percent(figure.value), f"{100 * figure.low:.0f}–{100 * figure.high:.0f}")
    # The interval of a mean says how it varies over problems: one does not vary, nor do many with one value.
    ends = f"{number_format.times(figure.low)}–{number_format.times(figure.high)}" if figure.low < figure.high else ""
    return Worth(number_format.times(figure.value), ends)


def _score(mean: Share | None) -> Worth:
    if mean is None:
        return Worth(number_format.NONE)
    return Worth(number_format.times(mean.value), f"{mean.low:.2f}–{mean.high:.2f}")


def _is_untimed(summary: Summary) -> bool:
    correct = summary.correct is not None and summary.correct.value > 0
    return correct and not summary.timed and not summary.emulated


def _untimed_notes(findings: StudyFindings, summary: Summary) -> list[str]:
    """Baselines that some correct programs were timed against and others not; those with one number together."""
    missing: dict[int, list[str]] = {}
    for against, name in _BASELINES.items():
        if summary.untimed.get(against) and against in summary.mean_correct:
            missing.setdefault(summary.untimed[against], []).append(name)
    notes = []
    for number, names in missing.items():
        programs = f"{number_format.several(number, 'correct program')} without a time against {' and '.join(names)}"
        slow = "it counts as slow, and the mean leaves it out"
        if number > 1:
            slow = "they count as slow, and the mean leaves them out"
        notes.append(f"{_name(findings, summary)}: {programs}; above p = 0 {slow}.")
    return notes


def _unsure_notes(findings: StudyFindings, summary: Summary) -> list[str]:
    """Programs that fast_1 counts though noise alone could have made them faster."""
    trials = count(findings.study.groups()[summary.platform, summary.configuration]).trials
    faster = [fact for fact in map(row, trials) if fact.outcome == "correct" and (fact.speedup or 0) > 1]
    notes = []
    for baseline in dict.fromkeys(fact.baseline for fact in faster):
        unsure = [fact.unsure for fact in faster if fact.baseline == baseline]
        if any(unsure):
            of = f"{sum(unsure)} of {number_format.several(len(unsure), 'program')} counted as faster than {baseline}"
            has = "has an interval that contains 1: it may be no faster"
            if sum(unsure) > 1:
                has = "have an interval that contains 1: they may be no faster"
            notes.append(f"{_name(findings, summary)}: {of} {has} (not sure, in the table of problems).")
    return notes


def _name(findings: StudyFindings, summary: Summary) -> str:
    return group_name(findings, summary.platform, summary.configuration)
