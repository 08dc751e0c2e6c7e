"""Jobs for null workers, and controllers in the test's own process that ask for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from cluster_processes import ClusterProcesses

from conditions import PATIENCE
from kforge.cluster.address import parse_address
from kforge.cluster.executor import ClusterExecutor
from kforge.types import Candidate, Job, Problem

PROBLEM = Problem("sample", "class Model: ...", path="/somewhere/sample.py")
RELU = """import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""
"""A problem that can be judged."""
T = TypeVar("T")


def job(text: str, name: str = "") -> Job:
    return Job(name or text, PROBLEM, Candidate(f"# {text}\nclass ModelNew: ...", "cpu", "a parent"))


def silent(_: str) -> None:
    """Tells nobody."""


def drive(work: Coroutine[Any, Any, T], seconds: float = 2 * PATIENCE) -> T:
    return asyncio.run(asyncio.wait_for(work, seconds))


@contextlib.asynccontextmanager
async def controller(cluster: ClusterProcesses, platform: str = "cpu") -> Any:
    executor = ClusterExecutor(parse_address(cluster.url, cluster.tls), platform)
    try:
        yield executor
    finally:
        await executor.close()


def run_all(cluster: ClusterProcesses, jobs: list[Job], tell: Callable[[str], None] = silent) -> list[Any]:
    """The reports, or what was raised instead, in the jobs' order."""

    async def work() -> list[Any]:
        async with controller(cluster) as executor:
            return await asyncio.gather(*(executor.run(each, tell) for each in jobs), return_exceptions=True)

    return drive(work())


def judged(log: Path) -> list[str]:
    """The first line of every program that was begun, in order."""
    return [line.split(" ", 2)[2] for line in log.read_text().splitlines()] if log.exists() else []
