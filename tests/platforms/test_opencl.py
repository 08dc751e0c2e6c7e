"""Platform `opencl`: its example and kernels before the judge, what it says of what is missing, its profiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.problems import find
from kforge.profilers.base import NothingSeen
from kforge.profilers.opencl_events import profile_of
from kforge.types import Job
from kforge.worker.sandbox import levels

HERE = Path(__file__).parents[1]
FOLDER = HERE.parent / "src/kforge/platforms/opencl"
KERNELS = sorted((HERE.parent / "examples/kernels/opencl").glob("*.py"))
UNTIMED = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
WHY = str(registry.load("platforms", "opencl").unavailable_reason())
needs_opencl = pytest.mark.skipif(bool(WHY), reason=f"platform opencl: {WHY}")

_ABSENT = "from kforge import registry; print(registry.load('platforms', 'opencl').unavailable_reason())"
_NO_DEVICE = """
import pyopencl
class Driver:
    name = "Some Driver"
    def get_devices(self):
        return []
pyopencl.get_platforms = lambda: [Driver()]
"""


def say(code: str, **variables: str) -> str:
    """What a fresh process prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def opencl_judge() -> Iterator[Any]:
    from kforge.worker.judge.judge import Judge

    with Judge("opencl") as judge:
        yield judge


@pytest.fixture(scope="module")
def example() -> Problem:
    return Problem.from_file(FOLDER / "example/reference.py")


def program(old: str = "", new: str = "") -> Candidate:
    text = (FOLDER / "example/candidate.py").read_text()
    assert old in text
    return Candidate(text.replace(old, new) if old else text, "opencl")


# -- what is missing ----------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_without_pyopencl_it_says_what_to_install():
    hidden = "import importlib.util as u; found = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name == 'pyopencl' else found(name, *rest)\n"
    assert say(hidden + _ABSENT) == "pyopencl is not installed (pip install pyopencl)"


@needs_opencl
@pytest.mark.pure
def test_without_a_driver_it_says_which_to_install(tmp_path):
    said = say(_ABSENT, OCL_ICD_VENDORS=str(tmp_path), OPENCL_VENDOR_PATH=str(tmp_path))
    assert said.startswith("no OpenCL driver is installed")
    assert "apt-get install pocl-opencl-icd" in said


@needs_opencl
@pytest.mark.pure
def test_a_driver_without_a_device_is_named():
    said = say(_NO_DEVICE + _ABSENT)
    assert said.startswith("Some Driver found no device")
    assert "apt-get install pocl-opencl-icd" in said


@needs_opencl
@pytest.mark.pure
def test_a_choice_that_names_no_device_lists_those_there_are():
    said = say(_ABSENT, PYOPENCL_CTX="7:1")
    assert said.startswith("PYOPENCL_CTX=7:1 names no device (unset it, or use one of: 0:0 (")


@needs_opencl
@pytest.mark.pure
def test_facts_of_an_absent_platform_are_none_and_the_guide_still_renders():
    code = "from kforge import registry; p = registry.load('platforms', 'opencl'); print(p.facts(), len(p.guide()) > 0)"
    assert say(code, PYOPENCL_CTX="7:1") == "{} True"


@needs_opencl
@pytest.mark.pure
def test_the_guide_is_filled_in_from_the_device():
    platform = registry.load("platforms", "opencl")
    facts = platform.facts()
    assert "$" not in platform.guide()
    assert int(facts["cores"]) >= 1
    assert facts["fp64"] in ("yes", "no")
    assert facts["fp16"] in ("yes", "no")
    assert facts["processor"] in platform.guide()


@needs_opencl
@pytest.mark.pure
def test_the_doctor_shows_the_device():
    found = json.loads(say("import sys; from kforge.cli.doctor import run; sys.exit(run(True))"))
    shown = found["platforms"]["opencl"]
    assert shown["absent"] == ""
    assert registry.load("platforms", "opencl").facts()["processor"] in shown["detail"]
    assert found["profilers"]["opencl_events"]["absent"] == ""


# -- the judge ----------------------------------------------------------------------------------------------------


@needs_opencl
@pytest.mark.cpu
def test_the_example_is_correct_timed_and_profiled(opencl_judge, example):
    settings = Settings(compile_baseline=False, timing_seconds=0.05, seeds=1, profilers=("opencl_events",))
    report = opencl_judge.report(Job("example", example, program(), settings))
    verdict = report.verdict
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.speedup > 0
    assert verdict.custom_share > 0.5
    assert verdict.evidence is not None
    assert verdict.evidence.device["driver"]
    (profile,) = report.profiles
    assert profile.absent == ""
    assert profile.metrics["launches"] == 1
    assert 0 < profile.metrics["busy_ns"] <= profile.metrics["wall_ns"]
    assert profile.metrics["share/kernel leaky_relu_scale"] > 0.5
    assert "kernel leaky_relu_scale" in profile.text


