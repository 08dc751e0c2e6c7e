"""Files named by the SHA-256 of what they hold: written once, whole, and checked when read."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from kforge.errors import StoreError
from kforge.whole_file import write_whole


class Blobs:
    """A folder of blobs: `ab/cdef...`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Keep `data` and return its hash. The data is safe on disk then; the same data twice is one file."""
        name = hashlib.sha256(data).hexdigest()
        path = self._path(name)
        try:
            if path.stat().st_size == len(data):
                return name
        except FileNotFoundError:
            pass
        mode = stat.S_IMODE(self._folder.stat().st_mode)  # what the owner opens to a group, new files are open to
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            path.parent.chmod(mode)
        # Synced: the database may not outlive what it points to.
        write_whole(path, data, mode & 0o666, sync=True)
        return name

    def get(self, name: str) -> bytes:
        """The data of that hash; StoreError if the file is gone or is no longer what was written."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(
                f"{path} is missing: restore it from a backup, or name the folder that has it "
                "(a store on PostgreSQL takes ?blobs=FOLDER)"
            ) from None
        if hashlib.sha256(data).hexdigest() != name:
            raise StoreError(f"{path} is not what was written: restore it from a backup")
        return data

    def find(self, name: str) -> Path | None:
        """The file that holds the data of that hash, for whoever reads it later; None if there is none."""
        path = self._path(name)
        return path if path.is_file() else None

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]
