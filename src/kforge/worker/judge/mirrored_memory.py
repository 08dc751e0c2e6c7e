"""A runner's device memory, mapped into the judge: outputs are read where they lie, and nothing delivers them.

A block lies at the same distance from its neighbours as in the runner, so that an output may span several. What the
runner says of addresses is not trusted, and need not be: only what is read there counts, and when.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import weakref

import torch

from kforge.worker import cuda_driver
from kforge.worker.device_memory import bytes_at

_WINDOW = 1 << 38
_MOST_WINDOWS = 8
_STEP = 1 << 21
"""Blocks begin and end at multiples of this."""


class MirroredMemory:
    """Memory blocks of one runner, mapped here."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._windows: dict[int, int] = {}
        """Number of a range of the runner's addresses -> where it begins here."""
        self._blocks: dict[int, int] = {}
        """The runner's first address -> size."""
        self._bases: list[int] = []
        self._release = weakref.finalize(self, _release, self._windows, self._blocks, device)
        self._release.atexit = False

    def add(self, base: int, size: int, fd: int) -> None:
        """Map a block that the runner sent; it takes the place of what was there. ValueError where it makes no sense.

        NotShareable where the driver does not take it.
        """
        window, offset = divmod(base, _WINDOW)
        if base <= 0 or size <= 0 or base % _STEP or size % _STEP or offset + size > _WINDOW:
            raise ValueError("a block at an impossible address")
        if window not in self._windows:
            if len(self._windows) == _MOST_WINDOWS:
                raise ValueError("outputs that lie too far apart")
            self._windows[window] = cuda_driver.reserve_addresses(_WINDOW)
        handle = cuda_driver.import_block(fd)
        try:
            if not cuda_driver.is_on_device(handle, self._device):
                raise cuda_driver.NotShareable("a block that is no memory of this device")
            for other, length in list(self._blocks.items()):
                if other < base + size and base < other + length:
                    torch.cuda.synchronize(self._device)
                    cuda_driver.unmap_at(self._local_address(other), length)
                    del self._blocks[other]
            cuda_driver.map_at(self._local_address(base), handle, size, self._device, cuda_driver.READ_WRITE)
            self._blocks[base] = size
        finally:
            self._bases = sorted(self._blocks)
            cuda_driver.release_block(handle)

    def covers(self, start: int, stop: int) -> bool:
        """Whether all of a range of the runner's addresses is mapped here."""
        if start // _WINDOW != (stop - 1) // _WINDOW:
            return False
        at = start
        while at < stop:
            place = bisect.bisect_right(self._bases, at) - 1
            if place < 0 or at >= self._bases[place] + self._blocks[self._bases[place]]:
                return False
            at = self._bases[place] + self._blocks[self._bases[place]]
        return True

    def bytes(self, start: int, stop: int) -> torch.Tensor:
        """The bytes in a range of the runner's addresses, which is covered."""
        return bytes_at(self._local_address(start), stop - start, self._device)

    def close(self) -> None:
        self._release()

    def _local_address(self, address: int) -> int:
        window, offset = divmod(address, _WINDOW)
        return self._windows[window] + offset


def _release(windows: dict[int, int], blocks: dict[int, int], device: int) -> None:
    if sys.is_finalizing():
        return
    with contextlib.suppress(Exception):
        torch.cuda.synchronize(device)
    for base, size in blocks.items():
        cuda_driver.unmap_at(windows[base // _WINDOW] + base % _WINDOW, size)
    for address in windows.values():
        cuda_driver.free_addresses(address, _WINDOW)
    blocks.clear()
    windows.clear()
