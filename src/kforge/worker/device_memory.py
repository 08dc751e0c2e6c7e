"""Device memory that judge and runner both map: CUDA's virtual memory, handed over as a file descriptor.

The judge makes a block and sends the descriptor over the channel; the runner maps it, read-only where it is told to,
and sees the same bytes. Nothing is copied.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Iterable

import torch

from kforge.worker import cuda_driver
from kforge.worker.arena import POISON, named_dtype
from kforge.worker.cuda_driver import DeviceMemoryFull, NotShareable
from kforge.worker.protocol.records import Spec

DONE_OFFSET = 4096
"""Of two words by which judge and runner take turns: where the one lies that says a turn is done, behind the one that
opens its gate.
"""
WORDS_BYTES = 2 * DONE_OFFSET
__all__ = [
    "DONE_OFFSET",
    "WORDS_BYTES",
    "DeviceArena",
    "DeviceMemoryFull",
    "NotShareable",
    "bytes_at",
    "unavailable_reason",
]


class _Bytes:
    """A range of device memory as torch takes it; torch keeps this object for as long as a tensor lies on it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def bytes_at(address: int, size: int, device: int) -> torch.Tensor:
    """Mapped device memory as a tensor; whoever mapped it keeps it mapped for as long."""
    return torch.as_tensor(_Bytes(address, size), device=f"cuda:{device}")


class DeviceArena:
    """A block of device memory, with the face of `arena.Arena`. Unmapped when the last tensor on it is gone."""

    def __init__(self, fd: int, size: int, address: int, device: int) -> None:
        self.fd = fd
        self.size = size
        self.address = address
        """Where it begins in this process."""
        self._close = weakref.finalize(self, os.close, fd)
        owner = _Bytes(address, size)
        release = weakref.finalize(owner, _unmap, address, size, device)
        release.atexit = False
        self.bytes = torch.as_tensor(owner, device=f"cuda:{device}")

    @classmethod
    def create(cls, size: int, device: int = 0) -> DeviceArena:
        """Room for `size` bytes on a device, with a descriptor to hand over."""
        handle, size = cuda_driver.create_block(size, device)
        try:
            fd = cuda_driver.export_block(handle)
            try:
                address = _map(handle, size, device, cuda_driver.READ_WRITE)
            except BaseException:
                os.close(fd)
                raise
        finally:
            # The mapping and the descriptor keep the memory.
            cuda_driver.release_block(handle)
        return cls(fd, size, address, device)

    @classmethod
    def attach(cls, fd: int, size: int, read_only: bool) -> DeviceArena:
        """The block behind a descriptor that another process sent."""
        cuda_driver.make_current(0)
        handle = cuda_driver.import_block(fd)
        try:
            address = _map(handle, size, 0, cuda_driver.READ if read_only else cuda_driver.READ_WRITE)
        finally:
            cuda_driver.release_block(handle)
        return cls(fd, size, address, 0)

    def poison(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        """NaN in these bytes, or everywhere: whoever reads past the end of a tensor laid into it shows it."""
        for start, stop in spans or [(0, self.size)]:
            self.bytes[start:stop].fill_(POISON)

    def changed_poison(self, spans: Iterable[tuple[int, int]]) -> int | None:
        """The first of these bytes that is not as `poison` left it; None if all are."""
        for start, stop in spans:
            changed = self.bytes[start:stop] != POISON
            if bool(changed.any()):
                return start + int(changed.nonzero()[0])
        return None

    def seal_against_others(self) -> None:
        """Nothing to do: who maps it is told how, and the judge looks whether the contents are still its own."""

    def tensor(self, spec: Spec) -> torch.Tensor:
        """The tensor at that place: a view of the shared bytes."""
        dtype = named_dtype(spec.dtype)
        count = 1
        for length in spec.shape:
            count *= length
        if count == 0:
            return torch.empty(spec.shape, dtype=dtype, device=self.bytes.device)
        flat = self.bytes[spec.offset : spec.offset + count * dtype.itemsize].view(dtype)
        return flat.as_strided(spec.shape, spec.stride)

    def close(self) -> None:
        """Drop the descriptor, if nobody did; the mapping goes when the last tensor on it does."""
        self._close()
        self.fd = -1


@functools.cache
def unavailable_reason(device: int = 0) -> str:
    """Why a device's memory cannot be shared, or waited for, here; empty if it can. Tries it once."""
    try:
        arena = DeviceArena.create(1, device)
        stream = torch.cuda.current_stream(device).cuda_stream
        cuda_driver.write_word(stream, arena.address, 1)
        cuda_driver.wait_for_word(stream, arena.address, 1)
        torch.cuda.synchronize(device)
        arena.close()
    except (NotShareable, OSError, AttributeError) as error:
        return str(error) or type(error).__name__
    return ""


def _map(handle: int, size: int, device: int, access: int) -> int:
    address = cuda_driver.reserve_addresses(size)
    try:
        cuda_driver.map_at(address, handle, size, device, access)
    except BaseException:
        cuda_driver.free_addresses(address, size)
        raise
    return address


def _unmap(address: int, size: int, device: int) -> None:
    if sys.is_finalizing():
        return
    with contextlib.suppress(Exception):
        # Work that still uses it must be done first.
        torch.cuda.synchronize(device)
    cuda_driver.unmap_at(address, size)
    cuda_driver.free_addresses(address, size)
