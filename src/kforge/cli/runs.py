"""`kforge runs`, `kforge show` and `kforge export`: what the store holds."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge import jsonable
from kforge.agents import donor_origin as origin
from kforge.cli import attempt_view
from kforge.cli.evidence_file import save_evidence
from kforge.cli.live import cost, speedup
from kforge.cli.proven import problems_named
from kforge.cli.screen import Screen
from kforge.cli.workload_table import flat_workloads, print_workloads
from kforge.errors import UsageError
from kforge.experiments.confirmation import of_winner
from kforge.metrics.second_judgement import SecondJudgement
from kforge.run.eager_comparison import advice, compare_with_eager
from kforge.run.result import RunResult
from kforge.store.experiments import Experiments
from kforge.store.runs import RunSummary
from kforge.store.store import Store
from kforge.types import Attempt, Report, RunSpec, Verdict, text_hash
from kforge.whole_file import write_for_user


def read(store: str, name: str) -> tuple[RunResult, str, str]:
    """A run from the store: its result, its state, and why."""
    with Store.open(store) as opened:
        stored = opened.run(name)
        history, spent = opened.history(stored.id), opened.spent(stored.id)
        state = _state(opened, stored.id, stored.state)
        return RunResult(stored.id, stored.spec, history, usage=spent), state, stored.reason


def _confirmation(store: str, result: RunResult) -> tuple[str, Verdict | None]:
    """What the winner came to when it was judged once more, and for which experiment: the newest that has the run."""
    with Store.open(store) as opened:
        for experiment, recorded in Experiments(opened).confirmations(result.run):
            confirmation = of_winner(recorded, result.history)
            if confirmation is not None:
                return experiment, confirmation
    return "", None


def _state(store: Store, run: str, recorded: str) -> str:
    """A run that is recorded as running and that nobody holds was broken off."""
    return "broken off" if recorded == "running" and not store.is_held(run) else recorded


def list_runs(store: str, limit: int, as_json: bool, problem: str = "") -> int:
    with Store.open(store) as opened:
        ids = [key for _, key in problems_named(opened, problem)] if problem else None
        summaries = [replace(item, state=_state(opened, item.id, item.state)) for item in opened.runs(limit, ids)]
    if as_json:
        for item in summaries:
            print(json.dumps({**vars(item), "models": list(item.models), "created": item.created.isoformat()}))
        return 0
    console = Screen()
    if not summaries:
        what = f"no run for {escape(problem)} yet" if problem else "no run yet"
        console.print(f"{what}: kforge forge {escape(problem) or 'PROBLEM.py'} makes one", highlight=False)
        return 0
    _print_runs(console, summaries)
    return 0


def _print_runs(console: Console, summaries: list[RunSummary]) -> None:
    """A table as wide as the terminal; where that is narrow, without its last columns: nothing in it is cut."""
    columns = {
        "run": [item.id for item in summaries],
        "platform": [item.platform for item in summaries],
        "state": [item.state for item in summaries],
        "tried": [str(item.attempts) for item in summaries],
        "speedup": [speedup(item.best_speedup) for item in summaries],
        "cost": [f"${item.dollars:.2f}" + ("+?" if item.unpriced else "") for item in summaries],
        "models": [_shorten(", ".join(item.models)) for item in summaries],
    }
    gap = 2
    needed = {name: max(len(name), *map(len, cells)) + gap for name, cells in columns.items()}
    while console.is_terminal and sum(needed.values()) - gap > console.width and len(needed) > 1:
        needed.popitem()
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
    for name in needed:
        table.add_column(name, no_wrap=True)
    for cells in zip(*(columns[name] for name in needed), strict=True):
        table.add_row(*map(escape, cells))
    if not console.is_terminal:
        # A name is there to be copied: a pipe has no width that it would have to be cut to.
        console.width = max(console.width, sum(needed.values()))
    console.print(table)


def _shorten(text: str, limit: int = 13) -> str:
    """Shorten a text at its front: the end of a long name says more than its beginning."""
    return text if len(text) <= limit else f"...{text[3 - limit :]}"


def show(store: str, name: str, step: str, as_json: bool) -> int:
    """A run's attempts, or one of them whole."""
    result, state, reason = read(store, name)
    if as_json and step:
        print(json.dumps(_whole_attempt(_attempt(result, step))))
        return 0
    console = Screen()
    if step:
        attempt_view.print_attempt(console, _attempt(result, step))
        return 0
    experiment, confirmation = _confirmation(store, result)
    judged = SecondJudgement(result.best.verdict, confirmation) if result.best and confirmation else None
    if as_json:
        confirmed = None if judged is None else _flat_confirmation(experiment, judged)
        print(json.dumps({**flat(result), "state": state, "reason": reason, "confirmation": confirmed}))
        return 0
    console.print(
        f"[bold]{result.run}[/]  {state}{f': {escape(reason)}' if reason else ''}",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )
    print_summary(console, result, waiting=state == "waiting")
    if judged is not None:
        attempt_view.print_confirmation(console, experiment, judged)
        _say_unless_faster(console, judged.second)
    if result.spec.donor:
        donor = origin.read(result.spec.donor.origin).description_with_place
        console.print(f"[dim]reference:[/] {escape(donor)}", highlight=False, soft_wrap=True)
    attempt_view.print_attempts(console, result)
    attempt_view.print_choice(console, result)
    whole, best = command("show", result.run, store), command("export", result.run, store)
    for hint in ("one program whole, and the best as a file:", f"{whole} --step N", f"{best} --to FILE"):
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
    console.print(f"written to {to}", highlight=False, soft_wrap=True)
    if attempt is not None:
        _say_unless_faster(console, attempt.verdict)
    if evidence is not None:
        assert attempt is not None
        _write_evidence(evidence, result, attempt)
        console.print(f"evidence: {evidence}", highlight=False)
    return 0


