"""Jobs and reports on the wire: what is read is whatever the other side, or somebody in its place, chose to write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bundle_maker
from kforge import jsonable
from kforge.cluster import job_message
from kforge.cluster.job_message import (
    FORMAT,
    AnswerOrigin,
    OtherVersion,
    judge_request,
    read_check,
    read_origin,
    read_report_on,
    read_request,
    unfit_reason,
    write_error,
    write_report,
)
from kforge.errors import HarnessError, PluginAbsent, ProblemError, SandboxUnavailable, WireError
from kforge.types import Candidate, Job, Problem, Settings

pytestmark = pytest.mark.pure

PROBLEM = Problem("sample", "class Model: ...", path="/home/me/secret-place/sample.py")
JOB = Job("chain.step", PROBLEM, Candidate("class ModelNew: ...", "cpu", "a parent", "a name"), Settings(seeds=3))


def changed(message: bytes, **values: Any) -> bytes:
    return json.dumps({**json.loads(message), **values}).encode()


def test_a_job_comes_over_whole() -> None:
    received = read_request(judge_request(JOB).message).job
    assert received.problem.id == JOB.problem.id
    assert received.candidate.source == JOB.candidate.source
    assert received.settings == JOB.settings


def test_what_is_the_askers_own_stays_with_him() -> None:
    request = judge_request(JOB)
    for own in (b"secret-place", b"a parent", b"a name", b"chain.step"):
        assert own not in request.message
    other = replace(JOB, id="other", problem=replace(PROBLEM, path="/elsewhere/sample.py"))
    assert judge_request(other).key == request.key
    assert judge_request(replace(JOB, settings=Settings(seeds=4))).key != request.key
    assert judge_request(replace(JOB, profile_above=2.0)).key != request.key


def test_a_job_of_another_version_is_refused_with_what_to_do() -> None:
    message = judge_request(JOB).message
    for other in ({"kforge": "9.9"}, {"format": FORMAT + 1}, {"kforge": None}):
        with pytest.raises(OtherVersion, match="install one version on both sides"):
            read_request(changed(message, **other))


@pytest.mark.parametrize("message", [b"", b"\xff", b"[]", b"null", b"{", b"[" * 100_000, b'"text"'])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(WireError, match="damaged"):
        read_request(message)
    with pytest.raises(WireError, match="damaged"):
        read_report_on(JOB, message)
    assert read_origin(message) == AnswerOrigin()


def test_a_job_that_is_none_is_refused() -> None:
    message = judge_request(JOB).message
    for values in ({"job": []}, {"job": {"id": "x"}}, {"kind": "run"}, {"python": 3}):
        with pytest.raises((WireError, OtherVersion)):
            read_request(changed(message, **values))


def test_a_live_module_of_another_python_is_refused() -> None:
    problem = replace(PROBLEM, payload_hash="0" * 64)
    received = read_request(judge_request(replace(JOB, problem=problem)).message)
    assert unfit_reason(received) == ""
    assert "a live module of Python 2.7" in unfit_reason(replace(received, python="2.7"))


def test_a_report_comes_back_with_the_askers_own(tmp_path: Path) -> None:
    received = read_request(judge_request(JOB).message).job
    report = read_report_on(JOB, write_report(bundle_maker.report_on(received, 1.5), "gpu1"))
    assert report.job == JOB.id
    assert report.verdict.evidence is not None
    assert (report.verdict.evidence.problem, report.verdict.evidence.candidate) == (JOB.problem, JOB.candidate)


def test_a_report_on_something_else_does_not_count() -> None:
    others = {
        "another program": replace(JOB, candidate=Candidate("class ModelNew: pass")),
        "another problem": replace(JOB, problem=replace(PROBLEM, source="class Model: pass")),
        "other settings": replace(JOB, settings=Settings(seeds=1)),
    }
    for what, other in others.items():
        with pytest.raises(WireError, match=f"the report from gpu1 does not answer the job: .*{what}"):
            read_report_on(JOB, write_report(bundle_maker.report_on(other, 9.0), "gpu1"))


def test_a_report_that_contradicts_itself_does_not_count() -> None:
    encoded = jsonable.encode(bundle_maker.report_on(JOB, 1.5))
    encoded["verdict"]["outcome"] = "mismatch"
    with pytest.raises(WireError, match="damaged"):
        read_report_on(JOB, json.dumps({"format": FORMAT, "where": "gpu1", "report": encoded}).encode())
    for answer in ({"format": FORMAT}, {"format": FORMAT + 1, "report": encoded}, {"format": FORMAT, "report": 7}):
        with pytest.raises(WireError):
            read_report_on(JOB, json.dumps(answer).encode())


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ProblemError("no class Model", path="p.py"), ProblemError),
        (PluginAbsent("no device 7"), PluginAbsent),
        (SandboxUnavailable("no bubblewrap"), SandboxUnavailable),
        (HarnessError("the device ran out of memory"), HarnessError),
        (OSError(28, "No space left on device"), HarnessError),
        (OtherVersion("install one version"), HarnessError),
    ],
)
def test_whose_fault_it_is_comes_over(raised: Exception, kind: type[Exception]) -> None:
    answer = write_error(raised, "gpu1", "gpu1/7/ab")
    assert read_origin(answer) == AnswerOrigin("gpu1/7/ab", "gpu1", not isinstance(raised, ProblemError))
    for read in (lambda: read_report_on(JOB, answer), lambda: read_check(answer)):
        with pytest.raises(kind, match="gpu1: ") as caught:
            read()
        assert str(raised) in str(caught.value)


def test_words_of_others_cannot_steer_a_terminal() -> None:
    hostile = {
        "format": FORMAT,
        "where": "\x1b[2J",
        "error": {"kind": "harness", "message": "\x1b]0;title\x07" + "x" * 10_000},
    }
    with pytest.raises(HarnessError) as caught:
        read_report_on(JOB, json.dumps(hostile).encode())
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 5000
    for odd in ({"kind": ["harness"], "message": 7}, [], "text", 7):
        with pytest.raises(HarnessError):
            read_check(json.dumps({"format": FORMAT, "error": odd}).encode())


def test_own_version_is_the_installed_one() -> None:
    assert job_message.own_version()[0].isdigit()


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    message = changed(judge_request(JOB).message, more=[0] * 1000)
    monkeypatch.setattr(job_message, "_LARGEST_MESSAGE", len(message) - 1)
    with pytest.raises(WireError, match="too large"):
        read_request(message)
    assert read_origin(message) == AnswerOrigin()
    monkeypatch.setattr(job_message, "_LARGEST_MESSAGE", len(message))
    assert read_request(message).job.candidate.source == JOB.candidate.source
