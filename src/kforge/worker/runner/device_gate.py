"""The gate that timed calls on a CUDA device wait behind, until the judge opens it.

Calls are launched while it is closed, so that the processor has no part in their time. What they read is written by the
judge when everything is launched and this process is stopped; then it opens the gate, by its own clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from kforge.worker import cuda_driver
from kforge.worker.device_memory import DONE_OFFSET, DeviceArena


class DeviceGate:
    """Two words that judge and runner share: up to which turn the gate is open, and up to which all is done."""

    def __init__(self, words: DeviceArena) -> None:
        self._words = words
        self._default_stream = torch.cuda.default_stream
        self._set_stream = torch.cuda.set_stream
        self._fill = torch.Tensor.fill_
        self._touched = torch.zeros(32, device="cuda")

    @contextlib.contextmanager
    def hold_closed(self, turn: int) -> Iterator[None]:
        """What is launched in the block waits until the judge opens this turn; its end is told to the judge."""
        stream = self._default_stream()
        self._set_stream(stream)
        cuda_driver.wait_for_word(stream.cuda_stream, self._words.address, turn)
        # The device changes over to this process for any kernel: so it does for every turn, an empty one included.
        self._fill(self._touched, 0.0)
        try:
            yield
        finally:
            self._set_stream(stream)
            self._fill(self._touched, 1.0)
            cuda_driver.write_word(stream.cuda_stream, self._words.address + DONE_OFFSET, turn)
