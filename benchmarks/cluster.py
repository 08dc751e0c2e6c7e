"""What judging over a cluster costs, and whether it survives what clusters do; on loopback, each part a process.

    python benchmarks/cluster.py overhead          for each job, over the local executor (null judges)
    python benchmarks/cluster.py workers           8 workers with jobs of 1 s, against 1
    python benchmarks/cluster.py many              200 workers and 20,000 jobs (null judges)
    python benchmarks/cluster.py kills             30 kills of workers and scheduler in an experiment of 300 cells
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
import random
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from cluster_processes import ClusterProcesses

import bundle_maker
from kforge import registry
from kforge.cluster.address import parse_address
from kforge.cluster.executor import ClusterExecutor
from kforge.cluster.inquiry import take_census
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
    """Ten Dask workers to a process: two cores have no room for 200 processes."""

    async def work(cluster: ClusterProcesses) -> None:
        numbers = itertools.count()
        done = 0

        async def asker(executor: ClusterExecutor) -> None:
            nonlocal done
            while (number := next(numbers)) < jobs:
                await executor.run(job(number), silent)
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


# -- judges ----------------------------------------------------------------------------------------------------------


def judges(jobs: int) -> None:
    """Verdicts in a time, on one core and on two; and what the same program says of itself."""
    problem = Problem.from_file(ROOT / "tests/catalogue/problems/scale_relu.py")
    source = (ROOT / "tests/catalogue/benign/example_style.py").read_text()
    settings = Settings(compile_baseline=False, policy="any", timing_seconds=0.5)
    same = problem.source.replace("class Model(", "class ModelNew(")
    rates, ratios = {}, {}
    for cores in (("0",), ("0", "1")):

        async def work(cluster: ClusterProcesses, count: int = len(cores)) -> tuple[float, list[Report]]:
            async with controller(cluster) as executor:
                numbered = [Job(f"{n}", problem, Candidate(f"# {n}\n{source}"), settings) for n in range(jobs * count)]
                await run_jobs(
                    executor, [Job(f"w{n}", problem, Candidate(f"# w{n}\n{source}"), settings) for n in range(4)]
                )
                began = time.perf_counter()
                await run_jobs(executor, numbered)
                spent = time.perf_counter() - began
                twins = [Job(f"a{n}", problem, Candidate(f"# a{n}\n{same}"), settings) for n in range(jobs * count)]
                return jobs * count / spent, await run_jobs(executor, twins)

        with ClusterProcesses() as cluster:
            for core in cores:
                cluster.add_judging_worker("--platforms", "cpu", cores=core)
            rates[len(cores)], reports = asyncio.run(work(cluster))
        ratios[len(cores)] = [report.verdict.speedup for report in reports if report.verdict.speedup]
        outcomes = Counter(report.verdict.outcome.value for report in reports)
        contended = sum(report.verdict.contended for report in reports)
        print(f"{len(cores)} judges: {3600 * rates[len(cores)]:.0f} verdicts an hour", flush=True)
        median = statistics.median(ratios[len(cores)]) if ratios[len(cores)] else float("nan")
        print(
            f"  A/A: median {median:.4f} of {len(ratios[len(cores)])}; {dict(outcomes)}, contended {contended}",
            flush=True,
        )
    print(f"two judges against one: {rates[2] / rates[1]:.2f} times (bar: 1.7)")


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
    parser.add_argument("what", choices=["overhead", "workers", "many", "kills", "judges", "same"])
    parser.add_argument("--platform", default="cpu", help="for same")
    parser.add_argument("--jobs", type=int, default=0)
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
    elif given.what == "kills":
        return kills(given.jobs or 300, given.kills, given.seed)
    elif given.what == "same":
        return same(given.platform)
    else:
        judges(given.jobs or 20)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
