"""Outputs of timed calls in a runner's device memory: what of it is mapped here, and what was read when it was done.

Some of every output is copied at once. What is read later, where it lies, counts only while those copies still agree
with the memory they are from.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from kforge.worker.cuda_driver import NotShareable
from kforge.worker.judge.device import Device
from kforge.worker.judge.held_lane import Part, Parts
from kforge.worker.judge.mirrored_memory import MirroredMemory
from kforge.worker.protocol.records import SlotOutput

_COPIED_BYTES = 1 << 20
"""An output up to this size is copied whole; a larger one that is asked for whole is read where it lies."""
_PROBES, _PROBE_ELEMENTS = 8, 4096
_ALIGNED = 512
_PAGE = 2 << 20
_dice = random.SystemRandom()
Key = tuple[int, int]
"""Slot and number of an output."""
Shared = tuple[int, int, int]
"""First address, size and descriptor of a block of memory."""


class CallOutputs(NamedTuple):
    """What one call gave."""

    output: SlotOutput
    addresses: list[int]
    strides: list[tuple[int, ...]]


@dataclass(frozen=True)
class CopiedElements:
    """Elements of outputs, copied one behind the other."""

    pieces: dict[Key, list[Part]]
    """In memory order; those of one output are equally long."""
    into: list[torch.Tensor]
    out_of: list[torch.Tensor]
    places: dict[Key, tuple[int, int]]
    """Where the pieces of an output begin and end in the bytes that were copied."""
    bytes: torch.Tensor

    def copy(self) -> None:
        """Copy the elements, on the current stream."""
        if self.into:
            torch._foreach_copy_(self.into, self.out_of)

    def is_settled(self) -> bool:
        """Whether the memory still holds what was copied."""
        if not self.into:
            return True
        again = torch.zeros_like(self.bytes)
        start = self.bytes.data_ptr()
        places = [(piece.data_ptr() - start, piece.numel()) for piece in self.into]
        torch._foreach_copy_([again[first : first + count] for first, count in places], self.out_of)
        return torch.equal(again, self.bytes)

    def rows(self, key: Key, wanted: list[Part], dtype: torch.dtype) -> torch.Tensor | None:
        """The copy of these parts, one below the other; None where others were copied."""
        if self.pieces.get(key) != wanted:
            return None
        first, last = self.places[key]
        return self.bytes[first:last].view(dtype).view(len(wanted), -1)


class DeviceOutputs:
    """Outputs of one runner: its memory as far as it is mapped here, or the judge's where it copies what it returns."""

    def __init__(self, device: Device, expected: list[torch.Tensor]) -> None:
        """`expected`: an output of each number, for its shape, dtype and strides."""
        self._device = device
        self._expected = expected
        self._mirror = MirroredMemory(device.number)
        self.delivered: list[list[torch.Tensor]] = []
        """Slot -> the tensors copied there, where the runner copies them."""

    def places(self, given: CallOutputs) -> Iterator[tuple[int, int, int]]:
        """Number, first and last address of every output that has elements."""
        for number, (leaf, address) in enumerate(zip(given.output.leaves, given.addresses, strict=True)):
            if leaf.delivered and self._expected[number].numel():
                expected = self._expected[number]
                yield number, address, address + expected.numel() * expected.element_size()

    def map(self, blocks: list[Shared]) -> None:
        """Map memory that the runner sent, and close the descriptors. ValueError where it makes no sense."""
        try:
            for block in blocks:
                with contextlib.suppress(NotShareable):
                    self._mirror.add(*block)
        finally:
            for _, _, fd in blocks:
                os.close(fd)

    def can_read(self, given: CallOutputs) -> bool:
        """Whether every output of a call can be read as it lies."""
        return bool(self.delivered) or all(
            start % self._expected[number].element_size() == 0 and self._mirror.covers(start, stop)
            for number, start, stop in self.places(given)
        )

    def flat_bytes(self, slot: int, number: int, address: int) -> torch.Tensor:
        """The bytes of an output, in memory order."""
        expected = self._expected[number]
        size = expected.numel() * expected.element_size()
        if self.delivered:
            return self.delivered[slot][number].as_strided((expected.numel(),), (1,)).view(torch.uint8)
        return self._mirror.bytes(address, address + size)

    def tensor(self, slot: int, number: int, given: CallOutputs) -> torch.Tensor:
        """An output where it lies, as the program laid it out."""
        expected = self._expected[number]
        if not expected.numel():
            return torch.empty(expected.shape, dtype=expected.dtype, device=self._device.torch_device)
        if self.delivered:
            return self.delivered[slot][number]
        usual = given.output.leaves[number].usual_layout
        flat = self.flat_bytes(slot, number, given.addresses[number]).view(expected.dtype)
        return flat.as_strided(expected.shape, expected.stride() if usual else given.strides[number])

    def plan(self, given: dict[int, CallOutputs], parts: Parts) -> CopiedElements:
        """What is to be copied the moment a turn is done: parts that are asked for, or some of what is read later."""
        pieces: dict[Key, list[Part]] = {}
        for slot, item in given.items():
            if not self.can_read(item):
                continue
            for number, start, stop in self.places(item):
                wanted = parts.get((slot, number), [])
                usual = bool(self.delivered) or item.output.leaves[number].usual_layout
                whole = len(wanted) == 1 and stop - start > _COPIED_BYTES
                pieces[slot, number] = wanted if wanted and usual and not whole else self._probes(number)
        sizes = {key: self._expected[key[1]].element_size() for key in pieces}
        places: dict[Key, tuple[int, int]] = {}
        total = 0
        for key, wanted in pieces.items():
            length = sum(count for _, count in wanted) * sizes[key]
            places[key] = (total, total + length)
            total += -(-length // _ALIGNED) * _ALIGNED
        copied = torch.zeros(total, dtype=torch.uint8, device=self._device.torch_device)
        into: list[torch.Tensor] = []
        out_of: list[torch.Tensor] = []
        for (slot, number), wanted in pieces.items():
            flat, size = self.flat_bytes(slot, number, given[slot].addresses[number]), sizes[slot, number]
            at = places[slot, number][0]
            for first, count in wanted:
                into.append(copied[at : at + count * size])
                out_of.append(flat[first * size : (first + count) * size])
                at += count * size
        return CopiedElements(pieces, into, out_of, places, copied)

    def are_apart(self, given: list[CallOutputs]) -> bool:
        """Whether no two outputs lie in the same memory under two addresses: what is written to one shows in no other.

        Memory is mapped in whole pages, so one word of each shows it; they get their values back.
        """
        places = [place for item in given if self.can_read(item) for place in self.places(item)]
        if not places:
            return True
        _, start, stop = _dice.choice(places)
        offset = _dice.randrange(start, max(stop - 7, start + 1)) % _PAGE // 8 * 8
        words: dict[int, torch.Tensor] = {}
        for _, start, stop in places:
            first = start - (start - offset) % -_PAGE
            if first + 8 <= stop and first not in words:
                span = (stop - 8 - first) // _PAGE * _PAGE + 8
                words[first] = self._mirror.bytes(first, first + span).view(torch.int64)[:: _PAGE // 8]
        tags, number = [], 1
        for word in words.values():
            tags.append(torch.arange(number, number + word.numel(), device=word.device))
            number += word.numel()
        before = [word.clone() for word in words.values()]
        for word, tag in zip(words.values(), tags, strict=True):
            word.copy_(tag)
        apart = all(torch.equal(word, tag) for word, tag in zip(words.values(), tags, strict=True))
        for word, value in zip(words.values(), before, strict=True):
            word.copy_(value)
        return apart

    def _probes(self, number: int) -> list[Part]:
        size = self._expected[number].numel()
        count = min(size, _PROBE_ELEMENTS)
        return [(_dice.randrange(size - count + 1), count) for _ in range(_PROBES if size > count else 1)]

    def forget_memory(self) -> None:
        """Unmap what the runner sent: memory that is mapped here is not given back to the device."""
        self._mirror.close()
        self._mirror = MirroredMemory(self._device.number)
