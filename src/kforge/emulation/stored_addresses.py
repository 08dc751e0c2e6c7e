"""Addresses that stand in memory, in tables of pointers or structs: kernels reach tensors that no argument names."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Iterable
from typing import Any

from kforge.emulation import storage_marks
from kforge.emulation.kernel_launch import Buffer, StoredAddress


def find(buffers: Iterable[Buffer], storages: Iterable[Any]) -> tuple[list[StoredAddress], list[Any]]:
    """Addresses of memory in these storages: those in the buffers and in what they lead to; then where they lead."""
    known = sorted(((storage.data_ptr(), storage) for storage in storages), key=lambda pair: pair[0])
    begins = [begin for begin, _ in known]
    waiting = [(buffer.storage, buffer.storage_bytes) for buffer in buffers]
    looked_at, found, reached = set(waiting), [], []
    while waiting:
        place, size = waiting.pop()
        for at, address in storage_marks.addresses_in(ctypes.string_at(place, size)):
            number = bisect.bisect_right(begins, address) - 1
            if number < 0 or address >= begins[number] + known[number][1].nbytes():
                continue
            begin, storage = known[number]
            found.append(StoredAddress(place, at, Buffer(begin, storage.nbytes(), address - begin)))
            reached.append(storage)
            if (begin, storage.nbytes()) not in looked_at:
                looked_at.add((begin, storage.nbytes()))
                waiting.append((begin, storage.nbytes()))
    return found, reached
