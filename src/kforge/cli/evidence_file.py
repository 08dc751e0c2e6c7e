"""Evidence records as files: written by evaluate, export and the demos, read by `kforge evaluate --replay`.

A live module lies beside its record, in a file that its hash names: records of one module share it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kforge import jsonable, live_module
from kforge.errors import UsageError, WireError
from kforge.types import Evidence, Problem, Report
from kforge.whole_file import write_for_user
from kforge.worker.bundle_folder import PYTHON

_PROBLEM_ID = "problem_id"
"""In records that leave the problem's text out: which text it is."""


def save_evidence(path: Path, report: Report, with_problem: bool = True) -> None:
    """Write a record whole or not at all; UsageError where it cannot be written. Without the problem's text, whoever
    replays it has to bring it along.
    """
    evidence = report.verdict.evidence
    more: dict[str, str] = {}
    if evidence is not None and not with_problem:
        more = {_PROBLEM_ID: evidence.problem.id}
        evidence = replace(evidence, problem=replace(evidence.problem, source="", path=""))
        report = replace(report, verdict=replace(report.verdict, evidence=evidence))
    if evidence is not None and evidence.problem.payload:
        evidence = replace(evidence, problem=_copy_module(path, evidence.problem))
        report = replace(report, verdict=replace(report.verdict, evidence=evidence))
    record = {"kforge_evidence": Evidence.version, **more, **jsonable.encode(report)}
    write_for_user(path, json.dumps(record, indent=1))


def load_evidence(path: Path, problem: Problem | None = None) -> Report:
    """The report of a record; `problem` is needed where its text was left out. UsageError says what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path}: not JSON") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not an evidence record")
    version = data.pop("kforge_evidence", Evidence.version)
    if version != Evidence.version:
        raise UsageError(
            f"{path}: an evidence record of version {version}; this KForge reads version {Evidence.version}"
        )
    wanted = data.pop(_PROBLEM_ID, None)
    try:
        report = jsonable.decode(Report, data)
    except WireError as error:
        raise UsageError(f"{path}: not an evidence record: {error}") from None
    evidence = report.verdict.evidence
    if evidence is not None and wanted is not None:
        evidence = replace(evidence, problem=_with_text(path, evidence.problem, str(wanted), problem))
        report = replace(report, verdict=replace(report.verdict, evidence=evidence))
    if evidence is None or not evidence.problem.payload:
        return report
    evidence = replace(evidence, problem=_find_module(path, evidence))
    return replace(report, verdict=replace(report.verdict, evidence=evidence))


def _with_text(record: Path, problem: Problem, wanted: str, given: Problem | None) -> Problem:
    """The record's problem with the text of the one that was given, if that is the very one."""
    name = problem.key
    if given is None:
        raise UsageError(
            f"{record}: the text of its problem {name} was left out: kforge evaluate PROBLEM.py --replay {record}"
        )
    whole = replace(problem, source=given.source, path=given.path)
    if whole.id != wanted:
        raise UsageError(f"{record}: {given.path or given.name} is another problem than its {name}, or another version")
    return whole


def _copy_module(record: Path, problem: Problem) -> Problem:
    """The problem with its live module copied beside the record."""
    name = live_module.file_name(problem.payload_hash)
    target = record.parent / name
    if not target.exists():
        write_for_user(target, live_module.read(problem.payload, problem.payload_hash))
    return replace(problem, payload=name)


def _find_module(record: Path, evidence: Evidence) -> Problem:
    """The problem with the file that lies beside the record; UsageError says what keeps it from being loaded."""
    problem = evidence.problem
    # Records of older versions name the file where it was captured.
    place = record.parent.absolute() / problem.payload
    if not place.is_file():
        raise UsageError(f"{record}: its live module is not beside it: copy {place.name} to {place.parent}")
    python = ".".join(evidence.versions.get("python", "").split(".")[:2])
    if python not in ("", PYTHON):
        raise UsageError(f"{record}: a live module of Python {python}, and this is {PYTHON}: replay it with that one")
    return replace(problem, payload=str(place))
