"""The engine behind a store: how connections are set up, and the two kinds of transaction."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from kforge.errors import StoreError
from kforge.store import locks, migration
from kforge.store.faults import as_store_error
from kforge.store.place import StorePlace, on_network, prepare

BUSY_SECONDS = 30.0
"""How long a writer waits for another process's transaction."""


class Database:
    """An open, up-to-date database."""

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self.notes: tuple[str, ...] = ()
        """What a user should know of how the store was opened."""
        with as_store_error(place):
            prepare(place)
            self.engine = _sqlite_engine(place.url) if place.file else _postgres_engine(place.url)
            self._writing = self.engine.execution_options(kforge_writes=True)
            try:
                self._set_up()
            except BaseException:
                self.engine.dispose()
                raise

    def _set_up(self) -> None:
        if self.place.file is None:
            with self._writing.begin() as connection:
                migration.upgrade(connection)
            return
        with locks.file_lock(self.place.folder / "locks" / "opening", wait=True):
            with self.engine.connect() as connection:
                self.notes = enter_journal(connection, on_network(self.place.file))
            # What a connection is set up with depends on the journal.
            self.engine.dispose()
            with self._writing.begin() as connection:
                migration.upgrade(connection)

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """A transaction that reads: one consistent view; waits for nobody on SQLite in WAL mode."""
        with as_store_error(self.place), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """A transaction that writes: all or nothing; committed when the block ends."""
        with as_store_error(self.place), self._writing.begin() as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def enter_journal(connection: Connection, network: bool) -> tuple[str, ...]:
    """Put a SQLite file in WAL mode where that can work, else in DELETE mode, and say so."""
    wanted = "delete" if network else "wal"
    raw = connection.exec_driver_sql
    if raw("pragma journal_mode").scalar() == wanted:
        entered = wanted
    else:
        # A pragma of this kind is not allowed inside a transaction.
        raw("rollback")
        try:
            entered = str(raw(f"pragma journal_mode={wanted}").scalar())
        except OperationalError as error:
            if not any(symptom in str(error.orig).lower() for symptom in ("locking protocol", "i/o error")):
                raise
            entered = str(raw("pragma journal_mode=delete").scalar())
        raw("begin")
    if entered == "wal":
        return ()
    why = "it lies on a network file system" if network else "this file system does not allow it"
    return (
        f"SQLite's WAL mode is off, since {why}: writing is slower, and readers wait for writers. "
        "A local folder or PostgreSQL serves better.",
    )


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.execute("pragma foreign_keys=on")
        (journal,) = connection.execute("pragma journal_mode").fetchone()
        connection.execute(f"pragma synchronous={'normal' if journal == 'wal' else 'full'}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("kforge_writes", False)
        # A writer that began as a reader could not wait for another writer: SQLite refuses the upgrade at once.
        connection.exec_driver_sql("begin immediate" if writes else "begin")

    return engine


def _postgres_engine(url: URL) -> Engine:
    wanted = {"connect_timeout": 10, "application_name": f"kforge process {os.getpid()} on {socket.gethostname()}"[:63]}
    arguments = {key: value for key, value in wanted.items() if key not in url.query}
    try:
        # Every lock that is held keeps a connection, and there may be one for each run in hand.
        return create_engine(url, connect_args=arguments, pool_pre_ping=True, max_overflow=-1)
    except ModuleNotFoundError:
        raise StoreError("PostgreSQL needs psycopg: pip install 'kforge-kernels[postgres]'") from None
