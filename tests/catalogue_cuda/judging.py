"""Judges every entry of the catalogue on a GPU: `python judging.py OUTFILE [--only REGEX] [--without-slow]`."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from kforge.errors import KForgeError
from kforge.types import Candidate, Limits, Outcome, Problem, ProblemForm, Settings, Verdict

HERE = Path(__file__).parent
HARMLESS_SPEEDUP = 1.15
_PAID = "the hack paid"


@dataclass(frozen=True)
class Entry:
    """One file of the catalogue, and what its header says."""

    path: Path
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def is_hack(self) -> bool:
        return self.path.parent.name == "hacks"

    @property
    def is_slow(self) -> bool:
        return self.headers.get("slow") == "yes"

    @property
    def is_open(self) -> bool:
        """Whether the judge is known to be wrong about it."""
        return self.headers.get("open") == "yes"

    @property
    def platform(self) -> str:
        return self.headers.get("platform", "cuda")

    def words(self, name: str) -> set[str]:
        return {word.strip() for word in self.headers.get(name, "").split(",") if word.strip()}

    def expected(self) -> str:
        """In words, for people."""
        if not self.is_hack:
            return "correct"
        return "/".join(sorted(self.words("refused"))) + ("/no gain" if self.headers.get("neutralised") else "")


def entries(folder: str) -> list[Entry]:
    found = []
    for path in sorted((HERE / folder).glob("*.py")):
        headers = {}
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                break
            name, _, value = line.lstrip("# ").partition(":")
            headers[name.strip()] = value.strip()
        found.append(Entry(path, headers))
    return found


def not_here_because(entry: Entry) -> str:
    """What this machine lacks for an entry; empty if nothing."""
    import torch

    from kforge.worker.sandbox import levels

    needs = entry.words("needs")
    if "sandbox" in needs and levels.choose("auto") == "process":
        return "needs a sandbox: only the plain process level exists here"
    if "nvcc" in needs and not shutil.which("nvcc"):
        return "needs nvcc"
    if "sm_90" in needs and torch.cuda.get_device_capability() != (9, 0):
        return "holds machine code for compute capability 9.0"
    return ""


class Bench:
    """The judge of one platform at a time: two would disturb each other's timing. Opened when it is first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._platform = ""
        self._judge: Any = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def verdict(self, entry: Entry) -> Verdict:
        form = ProblemForm(entry.headers.get("dtype", ""))
        problem = Problem.from_file(HERE / "problems" / f"{entry.headers['problem']}.py").in_form(form)
        settings = Settings(
            policy=entry.headers.get("policy", "hybrid"),
            compile_baseline=False,
            timing_seconds=0.15,
            limits=Limits(build_seconds=240 if entry.is_slow else 20, call_seconds=5),
        )
        candidate = Candidate(entry.path.read_text(), platform=entry.platform, name=entry.path.stem)
        verdict: Verdict = self._judge_of(entry.platform).evaluate(problem, candidate, settings)
        return verdict

    def _judge_of(self, platform: str) -> Any:
        from kforge.worker.judge.judge import Judge

        if platform != self._platform:
            self._stack.close()
            self._judge, self._platform = self._stack.enter_context(Judge(platform)), platform
        return self._judge


def fault(entry: Entry, verdict: Verdict, twin: Verdict | None = None) -> str:
    """What is wrong with a verdict on this entry; empty if nothing. `twin` is the verdict on the honest program."""
    said = f"{verdict.outcome.value} {verdict.rule}: {verdict.detail}"
    if not entry.is_hack:
        return "" if verdict.outcome is Outcome.CORRECT else f"refused: {said}"
    if verdict.outcome is Outcome.CORRECT:
        if entry.headers.get("neutralised") != "yes":
            return f"accepted: {verdict.detail}"
        low = verdict.interval[0] if verdict.interval else 0
        fair = twin.interval[1] if twin is not None and twin.interval else 1.0
        return "" if low < HARMLESS_SPEEDUP * max(1.0, fair) else f"{_PAID}: {verdict.detail}"
    if verdict.outcome.value not in entry.words("refused"):
        return f"refused for another reason: {said}"
    if verdict.outcome is Outcome.REJECTED and "rule" in entry.headers and verdict.rule not in entry.words("rule"):
        return f"refused by another rule: {said}"
    return ""


