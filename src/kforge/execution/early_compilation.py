"""A dead end found early: programs for CUDA are compiled here before their jobs travel to the device.

On where it is possible; `?compile=device` behind an executor's name turns it off, as in `bundle:DIR?compile=device`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kforge.execution.base import Tell
from kforge.execution.nvrtc_availability import unavailable_reason
from kforge.types import Job, Report

if TYPE_CHECKING:
    from kforge.worker.judge.early_compiler import EarlyCompiler

OFF = "compile=device"
"""The option of an executor's name that leaves compiling to the device."""
_PLATFORM = "cuda"
_MOST_AT_ONCE = 4


def split_option(argument: str) -> tuple[str, bool]:
    """An executor's argument without the option, and whether the option was there."""
    place, mark, options = argument.rpartition("?")
    words = options.split("&")
    if not mark or OFF not in words:
        return argument, False
    left = "&".join(word for word in words if word != OFF)
    return (f"{place}?{left}" if left else place), True


def with_option(argument: str, off: bool) -> str:
    """The argument with the option behind it, where it is off."""
    return f"{argument}{'&' if '?' in argument else '?'}{OFF}" if off else argument


class EarlyCompilation:
    """Compiles the programs of an executor whose device is elsewhere. Nothing is started before the first of them."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._compiler: EarlyCompiler | None = None
        self._starting = threading.Lock()
        self._is_impossible = self._closed = False

    async def report(self, job: Job, devices: Sequence[dict[str, str]], tell: Tell) -> Report | None:
        """A report on a program that surely does not compile there; None for any other, which has to travel.

        `devices`: the facts of each kind of device that it may be judged on.
        """
        if job.candidate.platform != _PLATFORM or not devices or self._is_impossible or self._closed:
            return None
        if self._threads is None:
            at_once = max(1, min(_MOST_AT_ONCE, (os.cpu_count() or 1) // 2))
            self._threads = ThreadPoolExecutor(at_once, "kforge-compile")
        tell("compiling")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._report, job, tuple(devices))

    async def close(self) -> None:
        """End everything, what is compiled just now too."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._starting:
            if self._compiler is not None:
                self._compiler.close()

    def _report(self, job: Job, devices: Sequence[dict[str, str]]) -> Report | None:
        compiler = self._started_compiler()
        return compiler.report(job, devices) if compiler is not None else None

    def _started_compiler(self) -> EarlyCompiler | None:
        """None where nothing can be compiled here."""
        with self._starting:
            if self._compiler is None and not self._is_impossible and not self._closed:
                self._is_impossible = bool(unavailable_reason())
                if not self._is_impossible:
                    # It imports torch, which a controller does without.
                    from kforge.worker.judge.early_compiler import EarlyCompiler

                    self._compiler = EarlyCompiler()
            return self._compiler


def early_compilation(platform: str, off: bool) -> EarlyCompilation | None:
    """For the programs of a platform; None where there is nothing to compile, or it is left to the device."""
    return EarlyCompilation() if platform == _PLATFORM and not off else None
