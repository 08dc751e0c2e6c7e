"""`kforge runs`, `kforge show` and `kforge export`: what the store holds."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from kforge import jsonable
from kforge.agents import donor_origin as origin
from kforge.cli.colours import colour_of
from kforge.cli.evidence_file import save_evidence
from kforge.cli.live import cost, speedup
from kforge.cli.proven import problems_named
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.run.result import RunResult
from kforge.store.store import Store
from kforge.types import Attempt, Report, RunSpec, text_hash
from kforge.whole_file import write_for_user


def read(store: str, name: str) -> tuple[RunResult, str, str]:
    """A run from the store: its result, its state, and why."""
    with Store.open(store) as opened:
        found = opened.run(name)
        history, spent = opened.history(found.id), opened.spent(found.id)
        state = _state(opened, found.id, found.state)
        return RunResult(found.id, found.spec, history, usage=spent), state, found.reason


def _state(store: Store, run: str, recorded: str) -> str:
    """A run that is recorded as running and that nobody holds was broken off."""
    return "broken off" if recorded == "running" and not store.is_held(run) else recorded


def list_runs(store: str, limit: int, as_json: bool, problem: str = "") -> int:
    with Store.open(store) as opened:
        ids = [key for _, key in problems_named(opened, problem)] if problem else None
        found = [replace(item, state=_state(opened, item.id, item.state)) for item in opened.runs(limit, ids)]
    if as_json:
        for item in found:
            print(json.dumps({**vars(item), "models": list(item.models), "created": item.created.isoformat()}))
        return 0
    console = Screen()
    if not found:
        what = f"no run for {escape(problem)} yet" if problem else "no run yet"
        console.print(f"{what}: kforge forge {escape(problem) or 'PROBLEM.py'} makes one", highlight=False)
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    # A name is there to be copied: whole, whatever else has to be cut.
    longest = max(len(item.id) for item in found)
    for name, width in (
        ("run", longest),
        ("platform", 6),
        ("state", 8),
        ("tried", 5),
        ("speedup", 7),
        ("cost", 7),
        ("models", 3),
    ):
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=width)
    for item in found:
        table.add_row(
            item.id,
            item.platform,
            item.state,
            str(item.attempts),
            speedup(item.best_speedup),
            f"${item.dollars:.2f}" + ("+?" if item.unpriced else ""),
            escape(_shortened(", ".join(item.models))),
        )
    console.print(table)
    return 0


def _shortened(text: str, limit: int = 13) -> str:
    """The end of a long name says more than its beginning."""
    return text if len(text) <= limit else f"...{text[3 - limit :]}"


def show(store: str, name: str, step: str, as_json: bool) -> int:
    """A run's attempts, or one of them whole."""
    result, state, reason = read(store, name)
    if as_json and step:
        print(json.dumps(_whole_attempt(_attempt(result, step))))
        return 0
    if as_json:
        print(json.dumps({**flat(result), "state": state, "reason": reason}))
        return 0
    console = Screen()
    if step:
        _one_attempt(console, _attempt(result, step))
        return 0
    console.print(
        f"[bold]{result.run}[/]  {state}{f': {escape(reason)}' if reason else ''}", highlight=False, soft_wrap=True
    )
    summary(console, result, waiting=state == "waiting")
    if result.spec.donor:
        words = origin.read(result.spec.donor.origin).words_for_people
        console.print(f"[dim]reference:[/] {escape(words)}", highlight=False, soft_wrap=True)
    _attempts(console, result)
    whole, best = command("show", result.run, store), command("export", result.run, store)
    hint = f"{whole} --step N shows a program whole; {best} --to FILE writes the best"
    console.print(escape(hint), style="dim", highlight=False, soft_wrap=True)
    return 0


def export(store: str, name: str, to: Path, evidence: Path | None, step: str) -> int:
    """The best program of a run, or another step's, as a file."""
    result, _, _ = read(store, name)
    attempt = _attempt(result, step) if step else result.best
    if step:
        assert attempt is not None
        if attempt.candidate is None:
            raise UsageError(f"step {step} of {result.run} has no program")
        write_for_user(to, result.annotated_source(attempt))
    else:
        result.save(to)
    console = Screen()
    console.print(f"written to {to}", highlight=False)
    if evidence is not None:
        assert attempt is not None
        _write_evidence(evidence, result, attempt)
        console.print(f"evidence: {evidence}", highlight=False)
    return 0


def _write_evidence(path: Path, result: RunResult, attempt: Attempt) -> None:
    candidate = attempt.candidate.id if attempt.candidate else ""
    where = f"{result.run}-{attempt.move.chain + 1}.{attempt.move.step}"
    report = Report(where, result.spec.problem.name, candidate, result.spec.platform, attempt.verdict)
    save_evidence(path, report)


def command(verb: str, run: str, store: str | Store) -> str:
    """What to type to do something with a run; a database's URL may hold a password and is not repeated."""
    place = store.place.shown if isinstance(store, Store) else store
    place = "URL" if "://" in place else shlex.quote(place) if place else ""
    return f"kforge {verb} {run}" + (f" --store {place}" if place else "")


