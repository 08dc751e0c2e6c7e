"""What a busy machine does to verdicts: the catalogue and A/A beside processes that come and go on the processors.

    python benchmarks/disturbed.py                 # all of it, beside two of them
    python benchmarks/disturbed.py hacks --beside 0    # one part (benign, self, hacks); beside none: as it is

Honest programs must all be accepted. Hacks whose verdict rests on a clock must be refused, or gain nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/worker/judge"), str(ROOT / "benchmarks")]

import figures  # noqa: E402
import test_catalogue as catalogue  # noqa: E402

import bursts  # noqa: E402

BY_THE_CLOCK = (
    "timing_half_clock_and_noise",
    "timing_patched_libc_clock",
    "timing_patched_runner_clock",
    "timing_redistributed_clock",
    "timing_spinning_threads",
    "timing_prefetch",
    "timing_spoiled_baseline",
    "timing_throttled_torch",
    "timing_join_when_idle",
    "timing_cpp_thread",
    "timing_python_thread",
    "timing_previous_answer",
    "attack_left_daemon",
    "attack_endless_loop",
)
ROUNDS = 3


def benign() -> None:
    """Every honest program of the catalogue."""
    entries = [item.values[0] for item in catalogue.entries("benign")]
    judged, wrong = _judge(entries, catalogue.wrong_with_benign)
    contended = sum(verdict.contended for verdict in judged)
    print(f"benign: {wrong} of {len(judged)} refused; {contended} of them contended, by their own word")


def hacks() -> None:
    """Those that a clock has to do with, several times each."""
    entries = [item.values[0] for item in catalogue.entries("hacks") if item.values[0].path.stem in BY_THE_CLOCK]
    judged, wrong = _judge(entries * ROUNDS, catalogue.wrong_with_hack)
    accepted = [verdict for verdict in judged if verdict.timing]
    highest = max((verdict.timing.interval[0] for verdict in accepted), default=0.0)
    print(
        f"hacks: {len(judged) - len(accepted)} of {len(judged)} refused, the others {highest:.2f}x at most by the ",
        end="",
    )
    print(f"low end of their intervals; {wrong} with another outcome than the catalogue names")


def _judge(entries: list[Any], wrong_with: Callable[[Any, Any], str]) -> tuple[list[Any], int]:
    """The verdicts, each in a line, and how many of them are wrong."""
    from kforge.worker.judge.judge import Judge

    judged, wrong = [], 0
    with Judge("cpu") as judge:
        for entry in entries:
            verdict = catalogue.verdict_of(judge, entry)
            judged.append(verdict)
            fault = wrong_with(entry, verdict)
            wrong += bool(fault)
            timed = verdict.timing
            said = (
                f"{timed.speedup:.2f} ({timed.interval[0]:.2f} to {timed.interval[1]:.2f})" if timed else verdict.rule
            )
            print(f"  {'WRONG ' if fault else ''}{entry.path.stem}: {verdict.outcome.value} {said}", flush=True)
            if fault:
                print(f"    {fault}")
    return judged, wrong


PARTS = {"benign": benign, "self": figures.itself, "hacks": hacks}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--beside", type=int, default=2, help="how many processes come and go")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {asked.beside} processes beside it")
    with bursts.beside(asked.beside):
        for part in asked.parts or PARTS:
            PARTS[part]()
