"""Where memory is, and what it was made of: marks on the storages of tensors.

All memory is the processor's. What a program has put on the device is marked so, and so is what was computed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_MARK = "kforge_mark"
_ABOVE = 1 << 52
"""What an address of the device lies above the memory's own: no processor reaches anything there."""


@dataclass
class StorageMark:
    """Of one storage. The numbers are those of the last call in which it was so."""

    there: bool = False
    """Whether it is the device's memory, and not the host's."""
    fed: int = 0
    """Something of forward's inputs, or of the module's state, is in it."""
    made: int = 0
    """Something that a kernel wrote is in it."""
    worked: int = 0
    """Something that a kernel wrote which was given something of the inputs or the state."""

    def take(self, others: Iterable[StorageMark]) -> None:
        """It was computed from these."""
        for other in others:
            self.fed = max(self.fed, other.fed)
            self.made = max(self.made, other.made)
            self.worked = max(self.worked, other.worked)


def storage_of(tensor: torch.Tensor) -> Any:
    """A tensor's storage; None where it has none of its own in the processor's memory."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.device.type == "cpu" else None
    except (RuntimeError, NotImplementedError):
        return None


def mark_of(storage: Any) -> StorageMark | None:
    """None for memory that nobody has looked at yet."""
    return getattr(storage, _MARK, None)


def marked(storage: Any) -> StorageMark:
    """The mark, made where there is none."""
    mark = mark_of(storage)
    if mark is None:
        mark = StorageMark()
        setattr(storage, _MARK, mark)
    return mark


def mark_on_device(tensors: Iterable[torch.Tensor]) -> None:
    """These are on the device from now on."""
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage is not None:
            marked(storage).there = True


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the device."""
    mark = mark_of(storage_of(tensor))
    return mark is not None and mark.there


def device_address(address: int) -> int:
    """What a program is told of an address of the device."""
    return address + _ABOVE if address else 0


def own_address(address: int) -> int:
    """The memory's own address for what a program was told; 0 where it is not the device's."""
    return address - _ABOVE if address >= _ABOVE else 0


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts, however deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
