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
"""How far an address of the device lies above the memory's own: no processor reaches anything there."""


@dataclass
class StorageMark:
    """The mark of one storage. A number is that of the last call in which what stands below it held."""

    there: bool = False
    """Whether the storage is the device's memory, and not the host's."""
    fed: int = 0
    """Something of forward's inputs, or of the module's state, is in the storage."""
    made: int = 0
    """Something that a kernel wrote is in the storage."""
    worked: int = 0
    """Something is in the storage that a kernel wrote which was given something of the inputs or the state."""

    def take(self, others: Iterable[StorageMark]) -> None:
        """Note that the storage was computed from these others."""
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
    """A storage's mark; None for memory that nobody has looked at yet."""
    return getattr(storage, _MARK, None)


def mark_for(storage: Any) -> StorageMark:
    """A storage's mark, made where there is none."""
    mark = mark_of(storage)
    if mark is None:
        mark = StorageMark()
        setattr(storage, _MARK, mark)
    return mark


def mark_on_device(tensors: Iterable[torch.Tensor]) -> None:
    """Mark tensors as being on the device from now on."""
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage is not None:
            mark_for(storage).there = True


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the device."""
    mark = mark_of(storage_of(tensor))
    return mark is not None and mark.there


def device_address(address: int) -> int:
    """The address that a program is told for memory of the device."""
    return address + _ABOVE if address else 0


def own_address(address: int) -> int:
    """The memory's own address for what a program was told; 0 where it is not the device's."""
    return address - _ABOVE if address >= _ABOVE else 0


def addresses_in(data: memoryview) -> Iterator[tuple[int, int]]:
    """Words of memory that are an address of the device, as pairs of where they stand and the memory's own address.

    Hardly anything else looks like one: as a number of 64 bits it is the smallest of its kind, as two of 32 bits one of
    them is a denormal.
    """
    sixth, seventh = _ABOVE.to_bytes(8, "little")[6:]
    column = bytes(data[6::8])
    number = column.find(sixth)
    while number >= 0:
        word = bytes(data[8 * number : 8 * number + 8])
        if len(word) == 8 and word[7] == seventh:
            yield 8 * number, own_address(int.from_bytes(word, "little"))
        number = column.find(sixth, number + 1)


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
