"""A run from its specification to its result."""

from __future__ import annotations

from kforge.run.context import RunEnvironment, prepare
from kforge.run.loop import Loop
from kforge.run.result import RunResult
from kforge.types import RunSpec


async def drive_run(spec: RunSpec, environment: RunEnvironment, run: str = "") -> RunResult:
    """Work on a specification to its end, or to where it cannot go on now.

    Without the name of a `run` a new one begins. With it, that one goes on under this specification: the one it was
    begun with, or ResumeOptions applied to it. What was paid for is not asked for again.
    """
    async with prepare(spec, environment, run) as context:
        store, run = context.store, context.run
        history = store.history(run)
        loop = Loop(context, history)
        stops = await loop.run()
        context.journal.forget()
        context.finish(stops)
        return RunResult(run, context.spec, loop.history, stops, store.spent(run))
