"""The stopwatch of a GPU: it times the device, all of it, and nothing but it."""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kforge.platforms._nvidia import gate


@pytest.mark.pure
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_120"])
def test_the_gate_is_a_program_for_every_gpu(architecture: str, tmp_path: Path) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("tier toolchain: no ptxas (it comes with CUDA's compiler)")
    (tmp_path / "gate.ptx").write_bytes(gate._PTX.rstrip(b"\0"))
    made = subprocess.run(
        ["ptxas", f"-arch={architecture}", "gate.ptx", "-o", "gate.cubin"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


@pytest.fixture(scope="module")
def watch() -> Any:
    from kforge.platforms._nvidia.stopwatch import EventStopwatch

    return EventStopwatch()


@pytest.fixture(scope="module")
def tensors() -> tuple[Any, Any]:
    """A large one and a small one."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("tier accelerator: torch sees no CUDA device")
    return torch.randn(4096, 4096, device="cuda"), torch.randn(1024, device="cuda")


def microseconds(watch: Any, call: Any, calls: int = 25) -> float:
    for _ in range(8):
        watch.time(call)
    return statistics.median(watch.time(call)[1] for _ in range(calls)) / 1e3


@pytest.mark.accelerator
def test_a_time_repeats(watch: Any, tensors: tuple[Any, Any]) -> None:
    large, _ = tensors
    first, second = (microseconds(watch, lambda: large.relu()) for _ in range(2))
    assert abs(first / second - 1) < 0.03


@pytest.mark.accelerator
def test_a_processor_that_is_held_up_now_and_then_is_not_charged(watch: Any, tensors: tuple[Any, Any]) -> None:
    _, small = tensors
    calls = itertools.count()

    def sometimes_slow_to_launch() -> Any:
        if next(calls) % 3 == 0:
            time.sleep(0.0004)
        return small.relu()

    for _ in range(8):
        watch.time(sometimes_slow_to_launch)
    assert max(watch.time(sometimes_slow_to_launch)[1] for _ in range(20)) < 50_000


@pytest.mark.accelerator
def test_a_call_that_takes_long_to_launch_every_time_is_charged(watch: Any, tensors: tuple[Any, Any]) -> None:
    _, small = tensors

    def slow_to_launch() -> Any:
        time.sleep(0.0004)
        return small.relu()

    assert microseconds(watch, slow_to_launch) > 200


@pytest.mark.accelerator
def test_a_call_that_waits_for_the_device_comes_to_an_end(watch: Any, tensors: tuple[Any, Any]) -> None:
    _, small = tensors
    began = time.monotonic()
    spent = microseconds(watch, lambda: small.relu().sum().item())
    assert 3 < spent < 1000
    assert time.monotonic() - began < 5


@pytest.mark.accelerator
def test_work_left_on_another_stream_is_charged(watch: Any, tensors: tuple[Any, Any]) -> None:
    import torch

    large, small = tensors
    other = torch.cuda.Stream()

    def sly() -> Any:
        with torch.cuda.stream(other):
            for _ in range(4):
                large.cos()
        return small.relu()

    honest = microseconds(watch, lambda: [large.cos() for _ in range(4)])
    assert microseconds(watch, sly) > 0.8 * honest
