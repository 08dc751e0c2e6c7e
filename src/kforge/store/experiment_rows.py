"""What is asked of the tables of experiments, sessions and cells."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from kforge.errors import UsageError
from kforge.store.records import dump, load, plain
from kforge.store.runs import short_id
from kforge.store.schema import cells, experiments, runs, sessions
from kforge.types import Experiment, Session, Verdict


class Ambiguous(UsageError):
    """A name that is the beginning of several ids."""


@dataclass(frozen=True)
class ExperimentRecord:
    """An experiment as it was last asked for."""

    id: str
    experiment: Experiment
    created: datetime


@dataclass(frozen=True)
class CellState:
    """Where a cell stands."""

    run: str = ""
    """Its run's id; empty while there is none."""
    state: str = "new"
    """Its run's state."""
    reason: str = ""
    failure: str = ""
    """Why the cell could not be worked on, when that was last tried."""
    confirmation: Verdict | None = None
    session: int = 0
    """The number of the session in which the cell was last worked on."""

    @property
    def finished(self) -> bool:
        """Whether the cell's run is through and nothing went wrong with the cell; a winner may still be unconfirmed."""
        return self.state == "finished" and not self.failure


def create(connection: Connection, experiment: Experiment, name: str) -> None:
    row = {"id": name, "name": plain(experiment.name), "created": time.time(), "document": dump(experiment)}
    connection.execute(insert(experiments), row)


def new_id(name: str) -> str:
    """An id for a new experiment, told from a run's by the word in it."""
    return short_id(f"bench {name}")


def find(connection: Connection, name: str) -> ExperimentRecord:
    """The experiment by id, by name (the newest), by the beginning of an id, or the `last`; UsageError lists them."""
    newest = select(experiments).order_by(experiments.c.number.desc())
    if name == "last":
        matches = connection.execute(newest.limit(1)).all()
    else:
        same = (experiments.c.id == plain(name)) | (experiments.c.name == plain(name))
        matches = list(connection.execute(newest.where(same).limit(1)))
        if not matches and name:
            beginning = experiments.c.id.startswith(plain(name), autoescape=True)
            matches = list(connection.execute(newest.where(beginning).limit(10)))
    if len(matches) > 1:
        ids = ", ".join(row.id for row in matches)
        raise Ambiguous(f"{name!r} is the beginning of several experiments: {ids}")
    if not matches:
        raise UsageError(_unknown_message(connection, name))
    return _as_record(matches[0])


def number_of(connection: Connection, name: str) -> int:
    """The number of the experiment with exactly this id."""
    return int(connection.execute(select(experiments.c.number).where(experiments.c.id == name)).scalar_one())


def ids_of_name(connection: Connection, name: str) -> list[str]:
    """The ids of the experiments of exactly that name, the newest first."""
    query = select(experiments.c.id).where(experiments.c.name == plain(name)).order_by(experiments.c.number.desc())
    return list(connection.execute(query).scalars())


def newest(connection: Connection, limit: int) -> list[ExperimentRecord]:
    query = select(experiments).order_by(experiments.c.number.desc()).limit(limit)
    return [_as_record(row) for row in connection.execute(query)]


def set_experiment(connection: Connection, number: int, experiment: Experiment) -> None:
    connection.execute(update(experiments).where(experiments.c.number == number).values(document=dump(experiment)))


def add_session(connection: Connection, number: int, session: Session) -> int:
    """Record a session; its number within the experiment, from 0."""
    count = connection.execute(select(func.count()).where(sessions.c.experiment == number)).scalar() or 0
    connection.execute(insert(sessions), {"experiment": number, "number": count, "document": dump(session)})
    return int(count)


def all_sessions(connection: Connection, number: int) -> tuple[Session, ...]:
    query = select(sessions.c.document).where(sessions.c.experiment == number).order_by(sessions.c.number)
    return tuple(load(Session, document) for document in connection.execute(query).scalars())


def put_cell(connection: Connection, number: int, cell: str, cell_state: CellState) -> None:
    """Record where a cell stands, in place of what was recorded before."""
    run = None
    if cell_state.run:
        run = connection.execute(select(runs.c.number).where(runs.c.id == cell_state.run)).scalar_one()
    connection.execute(delete(cells).where(cells.c.experiment == number, cells.c.cell == cell))
    row = {
        "experiment": number,
        "cell": cell,
        "run": run,
        "failure": plain(cell_state.failure),
        "confirmation": None if cell_state.confirmation is None else dump(cell_state.confirmation),
        "session": cell_state.session,
    }
    connection.execute(insert(cells), row)


def cell_states(connection: Connection, number: int) -> dict[str, CellState]:
    """Every cell that was ever worked on, with the state of its run."""
    query: Select[Any] = (
        select(cells, runs.c.id, runs.c.state, runs.c.reason)
        .join(runs, runs.c.number == cells.c.run, isouter=True)
        .where(cells.c.experiment == number)
    )
    return {row.cell: _as_cell_state(row) for row in connection.execute(query)}


def confirmations(connection: Connection, run: str) -> list[tuple[str, Verdict]]:
    """What the winner of the run with this id came to when it was judged once more, with the name of the experiment
    that had it judged, the newest first.
    """
    query: Select[Any] = (
        select(experiments.c.name, cells.c.confirmation)
        .join(experiments, experiments.c.number == cells.c.experiment)
        .join(runs, runs.c.number == cells.c.run)
        .where(runs.c.id == run, cells.c.confirmation.is_not(None))
        .order_by(experiments.c.number.desc())
    )
    return [(row.name, load(Verdict, row.confirmation)) for row in connection.execute(query)]


def _as_cell_state(row: Row[Any]) -> CellState:
    return CellState(
        run=row.id or "",
        state=row.state or "new",
        reason=row.reason or "",
        failure=row.failure,
        confirmation=None if row.confirmation is None else load(Verdict, row.confirmation),
        session=row.session,
    )


def _as_record(row: Row[Any]) -> ExperimentRecord:
    return ExperimentRecord(row.id, load(Experiment, row.document), datetime.fromtimestamp(row.created, UTC))


def _unknown_message(connection: Connection, name: str) -> str:
    recent = connection.execute(select(experiments.c.id).order_by(experiments.c.number.desc()).limit(5)).scalars().all()
    there = f"the latest are {', '.join(recent)}" if recent else "there are none yet: kforge bench makes one"
    return f"no experiment is called {name!r}; {there}"
