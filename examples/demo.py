"""`make demo`: forge faster kernels for bundled problems, with no key and no network. Takes a few minutes.

The offline agents do it: PyTorch's own compiler writes the kernels, rules over the profile choose the next variant. No
language model is involved; `kforge forge PROBLEM --model ...` puts one in their place.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge import Plan, RunEnvironment
from kforge.agents.offline.variants import variant_of
from kforge.cli.attempt_view import rival_lines
from kforge.cli.evidence_file import save_evidence
from kforge.cli.live import LiveRuns, speedup
from kforge.execution.local import LocalExecutor
from kforge.problems import find
from kforge.run.lifecycle import drive_run
from kforge.run.result import RunResult
from kforge.types import Problem, Report, RunSpec

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo-out"
PROBLEMS = ("level1/3", "level2/2", "level2/3", "level2/5")
ITERATIONS = 3


def main() -> None:
    console = Console()
    problems = [problem for name in PROBLEMS for problem in find(f"bundled:{name}")]
    console.print(
        f"[bold]KForge forges[/] {len(problems)} bundled problems on this CPU: write, judge, profile, advise, again.\n"
        "No key, no network, no language model: the offline agents lift kernels that PyTorch's compiler writes, "
        "and every one of them goes through the judge. Speedups are against eager PyTorch, with the judge's interval; "
        "`vs best` is against the faster of eager and torch.compile.\n",
        highlight=False,
    )
    began = time.monotonic()
    results = asyncio.run(forge_all(problems, console))
    console.print()
    console.print(table(results))
    for result in results:
        for line in rival_lines(result):
            console.print(escape(f"{result.spec.problem.name}: {line}"), style="dim", highlight=False)
    leave_behind(results)
    seconds = time.monotonic() - began
    right = [result for result in results if result.best]
    shown = OUT.relative_to(ROOT)
    console.print(
        f"\n{len(right)} of {len(results)} problems have a correct kernel, after {seconds:.0f} s and $0. "
        f"Left behind in {shown}/: kernels/, evidence/, summary.md, and the runs in {shown}/store",
        highlight=False,
    )
    if right:
        first = right[0].spec.problem.name
        console.print(
            f"Read one:       {shown}/kernels/{first}.py\n"
            f"Measure again:  .venv/bin/kforge evaluate --replay {shown}/evidence/{first}.json\n"
            f"See its run:    .venv/bin/kforge show {right[0].run} --store {shown}/store",
            highlight=False,
            soft_wrap=True,
        )


async def forge_all(problems: list[Problem], console: Console) -> list[RunResult]:
    """One after another, with one warm judge."""
    executor = LocalExecutor("cpu")
    results: list[RunResult] = []
    with LiveRuns(console) as live:
        rows = [live.add(problem.name, ITERATIONS) for problem in problems]
        try:
            for problem, own in zip(problems, rows, strict=True):
                request = RunSpec(problem, plan=Plan(iterations=ITERATIONS))
                place = RunEnvironment(
                    str(OUT / "store"),
                    tell=lambda event, own=own: live.take(own, event),  # type: ignore[misc]
                    executor=executor,
                )
                results.append(await drive_run(request, place))
        finally:
            await executor.close()
    return results


def table(results: list[RunResult]) -> Table:
    summary = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("problem", "programs", "result", "vs eager", "95 % interval", "vs best", "the winning variant"):
        summary.add_column(name, overflow="fold")
    for result in results:
        summary.add_row(*map(escape, cells(result)))
    speedups = [result.best.speedup for result in results if result.best and result.best.speedup]
    if speedups:
        mean = statistics.geometric_mean(speedups)
        summary.add_row("geometric mean", "", "", speedup(mean))
    return summary


def cells(result: RunResult) -> list[str]:
    best = result.best
    name, tried = result.spec.problem.name, str(len(result.history))
    if best is None:
        last = result.history[-1].verdict.outcome.value if result.history else "none"
        return [name, tried, last, "-", "-", "-", ""]
    low, high = best.verdict.interval or (0.0, 0.0)
    variant = variant_of(result.source) or ""
    against = speedup(best.verdict.speedup_vs_best)
    contended = ", contended" if best.verdict.contended else ""
    return [name, tried, "correct", speedup(best.speedup), f"{low:.2f} to {high:.2f}{contended}", against, variant]


def leave_behind(results: list[RunResult]) -> None:
    """Kernels, their evidence, and a summary."""
    lines = ["| problem | programs | result | vs eager | 95 % interval | vs best | variant |", "| --- " * 7 + "|"]
    for result in results:
        problem = result.spec.problem
        lines.append(f"| {' | '.join(cells(result))} |")
        if result.best is None or result.best.candidate is None:
            continue
        result.save(OUT / "kernels" / f"{problem.name}.py")
        report = Report(problem.name, problem.name, result.best.candidate.id, "cpu", result.best.verdict)
        save_evidence(OUT / "evidence" / f"{problem.name}.json", report)
    OUT.mkdir(exist_ok=True)
    (OUT / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
