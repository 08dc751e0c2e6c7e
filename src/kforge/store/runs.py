"""What is asked of the table of runs."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, true, update

from kforge.errors import UsageError
from kforge.store.attempts import best_first
from kforge.store.records import dump, load, plain
from kforge.store.schema import attempts, calls, runs
from kforge.types import RunSpec

STATES = ("running", "finished", "stopped", "waiting", "failed")
"""stopped: can be resumed; waiting: for reports from another machine."""


@dataclass(frozen=True)
class Run:
    """A run as it was asked for, and where it stands."""

    id: str
    spec: RunSpec
    state: str
    reason: str
    """Why it is in that state; may be empty."""
    created: datetime
    updated: datetime
    """When an attempt or a state was last recorded."""


@dataclass(frozen=True)
class RunSummary:
    """A run in one line."""

    id: str
    problem: str
    platform: str
    models: tuple[str, ...]
    state: str
    attempts: int
    best_speedup: float | None
    """The best of the attempts that count; None where there is none, or none was timed."""
    dollars: float
    unpriced: int
    """Replies whose price is not known."""
    created: datetime


def create(connection: Connection, spec: RunSpec, name: str) -> None:
    """Record a new run under an id that nobody has yet."""
    now = time.time()
    connection.execute(
        insert(runs),
        {
            "id": name,
            "problem_id": spec.problem.id,
            "problem": plain(spec.problem.name),
            "platform": plain(spec.platform),
            "models": json.dumps(spec.models),
            "state": "running",
            "reason": "",
            "created": now,
            "updated": now,
            "spec": dump(spec),
        },
    )


def new_id(problem: str) -> str:
    """A run's id, from its problem's name."""
    return short_id(re.sub(r"^\d+[^a-z0-9]+(?=[a-z])", "", problem.lower()) or "problem")


def short_id(what: str) -> str:
    """An id that is sortable and short: when (UTC), what, and four digits by chance."""
    slug = re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")[:24].strip("-") or "problem"
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{slug}-{secrets.token_hex(2)}"


def look_up(connection: Connection, name: str) -> tuple[int, RunSpec]:
    """The number and the specification of the run with exactly this id."""
    row = connection.execute(select(runs.c.number, runs.c.spec).where(runs.c.id == plain(name))).first()
    if row is None:
        raise UsageError(_unknown_message(connection, name))
    return row.number, load(RunSpec, row.spec)


def find(connection: Connection, name: str) -> Run:
    """The run by exact id, by the beginning of one, or the `last`; UsageError names the candidates otherwise."""
    newest = select(runs).order_by(runs.c.number.desc())
    if name == "last":
        matches = connection.execute(newest.limit(1)).all()
    else:
        matches = list(connection.execute(select(runs).where(runs.c.id == plain(name))))
        if not matches and name:
            beginning = runs.c.id.startswith(plain(name), autoescape=True)
            matches = list(connection.execute(newest.where(beginning).limit(10)))
    if len(matches) > 1:
        raise UsageError(f"{name!r} is the beginning of several runs: {', '.join(row.id for row in matches)}")
    if not matches:
        raise UsageError(_unknown_message(connection, name))
    return _as_run(matches[0])


def problems(connection: Connection, name: str = "") -> list[tuple[str, str]]:
    """(name, id) of the problems there are runs for, by name; `name` keeps those of one name or id."""
    query = select(func.min(runs.c.problem), runs.c.problem_id).group_by(runs.c.problem_id)
    if name:
        query = query.where((runs.c.problem == plain(name)) | (runs.c.problem_id == plain(name)))
    return sorted((str(problem), str(problem_id)) for problem, problem_id in connection.execute(query))


def summaries(connection: Connection, limit: int, problem_ids: Sequence[str] | None = None) -> list[RunSummary]:
    """The newest runs first; of some problems only, where their ids are given."""
    return [
        RunSummary(
            id=row.id,
            problem=row.problem,
            platform=row.platform,
            models=tuple(json.loads(row.models)),
            state=row.state,
            attempts=row.attempts,
            best_speedup=row.best,
            dollars=row.dollars or 0.0,
            unpriced=row.unpriced or 0,
            created=datetime.fromtimestamp(row.created, UTC),
        )
        for row in connection.execute(_summary_query(limit, problem_ids))
    ]


def set_state(connection: Connection, number: int, state: str, reason: str) -> None:
    if state not in STATES:
        raise UsageError(f"a run is {', '.join(STATES)}, not {state!r}")
    changes = {"state": state, "reason": plain(reason), "updated": time.time()}
    connection.execute(update(runs).where(runs.c.number == number).values(changes))


def set_spec(connection: Connection, number: int, spec: RunSpec) -> None:
    changes = {"spec": dump(spec), "updated": time.time()}
    connection.execute(update(runs).where(runs.c.number == number).values(changes))


def _summary_query(limit: int, problem_ids: Sequence[str] | None) -> Select[Any]:
    count = select(func.count()).where(attempts.c.run == runs.c.number).scalar_subquery()
    best = select(attempts.c.speedup).where(attempts.c.run == runs.c.number, attempts.c.counts == true())
    best = best.order_by(*best_first()).limit(1)
    dollars = select(func.sum(calls.c.dollars)).where(calls.c.run == runs.c.number).scalar_subquery()
    unpriced = select(func.sum(calls.c.unpriced)).where(calls.c.run == runs.c.number).scalar_subquery()
    columns = (runs.c.id, runs.c.problem, runs.c.platform, runs.c.models, runs.c.state, runs.c.created)
    query = select(
        *columns,
        count.label("attempts"),
        best.scalar_subquery().label("best"),
        dollars.label("dollars"),
        unpriced.label("unpriced"),
    )
    if problem_ids is not None:
        query = query.where(runs.c.problem_id.in_(problem_ids))
    return query.order_by(runs.c.number.desc()).limit(limit)


def _as_run(row: Row[Any]) -> Run:
    return Run(
        id=row.id,
        spec=load(RunSpec, row.spec),
        state=row.state,
        reason=row.reason,
        created=datetime.fromtimestamp(row.created, UTC),
        updated=datetime.fromtimestamp(row.updated, UTC),
    )


def _unknown_message(connection: Connection, name: str) -> str:
    recent = connection.execute(select(runs.c.id).order_by(runs.c.number.desc()).limit(5)).scalars().all()
    return f"no run is called {name!r}; " + (f"the latest are {', '.join(recent)}" if recent else "there are none yet")
