"""Whether comparisons find what is there, and do not find what is not; and what figures cost.

    python benchmarks/metrics.py planted       a 10 % effect and none at all, over 40 paired problems with 5 % noise
    python benchmarks/metrics.py coverage      how often intervals hold the true mean, for four shapes of values
    python benchmarks/metrics.py seconds       a summary of 250 problems x 5 programs, and a comparison of two

The figures are in docs/results/bench-figures.md; what they are figures of, in docs/metrics.md.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable

from kforge.metrics.comparison import compare
from kforge.metrics.intervals import mean_interval
from kforge.metrics.summary import summarise
from kforge.types import Attempt, Candidate, Cell, ErrorNorm, Intent, Move, Outcome, Timing, Trial, Verdict

SHAPES: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "normal": (lambda chance: chance.gauss(0.0, 1.0), 0.0),
    "exponential (skewed)": (lambda chance: chance.expovariate(1.0), 1.0),
    "Student's t with 3 (heavy tails)": (
        lambda chance: chance.gauss(0.0, 1.0) / math.sqrt(chance.gammavariate(1.5, 2 / 3)),
        0.0,
    ),
    "80 % ties, the rest normal": (lambda chance: 0.0 if chance.random() < 0.8 else chance.gauss(0.5, 1.0), 0.1),
}
"""How to draw a value, and its true mean."""


def trial(problem: int, name: str, speedups: list[float]) -> Trial:
    history = []
    for step, value in enumerate(speedups, 1):
        timing = Timing("eager", value, (value * 0.97, value * 1.03), value * 0.8, (1.0,), (value,), 5, 3)
        verdict = Verdict(
            Outcome.CORRECT, "as measured", errors=(ErrorNorm("natural", 1e-7, 1e-5, 0.1),), timing=timing
        )
        history.append(Attempt(Move(0, step, Intent.FRESH), Candidate(f"x = {name}.{step}"), verdict))
    return Trial(Cell(f"p{problem}", f"p{problem}", "cpu", name), state="finished", history=tuple(history))


def planted(effect: float, repetitions: int, count: int = 40, noise: float = 0.05) -> None:
    """Problems differ by a factor; each side's measurement of each has its own noise."""
    spoken, shown, right, everywhere = 0, 0, 0, 0
    effects = []
    for repetition in range(repetitions):
        chance = random.Random(repetition)
        own = [chance.lognormvariate(0.3, 0.6) for _ in range(count)]
        a = [trial(n, "a", [own[n] * chance.lognormvariate(0.0, noise)]) for n in range(count)]
        b = [trial(n, "b", [own[n] * effect * chance.lognormvariate(0.0, noise)]) for n in range(count)]
        found = compare(a, b, ("a", "b"))
        speed = next(item for item in found.differences if item.question == "speedup vs eager")
        effects.append(speed.effect)
        shown += speed.shown
        right += speed.low <= effect <= speed.high
        spoken += not speed.low <= 1.0 <= speed.high
        everywhere += any(item.shown for item in found.differences)
    print(f"planted {effect:g}, {count} problems, noise {noise:.0%} on each side, {repetitions} repetitions:")
    print(f"  shown (speedup over eager) {shown}; by any of the 4 questions {everywhere}; interval alone {spoken}")
    middle = statistics.median(effects)
    print(f"  interval holds the truth {right} times; effects {min(effects):.3f} to {max(effects):.3f}, ", end="")
    print(f"median {middle:.3f}")


def coverage(repetitions: int) -> None:
    for name, (draw, truth) in SHAPES.items():
        words = []
        for count in (6, 10, 20, 40):
            chance = random.Random(count)
            hits = 0
            for _ in range(repetitions):
                low, high = mean_interval([draw(chance) for _ in range(count)])
                hits += low <= truth <= high
            words.append(f"n = {count}: {hits / repetitions:.1%}")
        print(f"{name}: {', '.join(words)} ({repetitions} intervals at 95 % each)", flush=True)


def seconds() -> None:
    chance = random.Random(0)
    a, b = (
        [trial(n, name, [chance.lognormvariate(0.2, 0.4) for _ in range(5)]) for n in range(250)] for name in ("a", "b")
    )
    for words, work in (
        ("summary of 250 problems x 5 programs", lambda: summarise(a)),
        ("comparison of two such", lambda: compare(a, b, ("a", "b"))),
        ("comparison over 40 problems", lambda: compare(a[:40], b[:40], ("a", "b"))),
    ):
        spent = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            spent.append(time.perf_counter() - began)
        print(f"{words}: p50 {statistics.median(spent) * 1e3:.0f} ms, slowest {max(spent) * 1e3:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["planted", "coverage", "seconds"])
    parser.add_argument("--repetitions", type=int, default=0)
    asked = parser.parse_args()
    if asked.what == "planted":
        planted(1.1, asked.repetitions or 200)
        planted(1.0, asked.repetitions or 20)
        planted(1.0, asked.repetitions or 1000)
    elif asked.what == "coverage":
        coverage(asked.repetitions or 1000)
    else:
        seconds()


if __name__ == "__main__":
    main()
