"""What is asked of the table of attempts."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from kforge.store.blobs import Blobs
from kforge.store.records import unpack
from kforge.store.schema import attempts, runs
from kforge.types import Attempt, Problem


def add(connection: Connection, number: int, attempt: Attempt, document: str) -> None:
    """Record an attempt of run `number`."""
    now = time.time()
    connection.execute(
        insert(attempts),
        {
            "run": number,
            "chain": attempt.move.chain,
            "step": attempt.move.step,
            "outcome": attempt.verdict.outcome.value,
            "counts": attempt.verdict.counts,
            "speedup": attempt.speedup,
            "sure": attempt.sure_speedup,
            "created": now,
            "document": document,
        },
    )
    connection.execute(update(runs).where(runs.c.number == number).values(updated=now))


def best_first() -> tuple[ColumnElement[Any], ...]:
    """The order in which attempts are the best: that of `kforge.types.best_attempt`."""
    return attempts.c.sure.desc(), func.coalesce(attempts.c.speedup, 0.0).desc(), attempts.c.number.asc()


def history(connection: Connection, number: int, problem: Problem, blobs: Blobs | None) -> tuple[Attempt, ...]:
    """A run's attempts in the order they were recorded; without blobs, without their profiles."""
    query = select(attempts.c.document).where(attempts.c.run == number).order_by(attempts.c.number)
    return tuple(unpack(document, problem, blobs) for document in connection.execute(query).scalars())
