"""Locks that the kernel or the server drops when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

_descriptors: set[int] = set()


class LockHeld(Exception):
    """Somebody has the lock; the message says who."""


@contextmanager
def file_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`; LockHeld if somebody else does and `wait` is false."""
    descriptor = _take(path, wait)
    _descriptors.add(descriptor)
    try:
        with suppress(PermissionError):  # left behind by another user who has died
            os.fchmod(descriptor, stat.S_IMODE(path.parent.stat().st_mode) & 0o666)  # open to whom the folder is
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        if descriptor in _descriptors:  # not so in a forked child, whose parent still holds it
            _descriptors.discard(descriptor)
            with suppress(OSError):  # a file left behind holds nobody up
                # Removed while still held: whoever waits on it will see that it is no longer the one.
                path.unlink()
            os.close(descriptor)


def _take(path: Path, wait: bool) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(descriptor).st_nlink:
                os.ftruncate(descriptor, 0)
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace")
            os.close(descriptor)
            raise LockHeld(holder or "another process") from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _let_go_in_child() -> None:
    """A forked child shares its parent's locks, and would keep them beyond the parent's death."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def server_lock(engine: Engine, name: str) -> Iterator[None]:
    """Hold PostgreSQL's advisory lock for `name`, on a connection of its own; LockHeld if somebody else does."""
    key = int.from_bytes(hashlib.sha256(f"kforge:{name}".encode()).digest()[:8], "big", signed=True)
    connection = engine.connect()
    try:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        # A holder whose machine vanished is noticed within two minutes.
        for setting, value in (("idle", 60), ("interval", 10), ("count", 6)):
            connection.exec_driver_sql(f"set tcp_keepalives_{setting} = {value}")
        if not connection.execute(text("select pg_try_advisory_lock(:key)"), {"key": key}).scalar():
            holder = connection.execute(text(_HOLDER), {"high": key >> 32 & 0xFFFFFFFF, "low": key & 0xFFFFFFFF})
            raise LockHeld(holder.scalar() or "another process")
        try:
            yield
        finally:
            # The server notices a closed connection a moment late; said aloud, the lock is free at once.
            with suppress(SQLAlchemyError):
                connection.execute(text("select pg_advisory_unlock(:key)"), {"key": key})
    finally:
        connection.invalidate()  # closing the connection lets the lock go, whatever state it is in
        connection.close()


_HOLDER = """
select activity.application_name from pg_locks as held join pg_stat_activity as activity on activity.pid = held.pid
where held.locktype = 'advisory' and held.granted and held.objsubid = 1
  and held.classid::bigint = :high and held.objid::bigint = :low
"""
