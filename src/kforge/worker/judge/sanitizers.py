"""The gate for winners: the platform's own memory and race checkers, on one call of the program alone."""

from __future__ import annotations

import re
import signal

from kforge.platforms.base import Platform
from kforge.types import Candidate, Settings
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge.explain import cut
from kforge.worker.judge.runner_handle import ProgramError, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.session import ProblemSession
from kforge.worker.judge.standalone import NeedsTensors, run_standalone
from kforge.worker.wire import FINISHED

_SECONDS = 240.0
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Every tensor its own allocation, so that reading past its end is seen."""
_NOISE = re.compile(r"^=+ (COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY)|^\s*$")
_FOUND, _NOT_FOUND = 86, 127
_TOOL_FAILED = re.compile(
    r"Internal Sanitizer Error|Device not supported|Unable to find injection|not supported on this"
    r"|stream is capturing|StreamCapture|out of memory|OutOfMemoryError|too many resources"
)
"""The tool's own failures, and what its bookkeeping and the missing cache of memory make impossible."""


class Fault(Exception):
    """A checker found something; the message says what."""


class Unchecked(Exception):
    """A checker could not be used; the message says why."""


def sanitize(
    session: ProblemSession,
    candidate: Candidate,
    settings: Settings,
    platform: Platform,
    runner_pool: RunnerPool,
    build: bytes,
) -> tuple[list[str], list[str]]:
    """(checkers that found nothing, checkers that could not run, with the reason). Fault where one found something."""
    clean: list[str] = []
    unused: list[str] = []
    for name, command in platform.sanitizers:
        try:
            _run_checker(name, command, session, candidate, settings, runner_pool, build)
            clean.append(name)
        except Unchecked as error:
            unused.append(f"{name}: {error}")
    if not platform.sanitizers and not platform.emulated:
        # An emulator checks memory and races itself.
        unused.append(f"a memory or race checker: platform {platform.name} has none")
    return clean, unused


def _run_checker(
    name: str,
    command: tuple[str, ...],
    session: ProblemSession,
    candidate: Candidate,
    settings: Settings,
    runner_pool: RunnerPool,
    build: bytes,
) -> None:
    try:
        answer = run_standalone(
            session, candidate, settings, runner_pool, build, command, (FINISHED,), _SECONDS, environment=_ENVIRONMENT
        )
    except NeedsTensors:
        raise Unchecked("the module takes tensors to be constructed") from None
    except (RunnerLost, ProgramError, DeviceMemoryFull) as error:
        raise Unchecked(str(error)[:300]) from None
    status, output = answer.status, answer.output
    if status == _FOUND:
        lines = [line for line in output.splitlines() if line.startswith("=========") and not _NOISE.search(line)]
        raise Fault(f"{name} found a fault:\n" + cut("\n".join(lines[:12]), 1500))
    if status == 0:
        if FINISHED not in answer.files:
            raise Fault(f"under {name} it ended before its calls were made")
        return
    last = (answer.errors.strip() or output.strip()).splitlines()[-1:]
    message = f"it ended with status {status}" + (f": {last[0][:200]}" if last else "")
    if status in (-signal.SIGKILL, _NOT_FOUND) or _TOOL_FAILED.search(output + answer.errors):
        raise Unchecked(message)
    # A gate that is passed by failing at it is none.
    raise Fault(f"it does not run under {name}: {message}")
