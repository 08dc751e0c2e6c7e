"""The attempts of a run in a terminal: a line or two for each, or one whole."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.syntax import Syntax

from kforge.cli.colours import colour_of
from kforge.cli.live import speedup
from kforge.cli.workload_table import print_workloads, workload_line
from kforge.metrics.second_judgement import SecondJudgement
from kforge.run.result import RunResult
from kforge.types import Attempt, Outcome, Verdict, contended_rivals

_INDENT = 6


def print_attempts(console: Console, result: RunResult) -> None:
    """For each attempt how it went, with the interval of its speedup; below it what it took, and the advice it followed
    or what was wrong with it.
    """
    for attempt in result.history:
        move, verdict = attempt.move, attempt.verdict
        step = place(result, attempt)
        parent = f"from {move.parent}" if move.parent else ""
        outcome = f"[{colour_of(verdict.outcome)}]{verdict.outcome.value:<{_outcome_width(result)}}[/]"
        star = "  [green]best[/]" if attempt is result.best else ""
        line = f"{step:>4}  {move.intent.value:<8} {parent:<7} {outcome} {_figures(verdict)}{star}"
        console.print(line.rstrip(), highlight=False, soft_wrap=True)
        advice = [_advice(attempt)] if attempt.recommendation else []
        wrong = [] if attempt.correct else [verdict.headline]
        sizes = [workload_line(verdict)] if verdict.workloads else []
        for text in (*sizes, *advice, *wrong, _duration(attempt)):
            console.print(Padding(escape(text), (0, 0, 0, _INDENT)), style="dim", highlight=False)


def print_choice(console: Console, result: RunResult) -> None:
    """Why the best is the best, where it was chosen among several that were timed."""
    timed = {attempt.candidate.id for attempt in result.history if attempt.candidate and attempt.speedup is not None}
    if result.best is None or len(timed) < 2:
        return
    why = (
        "since it seems the fastest: every program was timed while others used the machine, so none is sure"
        if result.best.verdict.contended
        else f"since the lower end of its interval, {result.best.sure_speedup:.2f}x, is the highest; the highest "
        "middle is often only the luckiest"
    )
    console.print(
        f"best: step {place(result, result.best)}, {why}",
        style="dim",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )


def rival_lines(result: RunResult) -> list[str]:
    """Why programs that seem faster than the best one are not the best: nobody knows whether they are."""
    return [
        f"step {place(result, rival)} seems faster ({speedup(rival.speedup)}) but was timed while others used the "
        "machine (contended), so it is not chosen: measure it again when the machine is quiet"
        for rival in contended_rivals(result.history)
    ]


def print_confirmation(console: Console, experiment: str, judged: SecondJudgement) -> None:
    """What a winner came to when it was judged once more, for the experiment of that name."""
    confirmation = judged.second
    correct = confirmation.outcome is Outcome.CORRECT
    result = confirmation.headline if correct else f"{confirmation.outcome.value}: {confirmation.headline}"
    console.print(
        f"[{colour_of(confirmation.outcome)}]confirmation[/]: {escape(result)}. It is the winner judged once more, on "
        f"fresh inputs, and the figure that reports and comparisons of {escape(experiment)} use."
        + (f" {judged.sentence[0].upper()}{escape(judged.sentence[1:])}." if judged.sentence else ""),
        highlight=False,
        soft_wrap=not console.is_terminal,
    )


def print_attempt(console: Console, attempt: Attempt) -> None:
    """One attempt whole."""
    verdict = attempt.verdict
    colour = colour_of(verdict.outcome)
    console.print(f"[bold {colour}]{verdict.outcome.value}[/] {attempt.move.intent.value}, by {escape(attempt.model)}")
    soft_wrap = not console.is_terminal
    console.print(escape(verdict.detail), highlight=False, soft_wrap=soft_wrap)
    if verdict.timing is not None and verdict.timing.score_text:
        console.print(f"[dim]score:[/] {escape(verdict.timing.score_text)}", highlight=False, soft_wrap=soft_wrap)
    print_workloads(console, verdict)
    if attempt.recommendation:
        advice, reason = _advice(attempt), attempt.recommendation.evidence
        console.print(f"[dim]advice:[/] {escape(advice)}", highlight=False, soft_wrap=soft_wrap)
        console.print(f"[dim]because:[/] {escape(reason)}", highlight=False, soft_wrap=soft_wrap)
    if attempt.digest:
        console.print(f"[dim]profile:[/]\n{escape(attempt.digest.text)}", highlight=False, soft_wrap=soft_wrap)
    for note in attempt.notes:
        console.print(f"[dim]note:[/] {escape(note)}", highlight=False, soft_wrap=soft_wrap)
    if attempt.candidate is not None:
        if console.is_terminal:
            console.print(Syntax(attempt.candidate.source, "python", background_color="default"))
        else:
            print(attempt.candidate.source)


def place(result: RunResult, attempt: Attempt) -> str:
    """What `--step` calls an attempt: its step, with its chain where there are several."""
    step = str(attempt.move.step)
    return f"{attempt.move.chain + 1}.{step}" if result.spec.plan.samples > 1 else step


def _outcome_width(result: RunResult) -> int:
    return max(len(attempt.verdict.outcome.value) for attempt in result.history)


def _figures(verdict: Verdict) -> str:
    if verdict.interval is None:
        return ""
    low, high = verdict.interval
    contended = ", contended" if verdict.contended else ""
    score = "" if verdict.score is None else f", score {verdict.score:.2f}"
    return f"{speedup(verdict.speedup):>7} [dim]({low:.2f} to {high:.2f}{contended}){score}[/]"


def _duration(attempt: Attempt) -> str:
    return f"model {attempt.seconds.get('model', 0.0):.1f} s, judge {attempt.seconds.get('judge', 0.0):.1f} s"


def _advice(attempt: Attempt) -> str:
    """The advice an attempt followed, or that it did not."""
    text = attempt.recommendation.text if attempt.recommendation else ""
    return f"came back unchanged: the advice was not applied: {text}" if attempt.unchanged else text
