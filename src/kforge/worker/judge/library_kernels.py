"""Kernels that come with a library which a program loaded: found in the library's file by their names.

torch's own libraries and the vendor's that it uses are known by the names of their kernels. Of any other library nobody
has a list; but its file holds the names of all kernels in it.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
from dataclasses import replace

from kforge.worker.judge.integrity import Observation

_COMPILERS = (
    "libcuda.",
    "libcudart",
    "libcupti",
    "libnvidia-",
    "libnvrtc",
    "libnvJitLink",
    "libnvptxcompiler",
    "libnvvm",
)
"""What a program needs to build and launch kernels of its own, and that computes nothing."""
_NAME = re.compile(r"^(?:[\w:]+ )?((?:\w+::)*\w+)(<|\(|$)")
_ANONYMOUS = "(anonymous namespace)::"
_SHORT = 4


def with_libraries(observed: Observation, loaded: tuple[str, ...], usual: tuple[str, ...]) -> Observation:
    """The observation with kernels of loaded libraries named as such.

    `loaded` are the libraries, all from outside the program's own folder, and `usual` those that the reference has too.
    """
    suspects = [path for path in loaded if path not in usual and not os.path.basename(path).startswith(_COMPILERS)]
    if not suspects:
        return observed
    kernels = tuple(
        replace(kernel, whose="library")
        if kernel.whose == "own" and any(_holds(path, name) for path in suspects for name in _spelt(kernel.name))
        else kernel
        for kernel in observed.kernels
    )
    own = dict.fromkeys(kernel.name for kernel in kernels if kernel.whose == "own")
    native = tuple(name for name in observed.native if name in own)
    return replace(observed, kernels=kernels, native=native)


def _spelt(name: str) -> tuple[bytes, ...]:
    """How a library's file spells a kernel's name: mangled, or plain where it has no arguments in its name."""
    outer, _, inner = name.rpartition(_ANONYMOUS)
    found = _NAME.match(inner)
    if found is None:
        return ()
    parts = found[1].split("::")
    if len(parts[-1]) < _SHORT:
        return ()
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    if outer:
        # What stands for a namespace without a name differs from file to file.
        return (mangled.encode(),)
    mangled = f"_ZN{mangled}" if len(parts) > 1 else f"_Z{mangled}"
    return (mangled.encode(),) if found[2] else (mangled.encode(), b"\0" + found[1].encode() + b"\0")


@functools.lru_cache(maxsize=256)
def _holds(path: str, name: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(name) >= 0
    except (OSError, ValueError):
        return False
