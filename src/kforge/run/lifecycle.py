"""A run from its specification to its result."""

from __future__ import annotations

from dataclasses import replace

from kforge.run.context import RunContext, RunEnvironment, prepare
from kforge.run.loop import Loop
from kforge.run.result import RunResult
from kforge.spec.run_spec import ResumeOptions
from kforge.store.store import open_store
from kforge.types import RunSpec


async def start_run(spec: RunSpec, environment: RunEnvironment) -> RunResult:
    """A new run, to its end or to where it cannot go on now."""
    async with prepare(spec, environment) as context:
        return await _drive(context)


async def resume_run(name: str, environment: RunEnvironment, changes: ResumeOptions) -> RunResult:
    """A run that was broken off, or that is to do more; what was paid for is not asked for again."""
    with open_store(environment.store) as store:
        stored = store.run(name)
        environment = replace(environment, store=store)
        async with prepare(changes.apply_to(stored.spec), environment, stored.id) as context:
            return await _drive(context)


async def _drive(context: RunContext) -> RunResult:
    store, run = context.store, context.run
    loop = Loop(context, store.history(run))
    stops = await loop.run()
    context.journal.forget()
    context.finish(stops)
    return RunResult(run, context.spec, loop.history, stops, store.spent(run))
