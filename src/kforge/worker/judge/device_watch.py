"""A kernel of the judge's that sees whether another process has work on the device.

One thread reads the device's clock, for five seconds at most. A device changes over from one process to another for as
long as that one's kernels run; whatever it did is then missing from the readings.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from kforge.worker import cuda_driver

_PTX = b"""
.version 6.4
.target sm_70
.address_size 64

.visible .entry kforge_watch(.param .u64 word, .param .u64 missing, .param .u32 turn)
{
    .reg .pred %p;
    .reg .b32 %turn, %seen;
    .reg .b64 %now, %last, %gap, %total, %word, %missing, %end;
    ld.param.u64 %word, [word];
    ld.param.u64 %missing, [missing];
    ld.param.u32 %turn, [turn];
    mov.u64 %total, 0;
    mov.u64 %last, %globaltimer;
    add.u64 %end, %last, 5000000000;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %gap, %now, %last;
    mov.u64 %last, %now;
    setp.gt.u64 %p, %gap, 30000;
    @%p add.u64 %total, %total, %gap;
    ld.volatile.global.u32 %seen, [%word];
    sub.s32 %seen, %seen, %turn;
    setp.lt.s32 %p, %seen, 0;
    @!%p bra done;
    setp.lt.u64 %p, %now, %end;
    @%p bra again;
done:
    st.volatile.global.u64 [%missing], %total;
    ret;
}
\0"""


class DeviceWatch:
    """A watch for one context, the calling thread's."""

    def __init__(self) -> None:
        driver = cuda_driver.driver()
        self._function, module = ctypes.c_void_p(), ctypes.c_void_p()
        cuda_driver.check(driver.cuModuleLoadData(ctypes.byref(module), _PTX), "cuModuleLoadData")
        status = driver.cuModuleGetFunction(ctypes.byref(self._function), module, b"kforge_watch")
        cuda_driver.check(status, "cuModuleGetFunction")
        self._word: Any = cuda_driver.host_memory(ctypes.c_uint32)
        self._missing: Any = cuda_driver.host_memory(ctypes.c_uint64)
        self._turn = ctypes.c_uint32(0)
        self._given = (
            ctypes.c_uint64(ctypes.addressof(self._word)),
            ctypes.c_uint64(ctypes.addressof(self._missing)),
            self._turn,
        )
        self._arguments: Any = (ctypes.c_void_p * len(self._given))(*map(ctypes.addressof, self._given))

    @contextlib.contextmanager
    def watch(self, stream: int) -> Iterator[None]:
        """Watch for the block. Nothing in it may wait for the stream."""
        self._turn.value += 1
        launch = cuda_driver.driver().cuLaunchKernel
        shape = (1, 1, 1, 1, 1, 1, 0)
        status = launch(self._function, *shape, ctypes.c_void_p(stream), self._arguments, None)
        cuda_driver.check(status, "cuLaunchKernel")
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        """End the watch, where one is on."""
        self._word.value = self._turn.value

    def missing_ns(self) -> int:
        """How long others had the device in the last watch, once the stream is through."""
        return int(self._missing.value)
