"""The judge's figures on a GPU, each from one run on this machine; absolute times are this device's.

    python benchmarks/gpu.py relu       one full evaluation of ReLU on 4096 x 393216: NVRTC and Triton
    python benchmarks/gpu.py load_inline  the same with a torch extension
    python benchmarks/gpu.py jobs       32 NVRTC candidates of 8 problems as a batch
    python benchmarks/gpu.py aa         20 problems, each against itself
    python benchmarks/gpu.py forms      the same in bfloat16, with gradients, and with four workloads: 20 in all
    python benchmarks/gpu.py workloads  verdicts on four workloads against one
    python benchmarks/gpu.py offline    the offline agents on the bundled suite
    python benchmarks/gpu.py first      the first and a further verdict of each pair of --problems and --programs
    python benchmarks/gpu.py turns      how processes take turns on the device, which the judge's clock rests on
    python benchmarks/gpu.py            all of them
    --platform and --limit are for trying the script where there is no GPU

Needs only what the judge needs; `offline` also needs the store's packages.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kforge import problems, registry
from kforge.errors import KForgeError
from kforge.types import Candidate, Job, Problem, ProblemForm, Settings, Workload
from kforge.worker.jobs import Done, run_jobs
from kforge.worker.judge.judge import Judge

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "examples" / "kernels"
CATALOGUE = ROOT / "tests" / "catalogue_cuda" / "problems"
_ROUNDS = 5

FUNCTIONS = {
    "relu": ("torch.relu(x)", "v < 0.0f ? 0.0f : v"),
    "square": ("x * x", "v * v"),
    "sigmoid": ("torch.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    "silu": ("torch.nn.functional.silu(x)", "v / (1.0f + expf(-v))"),
    "softplus": ("torch.nn.functional.softplus(x)", "v > 20.0f ? v : log1pf(expf(v))"),
    "hardswish": ("torch.nn.functional.hardswish(x)", "v * (v < -3.0f ? 0.0f : v > 3.0f ? 6.0f : v + 3.0f) / 6.0f"),
    "tanh": ("torch.tanh(x)", "tanhf(v)"),
    "gelu": ("torch.nn.functional.gelu(x)", "0.5f * v * (1.0f + erff(v * 0.70710678f))"),
}
PROBLEM = '''"""{name} of every element."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(16384, 8192)]


def get_init_inputs():
    return []
