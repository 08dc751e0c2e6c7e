"""Shared fixtures. A tier that cannot run on this machine is skipped by name, with the reason."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    wants = {mark.name for mark in item.iter_markers()}
    if wants & {"cpu", "toolchain", "sandbox"} and importlib.util.find_spec("torch") is None:
        pytest.skip("tier cpu: torch is not installed")
    if wants & {"toolchain", "sandbox"} and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("tier toolchain: no C++ compiler (apt-get install g++)")
    if "accelerator" in wants:
        reason = _no_accelerator()
        if reason:
            pytest.skip(f"tier accelerator: {reason}")


@functools.cache
def _no_accelerator() -> str:
    """Why this machine's accelerator cannot be used; empty if it can."""
    from kforge import registry

    platform = registry.load("platforms", "cuda")
    if platform.emulated:
        return "no NVIDIA driver: libcuda.so.1 is not on this machine (install it; `nvidia-smi` must list the GPU)"
    return str(platform.absent_because())


@pytest.fixture(scope="session")
def judge() -> Iterator[Any]:
    """One warm judge for the whole run, as in use."""
    from kforge.worker.judge.judge import Judge

    with Judge("cpu") as judge:
        yield judge


@pytest.fixture(scope="session")
def scale_relu() -> Any:
    from kforge import Problem

    return Problem.from_file(HERE / "catalogue" / "problems" / "scale_relu.py")


@pytest.fixture(scope="session")
def honest() -> Any:
    from kforge import Candidate

    return Candidate((HERE / "catalogue" / "benign" / "example_style.py").read_text())


@pytest.fixture
def situation_fresh(scale_relu: Any) -> Any:
    """The first move on a small problem."""
    import makers

    return makers.situation(scale_relu)
