"""What NVML shows of a GPU while it works: clocks, temperature, power, load, and whose processes are on it."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_OWN_LIMIT = "power cap"
"""Any heavy program reaches it."""
_REASONS = {
    0x4: _OWN_LIMIT,
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


@functools.cache
def _library() -> Any:
    """NVML, initialised; None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _handle(uuid: str) -> Any:
    library = _library()
    handle = ctypes.c_void_p()
    if library is None or library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) != 0:
        return None
    return handle


def conditions(uuid: str) -> dict[str, str]:
    """Clocks, temperature, power and what slows it down; empty where NVML does not answer."""
    handle, library = _handle(uuid), _library()
    if handle is None:
        return {}
    readings: dict[str, str] = {}
    for name, code in (("sm_clock_mhz", _SM_CLOCK), ("memory_clock_mhz", _MEMORY_CLOCK)):
        value = ctypes.c_uint()
        if library.nvmlDeviceGetClockInfo(handle, code, ctypes.byref(value)) == 0:
            readings[name] = str(value.value)
    degrees, watts = ctypes.c_uint(), ctypes.c_uint()
    if library.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(degrees)) == 0:
        readings["gpu_temperature_c"] = str(degrees.value)
    if library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(watts)) == 0:
        readings["power_w"] = f"{watts.value / 1000:.0f}"
    limits = _clock_limits(uuid)
    if limits is not None:
        readings["clock_limits"] = ", ".join(limits) or "none"
    return readings


def slowdowns(uuid: str) -> tuple[str, ...]:
    """What holds the clocks down beside the power that the work itself draws; empty where NVML does not say."""
    return tuple(reason for reason in _clock_limits(uuid) or () if reason != _OWN_LIMIT)


def _clock_limits(uuid: str) -> list[str] | None:
    """Every reason for which the clocks are held down now; None where NVML does not say."""
    handle, library = _handle(uuid), _library()
    reasons = ctypes.c_ulonglong()
    # Drivers before 535 know it by its older name.
    ask = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        library, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    if handle is None or ask is None or ask(handle, ctypes.byref(reasons)) != 0:
        return None
    return [reason for bit, reason in _REASONS.items() if reasons.value & bit]


def load_percent(uuid: str) -> int | None:
    """Share of the last moments in which a kernel ran; None where NVML does not say."""
    handle, library = _handle(uuid), _library()
    rates = _Utilization()
    if handle is None or library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) != 0:
        return None
    return int(rates.gpu)


def processes(uuid: str) -> dict[int, int]:
    """Processes with a context on the GPU, as this machine counts them -> bytes of its memory they hold."""
    handle, library = _handle(uuid), _library()
    ask = getattr(library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if handle is None or ask is None:
        return {}
    table = (_Process * 256)()
    count = ctypes.c_uint(len(table))
    if ask(handle, ctypes.byref(count), table) != 0:
        return {}
    # All ones where the driver does not say.
    return {int(item.pid): int(item.bytes) if item.bytes < 1 << 60 else 0 for item in table[: count.value]}


def driver_version() -> str:
    """The driver's version; empty where NVML does not answer."""
    library, text = _library(), ctypes.create_string_buffer(96)
    if library is None or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return ""
    return text.value.decode(errors="replace")