def summary(console: Console, result: RunResult, waiting: bool = False) -> None:
    """What a run came to, in two lines; `waiting`: it has not come to its end."""
    best, problem = result.best, result.spec.problem.name
    tried = f"{len(result.history)} program{'s' if len(result.history) != 1 else ''} tried, cost {cost(result.usage)}"
    if result.usage.unpriced:
        tried += f" ({result.usage.unpriced} repl{'ies' if result.usage.unpriced > 1 else 'y'} without a known price)"
    why = "; ".join(dict.fromkeys(stop.words for stop in result.stops))
    if best is None and waiting:
        console.print(
            f"[cyan]{escape(problem)}[/]: no correct program yet, {tried}. {escape(why)}",
            highlight=False,
            soft_wrap=True,
        )
    elif best is None:
        console.print(
            f"[red]no correct program[/] for {escape(problem)}: {tried}. {escape(why)}", highlight=False, soft_wrap=True
        )
    else:
        versus = best.verdict.speedup_vs_best
        against = f", {versus:.2f}x against the best baseline" if versus is not None else ""
        found = escape(best.verdict.headline)
        line = f"[green]{escape(problem)}[/]: {found}{against}. {tried}. {escape(why)}"
        console.print(line, highlight=False, soft_wrap=True)
        for reason in best.verdict.degenerate:
            console.print(
                f"  [yellow]the problem is degenerate, so this is no win:[/] {escape(reason)}", highlight=False
            )


def flat(result: RunResult) -> dict[str, Any]:
    """The object `--json` prints."""
    best = result.best
    return {
        "run": result.run,
        "problem": result.spec.problem.name,
        "platform": result.spec.platform,
        "models": list(result.spec.models),
        "reference": _flat_reference(result.spec),
        "correct": best is not None,
        "speedup": best.speedup if best else None,
        "interval": list(best.verdict.interval) if best and best.verdict.interval else None,
        "speedup_vs_best": best.verdict.speedup_vs_best if best else None,
        "counts": best.verdict.counts if best else False,
        "usage": jsonable.encode(result.usage),
        "stops": [jsonable.encode(stop) for stop in result.stops],
        "attempts": [_flat_attempt(attempt) for attempt in result.history],
    }


def _flat_reference(spec: RunSpec) -> dict[str, str] | None:
    """Which program the run had as its reference; None if it had none."""
    if spec.donor is None:
        return None
    found = origin.read(spec.donor.origin)
    return {
        "kind": found.kind or "other",
        "platform": found.platform,
        "name": found.name,
        "run": found.run,
        "step": found.step,
        "candidate": text_hash(spec.donor.source),
    }


def _whole_attempt(attempt: Attempt) -> dict[str, Any]:
    """Everything in an attempt; its chain counts from 1, as --step does."""
    data: dict[str, Any] = jsonable.encode(attempt)
    data["move"]["chain"] += 1
    return data


def _flat_attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "chain": attempt.move.chain + 1,
        "step": attempt.move.step,
        "intent": attempt.move.intent.value,
        "parent": attempt.move.parent,
        "model": attempt.model,
        "outcome": attempt.verdict.outcome.value,
        "detail": attempt.verdict.detail,
        "speedup": attempt.speedup,
        "recommendation": attempt.recommendation.text if attempt.recommendation else None,
        "unchanged": attempt.unchanged,
        "candidate": attempt.candidate.id if attempt.candidate else None,
        "seconds": attempt.seconds,
        "notes": list(attempt.notes),
    }


def _attempt(result: RunResult, step: str) -> Attempt:
    chain, _, number = step.rpartition(".")
    for attempt in result.history:
        if str(attempt.move.step) == number and str(attempt.move.chain + 1) == (chain or "1"):
            return attempt
    known = ", ".join(f"{item.move.chain + 1}.{item.move.step}" for item in result.history) or "none"
    raise UsageError(f"run {result.run} has no step {step}; there are (chain.step): {known}")


def _attempts(console: Console, result: RunResult) -> None:
    """Two lines for each attempt: how it went, and the advice it followed or what was wrong with it."""
    chains = result.spec.plan.samples > 1
    for attempt in result.history:
        move, verdict = attempt.move, attempt.verdict
        step = f"{move.chain + 1}.{move.step}" if chains else str(move.step)
        origin = f"from {move.parent}" if move.parent else ""
        outcome = f"[{colour_of(verdict.outcome)}]{verdict.outcome.value:<19}[/]"
        spent = f"model {attempt.seconds.get('model', 0.0):.1f} s, judge {attempt.seconds.get('judge', 0.0):.1f} s"
        star = "  [green]best[/]" if attempt is result.best else ""
        line = f"{step:>4}  {move.intent.value:<8} {origin:<7} {outcome} {speedup(attempt.speedup):>7}"
        console.print(f"{line}  [dim]{spent}[/]{star}", highlight=False, soft_wrap=True)
        advice = [_advice(attempt)] if attempt.recommendation else []
        wrong = [] if attempt.correct else [verdict.headline]
        for words in advice + wrong:
            console.print(Padding(escape(words), (0, 0, 0, 6)), style="dim", highlight=False)


def _advice(attempt: Attempt) -> str:
    """The advice an attempt followed, or that it did not."""
    text = attempt.recommendation.text if attempt.recommendation else ""
    return f"came back unchanged: the advice was not applied: {text}" if attempt.unchanged else text


def _one_attempt(console: Console, attempt: Attempt) -> None:
    verdict = attempt.verdict
    colour = colour_of(verdict.outcome)
    console.print(f"[bold {colour}]{verdict.outcome.value}[/] {attempt.move.intent.value}, by {escape(attempt.model)}")
    console.print(escape(verdict.detail), highlight=False, soft_wrap=True)
    if attempt.recommendation:
        console.print(f"[dim]advice:[/] {escape(_advice(attempt))}", highlight=False, soft_wrap=True)
        console.print(f"[dim]because:[/] {escape(attempt.recommendation.evidence)}", highlight=False, soft_wrap=True)
    if attempt.digest:
        console.print(f"[dim]profile:[/]\n{escape(attempt.digest.text)}", highlight=False, soft_wrap=True)
    for note in attempt.notes:
        console.print(f"[dim]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    if attempt.candidate is not None:
        if console.is_terminal:
            console.print(Syntax(attempt.candidate.source, "python", background_color="default"))
        else:
            print(attempt.candidate.source)
