"""The catalogue: every hack is refused, every benign twin is accepted. A file in the folder is a test."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kforge import Candidate, Outcome, Problem, ProblemForm, Settings
from kforge.types import Limits
from kforge.worker.sandbox import levels

pytestmark = pytest.mark.toolchain

HERE = Path(__file__).parents[2] / "catalogue"
HARMLESS_SPEEDUP = 1.15
MOST_AGAIN = 3
"""How often a program is judged again at most."""
MOST_OFTEN = "scale_relu"
"""The problem of most entries."""
FORM = ("dtype", "backward")
"""Headers that ask for the problem in another form."""


@dataclass(frozen=True)
class Entry:
    path: Path
    headers: dict[str, str] = field(default_factory=dict)

    def words(self, name: str) -> set[str]:
        return {word.strip() for word in self.headers.get(name, "").split(",") if word.strip()}


def entries(folder: str) -> list[object]:
    """By problem, since one that was just read need not be read again."""
    found = []
    for path in sorted((HERE / folder).glob("*.py")):
        headers = {}
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                break
            name, _, value = line.lstrip("# ").partition(":")
            headers[name.strip()] = value.strip()
        marks = [pytest.mark.slow] if headers.get("slow") == "yes" else []
        if headers.get("open") == "yes":
            marks.append(pytest.mark.xfail(run=False, reason="the judge is known to be wrong about it"))
        form = " ".join(headers[key] for key in FORM if key in headers)
        if headers["problem"] != MOST_OFTEN or form:
            marks.append(pytest.mark.xdist_group(f"catalogue, {headers['problem']} {form}".strip()))
        found.append(pytest.param(Entry(path, headers), id=path.stem, marks=marks))
    return sorted(found, key=lambda parameter: [parameter.values[0].headers.get(key, "") for key in ("problem", *FORM)])


def verdict_of(judge, entry):
    for need in entry.words("needs"):
        if need == "sandbox" and levels.choose("auto") == "process":
            pytest.skip("needs a sandbox: only the plain process level exists here")
        if need in ("x86_64", "aarch64") and platform.machine() != need:
            pytest.skip(f"needs {need}")
    form = ProblemForm(entry.headers.get("dtype", ""), entry.headers.get("backward") == "yes")
    problem = Problem.from_file(HERE / "problems" / f"{entry.headers['problem']}.py").in_form(form)
    limits = Limits(build_seconds=240 if entry.headers.get("slow") == "yes" else 60, call_seconds=30)
    if entry.headers.get("endless") == "yes":
        limits = Limits(build_seconds=3, call_seconds=2)
    if "memory" in entry.headers:
        limits = replace(limits, memory_bytes=int(entry.headers["memory"]) << 30)
    settings = Settings(
        policy=entry.headers.get("policy", "hybrid"), compile_baseline=False, timing_seconds=0.15, limits=limits
    )
    return judge.evaluate(problem, Candidate(entry.path.read_text()), settings)


def by_the_clock(verdict):
    """Whether a disturbed machine may have had a part in it."""
    return (
        "time" in verdict.evidence.seconds
        or verdict.rule == "not_idle"
        or any(words in verdict.detail for words in ("did not finish", "keeper is gone"))
    )


def wrong_with_hack(entry, verdict, twin=None):
    """What is wrong with the verdict on a hack, which may gain no more than its twin; empty if nothing is."""
    outcome, said = verdict.outcome, f"{verdict.outcome.value} {verdict.rule}: {verdict.detail}"
    if outcome is Outcome.CORRECT:
        low = verdict.interval[0] if verdict.interval else 0
        if entry.headers.get("neutralised") != "yes":
            return f"accepted: {verdict.detail}"
        usual = max(1.0, twin.interval[1]) if twin is not None and twin.interval else 1.0
        return "" if low < HARMLESS_SPEEDUP * usual else f"the hack paid: {verdict.detail}"
    refused, rules = entry.words("refused"), entry.words("rule")
    expected = not refused or outcome.value in refused
    if outcome is Outcome.REJECTED and rules:
        expected = expected and verdict.rule in rules
    return "" if expected else said


def wrong_with_benign(entry, verdict):
    said = f"{verdict.outcome.value} {verdict.rule}: {verdict.detail}"
    return "" if verdict.outcome is Outcome.CORRECT else said


def check(judge, entry, alone, wrong):
    """What seems wrong beside other tests, by a clock, must be so without them: three times, if it is refused.

    The last judgement counts. What was accepted, and should not have been, has only one more.
    """
    verdict, left = verdict_of(judge, entry), MOST_AGAIN
    while (said := wrong(entry, verdict)) and left and by_the_clock(verdict) and alone():
        left = 0 if verdict.outcome is Outcome.CORRECT else left - 1
        verdict = verdict_of(judge, entry)
    assert said == ""


@pytest.mark.parametrize("entry", entries("hacks"))
def test_hack_is_refused(judge, entry, alone):
    def wrong(_, verdict):
        said = wrong_with_hack(entry, verdict)
        if said.startswith("the hack paid"):
            twin = verdict_of(judge, benign(entry.headers["twin"]))
            assert twin.outcome is Outcome.CORRECT, twin.detail
            return wrong_with_hack(entry, verdict, twin)
        return said

    check(judge, entry, alone, wrong)


def benign(name):
    return next(parameter.values[0] for parameter in entries("benign") if parameter.values[0].path.stem == name)


@pytest.mark.parametrize("entry", entries("benign"))
def test_benign_is_accepted(judge, entry, alone):
    check(judge, entry, alone, wrong_with_benign)


def test_every_twin_exists():
    benign = {path.stem for path in (HERE / "benign").glob("*.py")}
    for parameter in entries("hacks"):
        twin = parameter.values[0].headers.get("twin")
        assert twin in benign, f"{parameter.id}: no benign file {twin}"
