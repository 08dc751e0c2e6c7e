"""What crosses the wire: a job as JSON in bytes, and the answer to it. Both sides read the other's as hostile data.

    request   {"format": 2, "kforge": "0.1.0", "python": "3.11", "kind": "judge", "job": {...}}
    answer    {"format": 2, "where": "host", "process": "host/pid/start", "report": {...}}
              {"format": 2, "where": "host", "process": "...", "error": {"kind": "problem", "message": "..."}}

Equal jobs are equal bytes, whoever asks: what only the asker needs (the job's name, where its files lie, which attempt
a program came from) stays with him. A live module's file travels beside the request, as it is.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge import jsonable, live_module
from kforge.errors import HarnessError, KForgeError, PluginAbsent, ProblemError, SandboxUnavailable, WireError
from kforge.types import Candidate, Job, Problem, Report, Settings
from kforge.visible_text import visible
from kforge.worker.bundle_folder import PYTHON
from kforge.worker.report_file import check_report

FORMAT = 2
JUDGE = "judge"
CHECK = "check"
_LARGEST_MESSAGE = 64 << 20
"""In bytes of JSON, which is many times as large when it is read; the file of a live module is none of it."""
_LONGEST_SENTENCE = 4000
_LONGEST_NAME = 80
_ERRORS: dict[str, type[KForgeError]] = {
    "problem": ProblemError,
    "absent": PluginAbsent,
    "sandbox": SandboxUnavailable,
    "harness": HarnessError,
}
"""What a worker may say is at fault -> what the controller raises."""


class OtherVersion(HarnessError):
    """A job of a KForge that this one does not understand."""


@dataclass(frozen=True)
class JobRequest:
    """A job as it travels."""

    message: bytes
    platform: str
    key: str
    """Equal jobs have equal keys."""
    title: str
    """What people call it."""
    problem: str
    """Jobs for one problem have this in common: a judge that knows it has its baselines."""
    live_file: str = ""
    """A live module's file here, by its path; empty for any other problem."""
    live_hash: str = ""

    def read_payload(self) -> bytes:
        """The live module's file, which travels with the message: read when it goes, as many may wait and be large."""
        return live_module.read(self.live_file, self.live_hash) if self.live_file else b""


@dataclass(frozen=True)
class ReceivedJob:
    """A job as a worker reads it."""

    kind: str
    job: Job
    python: str
    """The version it was packed with."""


@functools.cache
def own_version() -> str:
    """KForge's version, as both sides name it."""
    try:
        return importlib.metadata.version("kforge-kernels")
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree"


def judge_request(job: Job) -> JobRequest:
    """The request for a report on a job."""
    return _request(JUDGE, job)


def check_request(problem: Problem, settings: Settings, platform: str) -> JobRequest:
    """The request to run a problem's reference once."""
    return _request(CHECK, Job("check", problem, Candidate("", platform), settings))


def _request(kind: str, job: Job) -> JobRequest:
    problem = job.problem
    candidate = replace(job.candidate, parent=None, name="")
    bare = replace(job, id="", candidate=candidate, problem=replace(problem, path=Path(problem.path).name, payload=""))
    message = json.dumps(
        {
            "format": FORMAT,
            "kforge": own_version(),
            "python": PYTHON,
            "kind": kind,
            "job": jsonable.encode(bare),
        },
        sort_keys=True,
    ).encode()
    platform = job.candidate.platform
    key = f"kforge-{platform}-{hashlib.sha256(message).hexdigest()[:32]}"
    title = visible(problem.name)[:_LONGEST_NAME]
    return JobRequest(message, platform, key, title, problem.id, problem.payload, problem.payload_hash)


def read_request(message: bytes) -> ReceivedJob:
    """The job in a request; OtherVersion, or WireError for what is none."""
    data = _object(message)
    theirs = data.get("kforge")
    if data.get("format") != FORMAT or theirs != own_version():
        named = visible(str(theirs))[:_LONGEST_NAME]
        raise OtherVersion(
            f"the job is of KForge {named} and the worker of KForge {own_version()}: install one version on both sides"
        )
    kind, python = data.get("kind"), data.get("python")
    if kind not in (JUDGE, CHECK) or not isinstance(python, str):
        raise WireError("the job's message is damaged")
    return ReceivedJob(kind, jsonable.decode(Job, data.get("job")), python)


