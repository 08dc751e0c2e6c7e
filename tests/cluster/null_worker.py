"""A worker whose judge is a function: for tests of everything but the judge. Run as a script, never imported by KForge.

python null_worker.py ADDRESS [--seconds 0] [--slots 1] [--platform cpu] [--model NAME] [--tls DIR] [--log FILE] ...

A program that says POISON ends its worker, FAULT is the machine's fault here, BROKEN a broken problem's.
With --hold DIR a program whose first line ends with a word is in hand as long as DIR has a file of that name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import bundle_maker
import makers
from kforge.cluster.__main__ import end_with_input
from kforge.cluster.address import ClusterAddress, parse_address
from kforge.cluster.dask_settings import configure_process
from kforge.cluster.description import DeviceGroup, describe_process
from kforge.cluster.device_host import DeviceHost
from kforge.cluster.tasks import set_host
from kforge.cluster.worker_process import WorkerProcess, serve
from kforge.errors import HarnessError, ProblemError
from kforge.types import Job, JudgingDevice, Problem, Report, Settings


class NullJudge:
    """Takes so long for each job, and finds every program 1.5 times as fast."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.machine = asyncio.Lock()
        self._seconds, self._log, self._fault = options.seconds, options.log, options.fault
        self._opened, self._open_seconds, self._kept = options.opened, options.open_seconds, options.kept
        self._open_problems: OrderedDict[str, None] = OrderedDict()
        self._identities, self._model = options.identities or [""], options.model
        self._environment, self._hold, self._contended = options.environment, options.hold, options.contended

    async def run(self, job: Job, tell: Any) -> Report:
        return await self.run_apart(job, tell, JudgingDevice())

    async def run_apart(self, job: Job, tell: Any, device: JudgingDevice) -> Report:
        if self._environment is not None:
            # What a program that is started here finds.
            self._environment.write_bytes(subprocess.run(["env"], capture_output=True, check=True).stdout)
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(f"{os.getpid()} {job.candidate.id} {job.candidate.source.splitlines()[0]}\n")
        tell("at it")
        await self._open(job.problem)
        await asyncio.sleep(self._seconds)
        source = job.candidate.source
        while self._hold is not None and (self._hold / source.splitlines()[0].split()[-1]).exists():
            await asyncio.sleep(0.02)
        if "POISON" in source:
            # No real program is so quick that its worker has not told of it.
            await asyncio.sleep(0.6)
            os.kill(os.getpid(), signal.SIGKILL)
        if "BROKEN" in source:
            raise ProblemError("the reference raises")
        if self._fault or "FAULT" in source:
            raise HarnessError(self._fault or "the device fell off the bus")
        report = bundle_maker.report_on(job, 1.5)
        identity = next((name for name in self._identities if name != device.identity), self._identities[0])
        evidence = replace(
            report.verdict.evidence or makers.evidence(), identity=identity, device={"processor": self._model}
        )
        report = replace(report, verdict=replace(report.verdict, evidence=evidence))
        if self._contended:
            timing = makers.contended(9.0).timing
            report = replace(report, verdict=replace(report.verdict, timing=timing))
        return report

    async def _open(self, problem: Problem) -> None:
        """A real judge measures a problem's baselines when it sees it for the first time, and keeps a few problems."""
        if problem.id not in self._open_problems:
            if self._opened is not None:
                with self._opened.open("a") as file:
                    file.write(f"{os.getpid()} {problem.name}\n")
            await asyncio.sleep(self._open_seconds)
        self._open_problems[problem.id] = None
        self._open_problems.move_to_end(problem.id)
        while len(self._open_problems) > self._kept:
            self._open_problems.popitem(last=False)

    async def check_problem(self, problem: Problem, settings: Settings, tell: Any) -> None:
        if "BROKEN" in problem.source:
            raise ProblemError("the reference raises")
        if self._fault:
            raise HarnessError(self._fault)

    async def close(self) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--model", default="a null device")
    parser.add_argument("--tls", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--fault", default="")
    parser.add_argument("--hold", type=Path)
    parser.add_argument("--opened", type=Path, help="a line here for each problem that it has to open")
    parser.add_argument("--open-seconds", type=float, default=0.0)
    parser.add_argument("--kept", type=int, default=12, help="problems that it knows at once")
    parser.add_argument("--contended", action="store_true", help="its device is slowed down: its times promise nothing")
    parser.add_argument("--host", default="")
    parser.add_argument("--identities", nargs="*", default=[], help="what its devices are called, if it has several")
    parser.add_argument("--name", default="")
    parser.add_argument("--kforge", default="")
    parser.add_argument(
        "--report-seconds", type=float, default=0.0, help="between a job's end and Dask's hearing of it"
    )
    parser.add_argument("--facts", type=json.loads, default={})
    options = parser.parse_args()
    end_with_input()
    facts = {"processor": options.model, **options.facts}
    group = DeviceGroup(
        options.platform, options.model, (0,), options.slots, facts=facts, identities=tuple(options.identities)
    )
    description = describe_process((group,), "process")
    if options.host:
        object.__setattr__(description, "host", options.host)
    if options.kforge:
        object.__setattr__(description, "kforge", options.kforge)
    judge = NullJudge(options)
    host = SlowToReport(description, lambda _: judge)
    host.seconds = options.report_seconds
    address = parse_address(options.address, options.tls)
    if options.workers > 1:
        return asyncio.run(serve_many(address, host, options.workers))
    return serve(address, host, options.name, say=lambda words: print(words, flush=True))


class SlowToReport(DeviceHost):
    """Finishes a job some time before Dask hears of it, as on a machine with much else to do."""

    seconds = 0.0

    async def answer(self, *words: Any) -> bytes:
        answer = await super().answer(*words)
        await asyncio.sleep(self.seconds)
        return answer


async def serve_many(address: ClusterAddress, host: DeviceHost, count: int) -> int:
    """So many Dask workers in one process, for more of them than there is memory for."""
    configure_process()
    set_host(host)
    serving = [WorkerProcess(address, host, f"{os.getpid()}-{number}") for number in range(count)]
    await asyncio.gather(*(each._stay_connected() for each in serving))
    return 0


if __name__ == "__main__":
    sys.exit(main())
