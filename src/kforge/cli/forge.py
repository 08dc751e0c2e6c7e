"""`kforge forge` and `kforge resume`."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from kforge.agents import donor_origin
from kforge.cli import runs
from kforge.cli.bundle_messages import ALL, WAITING, say_unknown_machine, say_what_to_do
from kforge.cli.forge_order import ForgeCommand
from kforge.cli.live import ChainRow, LiveRuns
from kforge.cli.screen import Screen
from kforge.errors import KForgeError, UsageError
from kforge.execution.factory import open_executor
from kforge.models.keys import any_key
from kforge.run.api import ForgeResult, ResumeOptions, RunEnvironment, carry_out, opened, resume_async
from kforge.run.loop import RunEvent
from kforge.run.team import BUILTIN
from kforge.spec.run_spec import make_request, target_of
from kforge.store.store import Store
from kforge.types import Request

T = TypeVar("T")
_MANY = 1_000_000
"""More runs than a store holds."""


def run(order: ForgeCommand) -> int:
    """0 if every problem has a correct program, 1 if not, 3 if jobs wait in a bundle."""
    console = Screen(stderr=order.as_json)
    if order.offline_by_default:
        say_offline(console)
    results = run_until_told(_forge_all(order, console))
    for result in results:
        _show(result, order.as_json, order.to, order.store, console)
    say_what_to_do(console, list(results), order.store)
    if any(result.waiting for result in results):
        return WAITING
    return 0 if len(results) == len(order.problems) and all(result.best for result in results) else 1


def say_offline(console: Console) -> None:
    """Who does the job where no model is named, and how one is."""
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


def _say_reference(console: Console, request: Request) -> None:
    """Which program a run has as its reference, and whether anybody will read it."""
    if not request.reference:
        return
    said = f"{request.problem.name}: reference {donor_origin.read(request.reference_origin).words_for_people}"
    if set(request.models) == {BUILTIN}:
        said += "; the offline agents do not read it: name a --model that does"
    console.print(escape(said), style="dim", highlight=False, soft_wrap=not console.is_terminal)


async def _forge_all(order: ForgeCommand, console: Console) -> list[ForgeResult]:
    """One problem after another, with one warm judge."""
    results: list[ForgeResult] = []
    executor = open_executor(order.options.executor, order.platform)
    target = target_of(order.platform, order.options.executor)
    say_unknown_machine(console, order.options.executor, order.platform)
    current, left = "", order.options.budget
    means = replace(order.means, notify=lambda words: _notify(console, words))

    def started(run: str) -> None:
        nonlocal current
        current = run

    with Store.open(order.store) as store, LiveRuns(console, quiet=order.as_json) as live:
        for note in store.notes:
            console.print(f"store: {escape(note)}", style="dim", highlight=False)
        try:
            for problem in order.problems:
                if current:
                    left = left.after(store.spent(current))
                current = ""
                rows: list[ChainRow] = []
                try:
                    options = replace(order.options, budget=left)
                    request = await make_request(problem, order.platform, order.models, options, target, store)
                    _say_reference(console, request)
                    rows = live.add(problem.name, request.plan.iterations, request.plan.samples)
                    place = RunEnvironment(store, means, _teller(live, rows), started, executor)
                    results.append(await carry_out(request, place))
                except KForgeError as error:
                    for row in rows:
                        row.fail(str(error))
                    if len(order.problems) == 1:
                        raise
                    console.print(f"[red]{escape(problem.name)}[/]: {escape(str(error))}", highlight=False)
        except asyncio.CancelledError:
            if current:
                _say_resume(console, current, order.store)
            raise
        finally:
            await executor.close()
            for model in order.means.models.values():
                await model.close()
    return results


def resume(name: str, place: RunEnvironment, more: ResumeOptions, as_json: bool) -> int:
    """Go on with a run, or with all that wait for reports."""
    console = Screen(stderr=as_json)
    results: list[ForgeResult] = []
    failed = 0
    names = _names(name, place.store)
    for run in names:
        try:
            results.append(_resume_one(run, place, more, as_json, console))
        except KForgeError as error:
            if len(names) == 1:
                raise
            failed += 1
            console.print(f"[red]{escape(run)}[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
    say_what_to_do(console, list(results), place.store)
    if failed:
        return 2
    if any(result.waiting for result in results):
        return WAITING
    return 0 if all(result.best for result in results) else 1


def _names(name: str, place: str | Store) -> list[str]:
    """The runs a name means, the oldest first."""
    with opened(place) as store:
        if name != ALL:
            return [store.run(name).id]
        found = [item.id for item in store.runs(_MANY) if item.state == "waiting"]
    if not found:
        raise UsageError("no run waits for reports; `kforge runs` lists them all")
    return found[::-1]


def _resume_one(name: str, place: RunEnvironment, more: ResumeOptions, as_json: bool, console: Console) -> ForgeResult:
    with opened(place.store) as store:
        found = store.run(name)
        past = store.history(found.id)
    request = more.applied(found.request)

    async def work() -> ForgeResult:
        with LiveRuns(console, quiet=as_json) as live:
            rows = live.add(request.problem.name, request.plan.iterations, request.plan.samples, past)
            try:
                means = replace(place.means, notify=lambda words: _notify(console, words))
                return await resume_async(found.id, replace(place, tell=_teller(live, rows), means=means), more)
            except asyncio.CancelledError:
                _say_resume(console, found.id, place.store)
                raise

    result = run_until_told(work())
    _show(result, as_json, None, place.store, console)
    return result


def _teller(live: LiveRuns, rows: list[ChainRow]) -> Callable[[RunEvent], None]:
    return lambda event: live.take(rows, event)


def _notify(console: Console, words: str) -> None:
    console.print(words, style="dim", highlight=False, markup=False)


def run_until_told(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run that also ends in good order on a batch system's SIGTERM or when the terminal is lost."""

    async def guarded() -> T:
        task = asyncio.current_task()
        assert task is not None
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _say_resume(console: Console, run: str, store: str | Store) -> None:
    command = escape(runs.command("resume", run, store))
    console.print(f"stopped; nothing is lost. Go on with\n{command}", highlight=False, soft_wrap=True)


def _show(result: ForgeResult, as_json: bool, to: Path | None, store: str | Store, console: Console) -> None:
    if to is not None and result.best is not None:
        result.save(to)
    if as_json:
        print(json.dumps(runs.flat(result)))
        return
    runs.summary(console, result, result.waiting)
    console.print(escape(runs.command("show", result.run, store)), style="dim", highlight=False, soft_wrap=True)
    if to is not None and result.best is not None:
        console.print(f"written to {to}", highlight=False, soft_wrap=True)
