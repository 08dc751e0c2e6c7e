"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kforge.errors import UsageError


def write_whole(path: Path, data: bytes, mode: int | None = None, sync: bool = False) -> None:
    """Write under another name and rename: a reader never sees half a file.

    Permissions are exactly `mode`, or the user's usual ones. With `sync` it is on the disk when this returns.
    """
    draft = path.with_name(f".{path.name[:16]}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode & 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_for_user(path: Path, content: str | bytes) -> None:
    """A file the user named, its folders made; UsageError where it cannot be written.

    A link stays a link, and a device such as /dev/stdout is written to, not replaced.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(path.resolve(), data)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; it could not be written there") from None


def check_writable(path: Path, option: str) -> None:
    """UsageError where a file that the user named could not be written; for work that takes long, before it begins."""
    if path.exists() and not path.is_file():
        return
    folder = path.resolve().parent
    while not folder.exists():
        folder = folder.parent
    draft = folder / f".kforge-{secrets.token_hex(4)}"
    try:
        write_whole(draft, b"")
        draft.unlink()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; nothing can be written there") from None
