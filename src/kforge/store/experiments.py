"""The part of a store that knows experiments: which runs belong together, and where each cell stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kforge.errors import StoreError
from kforge.store import experiment_rows as rows
from kforge.store.experiment_rows import Begun, Standing
from kforge.store.faults import Duplicate
from kforge.store.store import Store
from kforge.types import Experiment, Sitting

__all__ = ["Begun", "Experiments", "Standing"]


class Experiments:
    """Experiments of an open store. Every call is one short transaction, as the store's own are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database

    def create(self, experiment: Experiment) -> str:
        """Record a new experiment; its id."""
        for _ in range(20):
            name = rows.new_id(experiment.name)
            try:
                with self._database.writing() as connection:
                    rows.create(connection, experiment, name)
            except Duplicate:
                continue
            return name
        raise StoreError("no free id was found for a new experiment; try again")

    def find(self, name: str) -> Begun:
        """By id, name, the beginning of an id, or "last"; UsageError lists what there is."""
        with self._database.reading() as connection:
            return rows.find(connection, name)[1]

    def named(self, name: str) -> str | None:
        """The id of the newest experiment of exactly that name; None if there is none."""
        with self._database.reading() as connection:
            return rows.named(connection, name)

    def newest(self, limit: int = 20) -> list[Begun]:
        with self._database.reading() as connection:
            return rows.newest(connection, limit)

    def change(self, name: str, experiment: Experiment) -> None:
        """What it is from now on; cells that are no longer part of it stay recorded."""
        with self._database.writing() as connection:
            rows.set_experiment(connection, rows.find(connection, name)[0], experiment)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Work on an experiment alone; RunBusy says who else does."""
        with self._store.hold_name(name, f"experiment {name}"):
            yield

    def add_sitting(self, name: str, sitting: Sitting) -> int:
        """Its number within the experiment, from 0."""
        with self._database.writing() as connection:
            return rows.add_sitting(connection, rows.find(connection, name)[0], sitting)

    def sittings(self, name: str) -> tuple[Sitting, ...]:
        with self._database.reading() as connection:
            return rows.all_sittings(connection, rows.find(connection, name)[0])

    def put(self, name: str, cell: str, standing: Standing) -> None:
        """Record where a cell stands."""
        with self._database.writing() as connection:
            rows.put_cell(connection, rows.number_of(connection, name), cell, standing)

    def standings(self, name: str) -> dict[str, Standing]:
        """Where every cell stands that was ever worked on, by the cell's fingerprint."""
        with self._database.reading() as connection:
            return rows.standings(connection, rows.find(connection, name)[0])