@dataclass(frozen=True)
class PackageChoice:
    """What a user chooses of a package."""

    form: str = "package"
    """package; hf-kernel: in the layout of Hugging Face's kernels; flashinfer: a Solution in a dataset."""
    op: str = ""
    """The operator's name; empty: the problem's."""
    gradients: str = "reference"
    licence: str = "Apache-2.0"
    is_built: bool = False
    """Whether it carries what its program compiles."""
    architectures: tuple[str, ...] = ()
    """GPUs that it is compiled for too, beside the one of this machine."""


def export_package(store: str, name: str, to: Path | None, choice: PackageChoice, step: str) -> int:
    """A program of a run as a package in a folder."""
    from kforge.packages.built_files import with_built
    from kforge.packages.description import Winner, check_name, function_name
    from kforge.packages.hugging_face import kernel_files
    from kforge.packages.package_files import package_files, write_package
    from kforge.packages.trace_files import trace_files, write_traces

    result, _, _ = read(store, name)
    attempt = _attempt(result, step) if step else result.best
    if attempt is None:
        raise UsageError(f"run {result.run} has no correct program ({len(result.history)} were tried): nothing to ship")
    folder = to or Path(choice.op or function_name(result.spec.problem.name))
    package = folder.resolve().name
    make = {"package": package_files, "hf-kernel": kernel_files, "flashinfer": trace_files}[choice.form]
    files = make(Winner.of(result, attempt), package, choice.op, choice.gradients, choice.licence)
    notes: list[str] = []
    if choice.is_built:
        home = next(path for path in files if path.endswith("/verified.json")).removesuffix("verified.json")
        files, notes = with_built(files, check_name(package, "the package"), home, choice.architectures)
    (write_traces if choice.form == "flashinfer" else write_package)(files, folder)
    console = Screen()
    console.print(f"written to {folder}", highlight=False, soft_wrap=True)
    for note in notes:
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    _say_unless_faster(console, attempt.verdict)
    if attempt.verdict.emulated:
        line = "verified on an emulator only: the package says so, and claims no speed"
        console.print(line, style="yellow", highlight=False, soft_wrap=True)
    hints = {
        "package": (f"pip install {folder}/", f"kforge verify {folder}/"),
        "hf-kernel": (f'kernels.get_local_kernel(Path("{folder}"))', f"kforge verify {folder}/"),
        "flashinfer": (f'flashinfer_bench.TraceSet.from_path("{folder}")',),
    }
    for hint in hints[choice.form]:
        console.print(hint, style="dim", highlight=False, soft_wrap=True)
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


