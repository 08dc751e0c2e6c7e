"""The device a judge owns: where references run, and in what kind of memory inputs and outputs travel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch

from kforge.platforms._method_fault import platform_method
from kforge.platforms.base import Platform
from kforge.worker import device_memory
from kforge.worker.arena import Arena
from kforge.worker.device_memory import DeviceArena, DeviceMemoryFull
from kforge.worker.judge.background import Background
from kforge.worker.judge.device_clock import DeviceClock

HOST_LARGE, DEVICE_LARGE = 16, 4
_SET_BYTES, _DEVICE_SET_SHARE = 256 << 20, 64


@dataclass(frozen=True)
class Device:
    """One device of one platform."""

    platform: Platform
    number: int = 0
    background: Background = field(default_factory=Background, compare=False)
    """What this process does on the device without holding it."""

    @cached_property
    def torch_device(self) -> torch.device:
        """The device as this process calls it."""
        return torch.device(self.platform.device_name(self.number))

    @property
    def has_own_memory(self) -> bool:
        """Whether the device has memory of its own."""
        return self.torch_device.type != "cpu"

    @cached_property
    def supports_ipc(self) -> bool:
        """Whether runners map the device's memory directly; otherwise tensors travel through the host's."""
        return self.platform.supports_ipc and not device_memory.unavailable_reason(self.number)

    @cached_property
    def clock(self) -> DeviceClock:
        """The judge's own stream on a device whose memory runners map."""
        return DeviceClock(self.torch_device)

    @cached_property
    def memory_bytes(self) -> int:
        return self.platform.memory_bytes(self.number)

    @property
    def large_bytes(self) -> int:
        """A set of inputs and outputs beyond this is a burden here."""
        return self.memory_bytes // (DEVICE_LARGE if self.has_own_memory else HOST_LARGE)

    @property
    def rotation_bytes(self) -> int:
        """What timed input sets may take up together."""
        return self.memory_bytes // _DEVICE_SET_SHARE if self.has_own_memory else _SET_BYTES

    def arena(self, size: int) -> Arena | DeviceArena:
        """Memory that a runner can map too."""
        if not self.supports_ipc:
            return Arena.create(size)
        try:
            return DeviceArena.create(size, self.number)
        except DeviceMemoryFull:
            # What this process only keeps for later does not count as free.
            self.platform.empty_cache()
            return DeviceArena.create(size, self.number)

    def synchronize(self) -> None:
        """Wait until what this process launched on the device is done."""
        if self.has_own_memory:
            self.platform.synchronize_device(self.number)

    def is_scarce(self, size: int) -> bool:
        """Whether memory for things of this size must be shared out with care."""
        return self.has_own_memory and size > self.memory_bytes // 64

    def give_back(self, size: int) -> None:
        """Return memory this process keeps for later to the device, where `size` bytes are a good part of it."""
        if self.is_scarce(size) and self.platform.free_bytes(self.number) < 3 * size:
            self.platform.empty_cache()

    def give_back_all(self, size: int) -> None:
        """Return all memory that this process keeps for later, where things of this size are a good part of it."""
        if self.is_scarce(size):
            self.platform.empty_cache()

    def free_bytes(self) -> int:
        """What could still be allocated on the device; its whole memory where that is the host's."""
        if not self.has_own_memory:
            return self.memory_bytes
        return self.platform.free_bytes(self.number) + self.platform.cached_bytes(self.number)

    def gained_bytes(self) -> int:
        """Memory that this process gained at most since this was last asked; 0 where the host's is all there is."""
        if not self.has_own_memory:
            return 0
        self.platform.select_device(self.number)
        with platform_method(self.platform.name, "peak_bytes"):
            return self.platform.peak_bytes()

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """The device as the calling thread's default for what the problem's own code makes."""
        if not self.has_own_memory:
            yield
            return
        self.platform.select_device(self.number)
        with self.torch_device:
            yield
