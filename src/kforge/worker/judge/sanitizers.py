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
from kforge.worker.wire import FINISHED, UNINSTRUMENTED

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


_HOST_REPORT = re.compile(r"ERROR: AddressSanitizer|^\S.*: runtime error: ", re.MULTILINE)
_HOST_LINE = re.compile(
    r"ERROR: AddressSanitizer|^(?:READ|WRITE) of size|: runtime error: |is located \d+ bytes|<== Memory access"
)
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ in (?P<what>.+) (?P<where>\S+:\d+)(?::\d+)?$")
_LIBRARY_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ .*\(/\S+\+0x[0-9a-f]+\)")
_ADDRESSES = re.compile(
    r"^(?:==\d+==\s*)?ERROR: | on (?:unknown )?address 0x[0-9a-f]+.*| at 0x[0-9a-f]+|^0x[0-9a-f]+ is "
    r"|\s*\[0x[0-9a-f]+,0x[0-9a-f]+\)"
)
_MOST_DEVICE_LINES, _MOST_LINES, _MOST_FRAMES = 12, 8, 3


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


def report_lines(output: str, errors: str) -> list[str]:
    """The few lines of a checker's report that tell what happened, and where."""
    begins = _HOST_REPORT.search(errors)
    if begins is None:
        device = [line for line in output.splitlines() if line.startswith("=========") and not _NOISE.search(line)]
        return device[:_MOST_DEVICE_LINES]
    lines: list[str] = []
    frames_left = _MOST_FRAMES
    for line in errors[begins.start() :].splitlines():
        frame = _FRAME.match(line)
        if frame is not None and frames_left > 0:
            frames_left -= 1
            lines.append(f"  in {frame['what']}, {frame['where']}")
        elif _LIBRARY_FRAME.match(line):
            # Whoever called the program's code is of no interest.
            frames_left = 0
        elif _HOST_LINE.search(line):
            frames_left = _MOST_FRAMES if line.startswith(("READ", "WRITE")) else 0
            lines.append(_ADDRESSES.sub("", line).strip())
    return lines[:_MOST_LINES]


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
            session,
            candidate,
            settings,
            runner_pool,
            build,
            command,
            (FINISHED, UNINSTRUMENTED),
            _SECONDS,
            environment=_ENVIRONMENT,
            address_space=False,
        )
    except NeedsTensors:
        raise Unchecked("the module takes tensors to be constructed") from None
    except (RunnerLost, ProgramError, DeviceMemoryFull) as error:
        raise Unchecked(str(error)[:300]) from None
    status, output = answer.status, answer.output
    if status == _FOUND:
        raise Fault(f"{name} found a fault:\n" + cut("\n".join(report_lines(output, answer.errors)), 1500))
    if status == 0:
        if FINISHED not in answer.files:
            raise Fault(f"under {name} it ended before its calls were made")
        if UNINSTRUMENTED in answer.files:
            raise Unchecked("none of its code was compiled by a compiler that could be told to look")
        return
    last = (answer.errors.strip() or output.strip()).splitlines()[-1:]
    message = f"it ended with status {status}" + (f": {last[0][:200]}" if last else "")
    if status in (-signal.SIGKILL, _NOT_FOUND) or _TOOL_FAILED.search(output + answer.errors):
        raise Unchecked(message)
    # A gate that is passed by failing at it is none.
    raise Fault(f"it does not run under {name}: {message}")
