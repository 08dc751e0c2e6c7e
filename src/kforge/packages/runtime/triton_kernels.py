"""Triton's own cache: what a package carries of it is put there, where Triton finds it by names of its own.

Such a name is a hash of a kernel's text, its options, the GPU and Triton itself: what is there under it is that kernel.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from pathlib import Path

_GROUP = "__grp__"
"""Files that list a kernel's others by whole paths begin with it."""
_CARRIED = (".cubin", ".json", ".so")
"""What a kernel is loaded and launched from; its text at the compiler's other stages is not."""


def triton_key() -> str:
    """For which Triton, processor and Python such kernels are; empty without Triton."""
    try:
        import triton
    except ImportError:
        return ""
    return f"{triton.__version__}-{platform.machine()}-python{'.'.join(platform.python_version_tuple()[:2])}"


def cache_folder() -> Path:
    """Where Triton keeps what it compiles."""
    named = os.environ.get("TRITON_CACHE_DIR")
    return Path(named) if named else Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"


def read_kernels(folder: Path) -> dict[str, bytes]:
    """What is to be carried of a cache, by its paths in it. Whole paths in it are left out."""
    found = {}
    for file in sorted(folder.glob("*/*")):
        if file.suffix not in _CARRIED or not file.is_file():
            continue
        data = file.read_bytes()
        if file.name.startswith(_GROUP):
            listed = json.loads(data)["child_paths"]
            kept = sorted(name for name in listed if Path(name).suffix in _CARRIED)
            data = json.dumps({"child_paths": dict.fromkeys(kept, "")}).encode()
        found[f"{file.parent.name}/{file.name}"] = data
    return found


def add_kernels(kernels: dict[str, bytes], folder: Path) -> None:
    """Put kernels into a cache; an entry that is whole there already stays. Raises OSError."""
    entries: dict[str, dict[str, bytes]] = {}
    for path, data in kernels.items():
        entry, name = Path(path).parts
        entries.setdefault(entry, {})[name] = data
    for entry, files in entries.items():
        place = folder / entry
        if _is_whole(place, files):
            continue
        place.mkdir(parents=True, exist_ok=True)
        # What says that a kernel is whole comes last.
        for name in sorted(files, key=lambda name: name.startswith(_GROUP)):
            data = files[name]
            if name.startswith(_GROUP):
                listed = {child: str(place / child) for child in json.loads(data)["child_paths"]}
                data = json.dumps({"child_paths": listed}).encode()
            partial = place / f".{uuid.uuid4().hex}"
            partial.write_bytes(data)
            os.replace(partial, place / name)


def _is_whole(place: Path, files: dict[str, bytes]) -> bool:
    """Whether an entry of the cache has all that it should have, from us or from Triton."""
    for name, data in files.items():
        try:
            found = (place / name).read_bytes()
            if name.startswith(_GROUP):
                listed = json.loads(found)["child_paths"]
                if any(
                    child not in listed or not Path(listed[child]).exists() for child in json.loads(data)["child_paths"]
                ):
                    return False
            elif len(found) < len(data):
                return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
    return True
