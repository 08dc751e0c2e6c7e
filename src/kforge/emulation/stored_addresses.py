"""Addresses that stand in memory, in tables of pointers or structs: kernels reach tensors that no argument names."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Iterable
from typing import Any

from kforge.emulation import fake_device, storage_marks
from kforge.emulation.kernel_launch import Buffer, StoredAddress


def find(buffers: Iterable[Buffer], storages: Iterable[Any]) -> tuple[list[StoredAddress], list[Any]]:
    """Addresses of memory in these storages: those in the buffers and in what they lead to; then where they lead."""
    known = sorted(((storage.data_ptr(), storage) for storage in storages), key=lambda pair: pair[0])
    begins = [begin for begin, _ in known]
    waiting = [(buffer.storage, buffer.storage_bytes) for buffer in buffers]
    looked_at, found, reached = set(waiting), [], []
    while waiting:
        place, size = waiting.pop()
        for at, address in storage_marks.addresses_in(_view(place, size)):
            number = bisect.bisect_right(begins, address) - 1
            if number < 0:
                continue
            begin, storage = known[number]
            bytes_there = storage.nbytes()
            # The end of a tensor is an address that programs compare with.
            if address > begin + bytes_there or not bytes_there or fake_device.host_memory_fault(storage):
                continue
            found.append(StoredAddress(Buffer(place, size, at), Buffer(begin, bytes_there, address - begin)))
            reached.append(storage)
            if (begin, bytes_there) not in looked_at:
                looked_at.add((begin, bytes_there))
                waiting.append((begin, bytes_there))
    return found, reached


def _view(place: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(place)).cast("B") if size else memoryview(b"")
