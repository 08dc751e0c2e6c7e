"""A run from its specification to its result; the store knows its state, whatever way it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from kforge.errors import StoreError
from kforge.run.context import RunContext, RunEnvironment, open_store, prepare
from kforge.run.loop import Loop
from kforge.run.result import RunResult
from kforge.spec.run_spec import ResumeOptions
from kforge.store.store import Store
from kforge.types import RunSpec, Stop


async def start_run(spec: RunSpec, environment: RunEnvironment) -> RunResult:
    """A new run, to its end or to where it cannot go on now."""
    async with prepare(spec, environment) as context:
        return await _drive(context)


async def resume_run(name: str, environment: RunEnvironment, changes: ResumeOptions) -> RunResult:
    """A run that was broken off, or that is to do more; what was paid for is not asked for again."""
    with open_store(environment.store) as store:
        stored = store.run(name)
        environment = replace(environment, store=store)
        async with prepare(changes.changed(stored.spec), environment, stored.id) as context:
            return await _drive(context)


async def _drive(context: RunContext) -> RunResult:
    store, run = context.store, context.run
    with _true_state(store, run) as finish:
        loop = Loop(context, store.history(run))
        stops = await loop.run()
        context.journal.forget()
        finish(stops)
    return RunResult(run, context.spec, loop.history, stops, store.spent(run))


@contextlib.contextmanager
def _true_state(store: Store, run: str) -> Iterator[Callable[[tuple[Stop, ...]], None]]:
    """Keeps the run's state in the store true, whatever way the block ends."""

    def finish(stops: tuple[Stop, ...]) -> None:
        open_ends = [stop for stop in stops if not stop.final]
        reason = "; ".join(dict.fromkeys(stop.words for stop in open_ends or stops))
        waits = any(stop.reason == "waiting" for stop in stops)
        store.set_state(run, "waiting" if waits else "stopped" if open_ends else "finished", reason)

    store.set_state(run, "running")
    try:
        yield finish
    except Exception as error:
        with contextlib.suppress(StoreError):
            store.set_state(run, "failed", f"{error}")
        raise
    except BaseException:
        with contextlib.suppress(StoreError):
            store.set_state(run, "stopped", "interrupted")
        raise
