"""Device memory of this process that the judge maps too: the blocks that outputs lie in, each sent once."""

from __future__ import annotations

from kforge.worker import cuda_driver

_AT_ONCE = 100
"""Descriptors that one message carries."""


class ExportedMemory:
    """Which blocks the judge has been given."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, int]] = {}
        """First address -> handle and size. The handle is kept: no other block gets its number."""

    def share(self, ranges: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int], bool]:
        """(first address and size of blocks the judge does not have yet, their descriptors, whether there are more).

        Memory that cannot be handed over is left out.
        """
        blocks: list[tuple[int, int]] = []
        descriptors: list[int] = []
        for start, stop in ranges:
            at = start
            while at < stop:
                if len(descriptors) == _AT_ONCE:
                    return blocks, descriptors, True
                block = cuda_driver.block_at(at)
                if block is None:
                    break
                handle, base, size = block
                if self._sent.get(base) == (handle, size):
                    cuda_driver.release_block(handle)
                else:
                    try:
                        descriptors.append(cuda_driver.export_block(handle))
                    except cuda_driver.NotShareable:
                        cuda_driver.release_block(handle)
                        break
                    blocks.append((base, size))
                    if base in self._sent:
                        cuda_driver.release_block(self._sent[base][0])
                    self._sent[base] = (handle, size)
                at = base + size
        return blocks, descriptors, False

    def forget(self) -> None:
        """Begin anew, for a judge that has nothing."""
        for handle, _ in self._sent.values():
            cuda_driver.release_block(handle)
        self._sent = {}
