"""The table of every problem: a row for each trial, in the study's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from kforge.metrics.second_judgement import SecondJudgement, second_judgement
from kforge.reports import number_format
from kforge.reports.findings import StudyFindings
from kforge.reports.trial_rows import TrialRow, row

Column = tuple[str, str, bool]
"""A column's id, its head, and whether it holds numbers."""


@dataclass(frozen=True)
class TableCell:
    """What stands in one place, and what it is sorted by."""

    text: str = ""
    range: str = ""
    """The value's interval."""
    value: float | None = None
    number: bool = False
    chip: bool = False
    """Whether the cell shows the state."""
    marks: tuple[str, ...] = ()
    unsure: bool = False
    """Whether the cell shows a speedup that may be none."""


@dataclass(frozen=True)
class TrialLine:
    """One trial."""

    fact: TrialRow
    link: str
    state: str
    """The name that the filter by state knows."""
    remark: str
    """What a reader should know of the trial."""
    cells: tuple[TableCell, ...]


def columns(findings: StudyFindings) -> list[Column]:
    """The columns that have something to say."""
    return [column for column, _ in _columns(findings)]


def rows(findings: StudyFindings) -> list[TrialLine]:
    """A line for each trial."""
    makers = [maker for _, maker in _columns(findings)]
    seen: Counter[str] = Counter()
    lines = []
    for trial in findings.study.trials:
        fact = row(trial)
        at = seen[fact.problem]
        seen[fact.problem] += 1
        link = f"#problem={quote(fact.problem, errors='replace')}" + (f"&at={at}" if at else "")
        waiting = "" if fact.state == "finished" else fact.state
        remark = f"{waiting}: {fact.reason}" if waiting and fact.reason else waiting
        remark = remark or (f"degenerate: {fact.degenerate}" if fact.degenerate else "")
        lines.append(TrialLine(fact, link, fact.outcome or "none", remark, tuple(maker(fact) for maker in makers)))
    return lines


def confirmation_note(findings: StudyFindings) -> str:
    """Which figures are of a second measurement; empty where no winner was judged once more."""
    judged = [(trial.cell.problem, second_judgement(trial)) for trial in findings.study.trials]
    twice = [(problem, both) for problem, both in judged if both is not None]
    if not twice:
        return ""
    winners = "1 winner was" if len(twice) == 1 else f"{len(twice)} winners were"
    return (
        f"{winners} judged once more, on fresh inputs: the figures are of that confirmation. `kforge show RUN` has it, "
        f"and what was measured first.{_agreement(twice)}"
    )


def _agreement(twice: list[tuple[str, SecondJudgement]]) -> str:
    """How many winners were judged on two devices, and which of the measurements do not agree."""
    elsewhere = sum(both.is_elsewhere for _, both in twice)
    compared = [(problem, both.agrees) for problem, both in twice if both.agrees is not None]
    words = f" {elsewhere} of them on another device than the first time." if elsewhere else ""
    if compared:
        differ = [problem for problem, agrees in compared if not agrees]
        words += f" Both measurements agree for {len(compared) - len(differ)} of {len(compared)}"
        words += f", and do not for {', '.join(differ)}." if differ else "."
    return words


def filters(findings: StudyFindings) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Each filter's id, label and choices; no filter where there is nothing to choose."""
    facts = [row(trial) for trial in findings.study.trials]
    levels = sorted({fact.level for fact in facts if fact.level is not None})
    outcomes = {fact.outcome for fact in facts}
    states = [(name, number_format.state(name)) for name in number_format.STATES if name in outcomes]
    choices = [
        ("filter-level", "Level", [(str(level), str(level)) for level in levels]),
        ("filter-state", "State", [*states, *([("none", "no program")] if "" in outcomes else [])]),
        ("filter-configuration", "Configuration", _choices(fact.configuration for fact in facts)),
        ("filter-platform", "Platform", _choices(fact.platform for fact in facts)),
    ]
    return [choice for choice in choices if len(choice[2]) > 1]


def _columns(findings: StudyFindings) -> list[tuple[Column, Callable[[TrialRow], TableCell]]]:
    facts = [row(trial) for trial in findings.study.trials]
    baselines = {fact.baseline for fact in facts if fact.baseline}
    against = f"against {baselines.pop()}" if len(baselines) == 1 else "speedup"
    every: list[tuple[bool, Column, Callable[[TrialRow], TableCell]]] = [
        (True, ("problem", "problem", False), lambda fact: TableCell(fact.problem)),
        (
            len({fact.platform for fact in facts}) > 1,
            ("platform", "platform", False),
            lambda fact: TableCell(fact.platform),
        ),
        (True, ("configuration", "configuration", False), lambda fact: TableCell(fact.configuration)),
        (len({fact.seed for fact in facts}) > 1, ("seed", "seed", True), lambda fact: _count(fact.seed)),
        (True, ("state", "state", False), lambda fact: TableCell(chip=True, marks=_marks(fact))),
        (any(fact.speedup for fact in facts), ("speedup", against, True), _speedup),
        (any(fact.vs_best for fact in facts), ("best", "against best", True), lambda fact: _times(fact.vs_best)),
        (any(fact.score is not None for fact in facts), ("score", "score", True), lambda fact: _times(fact.score)),
        (any(fact.custom_share is not None for fact in facts), ("own", "own code", True), _own_code),
        (True, ("programs", "programs", True), lambda fact: _count(fact.attempts)),
        (any(fact.tokens for fact in facts), ("tokens", "tokens", True), _tokens),
        (any(fact.dollars for fact in facts), ("dollars", "dollars", True), _dollars),
        (
            True,
            ("time", "time", True),
            lambda fact: TableCell(number_format.seconds(fact.seconds), value=round(fact.seconds, 1), number=True),
        ),
    ]
    return [(column, maker) for needed, column, maker in every if needed]


def _marks(fact: TrialRow) -> tuple[str, ...]:
    marks = {"emulated": fact.emulated, "degenerate": bool(fact.degenerate), "not confirmed": fact.confirmed is False}
    marks["contended"] = bool(fact.contended)
    return tuple(name for name, holds in marks.items() if holds)


def _speedup(fact: TrialRow) -> TableCell:
    if fact.speedup is None:
        return TableCell(number_format.NONE, number=True)
    ends = f"{number_format.times(fact.low)}–{number_format.times(fact.high)}"
    return TableCell(number_format.times(fact.speedup), ends, round(fact.speedup, 4), True, unsure=fact.unsure)


def _times(value: float | None) -> TableCell:
    return TableCell(number_format.times(value), value=None if value is None else round(value, 4), number=True)


def _own_code(fact: TrialRow) -> TableCell:
    value = fact.custom_share
    return TableCell(number_format.percent(value), value=None if value is None else round(value, 3), number=True)


def _tokens(fact: TrialRow) -> TableCell:
    return TableCell(number_format.amount(fact.tokens), value=fact.tokens, number=True)


def _dollars(fact: TrialRow) -> TableCell:
    return TableCell(
        number_format.money(fact.dollars), value=None if fact.dollars is None else round(fact.dollars, 5), number=True
    )


def _count(value: int) -> TableCell:
    return TableCell(str(value), value=value, number=True)


def _choices(values: Iterable[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in dict.fromkeys(values)]
