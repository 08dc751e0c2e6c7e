"""What is asked of an executor, and of a plug-in that opens some.

`--executor mine:ARGUMENT` is the executor that the plug-in `mine` opens with that argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from kforge.errors import KForgeError
from kforge.types import Job, JudgingDevice, Problem, Report, Settings, Verdict

Tell = Callable[[str], None]
"""Told what is being done, in a few words."""
WAIT_PREFIX = "waiting: "
"""With this begins what is told where nothing goes on, and what would help."""


class ReportAwaited(KForgeError):
    """The job is in other hands, and there is no report yet: no fault, and the same job may be run again later."""


class Executor(Protocol):
    """Carries out jobs, each exactly once."""

    @property
    def machine(self) -> asyncio.Lock:
        """Held while this machine's processors judge; other heavy work here waits for it, so that times stay true."""
        ...

    async def run(self, job: Job, tell: Tell) -> Report:
        """The report on a job. Raises only if the problem or the harness is at fault, or ReportAwaited."""
        ...

    async def close(self) -> None:
        """End everything it started."""
        ...


@runtime_checkable
class ProblemCheck(Protocol):
    """What an executor may offer besides: a look at a problem before a model is paid for a program."""

    async def check_problem(self, problem: Problem, settings: Settings, tell: Tell) -> None:
        """Run the problem's own code once; ProblemError says what is wrong with it. What is learned is kept."""
        ...


@runtime_checkable
class HardwareChoice(Protocol):
    """What an executor may offer that has devices of several models: programs of one run are judged on one of them."""

    def keep_to_hardware(self, model: str) -> None:
        """From the first job on: devices that evidence calls so (`Evidence.hardware`). The first choice stays;
        HarnessError for another one.
        """
        ...

    async def facts(self, tell: Tell) -> dict[str, str]:
        """Of the model that jobs are judged on, which is chosen now if none was. Waits until there is such a device."""
        ...


@runtime_checkable
class DeviceChoice(Protocol):
    """What an executor may offer that has several devices: another one for a second measurement."""

    async def run_apart(self, job: Job, tell: Tell, device: JudgingDevice) -> Report:
        """As `run`, on another device than that where there is one, by preference of another host."""
        ...


async def run_apart(executor: Executor, job: Job, tell: Tell, verdict: Verdict) -> Report:
    """A further report on a job, from another device than an earlier verdict, where the executor has several."""
    if verdict.evidence is not None and isinstance(executor, DeviceChoice):
        return await executor.run_apart(job, tell, verdict.evidence.judging_device)
    return await executor.run(job, tell)


class ExecutorPlugin:
    """Opens the executors of one name. Subclass it in `execution/plugins/<name>.py`, or in a package of your own.

    Only `name` and `open` are required. The argument is what stands behind the colon, empty without one.
    """

    name = ""
    """The file's name: what stands before the colon."""
    form = ""
    """How a user writes it, for whoever got it wrong: `bundle:DIR`."""
    what = ""
    """Who judges, in a few words."""
    judges_here = False
    """Whether programs are judged on this machine: its platform must be usable then, and prompts speak of its facts."""

    leaves_jobs = False
    """Whether a job may be left in other hands, so that its report comes later: `run` raises ReportAwaited then."""

    def unavailable_reason(self) -> str:
        """Why no such executor can be opened here, with the cure; empty if one can."""
        return ""

    def open(self, argument: str, platform: str) -> Executor:
        """The executor for a platform's jobs. Nothing is started before the first job."""
        raise NotImplementedError

    def canonical(self, argument: str) -> str:
        """The argument as it means the same in every folder and process; UsageError for one that makes no sense."""
        return argument

    def check(self, argument: str, platform: str) -> None:
        """Before a run: UsageError or PluginAbsent, with the cure, for what would keep it from judging."""

    def places(self, argument: str, platform: str) -> int:
        """How many programs can be in hand at once now, on machines of their own; 0 for as many as suit this one."""
        return 0

    def facts(self, argument: str, platform: str) -> dict[str, str]:
        """A platform's facts on the machine that judges, where that is another; empty if nothing is known of it.

        A key `emulated` among them says that programs run on an emulator there.
        """
        return {}
