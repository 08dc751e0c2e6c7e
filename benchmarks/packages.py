"""A suite as packages: how many of the programs that are correct can be shipped, and how fast they are in a model.

    python benchmarks/packages.py --to build/packages [--limit N] [--platform cpu] [--speed]
    python benchmarks/packages.py --to build/packages --suite kernelbench:PATH --platform cuda --programs DIR

Each problem is forged by the offline agents, or judged with the program that DIR has for it (`level1/18_Name` is
`level1_18_Name.py`); it is exported, and the package's own tests (opcheck, a whole graph under torch.compile, the
reference, gradients, substitution) run in an environment that has torch and pytest and no KForge. A problem that was
done is not done again; with --again the programs that are there are exported and tested anew.

With --speed programs are timed by the judge, and packages by their own benchmark: what the guard costs, and whether the
module, compiled by torch.compile, is as fast as the verdict on the bare program says: their intervals overlap.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import kforge
from kforge import jsonable
from kforge.errors import KForgeError
from kforge.packages.description import Winner, function_name
from kforge.packages.package_files import package_files, write_package
from kforge.problems import find
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.types import Verdict

Row = dict[str, str]
INSIDE = "the same in torch.compile"


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


def program_file(folder: Path | None, problem: kforge.Problem) -> Path | None:
    """The program that a folder has for a problem."""
    file = None if folder is None else folder / f"{problem.key.replace('/', '_')}.py"
    return file if file is not None and file.exists() else None


class Suite:
    """The packages of a suite, in a folder that keeps what was done."""

    def __init__(self, options: argparse.Namespace, python: Path) -> None:
        self.options = options
        self.python = python
        self.to: Path = options.to.resolve()

    def row(self, problem: kforge.Problem) -> Row:
        """One problem: its program, its package and what that is worth."""
        began = time.time()
        try:
            answer = self._judge_and_test(problem)
        except (KForgeError, subprocess.TimeoutExpired) as error:
            answer = {"state": "error", "why": str(error)[:300]}
        return {"problem": problem.key, **answer, "seconds": f"{time.time() - began:.0f}"}

    def _judge_and_test(self, problem: kforge.Problem) -> Row:
        name = f"fast_{function_name(problem.name)}"
        winner = self._winner(problem, name)
        if winner is None:
            return {"state": "no program", "why": "neither the agents nor a folder has one"}
        verdict = winner.verdict
        if verdict.outcome is not kforge.Outcome.CORRECT:
            return {"state": "not correct", "why": verdict.headline}
        try:
            write_package(package_files(winner, name), self.to / name)
        except KForgeError as error:
            return {"state": "not exported", "why": str(error)}
        answer = self._test(name)
        if self.options.speed and answer["state"] == "passed":
            answer |= self._time(name, verdict)
        return answer

    def _winner(self, problem: kforge.Problem, name: str) -> Winner | None:
        """The program with its verdict: as it was judged before, a file that is judged, or one that is forged."""
        platform, file = self.options.platform, program_file(self.options.programs, problem)
        text = file.read_text() if file is not None else ""
        made_of = hashlib.sha256(f"{platform} {problem.id} {text}".encode()).hexdigest()[:12]
        kept = self.to / f"{name}.{made_of}.winner.json"
        if kept.exists():
            return jsonable.decode(Winner, json.loads(kept.read_text()))
        seconds = 1.0 if self.options.speed else 0.0
        if file is not None:
            program = kforge.Candidate(text, platform, name=file.stem)
            verdict = kforge.evaluate(problem, program, platform, timing_seconds=seconds, compile_baseline=False)
            winner = Winner(problem, program, platform, verdict, file.stem)
        else:
            place = RunEnvironment(str(self.to / "store"), ModelAccess())
            result = kforge.forge(
                problem, platform, "builtin", place, iterations=1, timing_seconds=seconds, profilers=()
            )
            attempt = result.best or next((item for item in result.history if item.candidate is not None), None)
            if attempt is None:
                return None
            winner = Winner.of(result, attempt)
        kept.write_text(json.dumps(jsonable.encode(winner)))
        return winner

    def _test(self, name: str) -> Row:
        done = self._run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests"], name)
        (self.to / f"{name}.log").write_text(done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        skipped = [line for line in lines if line.startswith("SKIPPED")]
        last = lines[-1] if lines else "no output"
        return {"state": "passed" if done.returncode == 0 else "failed", "why": last, "skipped": "; ".join(skipped)}

    def _time(self, name: str, verdict: Verdict) -> Row:
        """What the package's own benchmark says, beside the verdict."""
        if verdict.interval is None:
            return {}
        done = self._run(["benchmarks/benchmark.py", "--json"], name)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            return {"benchmark": f"failed: {done.stderr.strip()[-300:]}"}
        low, high = verdict.interval
        answer = {"the verdict": f"{verdict.speedup:.2f} ({low:.2f} to {high:.2f})"}
        for side, row in found.items():
            one, two = row["interval"]
            answer[side] = f"{row['speedup']:.2f} ({one:.2f} to {two:.2f}), {row['guard']:+.2f} µs over bare"
        if INSIDE in found:
            one, two = found[INSIDE]["interval"]
            answer["compiled"] = "slower" if two < low else "faster" if one > high else "within"
        return answer

    def _run(self, words: list[str], name: str) -> subprocess.CompletedProcess[str]:
        place = {**os.environ, "PYTHONPATH": str(self.to / name), "KFORGE_PACKAGE_CACHE": str(self.to / "cache")}
        return subprocess.run(
            [str(self.python), *words], cwd=self.to / name, env=place, capture_output=True, text=True, timeout=1200
        )


def show(row: Row) -> None:
    print(f"{row['problem']:<40} {row['state']:<13} {row['why'][:100]}", flush=True)
    for word, value in row.items():
        if " " in word or word in ("benchmark", "compiled"):
            print(f"    {word:<28} {value}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="folder for packages, logs and results")
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--suite", default="bundled")
    parser.add_argument("--programs", type=Path, help="folder with a program for each problem; others are left out")
    parser.add_argument("--speed", action="store_true", help="time programs and packages too")
    parser.add_argument("--python", type=Path, help="an interpreter with torch and pytest, in place of a new one")
    parser.add_argument("--again", action="store_true", help="export and test anew what was judged before")
    parser.add_argument("--limit", type=int, default=0, help="so many problems at most")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "results.jsonl"
    done: dict[str, Row] = {}
    if path.exists():
        done = {item["problem"]: item for item in map(json.loads, path.read_text().splitlines())}
    suite = Suite(options, (options.python or environment(options.to / "environment")).absolute())
    problems = list(find(options.suite))
    if options.programs is not None:
        problems = [item for item in problems if program_file(options.programs, item) is not None]
    for problem in problems[: options.limit or None]:
        if problem.key in done and not options.again:
            continue
        row = done[problem.key] = suite.row(problem)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        show(row)
    states = [row["state"] for row in done.values()]
    correct = len(states) - sum(states.count(state) for state in ("no program", "not correct", "error"))
    compiled = [row["compiled"] for row in done.values() if "compiled" in row]
    if compiled:
        counts = ", ".join(f"{compiled.count(word)} {word}" for word in ("within", "faster", "slower"))
        print(f"compiled modules against verdicts on bare programs: {counts}")
    print(f"{len(states)} problems: {correct} correct programs, {states.count('passed')} packages pass their tests")


if __name__ == "__main__":
    main()
