"""What a broken disk, folder, file or server is told as: one StoreError that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from kforge.errors import StoreError
from kforge.store.place import StorePlace

_FULL = "the disk is full: free some space, then run the same command again; what was recorded before is safe"
_READ_ONLY = "it cannot be written or opened: make the folder and its files writable for you, or name another place"
_DAMAGED = (
    "the database file is damaged: restore a backup, or save what is left with `sqlite3 FILE .recover`, "
    "or move the file away to start anew"
)
_LOCKED = "another process has kept it locked for too long: wait for that process, or stop it, then try again"
_HARDWARE = "the disk gave an error: look at the system's log, the quota and the free space, then try again"
_SERVER = (
    "the server cannot be reached, or the connection was lost: see that it runs and lets you in, "
    "then run the same command again; what was recorded before is safe"
)

_SQLITE = {
    "is full": _FULL,
    "readonly": _READ_ONLY,
    "unable to open": _READ_ONLY,
    "not a database": _DAMAGED,
    "malformed": _DAMAGED,
    "could not decode": _DAMAGED,
    "is locked": _LOCKED,
    "disk i/o error": _HARDWARE,
}
_POSTGRES = {
    "no space left": _FULL,
    "read-only transaction": "the server only reads: connect to its primary",
    "permission denied": "this user may not do that: grant it, or connect as another user",
    "connection": _SERVER,
    "server closed": _SERVER,
    "terminating": _SERVER,
    "ssl": _SERVER,
}
_FILES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
    errno.EIO: _HARDWARE,
}


class Duplicate(StoreError):
    """What was to be recorded is there already."""


@contextmanager
def as_store_error(place: StorePlace) -> Iterator[None]:
    """Within the block, faults of the disk and the database become StoreError."""
    try:
        yield
    except DBAPIError as error:
        message = place.without_secrets(str(error.orig).strip().split("\n")[0])
        if isinstance(error, IntegrityError) and "unique" in message.lower():
            raise Duplicate(f"the store at {place.shown} has that already ({message})") from None
        raise StoreError(f"the store at {place.shown}: {_advice(place, message)} ({message})") from None
    except SQLAlchemyError as error:
        message = place.without_secrets(str(error).split("\n")[0])
        raise StoreError(f"the store at {place.shown}: {message}") from None
    except OSError as error:
        advice = _FILES.get(error.errno or 0, "a file cannot be used")
        raise StoreError(f"the store at {place.shown}: {advice} ({error.filename or ''}: {error.strerror})") from None


def _advice(place: StorePlace, message: str) -> str:
    known = _POSTGRES if place.file is None else _SQLITE
    low = message.lower()
    return next((advice for mark, advice in known.items() if mark in low), "the database refused")
