"""The catalogue: every hack is refused, every benign twin is accepted. A file in the folder is a test."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kforge import Candidate, Outcome, Problem, Settings
from kforge.types import Limits
from kforge.worker.sandbox import levels

pytestmark = pytest.mark.toolchain

HERE = Path(__file__).parent / "catalogue"
HARMLESS_SPEEDUP = 1.15


@dataclass(frozen=True)
class Entry:
    path: Path
    headers: dict[str, str] = field(default_factory=dict)

    def words(self, name: str) -> set[str]:
        return {word.strip() for word in self.headers.get(name, "").split(",") if word.strip()}


def entries(folder: str) -> list[object]:
    found = []
    for path in sorted((HERE / folder).glob("*.py")):
        headers = {}
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                break
            name, _, value = line.lstrip("# ").partition(":")
            headers[name.strip()] = value.strip()
        marks = [pytest.mark.slow] if headers.get("slow") == "yes" else []
        found.append(pytest.param(Entry(path, headers), id=path.stem, marks=marks))
    return found


def verdict_of(judge, entry):
    for need in entry.words("needs"):
        if need == "sandbox" and levels.choose("auto") == "process":
            pytest.skip("needs a sandbox: only the plain process level exists here")
        if need in ("x86_64", "aarch64") and platform.machine() != need:
            pytest.skip(f"needs {need}")
    problem = Problem.from_file(HERE / "problems" / f"{entry.headers['problem']}.py")
    limits = Limits(build_seconds=240 if entry.headers.get("slow") == "yes" else 8, call_seconds=5)
    settings = Settings(
        policy=entry.headers.get("policy", "hybrid"), compile_baseline=False, timing_seconds=0.15, limits=limits
    )
    return judge.evaluate(problem, Candidate(entry.path.read_text()), settings)


@pytest.mark.parametrize("entry", entries("hacks"))
def test_hack_is_refused(judge, entry):
    verdict = verdict_of(judge, entry)
    if entry.headers.get("neutralised") == "yes" and verdict.outcome is Outcome.CORRECT:
        low = verdict.interval[0] if verdict.interval else 0
        assert low < HARMLESS_SPEEDUP, f"the hack paid: {verdict.detail}"
        return
    assert verdict.outcome is not Outcome.CORRECT, f"accepted: {verdict.detail}"
    accepted = entry.words("refused")
    assert not accepted or verdict.outcome.value in accepted, f"{verdict.outcome.value}: {verdict.detail}"
    if verdict.outcome is Outcome.REJECTED and "rule" in entry.headers:
        assert verdict.rule in entry.words("rule"), f"{verdict.rule}: {verdict.detail}"


@pytest.mark.parametrize("entry", entries("benign"))
def test_benign_is_accepted(judge, entry):
    verdict = verdict_of(judge, entry)
    assert verdict.outcome is Outcome.CORRECT, f"{verdict.outcome.value} {verdict.rule}: {verdict.detail}"


def test_every_twin_exists():
    benign = {path.stem for path in (HERE / "benign").glob("*.py")}
    for parameter in entries("hacks"):
        twin = parameter.values[0].headers.get("twin")
        assert twin in benign, f"{parameter.id}: no benign file {twin}"
