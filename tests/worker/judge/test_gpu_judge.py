"""The judge on a real GPU: what no machine without one can show. Tier accelerator."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kforge import registry
from kforge.types import Candidate, Job, Limits, Outcome, Problem, Settings

pytestmark = pytest.mark.accelerator

ROOT = Path(__file__).parents[3]
QUICK = Settings(compile_baseline=False, timing_seconds=0.2, seeds=3, limits=Limits(build_seconds=30, call_seconds=5))


@pytest.fixture(scope="module")
def gpu_judge() -> Iterator[Any]:
    from kforge.worker.judge.judge import Judge

    with Judge("cuda") as judge:
        yield judge


@pytest.fixture(scope="module")
def example() -> tuple[Problem, str]:
    reference, candidate = registry.load("platforms", "cuda").example()
    return Problem.from_source(reference.replace("ROWS = 32768", "ROWS = 8192"), "example"), candidate


def kernel_body(source: str, body: str) -> str:
    """The example's program with another body for the loop over elements."""
    return re.sub(r"float4 v = x\[i\];.*?y\[i\] = v;", lambda _: body, source, flags=re.DOTALL)


def test_the_example_is_right_and_faster_than_eager(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, source = example
    verdict = gpu_judge.evaluate(problem, Candidate(source, "cuda"), Settings())
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.timing.interval[0] > 1.3
    assert verdict.custom_share > 0.9
    assert {item.name for item in verdict.timing.baselines} == {"eager", "tf32", "compile"}
    assert verdict.speedup_vs_best is not None
    assert int(verdict.timing.conditions["sm_clock_mhz"]) > 0
    assert verdict.evidence.native == ("leaky_relu_scale",)
    assert not any("host" in line for line in verdict.evidence.unchecked)


def test_the_triton_example_is_right() -> None:
    from kforge.worker.judge.judge import Judge

    reference, source = registry.load("platforms", "triton").example()
    with Judge("triton") as judge:
        verdict = judge.evaluate(Problem.from_source(reference, "example"), Candidate(source, "triton"), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence.native == ("leaky_relu_scale",)


def test_eager_against_itself_is_one(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, _ = example
    source = problem.source.replace("class Model(", "class ModelNew(")
    settings = Settings(compile_baseline=False, policy="any")
    verdict = gpu_judge.evaluate(problem, Candidate(source, "cuda"), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert abs(verdict.speedup - 1) < 0.03


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("const_cast<float4*>(x)[i] = make_float4(0, 0, 0, 0); y[i] = x[i];", "read-only"),
        ("y[i] = x[i + (1LL << 40)];", "touched memory"),
        ('asm volatile("trap;"); y[i] = x[i];', "trap"),
        ('while (true) { y[i] = x[i]; asm volatile(""); }', "did not finish"),
    ],
)
def test_a_kernel_that_faults_or_hangs_costs_one_runner(
    gpu_judge: Any, example: tuple[Problem, str], body: str, words: str
) -> None:
    problem, source = example
    verdict = gpu_judge.evaluate(problem, Candidate(kernel_body(source, body), "cuda"), QUICK)
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.detail
    assert words in verdict.detail
    after = gpu_judge.evaluate(problem, Candidate(source, "cuda"), QUICK)
    assert after.outcome is Outcome.CORRECT, after.detail


def test_a_candidate_out_of_device_memory_is_told_so(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, source = example
    greedy = source.replace("y = torch.empty_like(x)", "y = torch.empty(1 << 42, device=x.device)")
    verdict = gpu_judge.evaluate(problem, Candidate(greedy, "cuda"), QUICK)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "device memory" in verdict.detail


def test_a_reference_out_of_device_memory_is_a_sentence(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    from kforge.errors import KForgeError

    problem, source = example
    huge = Problem.from_source(problem.source.replace("ROWS = 8192", "ROWS = 1 << 30"), "huge")
    with pytest.raises(KForgeError, match="memory"):
        gpu_judge.evaluate(huge, Candidate(source, "cuda"), QUICK)


def test_what_the_compiler_says_comes_back(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, source = example
    verdict = gpu_judge.evaluate(problem, Candidate(kernel_body(source, "y[i] = nothing[i];"), "cuda"), QUICK)
    assert verdict.outcome is Outcome.COMPILATION_FAILURE
    assert '"nothing" is undefined' in verdict.detail


def test_a_wrong_architecture_is_a_sentence(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, source = example
    other = source.replace('arch=f"sm_{device.arch}"', 'arch="sm_75"')
    verdict = gpu_judge.evaluate(problem, Candidate(other, "cuda"), QUICK)
    assert verdict.outcome in (Outcome.RUNTIME_ERROR, Outcome.COMPILATION_FAILURE)
    assert "Traceback" not in verdict.detail


def test_inputs_go_through_the_host_where_device_memory_cannot_be_shared(
    example: tuple[Problem, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kforge.worker import device_memory
    from kforge.worker.judge.judge import Judge

    monkeypatch.setattr(device_memory, "unavailable_reason", lambda _device: "not on this driver")
    problem, source = example
    with Judge("cuda") as judge:
        verdict = judge.evaluate(problem, Candidate(source, "cuda"), QUICK)
        wrong = judge.evaluate(problem, Candidate(kernel_body(source, "y[i] = x[i];"), "cuda"), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("went through the host" in line for line in verdict.evidence.unchecked)
    assert wrong.outcome is Outcome.MISMATCH


def test_the_float64_reference_of_a_large_problem_is_made_in_pieces(gpu_judge: Any) -> None:
    problem = Problem.from_file(ROOT / "benchmarks" / "problems" / "relu_large.py")
    source = (ROOT / "examples" / "kernels" / "cuda" / "relu.py").read_text()
    verdict = gpu_judge.evaluate(problem, Candidate(source, "cuda"), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert not any("float64" in line for line in verdict.evidence.unchecked)


def test_transposed_convolutions_have_a_float64_reference(gpu_judge: Any) -> None:
    """Their sums may be made in an order of chance, so that two runs differ; they draw no numbers."""
    source = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.conv = nn.ConvTranspose3d(64, 128, 3, bias=False)\n\n"
        "    def forward(self, x):\n        return torch.relu(self.conv(x))\n\n\n"
        "def get_inputs():\n    return [torch.rand(16, 64, 16, 16, 16)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    cases = gpu_judge.session(Problem.from_source(source, "transposed"), QUICK).cases
    assert not cases.stochastic
    assert not [line for line in cases.unchecked if "own precision" in line]


@pytest.mark.parametrize(
    ("before", "after", "tool"),
    [
        # Past the end of the output's own allocation, never read back.
        ("", "if (i == count - 1) y[count + 64] = v;", "memcheck"),
        # Every thread reads what one writes, without a barrier between.
        (
            "__shared__ float held; if (threadIdx.x == 0) held = slope; float seen = held;",
            "if (seen > 1e30f) y[i].x = seen;",
            "racecheck",
        ),
    ],
)
def test_the_sanitizers_find_what_outputs_do_not_show(
    gpu_judge: Any, example: tuple[Problem, str], before: str, after: str, tool: str
) -> None:
    _, source = example
    # Of a size that does not fill its last page, so that what lies behind it is there, and nobody else's.
    problem = Problem.from_source(example[0].source.replace("ROWS = 8192", "ROWS = 8190"), "example")
    honest = re.search(r"float4 v = x\[i\];.*?y\[i\] = v;", source, re.DOTALL)
    assert honest is not None
    program = Candidate(kernel_body(source, f"{before} {honest[0]} {after}"), "cuda")
    verdict = gpu_judge.evaluate(problem, program, replace(QUICK, sanitize=True))
    assert verdict.outcome is Outcome.REJECTED, verdict.detail
    assert verdict.rule == "sanitizer"
    assert tool in verdict.detail


def test_the_sanitizers_pass_the_example(gpu_judge: Any, example: tuple[Problem, str]) -> None:
    problem, source = example
    verdict = gpu_judge.evaluate(problem, Candidate(source, "cuda"), replace(QUICK, sanitize=True))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence.sanitized == ("memcheck", "racecheck")


def test_several_threads_share_one_device(example: tuple[Problem, str], tmp_path: Path) -> None:
    from kforge.worker.jobs import run_jobs

    problem, source = example
    other = Problem.from_source(problem.source.replace("COLUMNS = 4096", "COLUMNS = 2048"), "other")
    jobs = [
        Job(f"{name}-{number}", item, Candidate(f"{source}\n# {number}\n", "cuda"), QUICK)
        for name, item in (("one", problem), ("other", other))
        for number in range(4)
    ]
    told: list[Any] = []
    shares: list[float] = []
    before = threading.active_count()
    run_jobs(jobs, tmp_path, "cuda", told.append, tell_busy_share=shares.append, builders=4)
    assert [done.error for done in told if done.report is None] == []
    assert {done.report.verdict.outcome for done in told} == {Outcome.CORRECT}
    assert len(told) == len(jobs)
    assert 0 < shares[0] <= 1
    assert threading.active_count() <= before + 1
