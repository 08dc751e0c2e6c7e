"""What judging over a cluster costs, and whether it survives what clusters do; on loopback, each part a process.

    python benchmarks/cluster.py overhead          for each job, over the local executor (null judges)
    python benchmarks/cluster.py workers           8 workers with jobs of 1 s, against 1
    python benchmarks/cluster.py many              200 workers and 20,000 jobs (null judges)
    python benchmarks/cluster.py steering          how often workers open a problem, with steering and without
    python benchmarks/cluster.py kills             30 kills of workers and scheduler in an experiment of 300 cells
    python benchmarks/cluster.py outage            a network that is switched off for a minute, under jobs (--seconds;
                                                   Linux, as root: it is one of its own)
    python benchmarks/cluster.py judges            two real CPU judges with a core each, against one
    python benchmarks/cluster.py same              verdicts of a worker beside those of the local executor
                                                   (--platform cuda: on a GPU)

Ratios are of one run on one machine; the figures are in docs/results/cluster-figures.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from cluster_processes import ClusterProcesses

import bundle_maker
from kforge import registry
from kforge.cluster.address import parse_address
from kforge.cluster.executor import ClusterExecutor
from kforge.cluster.inquiry import take_census
from kforge.cluster.warm_workers import WarmWorkers
from kforge.execution.local import LocalExecutor
from kforge.experiments.progress import News
from kforge.experiments.resume_plan import begin
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.models.scripted import Scripted
from kforge.problems import find
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import Candidate, Configuration, Experiment, Job, Problem, Prompt, Report, Settings

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = Problem("sample", "class Model: ...")
_IN_ONE_PROCESS = 10
SOURCE = (ROOT / "src/kforge/platforms/cpu/example/candidate.py").read_text()


def silent(_: str) -> None:
    """Tells nobody."""


def job(number: int) -> Job:
    return Job(str(number), PROBLEM, Candidate(f"# {number}\n{SOURCE}"))


def address(cluster: ClusterProcesses) -> Any:
    return parse_address(cluster.url)


@contextlib.asynccontextmanager
async def controller(cluster: ClusterProcesses) -> AsyncIterator[ClusterExecutor]:
    executor = ClusterExecutor(address(cluster), "cpu")
    try:
        yield executor
    finally:
        await executor.close()


async def run_jobs(executor: ClusterExecutor, jobs: list[Job]) -> list[Report]:
    return await asyncio.gather(*(executor.run(each, silent) for each in jobs))


# -- overhead --------------------------------------------------------------------------------------------------------


class NullJudges:
    """In the place of this machine's judges."""

    def report(self, job: Job, tell: Any) -> Report:
        report: Report = bundle_maker.report_on(job, 1.5)
        return report

    def close(self) -> None:
        """Nothing was started."""


async def one_after_another(executor: Any, count: int) -> list[float]:
    """Seconds for each job, the first few left out."""
    seconds = []
    for number in range(count + 10):
        began = time.perf_counter()
        await executor.run(job(number), silent)
        seconds.append(time.perf_counter() - began)
    return seconds[10:]


def overhead(count: int) -> None:
    async def work(cluster: ClusterProcesses) -> tuple[list[float], list[float]]:
        local = LocalExecutor("cpu")
        local._judges = NullJudges()  # type: ignore[assignment]
        async with controller(cluster) as executor:
            there = await one_after_another(executor, count)
        here = await one_after_another(local, count)
        await local.close()
        return here, there

    with ClusterProcesses() as cluster:
        cluster.add_worker()
        here, there = asyncio.run(work(cluster))
    difference = [1000 * (a - b) for a, b in zip(sorted(there), sorted(here), strict=True)]
    print(f"local    p50 {1000 * statistics.median(here):.2f} ms")
    print(
        f"cluster  p50 {1000 * statistics.median(there):.2f} ms, p95 {1000 * sorted(there)[int(0.95 * count)]:.2f} ms"
    )
    p50 = 1000 * (statistics.median(there) - statistics.median(here))
    print(f"overhead for each of {count} jobs: p50 {p50:.2f} ms (bar: 15 ms), at most {max(difference):.1f} ms")


# -- workers ---------------------------------------------------------------------------------------------------------


