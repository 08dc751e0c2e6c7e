"""The judge's own stream on a device: what a turn of another process takes is read from events that lie on it.

Processes take turns on a device: while one has kernels that can run, another waits until it is done, or until its
slice of about two milliseconds is over. So whoever begins early or ends late makes the judge's own work beside it last
longer, and that shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker import cuda_driver
from kforge.worker.judge.device_watch import DeviceWatch

_FLUSH_BYTES = 128 << 20
_RESTED_NS = 600_000
"""A probe that takes no longer finds nobody else at work: one who is there keeps it for a slice."""
_PAUSE_SECONDS = 0.002
_LONGEST_HOLD = 1.0
_clock = time.perf_counter_ns


@dataclass(frozen=True)
class Turn:
    """How long the parts of a turn took, in nanoseconds."""

    before_ns: int
    """Writing what it reads."""
    spent_ns: int
    """From then until it was done."""
    after_ns: int
    """Taking what it gave."""
    early_ns: int
    """What the last watch missed."""


class TurnLost(Exception):
    """What the turn waits for did not come."""


class DeviceClock:
    """One stream, and work of the judge's on it that begins when all of it is there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._rescue: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._word = cuda_driver.host_memory(ctypes.c_uint32)
        self._watch = DeviceWatch()
        self._events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]
        self._scratch = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device)
        self._probed = torch.zeros(1, device=device)
        self._holds = 0
        self._rehearsed: set[Any] = set()
        torch.cuda.synchronize(device)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing of what is launched on the stream begins before the end of the block: then it runs without gaps.

        The driver loads a kernel when it is first launched, and waits for the device then: what is launched here has to
        be `rehearsed`. Should that not be enough, the hold ends by itself.
        """
        self._holds += 1
        turn = self._holds
        rescue = threading.Timer(_LONGEST_HOLD, self._let_go, (turn,))
        rescue.daemon = True
        rescue.start()
        with torch.cuda.stream(self.stream):
            cuda_driver.wait_for_word(self.stream.cuda_stream, ctypes.addressof(self._word), turn)
            try:
                yield
            finally:
                rescue.cancel()
                self._let_go(turn)

    def _let_go(self, turn: int) -> None:
        self._word.value = turn

    def rehearse(self, kinds: set[Any], launch: Callable[[], None]) -> None:
        """Launch what is to come once without a hold, where any of its kinds is new here."""
        if kinds <= self._rehearsed:
            return
        with torch.cuda.stream(self.stream):
            launch()
            self.flush()
            self.stream.synchronize()
        self._rehearsed |= kinds

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Note what others do on the device during the block, in which nothing may wait for the stream."""
        return self._watch.on(self.stream.cuda_stream)

    def mark(self, number: int) -> None:
        """Record one of four moments."""
        self._events[number].record(self.stream)

    def flush(self) -> None:
        """Have the caches hold nothing of use."""
        self._scratch.fill_(0)

    def open_gate(self, address: int, turn: int) -> None:
        """For a gate that is to open when the stream gets there."""
        cuda_driver.write_word(self.stream.cuda_stream, address, turn)

    def wait_for(self, address: int, turn: int) -> None:
        """What is launched next waits until a runner says that its turn is done."""
        cuda_driver.wait_for_word(self.stream.cuda_stream, address, turn)

    def set_word(self, address: int, turn: int) -> None:
        """Set a word at once, whatever the stream waits for."""
        cuda_driver.write_word(self._rescue.cuda_stream, address, turn)
        self._rescue.synchronize()

    def finish(self, seconds: float, waited_for: int, turn: int) -> Turn:
        """Wait until all is done, and say what the four moments are apart; TurnLost where that takes too long."""
        deadline = time.monotonic() + seconds
        last = self._events[3]
        while not last.query():
            if time.monotonic() > deadline:
                self.set_word(waited_for, turn)
                self.stream.synchronize()
                raise TurnLost
            time.sleep(0.00005)
        one, two, three = (
            round(1e6 * self._events[number].elapsed_time(self._events[number + 1])) for number in range(3)
        )
        return Turn(one, two, three, self._watch.missing_ns())

    def rest(self, seconds: float) -> bool:
        """Wait until nobody else has work on the device; says whether that came."""
        deadline = time.monotonic() + seconds
        while self._probe_ns() > _RESTED_NS:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _probe_ns(self) -> int:
        """How long a kernel of next to no work takes, from here and back."""
        with torch.cuda.stream(self.stream):
            began = _clock()
            self._probed.fill_(0.0)
            self.stream.synchronize()
            return _clock() - began
