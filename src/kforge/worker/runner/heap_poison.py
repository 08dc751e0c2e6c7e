"""Memory that C's `malloc` hands out unwritten holds large numbers, and not the zeros of fresh pages."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

_M_PERTURB = -6
"""glibc's option: what is handed out is filled with the complement of a byte, what is freed with the byte."""
FILLS = (0xFE, 0x7E)
"""In all floating formats a number of the largest sizes, or NaN: below zero, and above."""
_SMALL = range(24, 1040, 16)
"""Sizes, in bytes, that glibc keeps for the thread that freed them, and hands out again as they are."""
_KEPT = 7
"""How many of each."""


@contextlib.contextmanager
def poisoned_heap(fill: int, kept: bool = True) -> Iterator[None]:
    """For the block, unwritten memory from `malloc` and `new` holds this byte; nothing happens without glibc.

    `kept`: also what this thread freed before in small pieces, which takes a millisecond.
    """
    libc = ctypes.PyDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_M_PERTURB, fill ^ 0xFF)
    try:
        if kept:
            _fill_kept(libc, fill)
        yield
    finally:
        libc.mallopt(_M_PERTURB, 0)


def _fill_kept(libc: ctypes.PyDLL, fill: int) -> None:
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    libc.free.argtypes = (ctypes.c_void_p,)
    malloc, memset, free = libc.malloc, libc.memset, libc.free
    for size in _SMALL:
        blocks = [block for block in (malloc(size) for _ in range(_KEPT)) if block]
        for block in blocks:
            memset(block, fill, size)
        for block in blocks:
            free(block)
