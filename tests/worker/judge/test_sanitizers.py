"""The gate for winners: what a checker finds is a rejection, and one that cannot run is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from faults import program
from kforge import Candidate, Outcome, Problem, Settings, Verdict
from kforge.platforms.cpu.platform import Cpu
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.sanitizers import report_lines

pytestmark = pytest.mark.toolchain

PLAIN = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
SANITIZED = Settings(compile_baseline=False, timing_seconds=0, seeds=1, sanitize=True)
UNCHECKED = "memory faults and races that leave no trace in the outputs"

RUNS = ("sh", "-c", 'exec "$@"', "sh")
FINDS = (
    "sh",
    "-c",
    "echo ========= COMPUTE-SANITIZER; echo ========= Invalid __global__ read of size 4 bytes; "
    "echo '=========     at k+0x40 in k.cu:7'; echo what the program prints; "
    "echo ========= ERROR SUMMARY: 1 error; exit 86",
    "sh",
)
FAILS = ("sh", "-c", "echo ========= Error: Device not supported; exit 3", "sh")


@pytest.fixture
def look(judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def look(*sanitizers: tuple[str, tuple[str, ...]], settings: Settings = SANITIZED, top: str = "") -> Verdict:
        monkeypatch.setattr(Cpu, "sanitizers", sanitizers)
        return judge.evaluate(scale_relu, Candidate(program(top=top)), settings)

    return look


def is_unchecked(verdict: Verdict) -> bool:
    assert verdict.evidence is not None
    return any(line.startswith(UNCHECKED) for line in verdict.evidence.unchecked)


def test_a_checker_runs_the_program_and_finds_nothing(look: Any) -> None:
    """The tool sees the whole program work, every tensor in memory of its own."""
    watching = 'test "$PYTORCH_NO_CUDA_MEMORY_CACHING" = 1 || exit 86; exec "$@"'
    verdict = look(("memcheck", ("sh", "-c", watching, "sh")))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence.sanitized == ("memcheck",)
    assert not is_unchecked(verdict)
    assert verdict.evidence.seconds["sanitize"] > 0
    assert not any("not checked" in note for note in verdict.notes)


def test_what_a_checker_finds_is_a_rejection_with_its_words(look: Any) -> None:
    verdict = look(("memcheck", FINDS))
    assert (verdict.outcome, verdict.rule) == (Outcome.REJECTED, "sanitizer")
    lines = verdict.detail.splitlines()
    assert lines[:3] == [
        "memcheck found a fault:",
        "========= Invalid __global__ read of size 4 bytes",
        "=========     at k+0x40 in k.cu:7",
    ]
    assert lines[3].startswith("To comply: keep every access inside its tensor")
    assert verdict.timing is None
    assert verdict.evidence.sanitized == ()


def test_a_checker_that_is_not_there_is_said(look: Any) -> None:
    verdict = look(("memcheck", ("no-such-tool", "--tool", "memcheck")))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    (note,) = [note for note in verdict.notes if note.startswith("not checked by memcheck: ")]
    assert "no-such-tool" in note
    assert verdict.evidence.sanitized == ()
    assert is_unchecked(verdict)


def test_one_that_fails_is_said_and_the_next_still_looks(look: Any) -> None:
    verdict = look(("memcheck", FAILS), ("racecheck", FINDS))
    assert verdict.rule == "sanitizer"
    assert "racecheck found a fault" in verdict.detail
    verdict = look(("memcheck", FAILS))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    (note,) = [note for note in verdict.notes if note.startswith("not checked by memcheck: it ended with status 3")]
    assert "Device not supported" in note
    assert is_unchecked(verdict)


def test_a_gate_is_not_passed_by_failing_at_it(look: Any) -> None:
    alone = "if 'standalone_program' in ' '.join(sys.argv): raise RuntimeError('not while I am watched')"
    verdict = look(("memcheck", RUNS), top=alone)
    assert (verdict.outcome, verdict.rule) == (Outcome.REJECTED, "sanitizer")
    assert "does not run under memcheck" in verdict.detail
    assert "not while I am watched" in verdict.detail
    assert verdict.evidence.sanitized == ()


def test_a_platform_without_checkers_says_so(look: Any) -> None:
    verdict = look()
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert "not checked by a memory or race checker: platform cpu has none" in verdict.notes
    assert verdict.evidence.sanitized == ()


def test_without_being_asked_no_checker_runs(look: Any) -> None:
    verdict = look(("memcheck", FINDS), settings=PLAIN)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert is_unchecked(verdict)
    assert "sanitize" not in verdict.evidence.seconds


def test_a_module_made_from_tensors_cannot_be_run_alone_and_leaves_nothing_running(
    judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def __init__(self, scale):\n        super().__init__()\n"
        "        self.scale = scale\n"
        "    def forward(self, x):\n        return x * self.scale\n"
        "def get_inputs():\n    return [torch.randn(64)]\ndef get_init_inputs():\n    return [torch.randn(64)]\n"
    )
    spawned: list[Any] = []
    spawn = RunnerPool.spawn

    def counted(self: RunnerPool, *arguments: Any) -> Any:
        runner = spawn(self, *arguments)
        if self is not judge._trusted:
            spawned.append(runner)
        return runner

    monkeypatch.setattr(RunnerPool, "spawn", counted)
    monkeypatch.setattr(Cpu, "sanitizers", (("memcheck", RUNS),))
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1, sanitize=True, policy="any")
    same = Candidate(source.replace("class Model(", "class ModelNew("))
    verdict = judge.evaluate(Problem.from_source(source), same, settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert "not checked by memcheck: the module takes tensors to be constructed" in verdict.notes
    assert all(runner._ended is not None for runner in spawned)


# -- the processor's own: what a program compiles is instrumented ----------------------------------------------------

PASTS_END = "volatile long n = rows * columns; volatile float past = y[n]; (void)past;"
OVERRUNS_ARRAY = "float few[4] = {0, 0, 0, 0}; volatile long n = 4; few[n - 1] = few[n];"


def has_library() -> bool:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        return False
    path = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return os.path.isabs(path)


needs_library = pytest.mark.skipif(not has_library(), reason="needs g++ with AddressSanitizer's library")


@needs_library
@pytest.mark.parametrize(
    ("native", "words"),
    [(PASTS_END, ("heap-buffer-overflow", "READ of size 4", "k.cpp:")), (OVERRUNS_ARRAY, ("k.cpp:", "out of bounds"))],
)
def test_a_fault_of_a_kernel_is_found_with_its_line(
    judge: Any, scale_relu: Any, native: str, words: tuple[str, ...]
) -> None:
    verdict = judge.evaluate(scale_relu, Candidate(program(native=native)), SANITIZED)
    assert (verdict.outcome, verdict.rule) == (Outcome.REJECTED, "sanitizer"), verdict.detail
    assert verdict.detail.startswith("AddressSanitizer found a fault:\n")
    assert all(word in verdict.detail for word in words), verdict.detail


@needs_library
def test_an_honest_kernel_is_clean(judge: Any, scale_relu: Any) -> None:
    verdict = judge.evaluate(scale_relu, Candidate(program()), SANITIZED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence.sanitized == ("AddressSanitizer",)
    assert not is_unchecked(verdict)


@needs_library
def test_a_program_that_compiles_nothing_is_said_to_be_unchecked(judge: Any, scale_relu: Any) -> None:
    source = scale_relu.source.replace("class Model(", "class ModelNew(")
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1, sanitize=True, policy="any")
    verdict = judge.evaluate(scale_relu, Candidate(source), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence.sanitized == ()
    assert any(note.startswith("not checked by AddressSanitizer: none of its code") for note in verdict.notes)


def test_a_report_of_the_host_is_cut_to_what_tells() -> None:
    errors = (
        "what the program prints\n==7==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7ff at pc 0x1\n"
        "WRITE of size 4 at 0x7ff thread T0\n    #0 0x7f in add(float*) /tmp/k.cpp:7\n"
        "    #1 0x7f  (/lib/libffi.so.8+0x6f79)\n    #2 0x7f in call /build/callproc.c:923\n\n"
        "    [32, 48) 'few' (line 5) <== Memory access at offset 48 overflows this variable\n"
        "SUMMARY: AddressSanitizer: ...\nShadow bytes around the buggy address:\n"
    )
    assert report_lines("", errors) == [
        "AddressSanitizer: stack-buffer-overflow",
        "WRITE of size 4 thread T0",
        "  in add(float*), /tmp/k.cpp:7",
        "[32, 48) 'few' (line 5) <== Memory access at offset 48 overflows this variable",
    ]
