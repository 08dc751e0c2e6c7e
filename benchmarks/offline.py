"""How the offline agents do on the bundled suite: each problem forged, the best program judged once more.

    python benchmarks/offline.py [--limit N] [--iterations N] [--timing SECONDS] [--out FILE.md] [NAME ...]

The last judgement is a fresh one, so that the figure is not the luckiest of several. Geometric means have a 95 %
bootstrap interval over problems.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import kforge
from kforge import problems
from kforge.agents.offline.variants import variant_of
from kforge.forging.api import Workplace, forge
from kforge.types import Problem, Verdict

_RESAMPLES = 5000


@dataclass(frozen=True)
class Row:
    """One problem's end."""

    name: str
    outcome: str
    variant: str = "-"
    eager: float | None = None
    """How many times faster than eager."""
    compiled: float | None = None
    """How many times faster than torch.compile."""
    best: float | None = None
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only problems whose name holds one of these")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--timing", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    suite = [problem for problem in problems.find("bundled") if _wanted(_name(problem), asked.names)]
    rows = []
    for problem in suite[: asked.limit or None]:
        rows.append(measure(problem, asked.iterations, asked.timing))
        print(_line(rows[-1]), file=sys.stderr, flush=True)
    text = report(rows)
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


def measure(problem: Problem, iterations: int, timing: float) -> Row:
    """Forge a problem offline and judge what came of it."""
    began = time.monotonic()
    name = _name(problem)
    with tempfile.TemporaryDirectory() as store:
        made = forge(problem, model="builtin", workplace=Workplace(store=store), iterations=iterations)
    if made.best is None or made.best.candidate is None:
        last = made.history[-1].verdict.outcome.value if made.history else "nothing written"
        return Row(name, last, seconds=time.monotonic() - began)
    source = made.best.candidate.source
    verdict = kforge.evaluate(problem, source, timing_seconds=timing)
    return Row(
        name,
        verdict.outcome.value,
        variant_of(source) or "-",
        verdict.speedup,
        _over_compile(verdict),
        verdict.speedup_vs_best,
        time.monotonic() - began,
    )


def _over_compile(verdict: Verdict) -> float | None:
    if verdict.timing is None:
        return None
    ratio = next((item.ratio for item in verdict.timing.baselines if item.name == "compile"), None)
    return verdict.timing.speedup / ratio if ratio else None


def report(rows: list[Row]) -> str:
    """The table and the means, as Markdown."""
    lines = [
        "| problem | outcome | best variant | over eager | over torch.compile | over the better of both | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *map(_line, rows),
        "",
        f"Correct: {sum(row.outcome == 'correct' for row in rows)} of {len(rows)}.",
    ]
    for words, values in (
        ("eager", [row.eager for row in rows]),
        ("torch.compile", [row.compiled for row in rows]),
    ):
        known = [value for value in values if value]
        if known:
            mean, (low, high) = statistics.geometric_mean(known), bootstrap(known)
            lines.append(f"Geometric mean over {words}: {mean:.2f} [{low:.2f}, {high:.2f}], {len(known)} problems.")
    return "\n".join(lines) + "\n"


def bootstrap(values: list[float]) -> tuple[float, float]:
    """The middle 95 % of the geometric means of resampled problems."""
    draw = random.Random(0)
    means = sorted(statistics.geometric_mean(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES)]


def _line(row: Row) -> str:
    times = " | ".join("-" if value is None else f"{value:.2f}" for value in (row.eager, row.compiled, row.best))
    return f"| {row.name} | {row.outcome} | {row.variant} | {times} | {row.seconds:.0f} |"


def _name(problem: Problem) -> str:
    return f"level{problem.level}/{problem.name}"


def _wanted(name: str, names: list[str]) -> bool:
    return not names or any(part in name for part in names)


if __name__ == "__main__":
    main()
