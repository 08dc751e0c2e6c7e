"""A suite as packages: how many of the programs that are correct can be shipped, and how fast they are in a model.

    python benchmarks/packages.py --to build/packages [--limit N] [--platform cpu] [--speed]
    python benchmarks/packages.py --to build/packages --suite kernelbench:PATH --platform cuda --programs DIR [--jobs 4]

Each problem is forged by the offline agents, or judged with the program that DIR has for it (`level1/18_Name` is
`level1_18_Name.py`); it is exported, and the package's own tests (opcheck, a whole graph under torch.compile, the
reference, gradients, substitution) run in an environment that has torch and pytest and no KForge. A problem that was
done is not done again; with --again the programs that are there are exported and tested anew.

With --speed programs are timed by the judge, and packages by their own benchmark, one after another when all else is
done: what the guard costs, and whether the module, compiled by torch.compile, is as fast as the verdict on the bare
program says: their intervals overlap. With --jobs so many programs are in hand at once, on a machine with cores to
spare: tests of packages begin when all programs are judged, so that nothing runs beside a timed program; what has no
room in memory beside others is done again alone. --steps does one part of it, and a later call goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

import kforge
from kforge import jsonable
from kforge.errors import KForgeError, UsageError
from kforge.packages.description import Winner, function_name
from kforge.packages.package_files import package_files, write_package
from kforge.problems.suites import open_suite
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.types import Settings, Verdict
from kforge.worker.judge.judge import Judge

T = TypeVar("T")
Row = dict[str, str]
STEPS = ("judge", "test", "time")
NO_ROOM = ("out of memory", "OutOfMemoryError")
TIMED, INSIDE = "the verdict", "the same in torch.compile"


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


def package_name(problem: kforge.Problem) -> str:
    return f"fast_{function_name(problem.name)}"


def program_file(folder: Path | None, problem: kforge.Problem) -> Path | None:
    """The program that a folder has for a problem."""
    file = None if folder is None else folder / f"{problem.key.replace('/', '_')}.py"
    return file if file is not None and file.exists() else None


def for_all(
    work: Callable[[kforge.Problem], T], items: Sequence[kforge.Problem], count: int, take: Callable[[T], None]
) -> None:
    """Take what the work gives for each item, as it ends; so many at once, and alone what has no room beside others."""
    alone = []
    with ThreadPoolExecutor(count) as pool:
        began = {pool.submit(work, item): item for item in items}
        for ended in as_completed(began):
            answer = ended.result()
            if count > 1 and any(words in str(answer) for words in NO_ROOM):
                alone.append(began[ended])
            else:
                take(answer)
    for item in alone:
        take(work(item))


def print_line(words: str) -> None:
    print(words, flush=True)


class Suite:
    """The packages of a suite, in a folder that keeps what was done."""

    def __init__(self, options: argparse.Namespace, python: Path) -> None:
        self.options = options
        self.python = python
        self.to: Path = options.to.resolve()
        self._winners: dict[str, Winner | Exception | None] = {}
        self._judge: Judge | None = None

    @contextlib.contextmanager
    def judge_at_work(self) -> Iterator[None]:
        """For the block one judge has the device, and its memory."""
        with Judge(self.options.platform) as self._judge:
            yield
        self._judge = None

    def judge(self, problem: kforge.Problem) -> str:
        """Have a program for a problem, and its verdict; says what came of it."""
        began = time.time()
        found: Winner | Exception | None
        try:
            found = self._winner(problem, package_name(problem))
        except KForgeError as error:
            found = error
        self._winners[problem.key] = found
        said = found.verdict.headline if isinstance(found, Winner) else str(found or "no program")
        return f"judged {problem.key}: {said} ({time.time() - began:.0f} s)"

    def row(self, problem: kforge.Problem) -> Row:
        """One problem: its program, its package and what its tests say."""
        began = time.time()
        try:
            answer = self._export_and_test(problem)
        except (KForgeError, subprocess.TimeoutExpired) as error:
            answer = {"state": "error", "why": str(error)[:300]}
        return {"problem": problem.key, **answer, "seconds": f"{time.time() - began:.0f}"}

    def _export_and_test(self, problem: kforge.Problem) -> Row:
        winner = self._found(problem)
        if isinstance(winner, Exception):
            raise winner
        if winner is None:
            return {"state": "no program", "why": "neither the agents nor a folder has one"}
        if winner.verdict.outcome is not kforge.Outcome.CORRECT:
            return {"state": "not correct", "why": winner.verdict.headline}
        name = package_name(problem)
        try:
            write_package(package_files(winner, name), self.to / name)
        except KForgeError as error:
            return {"state": "not exported", "why": str(error)}
        return self._test(name)

    def _found(self, problem: kforge.Problem) -> Winner | Exception | None:
        """What judging came to, here or in a call before."""
        if problem.key not in self._winners:
            self.judge(problem)
        return self._winners[problem.key]

    def speed(self, problem: kforge.Problem) -> Row:
        """What the package's own benchmark says, beside the verdict."""
        winner = self._found(problem)
        assert isinstance(winner, Winner)
        return self._time(package_name(problem), winner.verdict)

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
            if self._judge is None:
                raise UsageError("it was not judged: --steps judge")
            verdict = self._judge.evaluate(problem, program, Settings(timing_seconds=seconds, compile_baseline=False))
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
        if done.returncode:
            last += "".join(f" ({words})" for words in NO_ROOM if words in done.stdout)
        return {"state": "passed" if done.returncode == 0 else "failed", "why": last, "skipped": "; ".join(skipped)}

    def _time(self, name: str, verdict: Verdict) -> Row:
        """What the package's own benchmark says, beside the verdict."""
        if verdict.interval is None:
            return {}
        done = self._run(["benchmarks/benchmark.py", "--json"], name)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            return {TIMED: f"its benchmark failed: {done.stderr.strip()[-300:]}"}
        low, high = verdict.interval
        answer = {TIMED: f"{verdict.speedup:.2f} ({low:.2f} to {high:.2f})"}
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
        if " " in word or word == "compiled":
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
    parser.add_argument("--jobs", type=int, default=1, help="so many programs in hand at once")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="what to do; all, if left out")
    parser.add_argument("--limit", type=int, default=0, help="so many problems at most")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "results.jsonl"
    done: dict[str, Row] = {}
    if path.exists():
        done = {item["problem"]: item for item in map(json.loads, path.read_text().splitlines())}
    suite = Suite(options, (options.python or environment(options.to / "environment")).absolute())
    problems = list(open_suite([options.suite]).problems.values())
    if options.programs is not None:
        problems = [item for item in problems if program_file(options.programs, item) is not None]
    problems = problems[: options.limit or None]
    wanted = [item for item in problems if options.again or item.key not in done]
    untimed = [item for item in problems if item in wanted or TIMED not in done[item.key]] if options.speed else []

    def keep(row: Row) -> None:
        done[row["problem"]] = row
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        show(row)

    if "judge" in options.steps:
        with suite.judge_at_work():
            for_all(suite.judge, [*wanted, *(item for item in untimed if item not in wanted)], options.jobs, print_line)
    if "test" in options.steps:
        for_all(suite.row, wanted, options.jobs, keep)
    for problem in untimed if "time" in options.steps else ():
        if done.get(problem.key, {}).get("state") == "passed":
            keep(done[problem.key] | suite.speed(problem))
    states = [row["state"] for row in done.values()]
    correct = len(states) - sum(states.count(state) for state in ("no program", "not correct", "error"))
    compiled = [row["compiled"] for row in done.values() if "compiled" in row]
    if compiled:
        counts = ", ".join(f"{compiled.count(word)} {word}" for word in ("within", "faster", "slower"))
        print(f"compiled modules against verdicts on bare programs: {counts}")
    print(f"{len(states)} problems: {correct} correct programs, {states.count('passed')} packages pass their tests")


if __name__ == "__main__":
    main()
