"""The executor of this machine: closing it ends what is under way."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from kforge.errors import HarnessError
from kforge.execution.local import LocalExecutor
from kforge.types import Candidate, Job, Problem

pytestmark = pytest.mark.pure

JOB = Job("one", Problem("sample", "class Model: ..."), Candidate("class ModelNew: ..."))


class Endless:
    """A judge that comes to no verdict before it is closed."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.closed = threading.Event()

    def report(self, job: Job, tell: Any) -> Any:
        self.began.set()
        assert self.closed.wait(30)
        raise HarnessError("closed")

    def close(self) -> None:
        self.closed.set()


def test_closing_ends_a_judgement_that_is_under_way() -> None:
    judge = Endless()

    async def interrupted() -> float:
        executor = LocalExecutor("cpu")
        executor._judges = judge  # type: ignore[assignment]
        running = asyncio.create_task(executor.run(JOB, lambda _: None))
        await asyncio.to_thread(judge.began.wait, 10)
        running.cancel()
        began = time.monotonic()
        await executor.close()
        with pytest.raises(HarnessError, match="closed"):
            await executor.run(JOB, lambda _: None)
        return time.monotonic() - began

    assert asyncio.run(interrupted()) < 5
    assert judge.closed.is_set()
