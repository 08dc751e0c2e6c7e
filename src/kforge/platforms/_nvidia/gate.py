"""A kernel that fills the whole device until it is let go: nothing else can run on it, on whatever stream it waits.

While it runs, the processor launches the call that is to be timed. It says when it is done; then the kernel ends, and
the clock starts. So a processor that is held up for a moment is waited for. A quick one is waited for as well: how long
launching takes is not to show in the judge's own clock either. One that always takes longer than it is given is not:
then the device begins while it still launches, as in use, and what it waits for is in the time.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

_THREADS = 512
"""A divisor of every number of threads a multiprocessor has had, so that none is left over."""
_LEAST_NS, _MOST_NS = 80_000, 2_000_000
"""Bounds of how long it holds the device even if all is launched."""
_PATIENCE_NS = 1_000_000
"""How much longer it waits for a processor that usually is in time."""
_REMEMBERED = 4
_MAPPED = 2
_clock = time.perf_counter_ns

_PTX = b"""
.version 6.4
.target sm_70
.address_size 64

.visible .entry kforge_gate(.param .u64 word, .param .u64 relay, .param .u64 least, .param .u64 most,
                            .param .u32 turn)
.maxntid 1024, 1, 1
{
    .reg .pred %p, %first;
    .reg .b32 %thread, %block, %turn, %seen;
    .reg .b64 %now, %begin, %end, %span, %word, %relay, %watched;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %p, %thread, 0;
    @%p bra wait;
    ld.param.u64 %word, [word];
    ld.param.u64 %relay, [relay];
    ld.param.u32 %turn, [turn];
    mov.u32 %block, %ctaid.x;
    setp.eq.u32 %first, %block, 0;
    selp.b64 %watched, %word, %relay, %first;
    mov.u64 %begin, %globaltimer;
    ld.param.u64 %span, [most];
    add.u64 %end, %begin, %span;
    ld.param.u64 %span, [least];
    add.u64 %begin, %begin, %span;
hold:
    @!%first bra again;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %begin;
    @%p bra hold;
again:
    ld.volatile.global.u32 %seen, [%watched];
    sub.s32 %seen, %seen, %turn;
    setp.ge.s32 %p, %seen, 0;
    @%p bra open;
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %end;
    @%p bra again;
open:
    @%first st.volatile.global.u32 [%relay], %turn;
wait:
    bar.sync 0;
    ret;
}
\0"""


class Gate:
    """Launched on a stream of the calling thread's context. One block watches a word of the host, the rest watch it."""

    def __init__(self, multiprocessors: int, threads_per_multiprocessor: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._blocks = multiprocessors * max(1, threads_per_multiprocessor // _THREADS)
        self._reset = getattr(self._driver, "cuCtxResetPersistingL2Cache", None)
        self._function = ctypes.c_void_p()
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), _PTX), "cuModuleLoadData")
        name = b"kforge_gate"
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), module, name), "cuModuleGetFunction")
        word, relay = ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(ctypes.sizeof(ctypes.c_uint32))
        self._check(self._driver.cuMemHostAlloc(ctypes.byref(word), size, _MAPPED), "cuMemHostAlloc")
        self._check(self._driver.cuMemAlloc_v2(ctypes.byref(relay), size), "cuMemAlloc")
        self._check(self._driver.cuMemsetD32_v2(relay, 0, ctypes.c_size_t(1)), "cuMemsetD32")
        self._word = ctypes.c_uint32.from_address(word.value or 0)
        self._word.value = 0
        self._closed = 0
        self._launches: list[int] = []
        self._least, self._most, self._turn = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint32(0)
        # Host memory that is mapped has one address for both sides.
        self._given = (ctypes.c_uint64(word.value or 0), relay, self._least, self._most, self._turn)
        self._arguments: Any = (ctypes.c_void_p * len(self._given))(*map(ctypes.addressof, self._given))

    def let_go_of_cache(self) -> None:
        """Make lines that a program asked to persist in the second-level cache ordinary ones, which a flush evicts."""
        if self._reset is not None:
            self._reset()

    def close_on(self, stream: int, nanoseconds: int) -> None:
        """Fill the device for this long, within reason, and until `open`; what the stream is given waits behind it."""
        self._least.value = min(max(nanoseconds, _LEAST_NS), _MOST_NS)
        in_time = bool(self._launches) and min(self._launches) < self._least.value
        self._most.value = self._least.value + (_PATIENCE_NS if in_time else 0)
        self._turn.value += 1
        launched = self._driver.cuLaunchKernel(
            self._function,
            *(self._blocks, 1, 1, _THREADS, 1, 1, 0),
            ctypes.c_void_p(stream),
            self._arguments,
            None,
        )
        self._check(launched, "cuLaunchKernel")
        self._closed = _clock()

    def open(self) -> None:
        """Let go: everything is launched."""
        self._word.value = self._turn.value
        self._launches = [*self._launches[1 - _REMEMBERED :], _clock() - self._closed]

    def _check(self, status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"the timing gate failed: {what} gives error {status}")
