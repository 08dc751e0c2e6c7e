"""A row for each trial, for spreadsheets and further arithmetic."""

from __future__ import annotations

import csv
import io
from dataclasses import fields

from kforge.reports.findings import StudyFindings
from kforge.reports.trial_rows import TrialRow, row
from kforge.visible_text import visible

COLUMNS = ("experiment", "suite", "suite_version", *(item.name for item in fields(TrialRow)))
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(findings: StudyFindings) -> str:
    """The rows as RFC 4180 has it, with a header line; an empty cell is a figure that is not known."""
    study, out = findings.study, io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for trial in study.trials:
        facts = row(trial)
        values = (study.name, study.suite, study.suite_version, *(getattr(facts, item.name) for item in fields(facts)))
        writer.writerow([_cell(value) for value in values])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    # A spreadsheet would run it as a formula.
    formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{visible(str(value))}" if formula else visible(str(value))
