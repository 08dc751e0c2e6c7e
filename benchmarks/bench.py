"""What experiments themselves cost, with a scripted model and a null executor.

    python benchmarks/bench.py [--problems 250] [--iterations 5] [--html FILE]

250 problems x 2 configurations x 5 iterations, then the report of it; `PYTHONPATH=tests python benchmarks/report.py
--open FILE` opens that in Chromium. Times are of this machine; the figures are in docs/results/bench-figures.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path

from kforge.execution.null import NullExecutor
from kforge.experiments.resume_plan import begin, open_experiment
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.experiments.study_reader import read_study
from kforge.models.scripted import Scripted
from kforge.reports.findings import find
from kforge.reports.page import page
from kforge.run.model_pool import ModelAccess
from kforge.store.store import Store
from kforge.types import (
    Completion,
    Configuration,
    ErrorNorm,
    Experiment,
    Job,
    Outcome,
    Problem,
    Prompt,
    Timing,
    Usage,
    Verdict,
    text_hash,
)

ROOT = Path(__file__).resolve().parents[1]
KERNEL = (ROOT / "src/kforge/platforms/cpu/example/candidate.py").read_text()
ADVICE = json.dumps({"recommendation": "Fuse the two loops into one pass.", "evidence": "memory bound, two passes"})
TEMPLATE = (ROOT / "src/kforge/problems/bundled/level1/3_layer_norm.py").read_text()
BAD = (Outcome.COMPILATION_FAILURE, Outcome.RUNTIME_ERROR, Outcome.MISMATCH, Outcome.GENERATION_FAILURE)


def reply(prompt: Prompt) -> Completion:
    """A program that differs from draw to draw in many lines, or advice."""
    usage = Usage(1, len(prompt.text) // 4, 900, 0.01)
    if prompt.purpose == "analyse":
        return Completion(ADVICE, "scripted:fast", usage)
    chance = random.Random(prompt.id)
    lines = [line + (f"  # {chance.random()}" if chance.random() < 0.2 else "") for line in KERNEL.splitlines()]
    text = "\n".join(line if line.count('"""') == 0 else line.split("  #")[0] for line in lines)
    return Completion(f"```python\n# draw {prompt.id}\n{text}\n```\n", "scripted:fast", usage)


def judge(job: Job) -> Verdict:
    """Every fourth program fails in one way or another; the others are as fast as chance has it."""
    chance = random.Random(text_hash(job.problem.id + job.candidate.id + job.id))
    if chance.random() < 0.25:
        return Verdict(chance.choice(BAD[:3]), "the output differs at [3, 7]: 0.5 instead of 0.25")
    speedup = chance.lognormvariate(0.2, 0.5)
    blocks = tuple(chance.uniform(0.9, 1.1) for _ in range(40))
    timing = Timing(
        "eager",
        speedup,
        (speedup * 0.97, speedup * 1.03),
        speedup * 0.8,
        blocks,
        tuple(b * speedup for b in blocks),
        5,
        3,
    )
    return Verdict(
        Outcome.CORRECT, "as measured", errors=(ErrorNorm("natural", 1e-7, 1e-5, 0.1),), timing=timing, custom_share=1.0
    )


def experiment(problems: int, iterations: int) -> Experiment:
    found = {}
    for number in range(problems):
        key = f"level{1 + number % 3}/{number}_problem_{number}"
        found[key] = Problem.from_source(f"{TEMPLATE}\nEXTRA = {number}\n", key.partition("/")[2], level=1 + number % 3)
    options = {"iterations": iterations, "plateau": iterations, "profiling": "none"}
    configurations = (
        Configuration("structured", ("scripted:fast",), options),
        Configuration("plain", ("scripted:fast",), {**options, "style": "plain"}),
    )
    return Experiment(f"{problems} problems", found, configurations, suite="made here")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--html", type=Path)
    given = parser.parse_args()
    wanted = experiment(given.problems, given.iterations)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store") as store:
        began = time.perf_counter()
        access = ModelAccess(models={"scripted:fast": Scripted(reply, name="scripted:fast")})
        pool = open_experiment(wanted, access)
        name = begin(wanted, store)
        asyncio.run(conduct(name, ExperimentEnvironment(store, access, pool=pool, executor=NullExecutor(judge))))
        worked = time.perf_counter()
        study = read_study(store, [name])
        read = time.perf_counter()
        findings = find(study)
        found = time.perf_counter()
        text = page(findings)
        done = time.perf_counter()
    attempts = sum(len(trial.history) for trial in study.trials)
    states = {trial.state for trial in study.trials}
    print(
        f"{given.problems} problems x 2 configurations x {given.iterations} iterations: {worked - began:.1f} s, ",
        end="",
    )
    print(f"{attempts} attempts, {len(study.trials)} cells, all {' and '.join(sorted(states))}")
    print(f"report: {done - worked:.1f} s (reading {read - worked:.1f}, measures {found - read:.1f}, ", end="")
    print(f"page {done - found:.1f}), {len(text.encode()) / 2**20:.2f} MiB")
    if given.html:
        given.html.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
