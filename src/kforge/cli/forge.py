"""`kforge forge` and `kforge resume`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from kforge.agents import donor_origin
from kforge.cli import runs
from kforge.cli.bundle_messages import ALL, WAITING, say_unknown_machine, say_what_to_do
from kforge.cli.live import ChainRow, LiveRuns
from kforge.cli.screen import Screen
from kforge.errors import KForgeError, UsageError
from kforge.execution.factory import open_executor
from kforge.models.keys import any_key
from kforge.run.context import RunEnvironment, RunEvent, check_ready
from kforge.run.lifecycle import drive_run
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.run.result import RunResult
from kforge.spec.donor_source import find_donor
from kforge.spec.run_spec import ResumeOptions
from kforge.store.store import Store, open_store
from kforge.types import RunSpec
from kforge.types.run import BUILTIN
from kforge.whole_file import check_writable

T = TypeVar("T")
_MANY = 1_000_000
"""More runs than a store holds."""


@dataclass(frozen=True)
class ForgeOutput:
    """Where the results go."""

    store: str = ""
    as_json: bool = False
    to: Path | None = None
    """A file for the best program."""


def run(specs: Sequence[RunSpec], access: ModelAccess, output: ForgeOutput, offline_by_default: bool = False) -> int:
    """0 if every problem has a correct program, 1 if not, 3 if jobs wait in a bundle."""
    console = Screen(stderr=output.as_json)
    access = replace(access, notify=lambda text: _notify(console, text))
    pool = ModelPool(access)
    _check_files(len(specs), access, output)
    check_ready(specs[0], access, pool)
    _check_donor(specs, output.store)
    if offline_by_default:
        say_offline(console)
    say_unknown_machine(console, specs[0].executor, specs[0].platform)
    results = run_until_signal(_forge_all(specs, RunEnvironment(output.store, access, pool=pool), output, console))
    for result in results:
        _show(result, output, console)
    say_what_to_do(console, list(results), output.store)
    if any(result.waiting for result in results):
        return WAITING
    return 0 if len(results) == len(specs) and all(result.best for result in results) else 1


def _check_donor(specs: Sequence[RunSpec], store: str) -> None:
    """Where no problem has the reference that was asked for, no store is made either; of several, some may lack it."""
    wanted = [spec for spec in specs if spec.reference not in ("", donor_origin.INDUCTOR)]
    errors: list[UsageError] = []
    for spec in wanted:
        try:
            find_donor(spec.reference, spec.problem, store)
            return
        except UsageError as error:
            errors.append(error)
    if errors:
        raise errors[-1]


def _check_files(problems: int, access: ModelAccess, output: ForgeOutput) -> None:
    """Files that cannot take what belongs into them are an error before anything is spent."""
    if problems > 1 and access.record:
        raise UsageError(f"a recording holds one problem, and there are {problems}")
    if output.to is None:
        return
    if output.to.is_dir():
        raise UsageError(f"--to {output.to}: a folder; name a file")
    if problems > 1:
        raise UsageError(f"--to names one file, and there are {problems} problems; use `kforge export` afterwards")
    check_writable(output.to, "--to")


def say_offline(console: Console) -> None:
    """Say who does the job where no model is named, and how one is."""
    key = any_key()
    hint = "No model is named and no key is set"
    if key is not None:
        hint = f"No model is named (a key for {key} is set: --model {key}:NAME uses it)"
    console.print(
        f"{hint}: the offline agents do the job. They lift kernels that PyTorch's compiler writes and choose among "
        "variants by rules; no language model is involved.",
        style="dim",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )


def _say_donor(console: Console, spec: RunSpec) -> None:
    """Say which program a run has as its reference, and whether anybody will read it."""
    if spec.donor is None:
        return
    sentence = f"{spec.problem.name}: reference {donor_origin.read(spec.donor.origin).description_with_place}"
    if set(spec.models) == {BUILTIN}:
        sentence += "; the offline agents do not read it: name a --model that does"
    console.print(escape(sentence), style="dim", highlight=False, soft_wrap=not console.is_terminal)


async def _forge_all(
    specs: Sequence[RunSpec], environment: RunEnvironment, output: ForgeOutput, console: Console
) -> list[RunResult]:
    """One problem after another, with one warm judge; closes the environment's models."""
    results: list[RunResult] = []
    current, budget = "", specs[0].budget

    def note_start(run: str) -> None:
        nonlocal current
        current = run
        _say_donor(console, store.run(run).spec)

    async with contextlib.AsyncExitStack() as closing:
        store = closing.enter_context(Store.open(output.store))
        live = closing.enter_context(LiveRuns(console, quiet=output.as_json))
        executor = open_executor(specs[0].executor, specs[0].platform)
        closing.push_async_callback(executor.close)
        assert environment.pool is not None
        closing.push_async_callback(environment.pool.close)
        environment = replace(environment, store=store, started=note_start, executor=executor)
        for note in store.notes:
            console.print(f"store: {escape(note)}", style="dim", highlight=False)
        for spec in specs:
            if current:
                budget = budget.after(store.spent(current))
            current = ""
            rows = live.add(spec.problem.name, spec.plan.iterations, spec.plan.samples)
            try:
                live_environment = replace(environment, tell=_event_handler(live, rows))
                results.append(await drive_run(replace(spec, budget=budget), live_environment))
            except KForgeError as error:
                for row in rows:
                    row.fail(str(error))
                if len(specs) == 1:
                    raise
                console.print(f"[red]{escape(spec.problem.name)}[/]: {escape(str(error))}", highlight=False)
            except asyncio.CancelledError:
                if current:
                    _say_resume(console, current, output.store)
                raise
    return results


