"""The judge's own figures, each from one run on this machine.

    python benchmarks/figures.py            # all of them
    python benchmarks/figures.py warm       # one: warm, batch, self, forms, workloads, help

Ratios are what to compare between machines; absolute times are this machine's.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = ROOT / "tests" / "catalogue" / "problems" / "scale_relu.py"
KERNEL = ROOT / "tests" / "catalogue" / "benign" / "example_style.py"
KFORGE = [sys.executable, "-m", "kforge.cli.app"]


def warm() -> None:
    """A warm evaluation of a small C++ elementwise candidate against the same with cold processes."""
    from kforge import Candidate, Problem, Settings
    from kforge.worker.judge.judge import Judge

    problem, candidate = Problem.from_file(PROBLEM), Candidate(KERNEL.read_text())
    settings = Settings(compile_baseline=False)
    with Judge() as judge:
        judge.evaluate(problem, candidate, settings)
        times = []
        for _ in range(15):
            began = time.perf_counter()
            verdict = judge.evaluate(problem, candidate, settings)
            times.append(time.perf_counter() - began)
            assert verdict.outcome.value == "correct", verdict.detail
    cold = []
    for _ in range(5):
        began = time.perf_counter()
        command = [*KFORGE, "evaluate", str(PROBLEM), str(KERNEL), "--no-compile-baseline", "--json"]
        subprocess.run(command, check=True, capture_output=True)
        cold.append(time.perf_counter() - began)
    times.sort()
    cold.sort()
    distributions = len({error.distribution for error in verdict.errors})
    checked = f"{settings.seeds} seeds, {distributions} distributions"
    print(f"warm evaluation: p50 {times[7]:.2f} s, slowest {times[-1]:.2f} s ({checked}, timing included)")
    print(f"cold processes:  p50 {cold[2]:.2f} s; warm is {cold[2] / times[7]:.1f} times faster")


def batch() -> None:
    """50 different candidates of one problem through --jobs."""
    source = KERNEL.read_text()
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder, "jobs.jsonl")
        lines = [
            {
                "id": f"c{number:02d}",
                "problem": str(PROBLEM),
                "candidate": {"source": f"# variant {number}\n{source}"},
                "settings": {"compile_baseline": False},
            }
            for number in range(50)
        ]
        jobs.write_text("\n".join(map(json.dumps, lines)))
        process = subprocess.Popen(
            [*KFORGE, "evaluate", "--jobs", str(jobs), "--out", f"{folder}/out", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        stamps, memory = [], []
        for line in process.stdout:
            assert json.loads(line)["outcome"] == "correct", line
            stamps.append(time.perf_counter())
            memory.append(_resident(process.pid))
        process.wait()
    rate = 60 * (len(stamps) - 1) / (stamps[-1] - stamps[0])
    print(f"batch of 50: {rate:.0f} verdicts a minute")
    print(f"judge memory after verdict 5, 25, 50: {memory[4] >> 20}, {memory[24] >> 20}, {memory[49] >> 20} MiB")


def itself() -> None:
    """The same program on both sides, 20 times."""
    from kforge import Problem

    _against_itself(Problem.from_file(PROBLEM))


def forms() -> None:
    """The same in another dtype, with gradients, and with four workloads."""
    from kforge import Problem, ProblemForm

    problem = Problem.from_file(PROBLEM)
    for form in (ProblemForm("bfloat16"), ProblemForm(backward=True)):
        print(str(form))
        _against_itself(problem.in_form(form))
    print("four workloads")
    _against_itself(_with_workloads(problem))


def workloads() -> None:
    """A warm verdict on four workloads against one on the largest of them, in turns."""
    from dataclasses import replace

    from kforge import Candidate, Problem, Settings
    from kforge.worker.judge.judge import Judge

    four = _with_workloads(Problem.from_file(PROBLEM))
    one = replace(four, workloads=four.workloads[:1])
    settings = Settings(compile_baseline=False)
    spent: dict[str, list[float]] = {"one": [], "four": []}
    with Judge() as judge:
        for repetition in range(8):
            for name, problem in (("one", one), ("four", four)):
                began = time.perf_counter()
                verdict = judge.evaluate(problem, Candidate(KERNEL.read_text()), settings)
                seconds = time.perf_counter() - began
                assert verdict.outcome.value == "correct", verdict.detail
                if repetition:
                    spent[name].append(seconds)
                else:
                    print(f"{name}: first verdict {seconds:.2f} s")
    one_p50, four_p50 = (sorted(spent[name])[3] for name in ("one", "four"))
    print(f"warm: one workload p50 {one_p50:.2f} s, four {four_p50:.2f} s: {four_p50 / one_p50:.2f} times as long")


def _with_workloads(problem: Any) -> Any:
    from dataclasses import replace

    from kforge.types import Workload

    return replace(problem, workloads=tuple(Workload({"ROWS": rows}) for rows in (512, 256, 384, 131)))


def _against_itself(problem: Any) -> None:
    from kforge import Candidate, Settings
    from kforge.worker.judge.judge import Judge

    twin = Candidate(problem.source.replace("class Model(", "class ModelNew("))
    contained, middles, widths = 0, [], []
    for repetition in range(20):
        with Judge() as judge:
            # A fresh judge each time: fresh processes, fresh memory, fresh seeds.
            verdict = judge.evaluate(problem, twin, Settings(compile_baseline=False, policy="any"))
        assert verdict.timing is not None, verdict.detail
        low, high = verdict.timing.interval
        contained += low <= 1.0 <= high
        middles.append(verdict.timing.speedup)
        widths.append((high - low) / 2)
        print(f"  {repetition + 1:2d}: {verdict.timing.speedup:.3f} ({low:.3f} to {high:.3f})", flush=True)
    middles.sort()
    widths.sort()
    print(f"A/A: interval contains 1.0 in {contained} of 20; median {(middles[9] + middles[10]) / 2:.3f}; ", end="")
    print(f"all between {middles[0]:.3f} and {middles[-1]:.3f}; typical half-width {widths[10]:.3f}")


def start() -> None:
    """`kforge --help`, the whole process."""
    times = []
    for _ in range(11):
        began = time.perf_counter()
        subprocess.run([str(Path(sys.executable).with_name("kforge")), "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    print(f"kforge --help: median {sorted(times)[5]:.2f} s")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


FIGURES = {"warm": warm, "batch": batch, "self": itself, "forms": forms, "workloads": workloads, "help": start}

if __name__ == "__main__":
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name]()
