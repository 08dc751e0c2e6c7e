"""Report files: one for each job, `ID.json`, and whether such a file answers a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kforge import jsonable
from kforge.errors import WireError
from kforge.profilers._names import plain_name
from kforge.types import Job, Profile, Report


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
    return check_report(data, job, str(path))


def check_report(data: Any, job: Job, name: str) -> Report:
    """The report in a JSON value; WireError, with what it is called, where it does not answer this very job."""
    try:
        report = jsonable.decode(Report, data)
    except WireError as error:
        raise WireError(f"{name} is damaged, or of another version of KForge: {error}") from None
    reason = _mismatch(report, job)
    if reason:
        raise WireError(f"{name} does not answer the job: {reason}")
    return _without_more(report, job)


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
    if job.is_profiled(report.verdict):
        made = _profiles_by_name(report)
        missing = [name for name in settings.profilers if plain_name(name) not in made]
        if missing:
            return f"the program was judged for one that did not need its profile by {missing[0]}"
    return ""


def _profiles_by_name(report: Report) -> dict[str, Profile]:
    """The profiles by what they were asked for as, of which there is one for each name, in that order."""
    evidence = report.verdict.evidence
    asked = dict.fromkeys(evidence.settings.profilers) if evidence is not None else {}
    return {plain_name(name): profile for name, profile in zip(asked, report.profiles, strict=False)}


def _without_more(report: Report, job: Job) -> Report:
    """The report without profiles that the job does not ask for, and without what they took."""
    evidence = report.verdict.evidence
    if evidence is None or evidence.settings.profilers == job.settings.profilers:
        return report
    made = _profiles_by_name(report)
    wanted = [plain_name(name) for name in dict.fromkeys(job.settings.profilers)]
    profiles = tuple(made[name] for name in wanted if name in made)
    verdict = replace(
        report.verdict,
        evidence=replace(evidence, settings=replace(evidence.settings, profilers=job.settings.profilers)),
    )
    others = {profile.tool for name, profile in made.items() if name not in wanted}
    seconds = {name: value for name, value in report.seconds.items() if name not in others}
    if not profiles and seconds:
        seconds["device"] = seconds.get("device", 0.0) - seconds.pop("device for profiles", 0.0)
        seconds["profiles"] = 0.0
    return replace(report, verdict=verdict, profiles=profiles, seconds=seconds)
