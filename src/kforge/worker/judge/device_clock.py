"""The judge's own stream on a device: what a turn of another process takes is read from events that lie on it.

Processes take turns on a device: while one has kernels that can run, another waits until it is done, or until its
slice of about two milliseconds is over. So whoever begins early or ends late makes the judge's own work beside it last
longer, and that shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker import cuda_driver
from kforge.worker.judge.device_watch import DeviceWatch

_FLUSH_BYTES = 128 << 20
_RESTED_NS, _RESTED_PROBES = 400_000, 2
"""A probe that takes no longer finds nobody else at work: one who is there keeps it for a slice."""
_PAUSE_SECONDS = 0.002
_LONGEST_HOLD, _RESCUE_SECONDS = 1.0, 10.0
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
        self._letting_go = threading.Lock()
        torch.cuda.synchronize(device)
        self._rehearse()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold what is launched on the stream until the end of the block: then it runs without gaps.

        The driver loads a kernel when it is first launched, and waits for the device then: each kind has been launched
        before. Should that not be enough, the hold ends by itself.
        """
        self._holds += 1
        turn = self._holds
        rescue = threading.Timer(_LONGEST_HOLD, self._let_go, (turn,))
        rescue.daemon = True
        rescue.start()
        with torch.cuda.stream(self.stream), _no_finalizers():
            cuda_driver.wait_for_word(self.stream.cuda_stream, ctypes.addressof(self._word), turn)
            try:
                yield
            finally:
                rescue.cancel()
                self._let_go(turn)

    def _let_go(self, turn: int) -> None:
        with self._letting_go:
            self._word.value = max(self._word.value, turn)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note what others do on the device during the block, in which nothing may wait for the stream."""
        with _no_finalizers(), self._watch.watch(self.stream.cuda_stream):
            yield

    def end_watch(self) -> None:
        """End a watch early, where one is on."""
        self._watch.end()

    def _rehearse(self) -> None:
        """Launch each kind of kernel that is launched under a hold once without."""
        small = torch.zeros(1024, dtype=torch.uint8, device=self._device)
        words = small.view(torch.int64)
        with torch.cuda.stream(self.stream):
            torch._foreach_copy_([small[:512], small[512:515]], [small[512:], small[3:6]])
            torch.add(words, 0, out=torch.zeros_like(words))
            self.flush()
            self._probed.fill_(0.0)
            for number in range(len(self._events)):
                self.mark(number)
            torch.zeros(16, dtype=torch.uint8, device=self._device)
            with self._watch.watch(self.stream.cuda_stream):
                pass
        torch.cuda.synchronize(self._device)

    def mark(self, number: int) -> None:
        """Record one of four moments."""
        self._events[number].record(self.stream)

    def flush(self) -> None:
        """Have the caches hold nothing of use."""
        self._scratch.fill_(0)

    def open_gate(self, address: int, turn: int) -> None:
        """Launch the opening of a gate: it opens when the stream gets there."""
        cuda_driver.write_word(self.stream.cuda_stream, address, turn)

    def wait_for(self, address: int, turn: int) -> None:
        """Have what is launched next wait until a runner says that its turn is done."""
        cuda_driver.wait_for_word(self.stream.cuda_stream, address, turn)

    def set_word(self, address: int, turn: int) -> None:
        """Set a word at once, whatever the stream waits for."""
        cuda_driver.write_word(self._rescue.cuda_stream, address, turn)
        self._rescue.synchronize()

    def finish(self, seconds: float) -> Turn:
        """Wait until all is done, and say what the four moments are apart; TurnLost where that takes too long."""
        self._wait(seconds)
        one, two, three = (
            round(1e6 * self._events[number].elapsed_time(self._events[number + 1])) for number in range(3)
        )
        return Turn(one, two, three, self._watch.missing_ns())

    def rescue(self, waited_for: int, turn: int) -> None:
        """Have the stream go on, when whom it waits for is gone."""
        self.set_word(waited_for, turn)
        with contextlib.suppress(TurnLost):
            self._wait(_RESCUE_SECONDS)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._events[-1].query():
            if time.monotonic() > deadline:
                raise TurnLost
            time.sleep(0.00005)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nobody else has work on the device; says whether that came."""
        deadline = time.monotonic() + seconds
        while any(self._probe_ns() > _RESTED_NS for _ in range(_RESTED_PROBES)):
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


@contextlib.contextmanager
def _no_finalizers() -> Iterator[None]:
    """Keep the collector off for the block: what gives device memory back waits for all that is on the device."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
