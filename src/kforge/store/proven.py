"""Which platforms have a correct program for a problem, and which is the best on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from kforge.errors import StoreError
from kforge.store.attempts import best_first
from kforge.store.records import candidate, plain
from kforge.store.schema import attempts, runs
from kforge.types import Candidate, Outcome, Problem


@dataclass(frozen=True)
class Proven:
    """The best correct program for a problem on one platform."""

    problem: str
    problem_id: str
    platform: str
    run: str
    chain: int
    step: int
    speedup: float | None
    """The speedup as its run measured it, against that run's baseline; None where no correct program was timed."""
    attempts: int
    """How many attempts were correct there."""

    @property
    def place(self) -> str:
        """chain.step, as `kforge show RUN --step` takes it."""
        return f"{self.chain + 1}.{self.step}"


def on_each_platform(connection: Connection, problem_ids: Sequence[str] | None) -> list[Proven]:
    """The best program for each problem on each platform, in that order; None is every problem."""
    return _best(connection, [] if problem_ids is None else [runs.c.problem_id.in_(problem_ids)])


def of_other_versions(connection: Connection, problem: Problem) -> list[Proven]:
    """The best programs for problems of that name with another text."""
    return _best(connection, [runs.c.problem == plain(problem.name), runs.c.problem_id != problem.id])


def program(connection: Connection, record: Proven) -> Candidate:
    """The program that a record is about."""
    query = select(attempts.c.document).join(runs, runs.c.number == attempts.c.run)
    query = query.where(runs.c.id == record.run, attempts.c.chain == record.chain, attempts.c.step == record.step)
    document = connection.execute(query).scalar()
    held = candidate(document) if document is not None else None
    if held is None:
        raise StoreError(f"run {record.run} has no program at step {record.place} any more")
    return held


def _best(connection: Connection, where: Sequence[ColumnElement[Any]]) -> list[Proven]:
    """The best programs of the runs `where` keeps. One that was not timed has a `sure` of 0, and so comes last, as
    does one that was timed beside others' work; of equals the first that was recorded is taken.
    """
    group = (runs.c.problem_id, runs.c.platform)
    order = func.row_number().over(partition_by=group, order_by=best_first())
    columns = (*group, runs.c.problem, runs.c.id, attempts.c.chain, attempts.c.step, attempts.c.speedup)
    ranked = (
        select(*columns, order.label("place"), func.count().over(partition_by=group).label("correct"))
        .join(runs, runs.c.number == attempts.c.run)
        .where(attempts.c.outcome == Outcome.CORRECT.value, *where)
        .subquery()
    )
    rows = connection.execute(
        select(ranked).where(ranked.c.place == 1).order_by(ranked.c.problem, ranked.c.problem_id, ranked.c.platform)
    )
    return [
        Proven(row.problem, row.problem_id, row.platform, row.id, row.chain, row.step, row.speedup, row.correct)
        for row in rows
    ]
