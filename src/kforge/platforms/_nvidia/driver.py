"""Facts of NVIDIA GPUs, asked of the driver's own library: no context is made, and torch is not needed."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

_ATTRIBUTES = {
    "shared_per_block": 97,
    "clock_khz": 13,
    "compute_mode": 20,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
}
"""What is asked -> the driver's number for it (CUdevice_attribute)."""
_ERRORS = {
    3: "the driver is not initialised",
    34: "a stub of the driver was found, not the driver",
    101: "no such GPU",
    803: "the driver and its library are of different versions (a reboot after an update may help)",
    804: "the driver is too old for this library",
    999: "unknown error",
}
_NONE_VISIBLE = 100
"""What the driver answers where there is no GPU, or CUDA_VISIBLE_DEVICES hides every one."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver describes it."""

    number: int
    name: str
    uuid: str
    """As CUDA_VISIBLE_DEVICES and NVML spell it."""
    memory_bytes: int
    attributes: dict[str, int]

    @property
    def capability(self) -> tuple[int, int]:
        return self.attributes["major"], self.attributes["minor"]

    @property
    def arch(self) -> str:
        """The compiler's name for it, with the features that only this architecture has."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


class NoDriver(Exception):
    """The driver cannot be asked; the message says why."""


def is_installed() -> bool:
    """Whether there is a driver to ask. It is not asked anything: who has talked to it cannot be forked."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Every visible GPU, in CUDA's order; NoDriver where there is no answer."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoDriver("no NVIDIA driver: libcuda.so.1 is not on this machine") from None
    status = library.cuInit(0)
    if status == _NONE_VISIBLE:
        return ()
    _check(status)
    count = ctypes.c_int()
    _check(library.cuDeviceGetCount(ctypes.byref(count)))
    return tuple(_read(library, number) for number in range(count.value))


def _read(library: ctypes.CDLL, number: int) -> Gpu:
    device = ctypes.c_int()
    _check(library.cuDeviceGet(ctypes.byref(device), number))
    name = ctypes.create_string_buffer(256)
    _check(library.cuDeviceGetName(name, len(name), device))
    total = ctypes.c_size_t()
    _check(library.cuDeviceTotalMem_v2(ctypes.byref(total), device))
    raw = (ctypes.c_ubyte * 16)()
    _check(library.cuDeviceGetUuid(ctypes.byref(raw), device))
    digits = bytes(raw).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    attributes = {}
    for key, code in _ATTRIBUTES.items():
        value = ctypes.c_int()
        attributes[key] = value.value if library.cuDeviceGetAttribute(ctypes.byref(value), code, device) == 0 else 0
    return Gpu(number, name.value.decode(errors="replace"), f"GPU-{uuid}", total.value, attributes)


def _check(status: int) -> None:
    if status:
        raise NoDriver(f"the NVIDIA driver does not answer: {_ERRORS.get(status, 'error')} ({status})")
