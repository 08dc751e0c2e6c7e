"""How a call is timed on an NVIDIA GPU: events around it, caches cold, the processor ahead of the device.

The second-level cache is overwritten. Then a kernel fills the device while the processor launches the call, so that
the events measure the device and not the launching, and so that nothing can begin before the clock does, on whatever
stream. What is not waited for on the stream of the call is not seen by the events; the judge's own clock, which stops
when the whole device is idle, sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kforge.platforms._nvidia import driver
from kforge.platforms._nvidia.gate import Gate
from kforge.platforms.base import Stopwatch

_LEAST_FLUSH = 64 << 20
_WAIT_NS = 25_000
"""A wait for the rest of the device that is longer than this by more than one for an idle device is work."""
_IDLE_NS = 60_000
"""Finding an idle device idle takes no longer than this, even on a processor that has other things to do."""
_REMEMBERED = 4
_clock = time.perf_counter_ns


class EventStopwatch(Stopwatch):
    """Uses what it took from torch when it was made, whatever a program replaces later."""

    def __init__(self) -> None:
        import torch

        super().__init__(torch.cuda.synchronize)
        self._torch = torch
        self._event: Any = torch.cuda.Event
        self._zero = torch.Tensor.zero_
        self._record = torch.cuda.Event.record
        self._elapsed = torch.cuda.Event.elapsed_time
        self._wait = torch.cuda.Event.synchronize
        self._default_stream = torch.cuda.default_stream
        self._set_stream = torch.cuda.set_stream
        self._rests: list[int] = []
        self._gate: Gate | None = None
        self._scratch: Any = None
        self._start: Any = None
        self._end: Any = None

    def time(self, call: Callable[[], Any]) -> tuple[Any, int]:
        if self._gate is None:
            self._gate = self._prepare()
        stream = self._default_stream()
        self._set_stream(stream)
        self._gate.let_go_of_cache()
        self._zero(self._scratch)
        self._synchronize()
        self._gate.close_on(stream.cuda_stream, self.ahead_ns)
        try:
            self._record(self._start, stream)
            output = call()
            self._record(self._end, stream)
        finally:
            self._gate.open()
        self._wait(self._end)
        self._rests = [*self._rests[1 - _REMEMBERED :], self._rest()]
        self._set_stream(stream)
        spent = round(self._elapsed(self._start, self._end) * 1e6)
        # What the device still has to do after the stream is through belongs to the call. It is there every time; a
        # processor that was busy elsewhere for a moment is not.
        rest = min(self._rests)
        return output, max(1, spent + (rest if rest > _WAIT_NS else 0))

    def _rest(self) -> int:
        """How long the device still worked, by the processor's clock: less what the same wait takes when it is idle."""
        began = _clock()
        self._synchronize()
        ended = _clock()
        self._synchronize()
        return ended - began - min(_clock() - ended, _IDLE_NS)

    def restore(self) -> None:
        self._set_stream(self._default_stream())

    def _prepare(self) -> Gate:
        torch, have = self._torch, driver.gpus()[0].attributes
        size = max(2 * have["l2_bytes"], _LEAST_FLUSH)
        self._scratch = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._start, self._end = self._event(enable_timing=True), self._event(enable_timing=True)
        return Gate(have["multiprocessors"], have["threads_per_multiprocessor"])