def print_summary(console: Console, result: RunResult, waiting: bool = False) -> None:
    """What a run came to, in a few lines; `waiting`: it has not come to its end."""
    best, problem = result.best, escape(result.spec.problem.name)
    if best is None and waiting:
        headline = f"[cyan]{problem}[/]: no correct program yet"
    elif best is None:
        headline = f"[red]no correct program[/] for {problem}"
    else:
        versus = best.verdict.speedup_vs_best
        against = f", {versus:.2f}x against the best baseline" if versus is not None else ""
        headline = f"[green]{problem}[/]: {escape(best.verdict.headline)}{against}"
    why = "; ".join(dict.fromkeys(stop.words for stop in result.stops))
    soft_wrap = not console.is_terminal
    console.print(f"{headline}. {_effort(result)}. {escape(why)}".rstrip(), highlight=False, soft_wrap=soft_wrap)
    if best is None:
        return
    print_workloads(console, best.verdict)
    _say_unless_faster(console, best.verdict)
    for line in attempt_view.rival_lines(result):
        console.print(escape(line), style="dim", highlight=False, soft_wrap=soft_wrap)
    for reason in best.verdict.degenerate:
        line = f"[yellow]the problem is degenerate, so this is no win:[/] {escape(reason)}"
        console.print(line, highlight=False, soft_wrap=soft_wrap)


def _effort(result: RunResult) -> str:
    programs, unpriced = len(result.history), result.usage.unpriced
    tried = f"{programs} program{'s' if programs != 1 else ''} tried, cost {cost(result.usage)}"
    return tried + (f" ({unpriced} repl{'ies' if unpriced > 1 else 'y'} without a known price)" if unpriced else "")


def _say_unless_faster(console: Console, verdict: Verdict) -> None:
    """Say that a correct program is not surely faster than what the user has; nothing for any other."""
    text = advice(verdict)
    if text:
        console.print(text, style="yellow", highlight=False, soft_wrap=not console.is_terminal)


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
        "score": best.verdict.score if best else None,
        "against_eager": compare_with_eager(best.verdict) if best else None,
        "contended": best.verdict.timing.contended if best and best.verdict.timing else None,
        "workloads": flat_workloads(best.verdict) if best else [],
        "counts": best.verdict.counts if best else False,
        "usage": jsonable.encode(result.usage),
        "stops": [jsonable.encode(stop) for stop in result.stops],
        "attempts": [_flat_attempt(attempt) for attempt in result.history],
    }


def _flat_confirmation(experiment: str, judged: SecondJudgement) -> dict[str, Any]:
    confirmation = judged.second
    return {
        "experiment": experiment,
        "hosts": list(judged.hosts),
        "agrees": judged.agrees,
        "outcome": confirmation.outcome.value,
        "speedup": confirmation.speedup,
        "interval": list(confirmation.interval) if confirmation.interval else None,
        "contended": confirmation.timing.contended if confirmation.timing else None,
        "speedup_vs_best": confirmation.speedup_vs_best,
        "score": confirmation.score,
        "workloads": flat_workloads(confirmation),
        "against_eager": compare_with_eager(confirmation),
    }


def _flat_reference(spec: RunSpec) -> dict[str, str] | None:
    """Which program the run had as its reference; None if it had none."""
    if spec.donor is None:
        return None
    source = origin.read(spec.donor.origin)
    return {
        "kind": source.kind or "other",
        "platform": source.platform,
        "name": source.name,
        "run": source.run,
        "step": source.step,
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
        "interval": list(attempt.verdict.interval) if attempt.verdict.interval else None,
        "score": attempt.verdict.score,
        "workloads": flat_workloads(attempt.verdict),
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
