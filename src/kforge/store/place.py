"""Where a store lives: a folder, a SQLite file by URL, or a PostgreSQL database by URL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from kforge.errors import StoreError, UsageError

DEFAULT_FOLDER = ".kforge"
DATABASE_FILE = "kforge.db"

_NETWORK_KINDS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs"}


@dataclass(frozen=True)
class StorePlace:
    """All that opening a store needs to know."""

    url: URL
    folder: Path
    """Holds locks, and blobs unless they are elsewhere."""
    blobs: Path
    shown: str
    """What messages call it; never with a password."""

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database server."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    def without_secrets(self, text: str) -> str:
        """`text` with this place's password blotted out."""
        secrets = [self.url.password, self.url.query.get("password")]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                text = text.replace(secret, "***")
        return text


def find(place: str | Path = "") -> StorePlace:
    """Read what the user wrote; UsageError for what is no place. Touches nothing on disk."""
    if isinstance(place, str) and "://" in place:
        return _from_url(place)
    folder = Path(place or DEFAULT_FOLDER).expanduser()
    whole = Path(os.path.abspath(folder))
    return StorePlace(URL.create("sqlite", database=str(whole / DATABASE_FILE)), whole, whole / "blobs", str(folder))


def _from_url(text: str) -> StorePlace:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise UsageError(
            "the store's URL cannot be read; write postgresql://USER@HOST/NAME or sqlite:///FILE"
        ) from None
    blobs = url.query.get("blobs")
    url = url.difference_update_query(["blobs"])
    kind = url.get_backend_name()
    shown = url.set(query={}).render_as_string(hide_password=True)
    if kind == "sqlite":
        if not url.database or url.database == ":memory:" or url.query:
            raise UsageError(f"{shown}: a store needs a file (sqlite:///FILE), and no options but blobs")
        file = Path(os.path.abspath(url.database))
        url, folder = url.set(drivername="sqlite", database=str(file)), file.parent
    elif kind == "postgresql":
        url, folder = url.set(drivername="postgresql+psycopg"), Path(os.path.abspath(DEFAULT_FOLDER))
    else:
        raise UsageError(f"{shown}: a store is a folder, sqlite:///FILE or postgresql://HOST/NAME")
    return StorePlace(url, folder, Path(os.path.abspath(blobs)) if isinstance(blobs, str) else folder / "blobs", shown)


def prepare(place: StorePlace) -> None:
    """Make the folders, private to the user, and keep git away from a folder that is all ours."""
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not any(place.folder.iterdir()):
            (place.folder / ".gitignore").write_text("*\n")
        for folder in (place.blobs, place.folder / "locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.file is not None:
            # SQLite would make it readable to all; its side files take the permissions of this one.
            os.close(os.open(place.file, os.O_RDWR | os.O_CREAT, 0o600))
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise StoreError(
            f"{error.filename} is in the way of the store at {place.shown}; move it, or name another place"
        ) from None


def on_network(path: Path, mounts: str | None = None) -> bool:
    """Whether a file lies on a file system shared between machines, as far as this system tells."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(errors="replace")
        except OSError:
            return False
    path = path.resolve()
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        # A later mount on the same point hides the earlier one.
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, fields[2]
    return kind.removeprefix("fuse.") in _NETWORK_KINDS or kind == "fuse.sshfs"
