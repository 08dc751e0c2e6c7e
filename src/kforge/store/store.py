"""The store: what runs were asked, what they tried, what they paid for."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kforge import live_module
from kforge.errors import RunBusy, StoreError
from kforge.store import attempts, calls, locks, proven, runs
from kforge.store.blobs import Blobs
from kforge.store.database import Database
from kforge.store.faults import Duplicate, as_store_error
from kforge.store.place import StorePlace, find
from kforge.store.proven import Proven
from kforge.store.records import dump, load, pack
from kforge.store.runs import Run, RunSummary
from kforge.types import Attempt, Candidate, Completion, Problem, Prompt, RunSpec, Usage

__all__ = ["Proven", "Run", "RunSummary", "Store", "open_store"]

_KNOWN_RUNS = 64


class Store:
    """An open store. Every call is one short transaction: what has returned is recorded, and survives kill -9.

    Several processes and threads may use one store. Faults of the disk or the database are StoreError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._blobs = Blobs(database.place.blobs)
        # What set_spec changes aside, a run is read once and not again for each attempt.
        self._known = functools.lru_cache(_KNOWN_RUNS)(self._look_up)

    @classmethod
    def open(cls, place: str | Path = "") -> Store:
        """Open, and make or update if need be: "" is ./.kforge; else a folder, sqlite:///FILE or postgresql://..."""
        return cls(Database(find(place)))

    @classmethod
    def open_if_there(cls, place: str | Path = "") -> Store | None:
        """Open a store that somebody made before; None where nobody did: nothing is made then."""
        there = find(place)
        return None if there.file is not None and not there.file.exists() else cls(Database(there))

    @property
    def place(self) -> StorePlace:
        return self._database.place

    @property
    def database(self) -> Database:
        """The database, for the parts of the store that have files of their own."""
        return self._database

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of how the store was opened."""
        return self._database.notes

    def create_run(self, spec: RunSpec) -> str:
        """Record a new run; its id. A live module's file is kept with it."""
        self._keep_module(spec)
        for _ in range(20):
            name = runs.new_id(spec.problem.name)
            try:
                with self._database.write_transaction() as connection:
                    runs.create(connection, spec, name)
            except Duplicate:
                continue
            return name
        raise StoreError("no free id was found for a new run; try again")

    def run(self, name: str) -> Run:
        """The run by id, by the beginning of one, or "last"; UsageError lists the candidates otherwise."""
        with self._database.read_transaction() as connection:
            record = runs.find(connection, name)
        return replace(record, spec=self._with_module(record.spec))

    def runs(self, limit: int = 50, problem_ids: Sequence[str] | None = None) -> list[RunSummary]:
        """Summaries of runs, the newest first; of some problems only, where their ids are given."""
        with self._database.read_transaction() as connection:
            return runs.summaries(connection, limit, problem_ids)

    def problems(self, name: str = "") -> list[tuple[str, str]]:
        """(name, id) of the problems that runs were made for, all or those of one name or id; each id once."""
        with self._database.read_transaction() as connection:
            return runs.problems(connection, name)

    def proven(self, problem_ids: Sequence[str] | None = None) -> list[Proven]:
        """Which platforms have a correct program, for each of these problems or for all: the best one on each.

        Programs are compared by the lower ends of their speedups' intervals; one that was not timed comes after all
        that were.
        """
        with self._database.read_transaction() as connection:
            return proven.on_each_platform(connection, problem_ids)

    def proven_versions(self, problem: Problem) -> list[Proven]:
        """The best programs for problems that have this one's name and another text."""
        with self._database.read_transaction() as connection:
            return proven.of_other_versions(connection, problem)

    def program(self, record: Proven) -> Candidate:
        """The program behind a record of `proven`."""
        with self._database.read_transaction() as connection:
            return proven.program(connection, record)

    @contextmanager
    def hold(self, run: str) -> Iterator[None]:
        """Work on a run alone; RunBusy says who else does. A dead holder holds nothing."""
        self._known(run)
        with self.hold_name(run, f"run {run}"):
            yield

    def is_held(self, run: str) -> bool:
        """Whether somebody works on a run now: one that is recorded as running and that nobody holds was broken off."""
        try:
            with self.hold(run):
                return False
        except RunBusy:
            return True

    @contextmanager
    def hold_name(self, name: str, what: str) -> Iterator[None]:
        """Hold a lock of that name; RunBusy says who else does, and that they work on `what`."""
        with ExitStack() as stack:
            try:
                with as_store_error(self.place):
                    if self.place.file is None:
                        stack.enter_context(locks.server_lock(self._database.engine, name))
                    else:
                        stack.enter_context(locks.file_lock(self.place.folder / "locks" / name))
            except locks.LockHeld as held:
                raise RunBusy(f"{held} is working on {what}: wait for it, or stop it") from None
            yield

    def set_state(self, run: str, state: str, reason: str = "") -> None:
        """Record a run's state: running, finished, stopped (can be resumed), waiting (for reports) or failed."""
        number, _ = self._known(run)
        with self._database.write_transaction() as connection:
            runs.set_state(connection, number, state, reason)

    def set_spec(self, run: str, spec: RunSpec) -> None:
        """Record what a run is to do from now on; its problem stays the same."""
        number, _ = self._known(run)
        self._keep_module(spec)
        with self._database.write_transaction() as connection:
            runs.set_spec(connection, number, spec)
        self._known.cache_clear()

    def add_attempt(self, run: str, attempt: Attempt) -> None:
        """Record an attempt; StoreError if its chain has that step already."""
        number, spec = self._known(run)
        with as_store_error(self.place):
            document = pack(attempt, spec.problem, self._blobs)
        try:
            with self._database.write_transaction() as connection:
                attempts.add(connection, number, attempt, document)
        except Duplicate:
            move = attempt.move
            raise StoreError(f"run {run} already has step {move.step} of chain {move.chain}") from None

    def history(self, run: str, profiles: bool = True) -> tuple[Attempt, ...]:
        """The attempts of a run, in the order they were recorded; without profiles, only what their digests say."""
        number, spec = self._known(run)
        with self._database.read_transaction() as connection:
            return attempts.history(connection, number, spec.problem, self._blobs if profiles else None)

    def save_call(
        self, run: str, slot: str, completion: Completion, prompt_id: str, prompt: Prompt | None = None
    ) -> None:
        """Record a model's reply under a slot of the run. The prompt's text is kept only if it is given.

        The same reply twice is one record; another reply for the same slot is a StoreError.
        """
        number, _ = self._known(run)
        with as_store_error(self.place):
            blob = self._blobs.put(dump(prompt).encode()) if prompt is not None else None
        try:
            with self._database.write_transaction() as connection:
                calls.save(connection, number, slot, completion, calls.CallKey(prompt_id, blob))
        except Duplicate:
            if self.call(run, slot) != completion:
                raise StoreError(f"run {run} already has another reply in slot {slot}") from None

    def call(self, run: str, slot: str) -> Completion | None:
        """The reply saved under a slot, if any."""
        number, _ = self._known(run)
        with self._database.read_transaction() as connection:
            return calls.find(connection, number, slot)

    def prompt(self, run: str, slot: str) -> Prompt | None:
        """The prompt behind a slot, where its text was kept."""
        number, _ = self._known(run)
        with self._database.read_transaction() as connection:
            blob = calls.prompt_blob(connection, number, slot)
            return None if blob is None else load(Prompt, self._blobs.get(blob).decode())

    def spent(self, run: str) -> Usage:
        """The sum over a run's saved calls."""
        number, _ = self._known(run)
        with self._database.read_transaction() as connection:
            return calls.spent(connection, number)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look_up(self, run: str) -> tuple[int, RunSpec]:
        with self._database.read_transaction() as connection:
            number, spec = runs.look_up(connection, run)
        return number, self._with_module(spec)

    def _keep_module(self, spec: RunSpec) -> None:
        """Keep a live module's file as a blob, which its hash names."""
        problem = spec.problem
        if problem.payload and self._blobs.find(problem.payload_hash) is None:
            data = live_module.read(problem.payload, problem.payload_hash)
            with as_store_error(self.place):
                self._blobs.put(data)

    def _with_module(self, spec: RunSpec) -> RunSpec:
        """The specification with the file that is kept here; as it is where none is, as in stores of older versions."""
        problem = spec.problem
        kept = self._blobs.find(problem.payload_hash) if problem.payload else None
        return spec if kept is None else replace(spec, problem=replace(problem, payload=str(kept)))


@contextmanager
def open_store(place: str | Store) -> Iterator[Store]:
    """A store to work with; one that was open before stays open."""
    if isinstance(place, Store):
        yield place
        return
    with Store.open(place) as store:
        yield store
