"""The part of a store that knows experiments: which runs belong together, and where each cell stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kforge.errors import StoreError
from kforge.store import experiment_rows as rows
from kforge.store.experiment_rows import Ambiguous, CellState, ExperimentRecord
from kforge.store.faults import Duplicate
from kforge.store.store import Store
from kforge.types import Experiment, Session, Verdict

__all__ = ["Ambiguous", "CellState", "ExperimentRecord", "Experiments"]


class Experiments:
    """Experiments of an open store. Every call is one short transaction, as the store's own are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database

    def create(
        self, experiment: Experiment, sessions: Sequence[Session] = (), done: Mapping[str, CellState] = {}
    ) -> str:
        """Record a new experiment, with what it takes over from others; its id."""
        for _ in range(20):
            name = rows.new_id(experiment.name)
            try:
                with self._database.write_transaction() as connection:
                    rows.create(connection, experiment, name)
                    number = rows.number_of(connection, name)
                    for session in sessions:
                        rows.add_session(connection, number, session)
                    for cell, cell_state in done.items():
                        rows.put_cell(connection, number, cell, cell_state)
            except Duplicate:
                continue
            return name
        raise StoreError("no free id was found for a new experiment; try again")

    def find(self, name: str) -> ExperimentRecord:
        """The experiment by id, name, the beginning of an id, or "last"; UsageError lists what there is."""
        with self._database.read_transaction() as connection:
            return rows.find(connection, name)

    def ids_of_name(self, name: str) -> list[str]:
        """The ids of the experiments of exactly that name, the newest first."""
        with self._database.read_transaction() as connection:
            return rows.ids_of_name(connection, name)

    def newest(self, limit: int = 20) -> list[ExperimentRecord]:
        with self._database.read_transaction() as connection:
            return rows.newest(connection, limit)

    def change(self, name: str, experiment: Experiment) -> None:
        """Record what an experiment is from now on; cells that are no longer part of it stay recorded."""
        with self._database.write_transaction() as connection:
            rows.set_experiment(connection, rows.number_of(connection, name), experiment)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Work on an experiment alone; RunBusy says who else does."""
        with self._store.hold_name(name, f"experiment {name}"):
            yield

    def add_session(self, name: str, session: Session) -> int:
        """Record a session; its number within the experiment, from 0."""
        with self._database.write_transaction() as connection:
            return rows.add_session(connection, rows.number_of(connection, name), session)

    def sessions(self, name: str) -> tuple[Session, ...]:
        with self._database.read_transaction() as connection:
            return rows.all_sessions(connection, rows.number_of(connection, name))

    def put(self, name: str, cell: str, cell_state: CellState) -> None:
        """Record where a cell stands."""
        with self._database.write_transaction() as connection:
            rows.put_cell(connection, rows.number_of(connection, name), cell, cell_state)

    def cell_states(self, name: str) -> dict[str, CellState]:
        """Where every cell of the experiment with this id stands that was ever worked on, by its fingerprint."""
        with self._database.read_transaction() as connection:
            return rows.cell_states(connection, rows.number_of(connection, name))

    def confirmations(self, run: str) -> list[tuple[str, Verdict]]:
        """Verdicts on the winner of a run when it was judged once more, each with its experiment's name, the newest
        first.
        """
        with self._database.read_transaction() as connection:
            return rows.confirmations(connection, run)
