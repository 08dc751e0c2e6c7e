"""What the loop itself costs, with a scripted model and a null executor, and whether it survives being killed.

    python benchmarks/loop.py overhead          per iteration, with a realistic attempt
    python benchmarks/loop.py scale             1,000 problems x 5 iterations
    python benchmarks/loop.py crash             50 kills at random points of a run

Times are of this machine; the figures are in docs/results/loop-figures.md.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import shutil
import signal
import statistics
import tempfile
import time
from pathlib import Path

from kforge import problems
from kforge.api import forge_async, resume_async
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted
from kforge.run.context import RunEnvironment
from kforge.run.lifecycle import drive_run
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import ErrorNorm, Job, Outcome, Plan, Problem, Prompt, Report, RunSpec, Timing, Verdict

ROOT = Path(__file__).resolve().parents[1]
SOURCE = (ROOT / "src/kforge/platforms/cpu/example/candidate.py").read_text()
ADVICE = json.dumps({"recommendation": "Fuse the two loops into one pass.", "evidence": "memory bound, two passes"})
TEMPLATE = """import torch
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


def reply(prompt: Prompt) -> str:
    """A program that differs from draw to draw, or advice."""
    if prompt.purpose == "analyse":
        return ADVICE
    return f"```python\n# draw {prompt.sample}\n{SOURCE}```\n"


def plain_verdict(job: Job) -> Verdict:
    """Correct, a little faster each time; every fourth fails."""
    step = int(job.id.rpartition(".")[2])
    if step % 4 == 0:
        return Verdict(Outcome.MISMATCH, "the output differs at [3, 7]: 0.5 instead of 0.25")
    speedup = 1.0 + 0.1 * step
    timing = Timing("eager", speedup, (speedup, speedup), None, (1.0,) * 40, (speedup,) * 40, 5, 3)
    return Verdict(Outcome.CORRECT, "as measured", errors=(ErrorNorm("natural", 1e-7, 1e-5, 0.1),), timing=timing)


def workplace(store: Path | Store, executor: object, model: Scripted, **more: object) -> RunEnvironment:
    means = ModelAccess(models={"scripted": model})
    return RunEnvironment(store if isinstance(store, Store) else str(store), means, executor=executor, **more)  # type: ignore[arg-type]


# -- overhead ----------------------------------------------------------------------------------------------------------


def overhead(runs: int, iterations: int) -> None:
    """Time per iteration that neither the model nor the judge accounts for, with a real judgement's report."""
    report = _real_report()

    class Recorded(NullExecutor):
        async def run(self, job: Job, tell: object) -> Report:
            return report

    each: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store") as store:
        for _ in range(runs):
            marks: list[float] = []
            place = workplace(
                store,
                Recorded(lambda job: report.verdict),
                Scripted(reply),
                tell=lambda event, marks=marks: marks.append(time.perf_counter()) if event.attempt else None,
            )
            plan = Plan(iterations=iterations, plateau=iterations)
            asyncio.run(forge_async(report_problem(), "cpu", "scripted", place, plan=plan))
            each += [later - earlier for earlier, later in itertools.pairwise(marks)]
    p95 = statistics.quantiles(each, n=20)[18]
    print(f"{runs} runs of {iterations}, {len(each)} iterations (analysis, writing, record): ", end="")
    print(f"p50 {statistics.median(each) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms; ", end="")
    print(f"each attempt with evidence and {len(report.profiles)} profiles")


def report_problem() -> Problem:
    return problems.find("bundled:level1/1")[0]


def _real_report() -> Report:
    from kforge.platforms.cpu.platform import PLUGIN
    from kforge.types import Candidate, Settings
    from kforge.worker.judge.judge import Judge

    kernel = (ROOT / "examples/kernels/cpu/level1_1_gelu.py").read_text()
    settings = Settings(compile_baseline=False, profilers=PLUGIN.profilers)
    with Judge("cpu") as judge:
        return judge.report(Job("1", report_problem(), Candidate(kernel), settings))


# -- scale -------------------------------------------------------------------------------------------------------------


