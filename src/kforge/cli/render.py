"""A verdict for people and for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge.cli.colours import colour_of
from kforge.cli.workload_table import flat_workloads, print_workloads
from kforge.types import BaselineTime, Outcome, Report, Timing, Verdict
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
        "score": verdict.score,
        "limit": {"ns": timing.limit.ns, "how": timing.limit.how} if timing and timing.limit else None,
        "contended": timing.contended if timing else None,
        "baseline": timing.baseline if timing else None,
        "baselines": {item.name: item.ratio for item in timing.baselines} if timing else None,
        "lower_precision": [item.name for item in timing.baselines if item.precision] if timing else None,
        "workloads": flat_workloads(verdict),
        "degenerate": list(verdict.degenerate),
        "counts": verdict.counts,
        "emulated": verdict.emulated,
        "custom_share": verdict.custom_share,
        "sandbox": verdict.sandbox,
        "errors": [
            {
                "distribution": item.distribution,
                "norm": item.norm,
                "limit": item.norm_limit,
                **({"workload": item.workload} if item.workload else {}),
            }
            for item in verdict.errors
        ],
        "notes": list(verdict.notes),
        "hazards": list(verdict.hazards),
        "generality": list(verdict.generality),
        "held_out": list(verdict.evidence.held_out) if verdict.evidence else [],
        "unchecked": list(verdict.evidence.unchecked) if verdict.evidence else [],
        "seconds": sum(verdict.evidence.seconds.values()) if verdict.evidence else None,
    }


def print_verdict(console: Console, report: Report) -> None:
    """The whole verdict, a line for each fact."""
    verdict = report.verdict
    colour = colour_of(verdict.outcome)
    rule = f" ({verdict.rule})" if verdict.rule else " (emulated)" if verdict.emulated else ""
    evidence = verdict.evidence
    form = f" ({evidence.problem.form})" if evidence is not None and str(evidence.problem.form) else ""
    console.print(f"[bold {colour}]{verdict.outcome.value}[/]{rule}  {escape(report.problem)}{form}", highlight=False)
    console.print(escape(verdict.detail), highlight=False)
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(report):
        table.add_row(f"[dim]{name}[/]", escape(value))
    console.print(table)
    print_workloads(console, verdict)


def _facts(report: Report) -> list[tuple[str, str]]:
    verdict, timing = report.verdict, report.verdict.timing
    facts: list[tuple[str, str]] = []
    if timing is not None:
        low, high = timing.interval
        contended = ", contended" if timing.contended else ""
        figures = f"{timing.speedup:.3f}  (95 %: {low:.3f} to {high:.3f}{contended})"
        facts.append((f"speedup vs {timing.baseline}", figures))
        best = "not measured" if timing.speedup_vs_best is None else f"{timing.speedup_vs_best:.3f}"
        facts.append(("speedup vs best", best))
        facts += [("score", timing.score_text)] if timing.score_text else []
        if verdict.workloads:
            facts.append(("mean over", f"{len(verdict.workloads)} workloads, geometric, by weight; each is below"))
        if timing.baselines:
            facts.append(("baselines (eager = 1)", ", ".join(map(_baseline, timing.baselines))))
        facts.append(("measured", _measured(verdict, timing)))
    if verdict.custom_share is not None:
        facts.append(("custom share", f"{verdict.custom_share:.0%} of the time in its own code"))
    if verdict.errors:
        worst = max(verdict.errors, key=lambda item: item.norm)
        facts.append(("worst error norm", f"{worst.norm:.1e} of {worst.norm_limit:.0e} allowed ({worst.inputs})"))
    if verdict.evidence is not None and verdict.evidence.held_out:
        facts.append(("held-out sizes", "; ".join(verdict.evidence.held_out)))
    if verdict.emulated and verdict.outcome is Outcome.CORRECT:
        facts.append(("emulated", "right on an emulator; the hardware's own compiler may still refuse it"))
    facts.append(("sandbox", verdict.sandbox))
    facts += [("degenerate", reason) for reason in verdict.degenerate]
    facts += [("silently wrong when", hazard) for hazard in verdict.hazards]
    facts += [("with other inputs", line) for line in verdict.generality]
    facts += [("note", note) for note in verdict.notes]
    facts += [("flag", flag) for flag in (timing.flags if timing else ())]
    return facts


def _measured(verdict: Verdict, timing: Timing) -> str:
    """How much was measured, over all workloads where there are several."""
    if not verdict.workloads:
        blocks = len(timing.candidate_ns)
        return f"{blocks} blocks of {timing.calls_per_block} calls; {timing.checked_calls} calls verified"
    timed = [item.timing for item in verdict.workloads if item.timing is not None]
    blocks = sum(len(item.candidate_ns) for item in timed)
    return f"{blocks} blocks; {sum(item.checked_calls for item in timed)} calls verified"


def _baseline(item: BaselineTime) -> str:
    if not item.ratio:
        return f"{item.name}: {item.note}"
    return f"{item.name} {item.ratio:.2f}" + (" (lower precision)" if item.precision else "")


def print_batch_line(console: Console, done: Done, number: int, total: int, width: int) -> None:
    if done.report is None:
        console.print(
            f"{number:>4}/{total}  {done.job.id:<{width}}  [bold red]error[/]  {escape(done.error)}", highlight=False
        )
        return
    verdict = done.report.verdict
    colour = colour_of(verdict.outcome)
    speedup = f"{verdict.speedup:8.2f}x" if verdict.speedup else " " * 9
    text = "(from an earlier run)" if done.resumed else verdict.detail.splitlines()[0]
    line = f"{number:>4}/{total}  {done.job.id:<{width}}  [{colour}]{verdict.outcome.value:<20}[/]{speedup}  "
    console.print(line + f"[dim]{escape(text[:70])}[/]", highlight=False, soft_wrap=True)


def print_batch_summary(console: Console, results: list[Done], out: Any) -> None:
    counts: dict[str, int] = {}
    for done in results:
        name = done.report.verdict.outcome.value if done.report else "error"
        counts[name] = counts.get(name, 0) + 1
    tally = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    console.print(f"{len(results)} jobs: {tally}; reports in {out}", highlight=False)
