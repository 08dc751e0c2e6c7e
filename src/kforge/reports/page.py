"""A report as one page: it opens anywhere, loads nothing, and runs no script but its own.

Whatever a model, a program or a problem's author wrote is escaped here, or put in by textContent in script.js; the
page's policy lets nothing else run.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from kforge.metrics.comparison_text import comparison_sentences
from kforge.reports import number_format, pictures, problem_table, summary_lines
from kforge.reports.charts.paired import paired_chart
from kforge.reports.circumstances import Fact, circumstances, moment
from kforge.reports.configurations import DEFAULTS, configuration_texts
from kforge.reports.cost_rows import COST_NOTE, cost_table
from kforge.reports.details import pack_all
from kforge.reports.findings import StudyFindings
from kforge.reports.iteration_rows import ITERATION_NOTE, iteration_table
from kforge.reports.left_out import find_omissions
from kforge.visible_text import visible

TEMPLATE = Path(__file__).parent / "template"
_SECTIONS = {
    "omissions": ("left-out", "Left out"),
    "curves": ("fast", "fast_p"),
    "stacks": ("states", "Correctness"),
    "spreads": ("speedups", "Speedups"),
    "costs": ("cost", "Cost"),
    "iteration_lines": ("reached", "After so many programs"),
    "comparisons": ("comparisons", "Comparisons"),
}


def page(findings: StudyFindings) -> str:
    """The whole file."""
    style, script = (_template_file(name) for name in ("style.css", "script.js"))
    parts = _parts(findings)
    contents = [place for name, place in _SECTIONS.items() if parts[name]]
    return (
        _environment()
        .get_template("page.html")
        .render(
            findings=findings,
            study=findings.study,
            policy=_policy(style, script),
            style=Markup(style),
            script=Markup(script),
            contents=[*contents, ("problems", "Problems")],
            **parts,
        )
    )


def _parts(findings: StudyFindings) -> dict[str, Any]:
    curves, costs = pictures.curves(findings), pictures.costs(findings)
    cost_heads, cost_lines = cost_table(findings)
    iteration_heads, iteration_lines = iteration_table(findings)
    return {
        "where": circumstances(findings.study),
        "made": moment(findings.made),
        "ways": configuration_texts(findings),
        "defaults": DEFAULTS,
        "lead": summary_lines.lead(findings),
        "warnings": summary_lines.warnings(findings),
        **summary_lines.columns(findings),
        "states": number_format.STATES,
        "omissions": find_omissions(findings),
        "curves": curves,
        "both_baselines": len({figure.kind for figure in curves}) > 1,
        "stacks": pictures.stacks(findings),
        "iteration_note": ITERATION_NOTE,
        "iteration_heads": iteration_heads,
        "iteration_lines": iteration_lines,
        "spreads": pictures.spreads(findings),
        "costs": costs,
        "cost_note": COST_NOTE,
        "cost_heads": cost_heads,
        "cost_lines": cost_lines,
        "cost_kinds": [(name, name) for name in dict.fromkeys(figure.kind for figure in costs)],
        "comparisons": [
            {"comparison": comparison, "words": comparison_sentences(comparison), "drawing": paired_chart(comparison)}
            for comparison in findings.comparisons
        ],
        "columns": problem_table.columns(findings),
        "rows": problem_table.rows(findings),
        "confirmation_note": problem_table.confirmation_note(findings),
        "filters": problem_table.filters(findings),
        "details": pack_all(findings.study),
    }


def _template_file(name: str) -> str:
    return (TEMPLATE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """The page's content policy: nothing from anywhere; of what is in the file, only these two."""
    marks = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{marks[0]}'; script-src 'sha256-{marks[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(TEMPLATE)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    for name in ("amount", "money", "percent", "seconds", "share", "state"):
        environment.filters[name] = getattr(number_format, name)
    environment.filters["value_of"] = _value_of
    return environment


def _visible(value: Any) -> Any:
    """A value with text of others made visible, so that nothing in it can hide or turn round; markup is our own."""
    return visible(value) if type(value) is str else value


def _value_of(facts: tuple[Fact, ...], name: str) -> str:
    return next((fact.value for fact in facts if fact.name == name), number_format.NONE)
