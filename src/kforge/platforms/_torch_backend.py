"""torch's functions for the device of any vendor, found by the device's type; one that torch lacks does nothing.

A device is named as torch names it: "cuda:1", or "xpu" for the current one of its type. The processor ("cpu") has
nothing to wait for and no cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def synchronize(device: str) -> None:
    """Wait until what this process launched on a device is done."""
    _call(device, "synchronize")


def select(device: str) -> None:
    """Make a device the current one of the calling thread."""
    if ":" in device:
        _call(device, "set_device")


def empty_cache(device: str) -> None:
    """Give memory that torch only keeps for later back to the device."""
    _call(device.partition(":")[0], "empty_cache")


def free_bytes(device: str) -> int | None:
    """Memory of a device that nobody holds; None where torch cannot tell."""
    answer = _call(device, "mem_get_info")
    return None if answer is None else int(answer[0])


def cached_bytes(device: str) -> int:
    """Memory of a device that torch keeps for later in this process; 0 where torch cannot tell."""
    reserved, allocated = (_call(device, name) for name in ("memory_reserved", "memory_allocated"))
    return 0 if reserved is None or allocated is None else int(reserved - allocated)


def allocated_bytes(device: str) -> int | None:
    """Memory of a device that tensors of this process hold; None where torch cannot tell."""
    allocated = _call(device, "memory_allocated")
    return None if allocated is None else int(allocated)


def _call(device: str, name: str) -> Any:
    """What a function of torch's module for the device's type returns, given the device if it has a number.

    None where there is no such function.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    import torch

    function: Callable[..., Any] | None = getattr(getattr(torch, kind, None), name, None)
    if function is None:
        return None
    return function(device) if number else function()