'''


_ROWS_PROBLEM = PROBLEM.format(name="ReLU", expression="torch.relu(x)").replace("16384", "ROWS") + "\n\nROWS = 16384\n"


def relu() -> None:
    """Everything a verdict needs, baselines already known: the time from the call to the verdict."""
    problem = Problem.from_file(ROOT / "benchmarks" / "problems" / "relu_large.py")
    for platform, file in (("cuda", "relu.py"), ("triton", "relu.py")):
        source = (KERNELS / platform / file).read_text(encoding="utf-8")
        with Judge(platform) as judge:
            first = _spent(judge, problem, Candidate(source, platform))
            rounds = [_spent(judge, problem, Candidate(source, platform)) for _ in range(_ROUNDS)]
            seconds = sorted(item[0] for item in rounds)
            verdict = rounds[-1][1]
            phases = verdict.evidence.seconds if verdict.evidence else {}
            print(
                f"{platform}: p50 {statistics.median(seconds):.2f} s, slowest {seconds[-1]:.2f} s of {_ROUNDS}; "
                f"the first, which also measures the baselines, {first[0]:.1f} s; {verdict.detail}; "
                f"{len(verdict.errors)} checked calls over {len({e.distribution for e in verdict.errors})} "
                "distributions",
                flush=True,
            )
            print(", ".join(f"{phase} {spent:.2f} s" for phase, spent in phases.items()), flush=True)


def load_inline() -> None:
    """The same kernel as a torch extension that nobody has built yet, and once more when it is built."""
    problem = Problem.from_file(ROOT / "benchmarks" / "problems" / "relu_large.py")
    # A comment that changes makes it another program.
    source = (KERNELS / "cuda" / "relu_load_inline.py").read_text(encoding="utf-8") + f"\n# {os.urandom(8).hex()}\n"
    with Judge("cuda") as judge:
        _spent(judge, problem, Candidate((KERNELS / "cuda" / "relu.py").read_text(encoding="utf-8"), "cuda"))
        spent, verdict = _spent(judge, problem, Candidate(source, "cuda"))
        seconds = verdict.evidence.seconds if verdict.evidence else {}
        again, _ = _spent(judge, problem, Candidate(source, "cuda"))
    build, waited = seconds.get("build", float("nan")), seconds.get("wait", 0.0)
    print(
        f"load_inline: {spent:.1f} s, of which the build {build:.1f} s and {waited:.1f} s waiting for the device "
        f"({spent / build:.2f} times its build); the same program again {again:.2f} s; {verdict.detail}",
        flush=True,
    )


def _spent(judge: Judge, problem: Problem, candidate: Candidate) -> tuple[float, Any]:
    began = time.perf_counter()
    verdict = judge.evaluate(problem, candidate, Settings())
    if verdict.outcome.value != "correct":
        raise SystemExit(f"{candidate.platform}: {verdict.outcome.value}: {verdict.detail}")
    return time.perf_counter() - began, verdict


def first() -> None:
    """Two verdicts on each of many problems, without torch.compile: what a new problem costs, and a further program.

    A program is named after its problem, as in level2_19_Name.py; what is in --out already is not judged again.
    """
    if not (_asked.problems and _asked.programs):
        print("skipped: it needs --problems and --programs", flush=True)
        return
    rows = []
    out = Path(_asked.out or tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    with Judge(_asked.platform) as judge:
        for program in sorted(Path(_asked.programs).glob("level*.py"))[: _asked.limit or None]:
            record = out / f"{program.stem}.json"
            if not record.exists():
                level, name = program.stem.split("_", 1)
                problem = Problem.from_file(Path(_asked.problems) / level / f"{name}.py")
                candidate = Candidate(program.read_text(encoding="utf-8"), _asked.platform, name=program.stem)
                record.write_text(json.dumps(_first_verdict(judge, problem, candidate, out)))
            rows.append((program.stem, json.loads(record.read_text(encoding="utf-8"))))
            print(_first_row(*rows[-1]), flush=True)
    correct = [row for _, row in rows if row["outcome"] == "correct"]
    print(f"{len(rows)} problems, {len(correct)} correct", flush=True)
    for name, verdicts in (("first", [row for _, row in rows]), ("further", [row["further"] for _, row in rows])):
        seconds = [verdict["seconds"] for verdict in verdicts]
        print(
            f"{name} verdict {statistics.mean(seconds):.2f} s on average, p50 {statistics.median(seconds):.2f} s, "
            f"slowest {max(seconds):.2f} s",
            flush=True,
        )


def _first_verdict(judge: Judge, problem: Problem, candidate: Candidate, out: Path) -> dict[str, Any]:
    """The verdict on a new problem, and on a program that differs in a comment alone, so that it is built anew."""
    again = replace(candidate, source=f"{candidate.source}\n# a further program\n")
    row = _profiled_verdict(judge, problem, candidate, out / f"{candidate.name}.prof")
    row["further"] = _profiled_verdict(judge, problem, again, out / f"{candidate.name}.further.prof")
    return row


def _profiled_verdict(judge: Judge, problem: Problem, candidate: Candidate, into: Path) -> dict[str, Any]:
    """A verdict with its seconds, opening the problem included; with --profile, where the judge spent them."""
    settings = Settings(compile_baseline=False, seeds=5)
    profile = cProfile.Profile()
    began = time.perf_counter()
    if _asked.profile:
        profile.enable()
    try:
        judge.session(problem, settings)
        opened = time.perf_counter()
        verdict = judge.evaluate(problem, candidate, settings)
        ended = time.perf_counter()
    except KForgeError as error:
        spent = time.perf_counter() - began
        return {"outcome": "error", "detail": str(error)[:300], "speedup": None, "seconds": spent, "phases": {}}
    finally:
        profile.disable()
    if _asked.profile:
        profile.dump_stats(into)
    evidence = verdict.evidence
    return {
        "outcome": verdict.outcome.value,
        "detail": verdict.detail[:1500],
        "speedup": verdict.speedup,
        "interval": verdict.interval,
        "seconds": ended - began,
        "phases": {"open": opened - began, **(evidence.seconds if evidence else {})},
        "unchecked": evidence.unchecked if evidence else (),
    }


def _first_row(name: str, row: dict[str, Any]) -> str:
    low, high = row.get("interval") or (0.0, 0.0)
    speed = f"{row['speedup']:.2f}x ({low:.2f} to {high:.2f})" if row["speedup"] else row["detail"].splitlines()[0][:80]
    return f"| {name} | {row['outcome']} | {speed} | {_seconds_by_phase(row)} | {_seconds_by_phase(row['further'])} |"


def _seconds_by_phase(row: dict[str, Any]) -> str:
    phases = ", ".join(f"{phase} {spent:.2f}" for phase, spent in row["phases"].items() if spent >= 0.005)
    return f"{row['seconds']:.2f}: {phases}"


def jobs() -> None:
    """Four programs for each of eight problems, through the batch runner."""
    batch = []
    for name, (expression, kernel) in FUNCTIONS.items():
        problem = Problem.from_source(PROBLEM.format(name=name, expression=expression), name)
        for threads in (128, 256, 512, 1024):
            source = _elementwise(kernel, threads)
            batch.append(Job(f"{name}-{threads}", problem, Candidate(source, _asked.platform)))
    shares: list[float] = []
    outcomes: dict[str, int] = {}

    def tell(done: Done) -> None:
        what = done.report.verdict.outcome.value if done.report else f"error: {done.error}"
        outcomes[what] = outcomes.get(what, 0) + 1

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run_jobs(batch[: _asked.limit or None], Path(folder), _asked.platform, tell, tell_busy_share=shares.append)
        spent = time.perf_counter() - began
    print(
        f"{len(batch)} candidates of {len(FUNCTIONS)} problems in {spent:.1f} s: {3600 * len(batch) / spent:.0f} "
        f"verdicts an hour, the device held {shares[0]:.0%} of the time; {outcomes}",
        flush=True,
    )


def _elementwise(kernel: str, threads: int) -> str:
    """A program like the platform's example, for a function of one element."""
    return f'''"""One function of every element."""

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
__device__ float f(float v) {{ return {kernel}; }}

