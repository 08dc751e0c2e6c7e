"""What is asked of the table of attempts."""

from __future__ import annotations

import time

from sqlalchemy import Connection, insert, select, true, update

from kforge.store.blobs import Blobs
from kforge.store.records import load, plain, unpack
from kforge.store.schema import attempts, runs
from kforge.types import Attempt, Problem, Request, Verdict


def add(connection: Connection, number: int, request: Request, attempt: Attempt, document: str) -> None:
    """Record an attempt of run `number`."""
    platform = attempt.candidate.platform if attempt.candidate else request.platform
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
            "over_eager": over_eager(attempt.verdict),
            "problem_id": request.problem.id,
            "platform": plain(platform),
            "created": now,
            "document": document,
        },
    )
    connection.execute(update(runs).where(runs.c.number == number).values(updated=now))


def history(connection: Connection, number: int, problem: Problem, blobs: Blobs) -> tuple[Attempt, ...]:
    """A run's attempts in the order they were recorded."""
    query = select(attempts.c.document).where(attempts.c.run == number).order_by(attempts.c.number)
    return tuple(unpack(document, problem, blobs) for document in connection.execute(query).scalars())


def best(connection: Connection, problem_id: str, platform: str, blobs: Blobs) -> Attempt | None:
    """The fastest that counts over all runs; where two are equal, the later one."""
    # Chosen by the index alone: only the winner's document is read.
    number = (
        select(attempts.c.number)
        .where(attempts.c.problem_id == problem_id, attempts.c.platform == plain(platform))
        .where(attempts.c.counts == true())
        .order_by(attempts.c.over_eager.desc().nulls_last(), attempts.c.number.desc())
        .limit(1)
    )
    query = select(attempts.c.document, runs.c.request).join(runs, runs.c.number == attempts.c.run)
    query = query.where(attempts.c.number == number.scalar_subquery())
    row = connection.execute(query).first()
    return None if row is None else unpack(row.document, load(Request, row.request).problem, blobs)


def platforms_with(connection: Connection, problem_id: str) -> tuple[str, ...]:
    """Where a program that counts is known, by name."""
    query = select(attempts.c.platform).where(attempts.c.problem_id == problem_id, attempts.c.counts == true())
    return tuple(sorted(connection.execute(query.distinct()).scalars()))


def over_eager(verdict: Verdict) -> float | None:
    """The speedup against eager, whatever baseline it was measured against, so that runs compare."""
    if verdict.timing is None:
        return None
    ratios = {baseline.name: baseline.ratio for baseline in verdict.timing.baselines}
    return verdict.timing.speedup * (ratios.get(verdict.timing.baseline) or 1.0)