def fault_beside_twin(bench: Bench, entry: Entry, verdict: Verdict) -> str:
    """As `fault`; a hack that got a speedup pays only if the same kernel without it gets less."""
    wrong = fault(entry, verdict)
    if not wrong.startswith(_PAID):
        return wrong
    twin = next(other for other in entries("benign") if other.path.stem == entry.headers["twin"])
    return fault(entry, verdict, bench.verdict(twin))


def in_order(chosen: list[Entry]) -> list[Entry]:
    """Platform by platform and problem by problem, so that what a judge knows is used again; slow ones last."""
    chosen = sorted(
        chosen, key=lambda entry: (entry.headers["problem"], entry.headers.get("dtype", ""), entry.path.stem)
    )
    return sorted(chosen, key=lambda entry: (entry.is_slow, entry.platform == "cuda"))


def lines(bench: Bench, chosen: list[Entry], counts: dict[str, list[int]]) -> Iterator[str]:
    """A line for each entry; `counts` gains (right, all) under hacks and benign."""
    for entry in in_order(chosen):
        began = time.monotonic()
        missing = not_here_because(entry)
        if missing:
            yield f"skip  {entry.path.stem}: {missing}"
            continue
        right_and_all = counts[entry.path.parent.name]
        right_and_all[1] += 1
        try:
            verdict = bench.verdict(entry)
        except (KForgeError, RuntimeError, OSError) as error:
            yield f"BROKEN {entry.path.stem}: the harness raised {type(error).__name__}: {first_line(str(error))}"
            continue
        wrong = fault_beside_twin(bench, entry, verdict)
        right_and_all[0] += not wrong
        yield (
            f"{'WRONG' if wrong else 'ok'}  {entry.path.parent.name}/{entry.path.stem}  expected {entry.expected()}  "
            f"got {verdict.outcome.value} {verdict.rule or '-'}  {first_line(verdict.detail)}  "
            f"{time.monotonic() - began:.1f} s"
        )


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:160]


def main(arguments: list[str]) -> int:
    """0 if every entry came out as it should."""
    parser = argparse.ArgumentParser(description="Judges every entry of the CUDA catalogue.")
    parser.add_argument("outfile", type=Path)
    parser.add_argument("--only", default="", help="a regular expression that an entry's folder/name must match")
    parser.add_argument("--without-slow", action="store_true", help="leave out what builds for tens of seconds")
    parser.add_argument("--open", action="store_true", help="also those that the judge is known to be wrong about")
    asked = parser.parse_args(arguments)
    chosen = [
        entry
        for entry in entries("hacks") + entries("benign")
        if re.search(asked.only, f"{entry.path.parent.name}/{entry.path.stem}")
        and not (asked.without_slow and entry.is_slow)
        and (asked.open or not entry.is_open)
    ]
    if not chosen:
        parser.error("no entry matches")
    counts = {"hacks": [0, 0], "benign": [0, 0]}
    began = time.monotonic()
    with Bench() as bench, asked.outfile.open("w") as file:
        for line in lines(bench, chosen, counts):
            say(line, file)
        (refused, hacks), (accepted, benign) = counts["hacks"], counts["benign"]
        spent = time.monotonic() - began
        say(f"hacks refused {refused} of {hacks}, benign accepted {accepted} of {benign}, {spent:.0f} s", file)
    return 0 if refused == hacks and accepted == benign else 1


def say(line: str, file: TextIO) -> None:
    print(line, flush=True)
    print(line, file=file, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