extern "C" __global__ void elementwise(const float4* __restrict__ x, float4* __restrict__ y, long long count) {{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
        float4 v = x[i];
        y[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
    }}
}}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{{device.arch}}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("elementwise")
blocks = 8192 // {threads} * device.properties.multiprocessor_count


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, LaunchConfig(grid=blocks, block={threads}), kernel, x.data_ptr(), y.data_ptr(), x.numel() // 4)
        return y
'''


def aa() -> None:
    """Each problem against itself: what the judge says of a difference that is not there."""
    _against_themselves(
        [*problems.find("bundled"), *map(Problem.from_file, sorted(CATALOGUE.glob("*.py")))][: _asked.limit or 20]
    )


def forms() -> None:
    """Problems in other forms against themselves: 7 in bfloat16, 6 with gradients, 7 with four workloads."""
    bundled = problems.find("bundled")
    chosen = [problem.in_form(ProblemForm("bfloat16")) for problem in bundled[:7]]
    chosen += problems.find("training")[:6]
    chosen += [with_workloads(problem) for problem in bundled if "ROWS" in problem.source][:7]
    _against_themselves(chosen[: _asked.limit or None])


def with_workloads(problem: Problem) -> Problem:
    """A problem whose file has a constant ROWS, with four workloads of other numbers of rows."""
    namespace: dict[str, Any] = {}
    exec(compile(problem.sized_source("gpu"), problem.name, "exec"), namespace)
    rows = namespace["ROWS"]
    return replace(problem, workloads=tuple(Workload({"ROWS": number}) for number in (rows, rows // 2, rows // 3, 37)))


def workloads() -> None:
    """Verdicts on four workloads against one on the first of them, in turns, baselines known."""
    four = Problem.from_source(_ROWS_PROBLEM, "relu_rows")
    four = replace(four, workloads=tuple(Workload({"ROWS": rows}) for rows in (16384, 8192, 4100, 36)))
    one = replace(four, workloads=four.workloads[:1])
    spent: dict[str, list[float]] = {"one": [], "four": []}
    with Judge(_asked.platform) as judge:
        for repetition in range(_ROUNDS + 1):
            for name, problem in (("one", one), ("four", four)):
                candidate = Candidate(_elementwise(FUNCTIONS["relu"][1], 256), _asked.platform)
                began = time.perf_counter()
                verdict = judge.evaluate(problem, candidate, Settings(compile_baseline=False))
                seconds = time.perf_counter() - began
                if verdict.outcome.value != "correct":
                    raise SystemExit(f"{name}: {verdict.outcome.value}: {verdict.detail}")
                if repetition:
                    spent[name].append(seconds)
                phases = verdict.evidence.seconds if verdict.evidence else {}
                print(f"{name} {seconds:.2f} s: {phases}; {verdict.detail}", flush=True)
    middle = {name: statistics.median(values) for name, values in spent.items()}
    print(
        f"further verdicts: one workload {middle['one']:.2f} s, four {middle['four']:.2f} s: "
        f"{middle['four'] / middle['one']:.2f} times as long",
        flush=True,
    )


def _against_themselves(suite: list[Problem]) -> None:
    found = []
    with Judge(_asked.platform) as judge:
        for problem in suite:
            source = problem.sized_source("gpu").replace("class Model(", "class ModelNew(")
            settings = Settings(policy="any", compile_baseline=False)
            try:
                verdict = judge.evaluate(problem, Candidate(source, _asked.platform), settings)
            except KForgeError as error:
                print(f"{problem.name}: {error}", flush=True)
                continue
            if verdict.timing is None:
                print(f"{problem.name}: {verdict.outcome.value}: {verdict.headline}", flush=True)
                continue
            low, high = verdict.timing.interval
            off = max(0.0, low - 1.0, 1.0 - high)
            found.append((problem.name, verdict.timing.speedup, off))
            form = str(problem.form) or ("workloads" if problem.workloads else "")
            print(f"{problem.name} {form}: {verdict.timing.speedup:.4f} ({low:.4f} to {high:.4f})", flush=True)
    middle = statistics.median(item[1] for item in found)
    print(
        f"A/A on {len(found)} problems: median {middle:.4f}, furthest {max(abs(item[1] - 1) for item in found):.4f} "
        f"from 1, {sum(item[2] > 0.01 for item in found)} intervals exclude 1 by more than 1 %, "
        f"{sum(item[2] > 0 for item in found)} at all",
        flush=True,
    )


def offline() -> None:
    """Every bundled problem forged by the offline agents, several side by side."""
    suite = problems.find("bundled")[: _asked.limit or None]
    began = time.perf_counter()
    print("| problem | outcome | variant | over eager | over the best baseline |\n| --- | --- | --- | --- | --- |")
    rows = asyncio.run(_forged(suite))
    done = [row for row in rows if row]
    missing = [problem.name for problem, row in zip(suite, rows, strict=True) if not row]
    if missing:
        print(f"\nnot finished in {_asked.seconds} s: {', '.join(missing)}")
    if done:
        print(
            f"\ncorrect {len(done)} of {len(suite)}; fast_1 {sum(one > 1 for one, _ in done) / len(suite):.2f}; "
            f"geometric mean over eager {statistics.geometric_mean(one for one, _ in done):.2f}, over the best "
            f"baseline {statistics.geometric_mean(two for _, two in done):.2f}; "
            f"{time.perf_counter() - began:.0f} s in all",
            flush=True,
        )


async def _forged(suite: list[Problem]) -> list[tuple[float, float] | None]:
    """Speedups over eager and over the best baseline; None where there is no correct program in time."""
    from kforge.execution.local import LocalExecutor

    executor = LocalExecutor("triton" if _asked.platform == "cuda" else _asked.platform)
    turns = asyncio.Semaphore(8)
    tasks = [asyncio.create_task(_forge_one(problem, executor, turns)) for problem in suite]
    try:
        await asyncio.wait(tasks, timeout=_asked.seconds or None)
        return [task.result() if task.done() and not task.exception() else None for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await executor.close()


async def _forge_one(problem: Problem, executor: Any, turns: asyncio.Semaphore) -> tuple[float, float] | None:
    from kforge.agents.offline.variants import variant_of
    from kforge.api import forge_async
    from kforge.run.context import RunEnvironment

    name = problem.key
    async with turns:
        with tempfile.TemporaryDirectory() as store:
            made = await forge_async(
                problem,
                platform="triton" if _asked.platform == "cuda" else _asked.platform,
                model="builtin",
                environment=RunEnvironment(store=store, executor=executor),
                iterations=_asked.iterations,
                profilers=(),
            )
    best = made.best
    if best is None or best.candidate is None or best.verdict.timing is None:
        reason = made.history[-1].verdict.headline if made.history else "; ".join(stop.words for stop in made.stops)
        print(f"| {name} | {reason} | - | - | - |", flush=True)
        return None
    speedup, over_best = best.verdict.speedup or 0.0, best.verdict.speedup_vs_best or 0.0
    variant = variant_of(best.candidate.source) or "-"
    print(f"| {name} | correct | {variant} | {speedup:.2f} | {over_best:.2f} |", flush=True)
    return speedup, over_best


_BUSY_PROGRAM = """
import torch
torch.cuda._sleep(1)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    torch.cuda._sleep(1 << 28)
    torch.cuda.synchronize()
"""
_SLEEP_CYCLES = 1 << 32
_WAITS = 200
_LONG_LAUNCH_SECONDS = 0.005


def turns() -> None:
    """What docs/gpu.md says of a device that several processes use."""
    import torch

    from kforge.worker.judge.held_lane import shuffle_calls

    word = torch.zeros(1, device="cuda")
    word.add_(1)
    torch.cuda.synchronize()
    torch.cuda._sleep(_SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    ahead, took = -1, 0.0
    while took < _LONG_LAUNCH_SECONDS:
        began = time.perf_counter()
        word.add_(1)
        ahead, took = ahead + 1, time.perf_counter() - began
    torch.cuda.synchronize()
    print(f"a stream that waits takes {ahead} kernels ahead; the next launch waits with it", flush=True)
    alone = _answer_times(word)
    with subprocess.Popen([sys.executable, "-c", _BUSY_PROGRAM], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            beside = _answer_times(word)
        finally:
            other.kill()
    print(
        f"a kernel of next to no work comes back after {alone[_WAITS // 2] * 1e3:.3f} ms alone (slowest "
        f"{alone[-1] * 1e3:.3f}), after {beside[_WAITS // 2] * 1e3:.3f} ms beside a process that always has one "
        f"running ({beside[_WAITS // 10] * 1e3:.3f} to {beside[-_WAITS // 10] * 1e3:.3f} in four of five)",
        flush=True,
    )
    problem = Problem.from_source(PROBLEM.format(name="relu", expression="torch.relu(x)"), "relu")
    with Judge("cuda") as judge:
        session = judge.session(problem, Settings())
        session.baselines.measure_itself()
        lane: Any = session.baselines.lane("eager")
        found = [
            lane.idle_ns(shuffle_calls(len(lane.slots), session.timed_inputs.seeds())) for _ in range(_WAITS // 10)
        ]
    print(f"an empty block takes {statistics.median(found) / 1e6:.2f} ms (median of {len(found)})", flush=True)


def _answer_times(word: Any) -> list[float]:
    """Seconds from the launch of a small kernel until it is done, in order of size."""
    import torch

    times = []
    for _ in range(_WAITS):
        began = time.perf_counter()
        word.add_(1)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)


_asked = argparse.Namespace(
    platform="cuda", limit=0, seconds=0.0, iterations=3, problems="", programs="", out="", profile=False
)
_ALL = {
    "relu": relu,
    "load_inline": load_inline,
    "jobs": jobs,
    "aa": aa,
    "offline": offline,
    "first": first,
    "forms": forms,
    "workloads": workloads,
    "turns": turns,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*_ALL, []], help="which figures; all of them if none is named")
    parser.add_argument("--platform", default="cuda")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="for offline: stop after this long")
    parser.add_argument("--iterations", type=int, default=3, help="for offline: programs for each problem")
    parser.add_argument("--problems", default="", help="for first: a folder with level1, level2, ... of problems")
    parser.add_argument("--programs", default="", help="for first: a folder of programs, level1_1_Name.py and so on")
    parser.add_argument(
        "--out", default="", help="for first: where verdicts are kept; what is there is not judged again"
    )
    parser.add_argument(
        "--profile", action="store_true", help="for first: keep a profile of the judge for each problem"
    )
    asked = parser.parse_args(namespace=_asked)
    facts = registry.load("platforms", asked.platform).facts()
    print(json.dumps({name: facts.get(name) for name in ("processor", "driver", "toolkit")}), flush=True)
    for name in asked.names or _ALL:
        print(f"\n## {name}", flush=True)
        _ALL[name]()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
