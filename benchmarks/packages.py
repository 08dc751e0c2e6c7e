"""The bundled suite as packages: how many of the programs that are correct can be shipped.

    python benchmarks/packages.py --to build/packages [--limit N] [--platform cpu]

Each problem is forged by the offline agents, exported, and its own tests (opcheck, a whole graph under torch.compile,
the reference, gradients, substitution) run in an environment that has torch and pytest and no KForge. A problem that
was done is not done again; with --again the programs that are there are exported and tested anew. Nothing is timed:
`benchmarks/benchmark.py` in each package does that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import kforge
from kforge.cli.runs import read
from kforge.errors import KForgeError
from kforge.packages.description import Winner, function_name
from kforge.packages.package_files import package_files, write_package
from kforge.problems import find
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.run.result import RunResult


def environment(folder: Path) -> Path:
    """The interpreter of an environment with torch and pytest alone."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder}: torch is a large download", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        wanted = [f"torch=={kforge_torch()}", "pytest", "setuptools"]
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], check=True)
    return python


def kforge_torch() -> str:
    import torch

    return str(torch.__version__).split("+")[0]


def one(problem: kforge.Problem, platform: str, to: Path, python: Path, run: str) -> dict[str, str]:
    """Forge a problem, or take a run that is there, and put its package to the test."""
    name = f"fast_{function_name(problem.name)}"
    place = RunEnvironment(str(to / "store"), ModelAccess())
    began = time.time()
    result: RunResult
    if run:
        result, _, _ = read(str(to / "store"), run)
    else:
        result = forge(problem, platform, place)
    answer = test(result, name, to, python)
    return {**answer, "run": result.run, "seconds": f"{time.time() - began:.0f}"}


def forge(problem: kforge.Problem, platform: str, place: RunEnvironment) -> RunResult:
    return kforge.forge(problem, platform, "builtin", place, iterations=1, timing_seconds=0, profilers=())


def test(result: RunResult, name: str, to: Path, python: Path) -> dict[str, str]:
    if result.best is None:
        return {"state": "not correct", "why": result.history[-1].verdict.headline if result.history else ""}
    try:
        write_package(package_files(Winner.of(result, result.best), name), to / name)
    except KForgeError as error:
        return {"state": "not exported", "why": str(error)}
    place_of = {**os.environ, "PYTHONPATH": str(to / name), "KFORGE_PACKAGE_CACHE": str(to / "cache")}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests"]
    done = subprocess.run(command, cwd=to / name, env=place_of, capture_output=True, text=True, timeout=1200)
    (to / f"{name}.log").write_text(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    last = lines[-1] if lines else "no output"
    state = "passed" if done.returncode == 0 else "failed"
    return {"state": state, "why": last, "skipped": "; ".join(skipped)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="folder for packages, logs and results")
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--suite", default="bundled")
    parser.add_argument("--again", action="store_true", help="export and test anew what was forged before")
    parser.add_argument("--limit", type=int, default=0, help="so many problems at most")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "results.jsonl"
    done = {}
    if path.exists():
        done = {item["problem"]: item for item in map(json.loads, path.read_text().splitlines())}
    python = environment(options.to / "environment")
    for number, problem in enumerate(find(options.suite)):
        if options.limit and number >= options.limit:
            break
        run = done.get(problem.key, {}).get("run", "")
        if problem.key in done and not (options.again and run):
            continue
        try:
            answer = one(problem, options.platform, options.to.resolve(), python.absolute(), run)
        except (KForgeError, subprocess.TimeoutExpired) as error:
            answer = {"state": "error", "why": str(error)[:300]}
        done[problem.key] = {"problem": problem.key, **answer}
        with path.open("a") as file:
            file.write(json.dumps(done[problem.key]) + "\n")
        print(f"{problem.key:<40} {answer['state']:<13} {answer['why'][:100]}", flush=True)
    states = [item["state"] for item in done.values()]
    correct = len(states) - states.count("not correct") - states.count("error")
    print(
        f"{len(states)} problems: {correct} correct programs, {states.count('passed')} packages that pass their tests"
    )


if __name__ == "__main__":
    main()
