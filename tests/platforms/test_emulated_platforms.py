"""Platforms whose hardware is not here: the judge verifies on the emulator, says so, and claims no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kforge
import makers
from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.errors import PluginAbsent, ProblemError
from kforge.models.scripted import Scripted
from kforge.problems import find
from kforge.run import guarded_program
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.search.refine import Refine
from kforge.store.store import Store
from kforge.types import ErrorNorm, Job, Plan, Stop, Verdict
from kforge.worker.judge import explain, static_rules
from kforge.worker.judge.runner_handle import RunnerLost
from kforge.worker.protocol.keeper import Ending

pytestmark = pytest.mark.xdist_group("emulated")

PLATFORMS = ("metal", "cuda")
EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"

CPP = '''
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write("""extern "C" void f(const float* x, const float* s, float* y, long n, long c, float a) {
        for (long i = 0; i < n; ++i) y[i] = (x[i] > 0 ? x[i] : a * x[i]) * s[i % c];
    }""")
subprocess.run(["g++", "-O1", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
library = ctypes.CDLL(os.path.join(folder, "k.so"))


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.scale, y)]
        sizes = ctypes.c_long(x.numel()), ctypes.c_long(x.shape[-1])
        library.f(*pointers, *sizes, ctypes.c_float(self.slope))
        return y
'''


def emulated(name: str) -> Any:
    platform = registry.load("platforms", name)
    if not platform.emulated:
        pytest.skip(f"platform {name} has its hardware here")
    return platform


def example(name: str) -> tuple[Problem, str]:
    reference, candidate = emulated(name).example()
    return Problem.from_source(reference.replace("ROWS = 32768", "ROWS = 16"), "example"), candidate


def judged(judges: dict[str, Any], name: str, change: tuple[str, str] = ("", "")) -> Verdict:
    problem, source = example(name)
    assert change[0] in source
    verdict: Verdict = judges[name].evaluate(problem, Candidate(source.replace(*change), name), Settings(seeds=3))
    return verdict


@pytest.mark.toolchain
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_example_is_right_in_emulation_and_has_no_speedup(judges: dict[str, Any], name: str) -> None:
    verdict = judged(judges, name)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.emulated
    assert verdict.timing is None
    assert verdict.speedup is None
    assert "emulated" in verdict.detail
    assert "in the emulator's checked mode" in verdict.detail
    assert "checked calls" not in verdict.detail
    assert any(note.startswith("emulated with") for note in verdict.notes)
    assert verdict.custom_share
    assert not verdict.degenerate
    assert verdict.domain is not None
    assert verdict.domain.device == registry.load("platforms", name).hardware().device
    assert not verdict.domain.exact_shapes


@pytest.mark.toolchain
@pytest.mark.parametrize("name", PLATFORMS)
def test_a_program_with_its_guard_is_as_right(judges: dict[str, Any], name: str) -> None:
    problem, source = example(name)
    guarded = guarded_program.add_guard(source, "example", judged(judges, name).domain)
    verdict = judges[name].evaluate(problem, Candidate(guarded, name), Settings(seeds=3))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.hazards == ()


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (("return y", "return y * 1.01"), Outcome.MISMATCH, "wrong"),
        (("v = x[i]", "v = x[i + 100000]"), Outcome.RUNTIME_ERROR, "past the end of buffer 0 (`x`)"),
        (("v = x[i]", "v = y[i]"), Outcome.MISMATCH, "elements are wrong"),
        (("v = x[i]", "v = nothing[i]"), Outcome.COMPILATION_FAILURE, "nothing"),
        (("ModelNew", "ModelOld"), Outcome.GENERATION_FAILURE, "ModelNew"),
        (("return y", "return y.cpu()"), Outcome.MISMATCH, "the output is on device cpu, expected"),
        (("torch.empty_like(x)", "torch.empty(x.shape)"), Outcome.RUNTIME_ERROR, "is memory of the host"),
    ],
)
@pytest.mark.parametrize("name", PLATFORMS)
def test_what_is_wrong_is_seen_as_on_hardware(
    judges: dict[str, Any], name: str, change: tuple[str, str], outcome: Outcome, words: str
) -> None:
    verdict = judged(judges, name, change)
    assert verdict.outcome is outcome, verdict.detail
    assert verdict.emulated
    assert words in verdict.detail
    assert "Traceback" not in verdict.detail


@pytest.mark.toolchain
def test_a_program_that_leaves_the_work_to_torch_is_refused(judges: dict[str, Any]) -> None:
    body = "y = torch.nn.functional.leaky_relu(x, self.slope) * self.scale\n        return y"
    verdict = judged(judges, "metal", ("return y", body))
    assert verdict.outcome is Outcome.REJECTED
    assert verdict.rule in ("decorative_kernel", "no_custom_kernel")


@pytest.mark.toolchain
def test_a_program_in_another_language_is_refused(judges: dict[str, Any]) -> None:
    """C++ would be right too, and say nothing of a kernel for the platform."""
    problem, _ = example("metal")
    verdict = judges["metal"].evaluate(problem, Candidate(CPP, "metal"), Settings(seeds=1))
    assert verdict.outcome is Outcome.REJECTED, verdict.detail
    assert verdict.rule == "foreign_code"
    assert "k.so" in verdict.detail


@pytest.mark.toolchain
def test_a_kernel_that_is_given_nothing_of_the_inputs_is_refused(judges: dict[str, Any]) -> None:
    problem, source = example("metal")
    for ours, by_hand in (
        ("x = x.contiguous()", "x = torch.tensor(x.tolist(), device=x.device)"),
        ("self.scale.data", "torch.tensor(self.scale.tolist(), device=x.device)"),
    ):
        assert ours in source
        source = source.replace(ours, by_hand)
    verdict = judges["metal"].evaluate(problem, Candidate(source, "metal"), Settings(seeds=1))
    assert verdict.outcome is Outcome.REJECTED, verdict.detail
    assert verdict.rule == "decorative_kernel"
    assert "given anything of forward's inputs" in verdict.detail


@pytest.mark.toolchain
@pytest.mark.parametrize(
    "switch",
    [
        "sys.modules[type(library).__module__].set_checked(False)",
        "setattr(sys.modules[type(library).__module__].launch_trace, '_checked', False)",
    ],
)
def test_checked_mode_is_not_the_programs_to_switch_off(judges: dict[str, Any], switch: str) -> None:
    problem, source = example("metal")
    racy = source.replace("float4 v = x[i];", "float4 v = x[i]; y[i ^ 1] = v;")
    racy = racy.replace("x = x.contiguous()", f"import sys; {switch}; x = x.contiguous()")
    verdict = judges["metal"].evaluate(problem, Candidate(racy, "metal"), Settings(seeds=1))
    assert verdict.outcome in (Outcome.REJECTED, Outcome.RUNTIME_ERROR), verdict.detail
    assert "checked mode" in verdict.detail


@pytest.mark.toolchain
def test_a_problem_too_large_to_emulate_says_what_to_write(
    judges: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kforge.worker.judge.emulated_size._MOST_BYTES", 1000)
    problem, source = example("metal")
    lines = [line for line in problem.source.splitlines() if not line.startswith("KFORGE")]
    without = Problem.from_source("\n".join(lines).replace("4096", "64").replace("16384", "16"), "without")
    with pytest.raises(ProblemError, match=r'KFORGE = {"sizes": {"emulator"'):
        judges["metal"].evaluate(without, Candidate(source, "metal"), Settings(seeds=1))


@pytest.mark.pure
def test_a_program_that_builds_an_extension_is_told_so_before_it_runs() -> None:
    found = static_rules.builds_extension("import torch\nkernel = cpp_extension.load_inline('k', '')\n")
    assert found is not None
    assert (found.rule, found.line) == ("foreign_code", 2)
    assert static_rules.builds_extension("torch.load('weights')") is None


@pytest.mark.pure
def test_a_program_that_names_the_emulator_is_refused() -> None:
    (found,) = static_rules.scan("import sys\nsys.modules['kforge.emulation.metal'].set_checked(False)\n")
    assert (found.rule, found.line) == ("introspection", 2)


@pytest.mark.cpu
def test_where_an_emulator_took_too_long_the_cure_is_said() -> None:
    lost = RunnerLost("timeout", "no answer after 9 s")
    _, _, sentence = explain.lost_runner("a checked call", lost, Ending(), " (give it sizes)")
    assert sentence.endswith("it was killed (give it sizes)")


@pytest.mark.toolchain
def test_a_race_that_gives_the_right_result_is_found(judges: dict[str, Any]) -> None:
    """Each thread writes what its neighbour writes too; checked mode sees it on the first seed."""
    racy = ("float4 v = x[i];", "float4 v = x[i]; y[i ^ 1] = v;")
    verdict = judged(judges, "metal", racy)
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.detail
    assert "race" in verdict.detail
    assert "y[i ^ 1] = v" in verdict.detail or "y[i] =" in verdict.detail


@pytest.mark.pure
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_guide_says_that_it_is_emulated(name: str) -> None:
    guide = emulated(name).guide()
    assert "emulat" in guide
    assert "$" not in guide.replace("$[", "")


@pytest.mark.pure
def test_an_emulated_verdict_cannot_carry_a_time() -> None:
    timed = makers.verdict(2.0)
    with pytest.raises(ValueError, match="emulated"):
        replace(timed, emulated=True)


@pytest.mark.pure
def test_a_chain_ends_with_the_first_correct_program_where_nothing_is_timed() -> None:
    right = Verdict(Outcome.CORRECT, "as measured", errors=(ErrorNorm("natural", 0.0, 1e-5, 0.0),), emulated=True)
    first = replace(makers.attempt(1, None), verdict=right)
    stop = Refine().propose((first,), 0, Plan(iterations=5))
    assert isinstance(stop, Stop)
    assert stop.reason == "emulated"
    assert "hardware" in stop.words


@pytest.mark.toolchain
def test_a_program_is_forged_in_emulation_with_another_platforms_kernel_as_reference(tmp_path: Path) -> None:
    problem, source = example("metal")
    _, cuda = example("cuda")
    prompts: list[str] = []

    def answer(prompt: Any) -> str:
        prompts.append(prompt.text)
        text = source if len(prompts) > 1 else source.replace("> 0.0f", "> 0.5f")
        return f"```python\n{text}```\n"

    where = RunEnvironment(str(tmp_path / "store"), ModelAccess(models={"scripted": Scripted(answer)}))
    made = kforge.forge(problem, "metal", "scripted", where, iterations=4, reference=cuda, profilers=())
    assert [attempt.verdict.outcome for attempt in made.history] == [Outcome.MISMATCH, Outcome.CORRECT]
    assert made.best is not None
    assert made.best.verdict.emulated
    assert [stop.reason for stop in made.stops] == ["emulated"]
    assert "leaky_relu_scale" in prompts[0]
    assert "threadgroup" in prompts[0]


@pytest.mark.toolchain
@pytest.mark.parametrize("file", ["level1_2_softmax", "level2_3_rms_norm_silu_gate"])
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_kernels_of_the_examples_are_right(judges: dict[str, Any], name: str, file: str) -> None:
    emulated(name)
    level, number, _ = file.split("_", 2)
    (problem,) = find(f"bundled:{level}/{number}")
    source = (EXAMPLES / name / f"{file}.py").read_text(encoding="utf-8")
    verdict = judges[name].evaluate(problem, Candidate(source, name), Settings(seeds=3))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


@pytest.mark.toolchain
@pytest.mark.parametrize("name", PLATFORMS)
def test_an_emulators_times_are_no_profile(judges: dict[str, Any], name: str) -> None:
    problem, source = example(name)
    wanted = Settings(seeds=1, profilers=("torch_profiler", "roofline"))
    report = judges[name].report(Job("profiled", problem, Candidate(source, name), wanted))
    assert report.verdict.outcome is Outcome.CORRECT, report.verdict.detail
    assert [profile.tool for profile in report.profiles] == ["torch_profiler", "roofline"]
    assert all("profile it where the hardware is" in profile.absent for profile in report.profiles)


@pytest.mark.pure
def test_what_the_offline_agents_cannot_do_is_said_before_there_is_a_run(tmp_path: Path) -> None:
    emulated("metal")
    store = str(tmp_path / "store")
    with pytest.raises(PluginAbsent, match="name a model"):
        kforge.forge("bundled:level1/1", "metal", "builtin", RunEnvironment(store))
    with Store.open(store) as opened:
        assert opened.runs(5) == []