@needs_opencl
@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.parametrize("level", ["unshare", "process"])
def test_the_example_is_correct_at_other_levels(opencl_judge, example, level):
    if levels.unavailable_reason(level):
        pytest.skip(f"sandbox level {level}: {levels.unavailable_reason(level)}")
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1, sandbox=level)
    verdict = opencl_judge.evaluate(example, program(), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.custom_share > 0


@needs_opencl
@pytest.mark.cpu
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_every_kernel_is_correct(opencl_judge, path):
    level, _, stem = path.stem.partition("_")
    (problem,) = find(f"bundled:{level}/{stem}")
    verdict = opencl_judge.evaluate(problem, Candidate(path.read_text(), "opencl"), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


_HALF = "half h = (half)x[i]; h = h * h; float v = h;"
_TORCH = "return torch.nn.functional.leaky_relu(x, self.slope) * self.scale"


@needs_opencl
@pytest.mark.cpu
@pytest.mark.parametrize(
    ("old", "new", "outcome", "said"),
    [
        ("float v = x[i];", "float v = x[j];", Outcome.COMPILATION_FAILURE, "undeclared identifier 'j'"),
        (', "leaky_relu_scale")', ', "another")', Outcome.COMPILATION_FAILURE, "INVALID_KERNEL_NAME"),
        (", None, *arguments", ", (columns, 1 << 20), *arguments", Outcome.RUNTIME_ERROR, "INVALID_WORK_GROUP_SIZE"),
        ("x = x.contiguous()", _TORCH, Outcome.REJECTED, "no kernel of its own was launched"),
    ],
    ids=["syntax", "name", "group", "torch"],
)
def test_a_bad_program_gets_its_outcome(opencl_judge, example, old, new, outcome, said):
    verdict = opencl_judge.evaluate(example, program(old, new), UNTIMED)
    assert verdict.outcome is outcome, verdict.detail
    assert said in verdict.detail


@needs_opencl
@pytest.mark.cpu
def test_half_where_the_device_has_none_is_the_compilers_sentence(opencl_judge, example):
    if registry.load("platforms", "opencl").facts()["fp16"] == "yes":
        pytest.skip("this device has cl_khr_fp16")
    verdict = opencl_judge.evaluate(example, program("float v = x[i];", _HALF), UNTIMED)
    assert verdict.outcome is Outcome.COMPILATION_FAILURE
    assert "half" in verdict.detail


# -- the profiler's reading ---------------------------------------------------------------------------------------


def call(*commands: list[Any], wall: int = 1000) -> dict[str, Any]:
    return {"calls": [[wall, [list(command) for command in commands]]]}


@pytest.mark.pure
def test_times_are_shared_out_among_the_commands():
    seen = profile_of(call(["kernel a", 0, 10, 100, 400], ["enqueue_read_buffer", 0, 20, 450, 550]))
    assert seen.metrics["busy_ns"] == 400
    assert seen.metrics["gap_ns"] == 150
    assert seen.metrics["idle_share"] == pytest.approx(0.6)
    assert seen.metrics["transfer_share"] == pytest.approx(0.25)
    assert seen.metrics["share/kernel a"] == pytest.approx(0.75)
    assert seen.metrics["launches"] == 1
    assert "450 ns is Python" in seen.text


@pytest.mark.pure
def test_commands_that_overlap_are_busy_once():
    seen = profile_of(call(["kernel a", 0, 0, 100, 400], ["kernel a", 0, 0, 200, 300], ["kernel b", 0, 0, 350, 500]))
    assert seen.metrics["busy_ns"] == 400
    assert seen.metrics["launches"] == 3


@pytest.mark.pure
def test_a_program_without_commands_is_said_to_have_none():
    with pytest.raises(NothingSeen, match="no command went through pyopencl"):
        profile_of(call())


@pytest.mark.pure
@pytest.mark.parametrize(
    "reply",
    [{}, {"calls": []}, {"calls": 3}, {"calls": [[1]]}, call(["a", 5, 4, 3, 2]), call(["a", 0, 0, "x", 1]), call([1])],
)
def test_an_answer_that_makes_no_sense_is_refused(reply):
    with pytest.raises((KeyError, IndexError, TypeError, ValueError)):
        profile_of(reply)
