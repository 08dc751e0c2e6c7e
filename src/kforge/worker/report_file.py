"""Report files: one for each job, `ID.json`, and whether such a file answers a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kforge import jsonable
from kforge.errors import WireError
from kforge.types import Job, Outcome, Report


def read_report(path: Path, job: Job) -> Report | None:
    """The report in a file, None if there is no file; WireError says why a file is no answer to this very job."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WireError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise WireError(f"{path} is damaged: it is not whole JSON text") from None
    try:
        report = jsonable.decode(Report, data)
    except WireError as error:
        raise WireError(f"{path} is damaged, or of another version of KForge: {error}") from None
    reason = _mismatch(report, job)
    if reason:
        raise WireError(f"{path} does not answer the job: {reason}")
    return report


def _mismatch(report: Report, job: Job) -> str:
    """Where a report is about something else than the job; empty if it answers the job."""
    evidence = report.verdict.evidence
    if report.candidate != job.candidate.id or report.platform != job.candidate.platform:
        return "it is about another program"
    if evidence is None:
        return "it has no evidence"
    if evidence.candidate.id != job.candidate.id:
        return "its evidence is about another program"
    if evidence.problem.id != job.problem.id:
        return "it is about another problem"
    settings = job.settings
    if replace(evidence.settings, seed=settings.seed, profilers=settings.profilers) != settings:
        return "the program was judged with other settings"
    missing = [name for name in settings.profilers if name not in evidence.settings.profilers]
    if missing and report.verdict.outcome is Outcome.CORRECT:
        return f"it was not profiled with {missing[0]}"
    return ""
