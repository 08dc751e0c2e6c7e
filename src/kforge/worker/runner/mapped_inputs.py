"""Input sets and output slots as a runner holds them: on the device, or on the host with copies on the device."""

from __future__ import annotations

from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena, Spec
from kforge.worker.device_memory import DeviceArena

_copy = torch.Tensor.copy_


class MappedInputs:
    """What the judge shares. The tensors persist; the judge changes the bytes of the inputs."""

    def __init__(self, device: str, always_copied: bool = False) -> None:
        """`always_copied`: the program's tensors have memory of their own, even where the judge's could be mapped."""
        self._device = device
        self._always_copied = always_copied
        self.sets: list[list[Any]] = []
        """Set -> forward's arguments."""
        self.slots: list[list[torch.Tensor]] = []
        """Slot -> where outputs are delivered."""
        self._copied_in: list[tuple[torch.Tensor, torch.Tensor]] = []
        """(the judge's, the program's), where one memory cannot be both."""
        self._writable = False

    def map(self, request: dict[str, Any], fds: list[int]) -> None:
        inputs: Arena | DeviceArena
        if request.get("shared"):
            inputs = DeviceArena.attach(fds[0], request["sizes"][0], request["read_only"])
        else:
            inputs = Arena(fds[0], request["sizes"][0], read_only=request["read_only"])
        self._writable = not request["read_only"]
        for arguments, specs in request["sets"]:
            tensors = [self._reachable(inputs.tensor(Spec.from_json(item))) for item in specs]
            self.sets.append(trees.unpack(arguments, tensors))
        inputs.close()
        if request["slots"]:
            self.map_slots(request["slots"], fds[1], request["sizes"][1], bool(request.get("shared")))

    def map_slots(self, described: list[list[Any]], fd: int, size: int, shared: bool) -> None:
        """Where outputs are to be delivered."""
        slots = DeviceArena.attach(fd, size, False) if shared else Arena(fd, size)
        self.slots = [[slots.tensor(Spec.from_json(item)) for item in specs] for specs in described]
        slots.close()

    def _reachable(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == self._device and not self._always_copied:
            return tensor
        placed = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self._device)
        self._copied_in.append((tensor, placed))
        return placed

    def refresh(self) -> None:
        """Before a row of calls: what the judge wrote since, where it lies on the host."""
        for host, placed in self._copied_in:
            _copy(placed, host)

    def deliver(self) -> None:
        """After a row of calls: the inputs as they are now, so that the judge sees whether they were changed."""
        if self._writable:
            for host, placed in self._copied_in:
                _copy(host, placed)

    def forget(self) -> None:
        """Drop everything, so that other memory can take its place."""
        self.sets, self.slots, self._copied_in = [], [], []