def unfit_reason(received: ReceivedJob) -> str:
    """Why a job cannot be carried out by this Python; empty if it can."""
    if not received.job.problem.payload_hash:
        return ""
    cure = "or forge the module from a problem file instead"
    if received.python != PYTHON:
        return f"a live module of Python {received.python}, and the worker's is {PYTHON}: use one of both, {cure}"
    if importlib.util.find_spec("cloudpickle") is None:
        return f"a live module needs the package cloudpickle on the worker: install it there, {cure}"
    return ""


def write_report(report: Report | None, where: str, process: str = "") -> bytes:
    """The answer with a report, or to a check that found nothing, from a host and a worker process of it."""
    return json.dumps(
        {"format": FORMAT, "where": where, "process": process, "report": jsonable.encode(report)}
    ).encode()


def write_error(error: BaseException, where: str, process: str = "") -> bytes:
    """The answer where there is no report: the problem, the machine or the harness is at fault."""
    kind = next((name for name, each in _ERRORS.items() if isinstance(error, each)), "harness")
    text = str(error) if isinstance(error, KForgeError) else f"internal error: {type(error).__name__}: {error}"
    return json.dumps(
        {"format": FORMAT, "where": where, "process": process, "error": {"kind": kind, "message": text}}
    ).encode()


def read_report_on(job: Job, answer: bytes) -> Report:
    """The report in an answer, if it is one on this very job; else what the worker says is wrong is raised."""
    data, where = _answer(answer)
    report = check_report(data.get("report"), job, f"the report from {where}")
    evidence = report.verdict.evidence
    if evidence is not None:
        # The problem over there has another path, and the program may have come from another attempt.
        evidence = replace(evidence, problem=job.problem, candidate=job.candidate, host=where)
    return replace(report, job=job.id, verdict=replace(report.verdict, evidence=evidence))


def read_check(answer: bytes) -> None:
    """Raises what a worker found to be wrong with a problem."""
    _answer(answer)


@dataclass(frozen=True)
class AnswerOrigin:
    """Who gave an answer, and whether it is any use; empty names where it does not say."""

    process: str = ""
    host: str = ""
    is_fault: bool = True
    """Whether the machine went wrong, or what runs there: not the problem, which is broken everywhere."""


def read_origin(answer: bytes) -> AnswerOrigin:
    """Where an answer is from, whatever it says."""
    try:
        data = _object(answer)
    except WireError:
        return AnswerOrigin()
    error = data.get("error")
    is_problem = isinstance(error, dict) and error.get("kind") == "problem"
    is_fault = error is not None and not is_problem
    return AnswerOrigin(str(data.get("process", "")), str(data.get("where", "")), is_fault)


def _answer(answer: bytes) -> tuple[dict[str, Any], str]:
    data = _object(answer)
    if data.get("format") != FORMAT:
        raise WireError(f"an answer of format {str(data.get('format'))[:_LONGEST_NAME]}; this KForge reads {FORMAT}")
    where = visible(str(data.get("where", "")))[:_LONGEST_NAME] or "a worker"
    error = data.get("error")
    if error is None:
        return data, where
    fields = error if isinstance(error, dict) else {}
    text = visible(str(fields.get("message", "it does not say why")))[:_LONGEST_SENTENCE]
    raise _ERRORS.get(str(fields.get("kind")), HarnessError)(f"{where}: {text}")


def _object(message: bytes) -> dict[str, Any]:
    if len(message) > _LARGEST_MESSAGE:
        most = _LARGEST_MESSAGE >> 20
        raise WireError(f"a message of the cluster is too large: {len(message) >> 20} MiB, and {most} are the most")
    try:
        data = json.loads(message)
    except (ValueError, TypeError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise WireError("a message of the cluster is damaged: it is no whole JSON text")
    return data
