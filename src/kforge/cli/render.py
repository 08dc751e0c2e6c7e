"""A verdict for people and for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge.cli.colours import colour_of
from kforge.types import Outcome, Report
from kforge.worker.jobs import Done


def flat(report: Report) -> dict[str, Any]:
    """The object `--json` prints."""
    verdict, timing = report.verdict, report.verdict.timing
    return {
        "job": report.job,
        "problem": report.problem,
        "candidate": report.candidate,
        "platform": report.platform,
        "outcome": verdict.outcome.value,
        "detail": verdict.detail,
        "rule": verdict.rule or None,
        "speedup": verdict.speedup,
        "speedup_vs_best": verdict.speedup_vs_best,
        "interval": list(verdict.interval) if verdict.interval else None,
        "baseline": timing.baseline if timing else None,
        "baselines": {item.name: item.ratio for item in timing.baselines} if timing else None,
        "degenerate": list(verdict.degenerate),
        "counts": verdict.counts,
        "emulated": verdict.emulated,
        "custom_share": verdict.custom_share,
        "sandbox": verdict.sandbox,
        "errors": [
            {"distribution": item.distribution, "norm": item.norm, "limit": item.norm_limit} for item in verdict.errors
        ],
        "notes": list(verdict.notes),
        "hazards": list(verdict.hazards),
        "unchecked": list(verdict.evidence.unchecked) if verdict.evidence else [],
        "seconds": sum(verdict.evidence.seconds.values()) if verdict.evidence else None,
    }


def verdict(console: Console, report: Report) -> None:
    """The whole verdict, a line for each fact."""
    found = report.verdict
    colour = colour_of(found.outcome)
    rule = f" ({found.rule})" if found.rule else " (emulated)" if found.emulated else ""
    console.print(f"[bold {colour}]{found.outcome.value}[/]{rule}  {escape(report.problem)}", highlight=False)
    console.print(escape(found.detail), highlight=False)
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(report):
        table.add_row(f"[dim]{name}[/]", escape(value))
    console.print(table)


def _facts(report: Report) -> list[tuple[str, str]]:
    found, timing = report.verdict, report.verdict.timing
    facts: list[tuple[str, str]] = []
    if timing is not None:
        low, high = timing.interval
        facts.append((f"speedup vs {timing.baseline}", f"{timing.speedup:.3f}  (95 %: {low:.3f} to {high:.3f})"))
        best = "not measured" if timing.speedup_vs_best is None else f"{timing.speedup_vs_best:.3f}"
        facts.append(("speedup vs best", best))
        named = [
            f"{item.name} {item.ratio:.2f}" if item.ratio else f"{item.name}: {item.note}" for item in timing.baselines
        ]
        facts.append(("baselines (eager = 1)", ", ".join(named)))
        blocks = len(timing.candidate_ns)
        facts.append(
            ("measured", f"{blocks} blocks of {timing.calls_per_block} calls; {timing.checked_calls} calls verified")
        )
    if found.custom_share is not None:
        facts.append(("custom share", f"{found.custom_share:.0%} of the time in its own code"))
    if found.errors:
        worst = max(found.errors, key=lambda item: item.norm)
        facts.append(("worst error norm", f"{worst.norm:.1e} of {worst.norm_limit:.0e} allowed ({worst.distribution})"))
    if found.emulated and found.outcome is Outcome.CORRECT:
        facts.append(("emulated", "right on an emulator; the hardware's own compiler may still refuse it"))
    facts.append(("sandbox", found.sandbox))
    facts += [("degenerate", reason) for reason in found.degenerate]
    facts += [("silently wrong when", hazard) for hazard in found.hazards]
    facts += [("note", note) for note in found.notes]
    facts += [("flag", flag) for flag in (timing.flags if timing else ())]
    return facts


def batch_line(console: Console, done: Done, number: int, total: int, width: int) -> None:
    if done.report is None:
        console.print(
            f"{number:>4}/{total}  {done.job.id:<{width}}  [bold red]error[/]  {escape(done.error)}", highlight=False
        )
        return
    found = done.report.verdict
    colour = colour_of(found.outcome)
    speedup = f"{found.speedup:8.2f}x" if found.speedup else " " * 9
    text = "(from an earlier run)" if done.resumed else found.detail.splitlines()[0]
    line = f"{number:>4}/{total}  {done.job.id:<{width}}  [{colour}]{found.outcome.value:<20}[/]{speedup}  "
    console.print(line + f"[dim]{escape(text[:70])}[/]", highlight=False, soft_wrap=True)


def batch_summary(console: Console, results: list[Done], out: Any) -> None:
    counts: dict[str, int] = {}
    for done in results:
        name = done.report.verdict.outcome.value if done.report else "error"
        counts[name] = counts.get(name, 0) + 1
    words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    console.print(f"{len(results)} jobs: {words}; reports in {out}", highlight=False)