def resume(name: str, environment: RunEnvironment, changes: ResumeOptions, output: ForgeOutput) -> int:
    """Go on with a run, or with all that wait for reports."""
    console = Screen(stderr=output.as_json)
    results: list[RunResult] = []
    failed = 0
    names = _run_names(name, environment.store)
    for run in names:
        try:
            results.append(_resume_one(run, environment, changes, output, console))
        except KForgeError as error:
            if len(names) == 1:
                raise
            failed += 1
            console.print(f"[red]{escape(run)}[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
    say_what_to_do(console, list(results), environment.store)
    if failed:
        return 2
    if any(result.waiting for result in results):
        return WAITING
    return 0 if all(result.best for result in results) else 1


def _run_names(name: str, place: str | Store) -> list[str]:
    """The runs a name means, the oldest first."""
    with open_store(place) as store:
        if name != ALL:
            return [store.run(name).id]
        waiting = [item.id for item in store.runs(_MANY) if item.state == "waiting"]
    if not waiting:
        raise UsageError("no run waits for reports; `kforge runs` lists them all")
    return waiting[::-1]


def _resume_one(
    name: str, environment: RunEnvironment, changes: ResumeOptions, output: ForgeOutput, console: Console
) -> RunResult:
    with open_store(environment.store) as store:
        stored = store.run(name)
        past = store.history(stored.id, profiles=False)
    spec = changes.apply_to(stored.spec)

    async def work() -> RunResult:
        with LiveRuns(console, quiet=output.as_json) as live:
            rows = live.add(spec.problem.name, spec.plan.iterations, spec.plan.samples, past)
            access = replace(environment.access, notify=lambda text: _notify(console, text))
            try:
                live_environment = replace(environment, tell=_event_handler(live, rows), access=access)
                return await drive_run(spec, live_environment, stored.id)
            except asyncio.CancelledError:
                _say_resume(console, stored.id, environment.store)
                raise

    result = run_until_signal(work())
    _show(result, output, console)
    return result


def _event_handler(live: LiveRuns, rows: list[ChainRow]) -> Callable[[RunEvent], None]:
    return lambda event: live.take(rows, event)


def _notify(console: Console, message: str) -> None:
    console.print(message, style="dim", highlight=False, markup=False)


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run that also ends in good order on a batch system's SIGTERM or when the terminal is lost."""

    async def run_with_signals() -> T:
        task = asyncio.current_task()
        assert task is not None
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
        return await work

    try:
        return asyncio.run(run_with_signals())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _say_resume(console: Console, run: str, store: str | Store) -> None:
    command = escape(runs.command("resume", run, store))
    console.print(f"stopped; nothing is lost. Go on with\n{command}", highlight=False, soft_wrap=True)


def _show(result: RunResult, output: ForgeOutput, console: Console) -> None:
    if output.to is not None and result.best is not None:
        _save(result, output, console)
    if output.as_json:
        print(json.dumps(runs.flat(result)))
        return
    runs.print_summary(console, result, result.waiting)
    shown = escape(runs.command("show", result.run, output.store))
    console.print(shown, style="dim", highlight=False, soft_wrap=True)
    if output.to is not None and result.best is not None:
        console.print(f"written to {output.to}", highlight=False, soft_wrap=True)


def _save(result: RunResult, output: ForgeOutput, console: Console) -> None:
    assert output.to is not None
    try:
        result.save(output.to)
    except UsageError:
        export = escape(runs.command("export", result.run, output.store))
        console.print(f"nothing is lost: {export} --to FILE", highlight=False, soft_wrap=True)
        raise
