"""`kforge bench`."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge.cli.bench_live import LiveBench
from kforge.cli.bench_table import flat_summary, print_summary
from kforge.cli.bundle_messages import WAITING, say_unknown_machine, say_waiting
from kforge.cli.forge import run_until_signal, say_offline
from kforge.cli.report import write_page
from kforge.cli.runs import command
from kforge.cli.screen import Screen
from kforge.errors import RunBusy, StoreError, UsageError
from kforge.experiments.resume_plan import begin, open_experiment, resume_plan, with_cache_note
from kforge.experiments.scheduler import ExperimentEnvironment, conduct, places_now, spent_on, usual_parallel
from kforge.experiments.study_reader import study_of
from kforge.reports.configurations import as_toml
from kforge.reports.findings import StudyFindings, find
from kforge.reports.number_format import several
from kforge.run.model_pool import ModelAccess
from kforge.store.experiments import Experiments
from kforge.store.store import Store
from kforge.types import Experiment
from kforge.whole_file import check_writable

_WHERE = ("--store", "--html", "--cache")


@dataclass(frozen=True)
class BenchOutput:
    """How an experiment is worked on, and where what came of it goes."""

    store: str = ""
    parallel: int = 0
    fresh: bool = False
    as_json: bool = False
    html: Path | None = None
    """Where to write the report."""


def dry_run(experiment: Experiment, store: str, parallel: int, fresh: bool) -> int:
    """Says what there is to do."""
    console = Screen()
    _say_matrix(console, experiment)
    for platform in experiment.platforms:
        count = parallel or usual_parallel(experiment, platform, places_now(experiment, platform))
        console.print(f"on {platform}: {count} in hand at once", highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("configuration")
    table.add_column("models")
    table.add_column("options")
    for item in experiment.configurations:
        options = ", ".join(f"{name} = {as_toml(value)}" for name, value in item.options.items())
        table.add_row(escape(item.name), escape(", ".join(item.models)), escape(options))
    console.print(table)
    console.print("problems: " + escape(", ".join(experiment.problems)), highlight=False)
    console.print(_forecast(experiment, store, fresh), highlight=False, soft_wrap=True)
    return 0


def _forecast(experiment: Experiment, place: str, fresh: bool) -> str:
    """What the store has of the experiment."""
    store = None if fresh else Store.open_if_there(place)
    if store is None:
        return "a new experiment would begin"
    with store:
        plan = resume_plan(Experiments(store), experiment)
    done = sum(item.finished for item in plan.done.values())
    if plan.name:
        return f"{plan.name} would go on: {several(done, 'cell')} finished before"
    return "a new experiment would begin" + (f", and take over {several(done, 'finished cell')}" if done else "")


def run(experiment: Experiment, access: ModelAccess, output: BenchOutput, offline_by_default: bool = False) -> int:
    """0 if every cell was worked on to its end, 1 if not, 3 if jobs wait in a bundle."""
    console = Screen(stderr=output.as_json)
    if output.html is not None and output.html.is_dir():
        raise UsageError(f"--html {output.html}: a folder; name a file")
    if output.html is not None:
        check_writable(output.html, "--html")
    experiment = with_cache_note(experiment, access)
    pool = open_experiment(experiment, access)
    if offline_by_default:
        say_offline(console)
    for platform in experiment.platforms:
        say_unknown_machine(console, experiment.executor, platform)
    with Store.open(output.store) as store:
        for note in store.notes:
            console.print(f"store: {escape(note)}", style="dim", highlight=False)
        name = begin(experiment, store, output.fresh)
        _say_matrix(console, experiment, name, store)
        environment = ExperimentEnvironment(store, access, output.parallel, command=_typed_command(), pool=pool)
        _work(experiment, name, environment, console, output.as_json)
        study = study_of(store, Experiments(store).find(name))
    findings = find(study)
    _say_results(console, output, name, findings)
    states = [trial.state for trial in study.trials]
    if "waiting" in states:
        say_waiting(console, experiment.executor, _resume_command())
        return WAITING
    return 0 if all(state == "finished" for state in states) else 1


def _work(experiment: Experiment, name: str, environment: ExperimentEnvironment, console: Console, quiet: bool) -> None:
    store = environment.store
    spent = spent_on(store, Experiments(store).cell_states(name))

    async def work() -> None:
        with LiveBench(console, experiment, spent, quiet=quiet) as live:
            access = replace(environment.access, notify=live.note)
            try:
                await conduct(name, replace(environment, access=access, tell=live.take))
            except asyncio.CancelledError:
                console.print(
                    f"stopped; nothing is lost. Go on with: {escape(_resume_command())}",
                    highlight=False,
                    soft_wrap=True,
                )
                raise
            except RunBusy:
                raise
            except StoreError:
                console.print(
                    f"stopped; go on later with: {escape(_resume_command())}", highlight=False, soft_wrap=True
                )
                raise

    run_until_signal(work())


def _say_matrix(console: Console, experiment: Experiment, name: str = "", store: Store | None = None) -> None:
    cells = sum(1 for _ in experiment.cells())
    parts = [several(len(experiment.problems), "problem"), several(len(experiment.platforms), "platform")]
    parts += [several(len(experiment.configurations), "configuration")]
    parts += [several(len(experiment.seeds), "seed")] if len(experiment.seeds) > 1 else []
    line = f"[bold]{escape(experiment.name)}[/]  {' x '.join(parts)} = {several(cells, 'cell')}"
    if name and store is not None:
        done = sum(item.finished for item in Experiments(store).cell_states(name).values())
        line += f"  [dim]{name}[/]" + (f", {done} finished before" if done else "")
    console.print(line, highlight=False, soft_wrap=True)
    for why in dict.fromkeys(experiment.left_out.values()):
        keys = [key for key, reason in experiment.left_out.items() if reason == why]
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        console.print(f"left out: {escape(shown)} ({escape(why)})", style="dim", highlight=False, soft_wrap=True)


def _say_results(console: Console, output: BenchOutput, name: str, findings: StudyFindings) -> None:
    if output.as_json:
        print(json.dumps({"experiment": name, "summaries": [flat_summary(item) for item in findings.summaries]}))
    else:
        print_summary(console, findings)
    shown = f"{escape(command('report', name, output.store))} --html report.html"
    if output.html is None:
        console.print(shown, style="dim", highlight=False, soft_wrap=True)
        return
    try:
        write_page(findings, output.html)
    except UsageError:
        console.print(f"nothing is lost: {shown}", highlight=False, soft_wrap=True)
        raise
    console.print(f"report written to {output.html}", highlight=False, markup=False, soft_wrap=True)


def _typed_command() -> str:
    """The command for the record: not where things lie, which decides nothing and may hold a password."""
    return shlex.join(["kforge", *_drop_options(sys.argv[1:], _WHERE)])


def _resume_command() -> str:
    """The command that goes on: the same, without what would begin anew; a database's URL may hold a password."""
    words = [re.sub(r"^(--store=)?\w[\w+]*://.*", r"\1URL", word) for word in sys.argv[1:] if word != "--fresh"]
    return shlex.join(["kforge", *words])


def _drop_options(words: list[str], options: tuple[str, ...]) -> list[str]:
    """The words of a command line without some options and their values."""
    left, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if not skip and name not in options:
            left.append(word)
        skip = not skip and name in options and not equals
    return left