def workers(jobs_each: int) -> None:
    seconds = {}
    for count in (1, 8):

        async def work(cluster: ClusterProcesses, count: int = count) -> float:
            async with controller(cluster) as executor:
                await run_jobs(executor, [job(-each - 1) for each in range(count)])
                began = time.perf_counter()
                await run_jobs(executor, [job(number) for number in range(8 * jobs_each)])
                return time.perf_counter() - began

        with ClusterProcesses() as cluster:
            cluster.add_workers(count, "--seconds", "1")
            seconds[count] = asyncio.run(work(cluster))
            print(f"{count} workers: {8 * jobs_each} jobs of 1 s in {seconds[count]:.1f} s", flush=True)
    print(f"8 workers against 1: {seconds[1] / seconds[8]:.2f} times (bar: 7.6)")


# -- many ------------------------------------------------------------------------------------------------------------


def many(count: int, jobs: int) -> None:
    """Ten Dask workers to a process: two cores have no room for 200 processes. Every job has a problem of its own: what
    is steered goes to a process, and here that is ten workers.
    """

    def lone_job(number: int) -> Job:
        return replace(job(number), problem=Problem(f"p{number}", f"class Model: {number}"))

    async def work(cluster: ClusterProcesses) -> None:
        numbers = itertools.count()
        done = 0

        async def asker(executor: ClusterExecutor) -> None:
            nonlocal done
            while (number := next(numbers)) < jobs:
                await executor.run(lone_job(number), silent)
                done += 1

        async def watch() -> None:
            for part in range(1, 11):
                while done < part * jobs // 10:
                    await asyncio.sleep(0.2)
                print(f"{done} jobs: {resident_mib():.0f} MiB", flush=True)

        async with controller(cluster) as executor:
            await executor.run(job(-1), silent)
            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(asker(executor) for _ in range(3 * count)), watch())
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        each = 1000 * cpu / jobs
        print(
            f"{jobs} jobs in {wall:.0f} s ({1000 * wall / jobs:.2f} ms each); controller {each:.2f} ms each (bar: 8 ms)"
        )

    with ClusterProcesses() as cluster:
        cluster.add_workers(-(-count // _IN_ONE_PROCESS), "--workers", str(_IN_ONE_PROCESS))
        while len(take_census(address(cluster), fresh=True).workers) < count:
            time.sleep(0.5)
        print(f"{count} workers serve", flush=True)
        asyncio.run(work(cluster))


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


# -- steering --------------------------------------------------------------------------------------------------------

_OPENING_SECONDS, _JUDGING_SECONDS = 0.6, 0.3


def steering(jobs_each: int) -> None:
    """Cells side by side on workers that keep three problems each, as the judges of processors do; a cell asks for one
    job after another, with some time in between, in which its model would think.
    """
    problems, at_once, count = 24, 8, 4
    chance = random.Random(1)
    pauses = {(cell, step): chance.uniform(0, 0.6) for cell in range(problems) for step in range(jobs_each)}
    for is_steered in (False, True):

        async def work(cluster: ClusterProcesses) -> float:
            numbers = iter(range(problems))

            async def cell(executor: ClusterExecutor) -> None:
                for number in numbers:
                    problem = Problem(f"p{number}", f"class Model: {number}")
                    for step in range(jobs_each):
                        await asyncio.sleep(pauses[number, step])
                        await executor.run(Job("j", problem, Candidate(f"# {number} {step}\n{SOURCE}")), silent)

            async with controller(cluster) as executor:
                await executor.run(job(-1), silent)
                began = time.perf_counter()
                await asyncio.gather(*(cell(executor) for _ in range(at_once)))
                return time.perf_counter() - began

        with tempfile.TemporaryDirectory() as folder, ClusterProcesses() as cluster:
            opened = Path(folder) / "opened"
            times = ("--seconds", str(_JUDGING_SECONDS), "--open-seconds", str(_OPENING_SECONDS), "--kept", "3")
            cluster.add_workers(count, *times, "--opened", str(opened))
            with mock.patch.object(WarmWorkers, "steer", WarmWorkers.steer if is_steered else lambda *_: []):
                spent = asyncio.run(work(cluster))
            lines = [line.split() for line in opened.read_text().splitlines()]
            each = sorted(Counter(worker for worker, name in lines if name != PROBLEM.name).values())
        print(
            f"{'with' if is_steered else 'without'} steering: {problems} problems, {problems * jobs_each} jobs, "
            f"{at_once} cells at once: {sum(each)} times a problem was opened ({', '.join(map(str, each))} by each of "
            f"{count} workers), {spent:.1f} s",
            flush=True,
        )


# -- kills -----------------------------------------------------------------------------------------------------------


class Writer:
    """Writes a program that nobody else writes, and counts how often each question was asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def reply(self, prompt: Prompt) -> str:
        self.asked[f"{prompt.purpose}/{prompt.sample}/{prompt.text}"] += 1
        return f"```python\n# {sum(self.asked.values())}\n{SOURCE}```\n"


class Saboteur:
    """Kills a worker or the scheduler, with SIGKILL, and starts another in its place."""

    def __init__(self, cluster: ClusterProcesses, kills: int, seed: int) -> None:
        self._cluster, self._kills, self._chance = cluster, kills, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.stopped = threading.Event()

    def work(self) -> None:
        for _ in range(self._kills):
            if self.stopped.wait(self._chance.uniform(0.3, 1.5)):
                return
            if self._chance.random() < 0.25:
                self._cluster.kill_scheduler()
                self._cluster.start_scheduler()
                self.done["scheduler"] += 1
            else:
                victim = self._chance.choice(self._cluster.workers)
                victim.signal(signal.SIGKILL)
                victim.wait()
                self._cluster.workers.remove(victim)
                self.done["worker"] += 1
                self._cluster.add_worker(*_KILLED_WORKER, wait=False)


_KILLED_WORKER = ("--seconds", "0.5", "--slots", "2", "--model", "elsewhere")
"""Of the model that its reports name, so that a resumed run finds it again."""
_TEMPLATE = """import torch
import torch.nn as nn
N = {n}
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * N
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return []
"""


def kills(cells: int, count: int, seed: int) -> int:
    """A scripted experiment under fire, worked on until all of it is done; 0 if nothing was lost or done twice."""
    problems = {
        f"level1/p{number}": Problem.from_source(_TEMPLATE.format(n=number + 2), f"p{number}", level=1, number=number)
        for number in range(cells)
    }
    way = Configuration("scripted", ("scripted:a",), {"iterations": 2, "profiling": "none"})
    writer, sessions = Writer(), 0
    told: list[tuple[str, int, int]] = []

    def tell(news: News) -> None:
        if news.event is not None and news.event.attempt is not None:
            told.append((news.cell.problem, news.event.chain, news.event.step))

    with tempfile.TemporaryDirectory() as folder, ClusterProcesses() as cluster, Store.open(f"{folder}/store") as store:
        wanted = Experiment("kills", problems, (way,), executor=f"dask:{cluster.url}")
        name = begin(wanted, store)
        cluster.add_workers(3, *_KILLED_WORKER)
        saboteur = Saboteur(cluster, count, seed)
        sabotage = threading.Thread(target=saboteur.work)
        sabotage.start()
        began = time.perf_counter()
        try:
            while sessions < 10:
                sessions += 1
                access = ModelAccess(models={"scripted:a": Scripted(writer.reply, name="scripted:a")})
                states = asyncio.run(conduct(name, ExperimentEnvironment(store, access, parallel=12, tell=tell)))
                failures = [state.failure for state in states.values() if state.failure]
                print(f"session {sessions}: {len(failures)} cells failed {failures[:1]}", flush=True)
                if len(states) == cells and all(state.finished for state in states.values()) and not failures:
                    break
        finally:
            saboteur.stopped.set()
            sabotage.join()
        spent = time.perf_counter() - began
        histories = [store.history(state.run, profiles=False) for state in states.values()]
    steps = Counter(
        (number, attempt.move.chain, attempt.move.step)
        for number, history in enumerate(histories)
        for attempt in history
    )
    kept = len(steps)
    lost = len(set(told)) - kept
    twice = sum(steps.values()) - kept
    repeated = sum(writer.asked.values()) - len(writer.asked)
    whole = all([item.move.step for item in history] == list(range(1, len(history) + 1)) for history in histories)
    print(
        f"{dict(saboteur.done)} killed in {spent:.0f} s of {cells} cells, seed {seed}: {kept} attempts, {lost} lost, "
        f"{twice} recorded twice, {repeated} model calls repeated; steps {'whole' if whole else 'BROKEN'}; "
        f"{sessions} sessions"
    )
    return 0 if not (lost or twice or repeated) and whole and kept == 2 * cells else 1


# -- outage ----------------------------------------------------------------------------------------------------------


def outage(seconds: float, is_apart: bool) -> int:
    """Six jobs of 3 s on a worker with two places; the network is gone while two are in hand. 0 if all are answered.

    In a network of this process's own, whose only device is switched off: packets are lost, and no process is stopped.
    """
    if not is_apart:
        command = ["unshare", "--net", sys.executable, *sys.argv, "--apart"]
        return subprocess.run(command).returncode
    network("up")

    async def work(cluster: ClusterProcesses, log: Path) -> tuple[list[Report], float]:
        async with controller(cluster) as executor:
            running = asyncio.gather(*(executor.run(job(number), silent) for number in range(6)))
            while not log.exists():
                await asyncio.sleep(0.05)
            network("down")
            await asyncio.sleep(seconds)
            network("up")
            began = time.perf_counter()
            return await running, time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder, ClusterProcesses() as cluster:
        log = Path(folder) / "log"
        cluster.add_worker("--seconds", "3", "--slots", "2", "--log", str(log))
        reports, waited = asyncio.run(work(cluster, log))
        judged = Counter(line.split()[1] for line in log.read_text().splitlines())
    answered = [report.job for report in reports] == [str(number) for number in range(6)]
    print(
        f"network gone for {seconds:.0f} s: {len(reports)} of 6 jobs answered, the last {waited:.0f} s after "
        f"it was back; judged {sum(judged.values())} times"
    )
    return 0 if answered else 1


def network(state: str) -> None:
    """Switch the only device of this process's network on or off."""
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


# -- judges ----------------------------------------------------------------------------------------------------------


def judges(jobs: int) -> None:
    """Verdicts in a time, on one core and on two; and what the same program says of itself."""
    problem = Problem.from_file(ROOT / "tests/catalogue/problems/scale_relu.py")
    source = (ROOT / "tests/catalogue/benign/example_style.py").read_text()
    settings = Settings(compile_baseline=False, policy="any", timing_seconds=0.5)
    same = problem.source.replace("class Model(", "class ModelNew(")
    rates, ratios = {}, {}
    print(f"two plain programs on the cores against one: {plain_gain():.2f} times", flush=True)
    for cores in (("0",), ("0", "1")):

        async def work(cluster: ClusterProcesses, count: int = len(cores)) -> tuple[float, list[Report], list[Report]]:
            async with controller(cluster) as executor:
                numbered = [Job(f"{n}", problem, Candidate(f"# {n}\n{source}"), settings) for n in range(jobs * count)]
                await run_jobs(
                    executor, [Job(f"w{n}", problem, Candidate(f"# w{n}\n{source}"), settings) for n in range(4)]
                )
                began = time.perf_counter()
                timed = await run_jobs(executor, numbered)
                spent = time.perf_counter() - began
                # Each on a problem of its own: what a process's memory looks like makes it some percent faster or
                # slower than another for as long as it lives, and a problem's baseline is one process.
                problems = [replace(problem, source=f"# {n}\n{problem.source}") for n in range(jobs * count)]
                twins = [Job(f"a{n}", own, Candidate(f"# a{n}\n{same}"), settings) for n, own in enumerate(problems)]
                return jobs * count / spent, timed, await run_jobs(executor, twins)

        with ClusterProcesses() as cluster:
            for core in cores:
                cluster.add_judging_worker("--platforms", "cpu", cores=core)
            print(f"load {os.getloadavg()[0]:.2f} before {len(cores)} judges begin")
            rates[len(cores)], timed, reports = asyncio.run(work(cluster))
        ratios[len(cores)] = [report.verdict.speedup for report in reports if report.verdict.speedup]
        outcomes = Counter(report.verdict.outcome.value for report in reports)
        contended = sum(report.verdict.contended for report in reports)
        print(f"{len(cores)} judges: {3600 * rates[len(cores)]:.0f} verdicts an hour; {phases(timed)}", flush=True)
        median = statistics.median(ratios[len(cores)]) if ratios[len(cores)] else float("nan")
        print(
            f"  A/A: median {median:.4f} of {len(ratios[len(cores)])}; {dict(outcomes)}, contended {contended}",
            flush=True,
        )
    print(f"two judges against one: {rates[2] / rates[1]:.2f} times (bar: 1.7)")


_PLAIN = """
import os, sys, time, torch
os.sched_setaffinity(0, {int(sys.argv[1])})
torch.set_num_threads(1)
x, done = torch.randn(512, 1024), 0
print("ready", flush=True)
input()
end = time.monotonic() + 3
while time.monotonic() < end:
    torch.relu(x)
    done += 1
print(done)
"""


def plain_gain() -> float:
    """What this machine gives two programs that know nothing of each other, a core each, over one of them."""

    def calls(cores: tuple[str, ...]) -> int:
        words = [[sys.executable, "-c", _PLAIN, core] for core in cores]
        started = [subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for each in words]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        return sum(int(said) for said in each_told(started))

    def each_told(started: list[subprocess.Popen[str]]) -> list[str]:
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate()[0] for process in started]

    return 2 * calls(("0", "1")) / (calls(("0",)) + calls(("1",)))


def phases(reports: list[Report]) -> str:
    """What a verdict's seconds went to, and how many of the times are contended."""
    spent: Counter[str] = Counter()
    for report in reports:
        if report.verdict.evidence is not None:
            spent.update(report.verdict.evidence.seconds)
    each = ", ".join(f"{name} {seconds / len(reports):.2f} s" for name, seconds in spent.items())
    return f"each {each}; contended {sum(report.verdict.contended for report in reports)} of {len(reports)}"


def same(platform: str) -> int:
    """The example kernels of a platform and a program that is wrong, judged here and by a worker; 0 if they agree."""
    settings = Settings(compile_baseline=False, timing_seconds=0.5)
    jobs = []
    for kernel in sorted((ROOT / "examples/kernels" / platform).glob("level*.py")):
        level, number, _ = kernel.stem.split("_", 2)
        (problem,) = find(f"bundled:{level}/{number}")
        text = kernel.read_text()
        jobs.append(Job(kernel.stem, problem, Candidate(text, platform), settings))
    reference, example = registry.load("platforms", platform).example()
    problem = Problem.from_source(reference, "example")
    wrong = example.replace("class ModelNew", "class Right", 1) + "\n\nclass ModelNew(Right):\n"
    wrong += "    def forward(self, x):\n        return super().forward(x) + 1\n"
    jobs += [
        Job("example", problem, Candidate(example, platform), settings),
        Job("wrong", problem, Candidate(wrong, platform), settings),
    ]

    async def here() -> list[Report]:
        executor = LocalExecutor(platform)
        try:
            return await run_jobs_in_turn(executor, jobs)
        finally:
            await executor.close()

    async def there(cluster: ClusterProcesses) -> list[Report]:
        executor = ClusterExecutor(address(cluster), platform)
        try:
            return await run_jobs_in_turn(executor, jobs)
        finally:
            await executor.close()

    with ClusterProcesses() as cluster:
        cluster.add_judging_worker("--platforms", platform)
        theirs = asyncio.run(there(cluster))
    agree = True
    for job, mine, other in zip(jobs, asyncio.run(here()), theirs, strict=True):
        outcomes = mine.verdict.outcome, other.verdict.outcome
        hardware = {item.verdict.evidence.hardware for item in (mine, other) if item.verdict.evidence is not None}
        agree &= outcomes[0] is outcomes[1] and len(hardware) <= 1
        print(f"{job.id:<28} local {shown(mine):<34} cluster {shown(other)}", flush=True)
    print(f"outcomes {'agree' if agree else 'DIFFER'} on {', '.join(sorted(hardware))}")
    return 0 if agree else 1


async def run_jobs_in_turn(executor: Any, jobs: list[Job]) -> list[Report]:
    """One after another, so that no two are in hand at once on either side."""
    return [await executor.run(job, silent) for job in jobs]


def shown(report: Report) -> str:
    verdict = report.verdict
    if verdict.speedup is None or verdict.interval is None:
        return verdict.outcome.value
    return f"{verdict.outcome.value} {verdict.speedup:.2f} ({verdict.interval[0]:.2f} to {verdict.interval[1]:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=["overhead", "workers", "many", "steering", "kills", "outage", "judges", "same"]
    )
    parser.add_argument("--platform", default="cpu", help="for same")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="for outage")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    if given.what == "overhead":
        overhead(given.jobs or 500)
    elif given.what == "workers":
        workers(given.jobs or 10)
    elif given.what == "many":
        many(given.workers, given.jobs or 20_000)
    elif given.what == "steering":
        steering(given.jobs or 6)
    elif given.what == "kills":
        return kills(given.jobs or 300, given.kills, given.seed)
    elif given.what == "outage":
        return outage(given.seconds, given.apart)
    elif given.what == "same":
        return same(given.platform)
    else:
        judges(given.jobs or 20)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
