"""Input sets and output slots as a runner holds them: on the device, or on the host with copies on the device."""

from __future__ import annotations

from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena
from kforge.worker.device_memory import DeviceArena
from kforge.worker.protocol.calls import MapInputs
from kforge.worker.protocol.records import Spec
from kforge.worker.runner.fault_record import FaultRecord

_copy = torch.Tensor.copy_


class MappedInputs:
    """What the judge shares. The tensors persist; the judge changes the bytes of the inputs."""

    def __init__(self, device: str, faults: FaultRecord, always_copied: bool = False) -> None:
        """`always_copied`: the program's tensors have memory of their own, even where the judge's could be mapped."""
        self._device = device
        self._faults = faults
        self._always_copied = always_copied
        self.sets: list[list[Any]] = []
        """Set -> forward's arguments."""
        self.slots: list[list[torch.Tensor]] = []
        """Slot -> where outputs are delivered."""
        self._copied_in: list[tuple[torch.Tensor, torch.Tensor]] = []
        """(the judge's, the program's), where one memory cannot be both."""
        self._writable = False

    def map(self, request: MapInputs, fds: list[int]) -> None:
        inputs: Arena | DeviceArena
        if request.on_device:
            inputs = DeviceArena.attach(fds[0], request.sets_bytes, request.read_only)
        else:
            inputs = Arena(fds[0], request.sets_bytes, read_only=request.read_only)
            inputs.protect(request.guards)
            self._faults.note_inputs(inputs.address)
        self._writable = not request.read_only
        for tree, specs in request.sets:
            tensors = [self._reachable(inputs.tensor(spec)) for spec in specs]
            self.sets.append(trees.unpack(tree, tensors))
        inputs.close()
        if request.slots:
            self.map_slots(request.slots, fds[1], request.slots_bytes, request.on_device)

    def map_slots(self, specs: tuple[tuple[Spec, ...], ...], fd: int, size: int, on_device: bool) -> None:
        """Where outputs are to be delivered."""
        memory = DeviceArena.attach(fd, size, False) if on_device else Arena(fd, size)
        self.slots = [[memory.tensor(spec) for spec in slot] for slot in specs]
        memory.close()

    def _reachable(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == self._device and not self._always_copied:
            return tensor
        placed = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self._device)
        self._copied_in.append((tensor, placed))
        return placed

    def refresh(self) -> None:
        """Take over what the judge wrote since, where it lies on the host; called before a row of calls."""
        for host, placed in self._copied_in:
            _copy(placed, host)

    def deliver(self) -> None:
        """Hand the judge the inputs as they are after a row of calls, so that it sees whether they were changed."""
        if self._writable:
            for host, placed in self._copied_in:
                _copy(host, placed)

    def forget(self) -> None:
        """Drop everything, so that other memory can take its place."""
        self._faults.note_inputs(0)
        self.sets, self.slots, self._copied_in = [], [], []
