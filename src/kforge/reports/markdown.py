"""A report as Markdown: tables that read well on a code host. What others wrote cannot break out of its cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kforge.metrics.comparison_text import comparison_sentences
from kforge.metrics.records import AGAINST, Against
from kforge.reports import number_format, problem_table, summary_lines
from kforge.reports.circumstances import circumstances, moment
from kforge.reports.configurations import DEFAULTS, configuration_texts
from kforge.reports.cost_rows import COST_NOTE, cost_table
from kforge.reports.findings import StudyFindings, any_timed
from kforge.reports.iteration_rows import ITERATION_NOTE, iteration_table
from kforge.reports.left_out import find_omissions, group_name
from kforge.reports.workload_rows import HEADS, workload_rows
from kforge.visible_text import visible

PS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values of p at which fast_p is given."""
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~$&!]|(?<![^\W_])_|_(?![^\W_]))")
"""An underscore within a word means nothing to Markdown."""
_BASELINES: dict[Against, str] = {"eager": "eager PyTorch", "best": "the fastest baseline"}


def markdown(findings: StudyFindings) -> str:
    """The whole text."""
    parts = [
        [f"# {plain(findings.study.name)}", "", plain(summary_lines.lead(findings))],
        [line for warning in summary_lines.warnings(findings) for line in ("", f"> {plain(warning)}")][1:],
        _configurations(findings),
        _summary(findings),
        *(_fast(findings, against) for against in AGAINST),
        _states(findings),
        _iterations(findings),
        _comparisons(findings),
        _left_out(findings),
        _problems(findings),
        _workloads(findings),
        _costs(findings),
        _circumstances(findings),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def plain(text: str) -> str:
    """A text as it is, on one line, whatever signs are in it."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1) -> list[str]:
    """A table; columns after the first `text_columns` hold numbers. Cells are escaped here."""
    marks = ["---" if place < text_columns else "---:" for place in range(len(heads))]
    return [f"| {' | '.join(cells)} |" for cells in (heads, marks, *([plain(cell) for cell in row] for row in rows))]


def _configurations(findings: StudyFindings) -> list[str]:
    rows = [
        [way.name, ", ".join(way.models), ", ".join(way.options) or DEFAULTS] for way in configuration_texts(findings)
    ]
    return ["## Configurations", "", *table(["configuration", "models", "options"], rows, 3)] if rows else []


def _summary(findings: StudyFindings) -> list[str]:
    heads = ["configuration", "problems", "correct", "mean vs eager", "with fall-back", "mean vs best"]
    scored = any(summary.scored for summary in findings.summaries)
    heads += ["score"] if scored else []
    heads += ["dollars", "tokens", "time", "own code", "roofline"]
    rows = [
        [
            group_name(findings, summary.platform, summary.configuration) + (" (emulated)" if summary.emulated else ""),
            str(len(summary.problems)),
            number_format.share(summary.correct),
            number_format.mean(summary.mean_correct.get("eager")),
            number_format.mean(summary.mean_fallback.get("eager")),
            number_format.mean(summary.mean_correct.get("best")),
            *([number_format.score(summary.score)] if scored else []),
            number_format.money(summary.dollars_per_correct),
            number_format.amount(summary.tokens_per_correct),
            number_format.seconds(summary.seconds_per_correct),
            number_format.percent(summary.custom_share),
            number_format.percent(summary.roofline_share),
        ]
        for summary in findings.summaries
    ]
    explanation = (
        "In brackets 95 % intervals. Mean: geometric, of the speedups of correct programs; with fall-back: over all "
        "problems, for who keeps the baseline wherever the program is wrong or slower. Dollars, tokens and time are "
        "for each correct program, everything tried included."
    )
    if scored:
        explanation += (
            " Score: mean over problems of how near programs come to the least time the machine allows: 1 at that "
            "limit, 0.5 where eager is, 0 where the program is wrong."
        )
    return ["## Summary", "", *table(heads, rows), "", explanation]


def _fast(findings: StudyFindings, against: Against) -> list[str]:
    if not any_timed(findings.summaries, against):
        return []
    rows = [
        [
            group_name(findings, summary.platform, summary.configuration),
            *(number_format.share(summary_lines.fast(findings, summary, p, against)) for p in PS),
        ]
        for summary in findings.summaries
        if summary.fast.get(against)
    ]
    explanation = (
        "The share of problems that are correct and more than p times faster; for p = 0 it is enough to be correct."
    )
    heads = ["configuration", *(f"p = {p:g}" for p in PS)]
    return [f"## fast\\_p against {_BASELINES[against]}", "", explanation, "", *table(heads, rows)]


def _states(findings: StudyFindings) -> list[str]:
    summaries = [summary for summary in findings.summaries if summary.outcomes]
    if not summaries:
        return []
    ended = table(
        ["configuration", *map(number_format.state, number_format.STATES)],
        (
            [
                group_name(findings, summary.platform, summary.configuration),
                *(str(summary.outcomes.get(state, 0)) for state in number_format.STATES),
            ]
            for summary in summaries
        ),
    )
    longest = max(len(summary.iterations) for summary in summaries)
    reached = table(
        ["configuration", *(str(number) for number in range(1, longest + 1))],
        (
            [
                group_name(findings, summary.platform, summary.configuration),
                *(number_format.percent(step.reached.get("correct", 0.0)) for step in summary.iterations),
                *[number_format.NONE] * (longest - len(summary.iterations)),
            ]
            for summary in summaries
        ),
    )
    after = ["", "Share of chains with a correct program, after so many programs:", "", *reached] if longest else []
    return ["## Correctness", "", "Trials that count, by the state they ended in:", "", *ended, *after]


def _iterations(findings: StudyFindings) -> list[str]:
    heads, rows = iteration_table(findings)
    return ["## After so many programs", "", ITERATION_NOTE, "", *table(heads, rows, 2)] if rows else []


def _comparisons(findings: StudyFindings) -> list[str]:
    lines = ["## Comparisons"] if findings.comparisons else []
    for comparison in findings.comparisons:
        lines += ["", f"### {plain(comparison.b)} against {plain(comparison.a)}", ""]
        lines += [f"- {plain(sentence)}" for sentence in comparison_sentences(comparison)]
    return lines


def _left_out(findings: StudyFindings) -> list[str]:
    lines = []
    for omission in find_omissions(findings):
        lines += ["", f"**{omission.problems} {omission.kind}**: {omission.words}.", ""]
        for reason in omission.reasons:
            where = f" ({', '.join(reason.where)})" if reason.where else ""
            lines.append(f"- {plain(reason.why + where)}: {plain(', '.join(reason.problems))}")
    return ["## Left out and set apart", *lines] if lines else []


def _problems(findings: StudyFindings) -> list[str]:
    columns = problem_table.columns(findings)
    rows = []
    for line in problem_table.rows(findings):
        cells = [
            " ".join((number_format.state(line.fact.outcome) or "no program", *(f"({mark})" for mark in cell.marks)))
            if cell.chip
            else f"{cell.text} ({cell.range}{', not sure' if cell.unsure else ''})"
            if cell.range
            else cell.text
            for cell in line.cells
        ]
        rows.append([f"{cells[0]}: {line.remark}" if line.remark else cells[0], *cells[1:]])
    text_columns = sum(not numeric for _, _, numeric in columns)
    note = problem_table.confirmation_note(findings)
    above = [note, ""] if note else []
    return ["## Problems", "", *above, *table([name for _, name, _ in columns], rows, text_columns)] if rows else []


def _workloads(findings: StudyFindings) -> list[str]:
    rows = [
        [trial.cell.problem, group_name(findings, trial.cell.platform, trial.cell.configuration), *cells]
        for trial in findings.study.trials
        for cells in workload_rows(trial.verdict)
    ]
    if not rows:
        return []
    explanation = "A problem's speedup above is the geometric mean over its workloads, by weight; it counts once."
    return ["## Workloads", "", explanation, "", *table(["problem", "configuration", *HEADS], rows, 3)]


def _costs(findings: StudyFindings) -> list[str]:
    heads, rows = cost_table(findings)
    return ["## What it cost", "", COST_NOTE, "", *table(heads, rows, 2)] if rows else []


def _circumstances(findings: StudyFindings) -> list[str]:
    where = circumstances(findings.study)
    lines = ["## Machine and versions", ""]
    lines += [f"- {plain(fact.name)}: {plain(fact.value)}" for fact in where.shared]
    for sat in where.sessions:
        own = "".join(f", {plain(fact.name)} {plain(fact.value)}" for fact in sat.own)
        command = f", command: {plain(sat.command)}" if sat.command else ""
        lines.append(f"- session {sat.number}: {sat.began}, {number_format.several(sat.trials, 'trial')}{own}{command}")
    version = f" at {plain(findings.study.suite_version)}" if findings.study.suite_version else ""
    suite = [f"- suite: {plain(findings.study.suite)}{version}"] if findings.study.suite else []
    return [*lines, *suite, f"- report made {moment(findings.made)} by KForge {plain(findings.version)}"]
