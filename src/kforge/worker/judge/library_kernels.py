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
_LOOKED_AT, _MOST_LIBRARIES = 40, 20
_NAMELESS, _NEAR = b"_GLOBAL__N_", 160
"""How a mangled name begins of what is in a namespace without a name, and how far before the rest."""


def mark_library_kernels(observed: Observation, loaded: tuple[str, ...], usual: tuple[str, ...]) -> Observation:
    """The observation with kernels of loaded libraries named as such.

    `loaded` are the libraries, all from outside the program's own folder, and `usual` those that the reference has too.
    Kernels whose launches were noted, and that were not recorded on a device, stay the program's own.
    """
    suspects = [path for path in loaded if path not in usual and not os.path.basename(path).startswith(_COMPILERS)]
    if not suspects or not observed.kernels:
        return observed
    costliest = sorted(
        (kernel for kernel in observed.kernels if kernel.whose == "own"), key=lambda one: -one.nanoseconds
    )
    names = {name for kernel in costliest[:_LOOKED_AT] for name in _spellings(kernel.name)}
    library_names = set().union(*(_names_in_file(path, frozenset(names)) for path in suspects[:_MOST_LIBRARIES]))
    kernels = tuple(
        kernel._replace(whose="library")
        if kernel.whose == "own" and library_names.intersection(_spellings(kernel.name))
        else kernel
        for kernel in observed.kernels
    )
    left = {kernel.name for kernel in kernels if kernel.whose == "own"}
    native = tuple(name for name in observed.native if name in left)
    return replace(observed, kernels=kernels, native=native)


def _spellings(name: str) -> tuple[bytes, ...]:
    """How a library's file spells a kernel's name: mangled, or plain where it has no arguments in its name."""
    outer, _, inner = name.rpartition(_ANONYMOUS)
    match = _NAME.match(inner)
    if match is None:
        return ()
    parts = match[1].split("::")
    if len(parts[-1]) < _SHORT:
        return ()
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    if outer:
        # What stands for a namespace without a name differs from file to file.
        return (mangled.encode(),)
    mangled = f"_ZN{mangled}" if len(parts) > 1 else f"_Z{mangled}"
    return (mangled.encode(),) if match[2] else (mangled.encode(), b"\0" + match[1].encode() + b"\0")


@functools.lru_cache(maxsize=64)
def _names_in_file(path: str, names: frozenset[bytes]) -> frozenset[bytes]:
    """Which of these names are in a file."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return frozenset(name for name in names if _is_in(data, name))
    except (OSError, ValueError):
        return frozenset()


def _is_in(data: mmap.mmap, name: bytes) -> bool:
    if not name[:1].isdigit():
        return data.find(name) >= 0
    at = data.find(name)
    while at >= 0:
        if _NAMELESS in data[max(0, at - _NEAR) : at]:
            return True
        at = data.find(name, at + 1)
    return False