def scale(problems: int, iterations: int) -> None:
    """Many problems, one run each, in one store."""
    folder = Path(tempfile.mkdtemp(prefix="kforge-scale-"))
    store = Store.open(folder / "store")
    place = workplace(store, NullExecutor(plain_verdict), Scripted(reply))
    parts: list[tuple[float, int]] = []
    began = time.perf_counter()
    try:
        asyncio.run(_many(problems, iterations, place, parts))
        seconds = time.perf_counter() - began
        counted = sum(item.attempts for item in store.runs(problems + 1))
        store.close()
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    finally:
        shutil.rmtree(folder)
    print(f"{problems} problems x {iterations} iterations: {seconds:.1f} s, {counted} attempts in the store ", end="")
    print(f"({size / 2**20:.0f} MiB)")
    for number, (spent, memory) in enumerate(parts, 1):
        print(f"  tenth {number:>2}: {spent:5.2f} s, {memory} MiB resident at its end")


async def _many(problems: int, iterations: int, place: RunEnvironment, parts: list[tuple[float, int]]) -> None:
    tenth = max(1, problems // 10)
    began = time.perf_counter()
    for number in range(problems):
        problem = Problem.from_source(TEMPLATE.format(n=number + 2), f"p{number}")
        plan = Plan(iterations=iterations, plateau=iterations)
        await drive_run(RunSpec(problem, models=("scripted",), plan=plan), place)
        place.access.models["scripted"].asked.clear()  # type: ignore[attr-defined]
        if (number + 1) % tenth == 0:
            now = time.perf_counter()
            parts.append((now - began, _resident()))
            began = now


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() >> 20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


# -- crash -------------------------------------------------------------------------------------------------------------


def crash(kills: int, seed: int) -> int:
    """Kill a run at random points and resume it, until it is through; count what was lost and what was asked twice."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="kforge-crash-"))
    iterations = kills * 4
    problem = Problem.from_source(TEMPLATE.format(n=2), "crash")
    request = RunSpec(problem, models=("scripted",), plan=Plan(iterations=iterations, plateau=iterations))
    with Store.open(folder / "store") as store:
        run = store.create_run(request)
    killed = 0
    while True:
        pid = os.fork()
        if pid == 0:
            _child(folder, run)
        if killed < kills:
            time.sleep(chance.uniform(0.02, 0.25))
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            killed += os.WIFSIGNALED(status)
            if not os.WIFSIGNALED(status):
                break
        else:
            os.waitpid(pid, 0)
            break
    code = _account(folder, run, killed)
    shutil.rmtree(folder)
    return code


def _child(folder: Path, run: str) -> None:
    """One process that works on the run; it writes down each reply as it gives it and each attempt as it is told."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    class Slow(Scripted):
        async def complete(self, prompt: Prompt):  # type: ignore[no-untyped-def]
            await asyncio.sleep(0.02)
            completion = await super().complete(prompt)
            os.write(log, f"reply {prompt.purpose}:{prompt.sample}\n".encode())
            return completion

    def tell(event) -> None:  # type: ignore[no-untyped-def]
        if event.attempt:
            os.write(log, f"attempt {event.step}\n".encode())

    code = 1
    try:
        place = workplace(folder / "store", NullExecutor(plain_verdict), Slow(reply), tell=tell)
        asyncio.run(resume_async(run, place))
        code = 0
    finally:
        os._exit(code)


def _account(folder: Path, run: str, killed: int) -> int:
    lines = (folder / "log").read_text().splitlines()
    replies = [line for line in lines if line.startswith("reply ")]
    told = {line for line in lines if line.startswith("attempt ")}
    with Store.open(folder / "store") as store:
        history = store.history(run)
        state = store.run(run).state
    kept = {f"attempt {item.move.step}" for item in history}
    lost, repeated = len(told - kept), len(replies) - len(set(replies))
    steps = [item.move.step for item in history]
    whole = steps == list(range(1, len(steps) + 1))
    print(f"{killed} kills: {lost} attempts lost, {repeated} model calls repeated; {len(history)} attempts, ", end="")
    print(f"{len(replies)} replies, steps {'whole' if whole else 'BROKEN'}, run {state}")
    return 0 if not lost and not repeated and whole and state == "finished" else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "scale", "crash"])
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    if given.what == "overhead":
        overhead(20, given.iterations or 10)
    elif given.what == "scale":
        scale(given.problems, given.iterations or 5)
    else:
        return crash(given.kills, given.seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
