"""Triton's own cache: what a package carries of it is put there, where Triton finds it by names of its own.

Such a name is a hash of a kernel's text, its options, the GPU and Triton itself: what is there under it is that kernel.
"""

from __future__ import annotations

import json
import os
import platform
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
    """Put kernels into a cache; what is there already stays. Raises OSError."""
    # What says that a kernel is whole comes last.
    for path, data in sorted(kernels.items(), key=lambda item: Path(item[0]).name.startswith(_GROUP)):
        target = folder / path
        if target.exists():
            continue
        if target.name.startswith(_GROUP):
            listed = {name: str(target.parent / name) for name in json.loads(data)["child_paths"]}
            data = json.dumps({"child_paths": listed}).encode()
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.write_bytes(data)
        os.replace(partial, target)
