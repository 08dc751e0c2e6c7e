"""A kernel that fills the whole device for a while: nothing else can run on it, on whatever stream it waits.

While it runs, the processor launches the call that is to be timed. When it ends, the clock starts.
"""

from __future__ import annotations

import ctypes
from typing import Any

_THREADS = 512
"""A divisor of every number of threads a multiprocessor has had, so that none is left over."""
_LEAST_NS, _MOST_NS = 160_000, 3_000_000

_PTX = b"""
.version 6.4
.target sm_70
.address_size 64

.visible .entry kforge_gate(.param .u64 nanoseconds)
.maxntid 1024, 1, 1
{
    .reg .pred %p;
    .reg .b64 %now, %end, %span;
    ld.param.u64 %span, [nanoseconds];
    mov.u64 %now, %globaltimer;
    add.u64 %end, %now, %span;
again:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %p, %now, %end;
    @%p bra again;
    ret;
}
\0"""


class Gate:
    """Launched on a stream of the calling thread's context."""

    def __init__(self, multiprocessors: int, threads_per_multiprocessor: int) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._blocks = multiprocessors * max(1, threads_per_multiprocessor // _THREADS)
        self._reset = getattr(self._driver, "cuCtxResetPersistingL2Cache", None)
        self._function = ctypes.c_void_p()
        module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), _PTX), "cuModuleLoadData")
        name = b"kforge_gate"
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), module, name), "cuModuleGetFunction")
        self._span = ctypes.c_uint64(_LEAST_NS)
        self._arguments: Any = (ctypes.c_void_p * 1)(ctypes.addressof(self._span))

    def let_go_of_cache(self) -> None:
        """Make lines that a program asked to persist in the second-level cache ordinary ones, which a flush evicts."""
        if self._reset is not None:
            self._reset()

    def close_on(self, stream: int, nanoseconds: int) -> None:
        """Fill the device from now on, for this long within reason; what the stream is given waits behind it."""
        self._span.value = min(max(nanoseconds, _LEAST_NS), _MOST_NS)
        launched = self._driver.cuLaunchKernel(
            self._function,
            *(self._blocks, 1, 1, _THREADS, 1, 1, 0),
            ctypes.c_void_p(stream),
            self._arguments,
            None,
        )
        self._check(launched, "cuLaunchKernel")

    def _check(self, status: int, what: str) -> None:
        if status:
            raise RuntimeError(f"the timing gate failed: {what} gives error {status}")
