"""Tensors of the host's memory between two fences, so that who writes before their start or behind their end is seen.

A fence is looked at after each checked call as long as its tensor lives, and once more when its memory is freed.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import NamedTuple

import torch

from kforge.worker.arena import span

_FENCE = 4096
_PATTERNS = (b"\xa5" * _FENCE, b"\xa5\xff" * (_FENCE // 2))
"""Small numbers, which arithmetic in place changes; and NaN in every floating format, which shows in who reads it."""


class _Block(NamedTuple):
    whole: torch.Tensor
    """Fence, tensor, fence."""
    size: int
    """Of the tensor, in bytes."""
    pattern: bytes
    """What a fence holds."""
    shape: tuple[int, ...]


class FencedMemory:
    """Makes tensors that lie between fences; remembers the first fence that was crossed."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        """Address of the tensor -> the memory it lies in."""
        self._patterns = itertools.cycle(_PATTERNS)
        self._pattern = _PATTERNS[0]
        self._crossed = ""

    def begin_call(self) -> None:
        """Begin a call: fences of tensors that are made from now on hold something else."""
        self._pattern = next(self._patterns)

    def can_hold(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an ordinary one of the host's, whose elements lie without gaps."""
        return (
            type(tensor) is torch.Tensor
            and tensor.device.type == "cpu"
            and tensor.layout == torch.strided
            and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
            and tensor.numel() > 0
            and span(tuple(tensor.shape), tensor.stride()) == tensor.numel()
        )

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the same layout between fences, its content not set. Its storage is its own, as torch's are."""
        size = tensor.numel() * tensor.element_size()
        whole = torch.empty(size + 2 * _FENCE, dtype=torch.uint8)
        address = whole.data_ptr() + _FENCE
        ctypes.memmove(address - _FENCE, self._pattern, _FENCE)
        ctypes.memmove(address + size, self._pattern, _FENCE)
        memory = (ctypes.c_char * size).from_address(address)
        self._blocks[address] = _Block(whole, size, self._pattern, tuple(tensor.shape))
        # torch holds it as long as the storage lives.
        weakref.finalize(memory, self._leave, address).atexit = False
        storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor is one of these."""
        return tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() in self._blocks

    def place_written(self) -> str:
        """Where something was written outside of a tensor, in words; empty where nothing was."""
        for address, block in list(self._blocks.items()):
            self._look(address, block)
        return self._crossed

    def _leave(self, address: int) -> None:
        self._look(address, self._blocks[address])
        del self._blocks[address]

    def _look(self, address: int, block: _Block) -> None:
        if self._crossed:
            return
        before = ctypes.string_at(address - _FENCE, _FENCE) != block.pattern
        if before or ctypes.string_at(address + block.size, _FENCE) != block.pattern:
            where = "before the start of" if before else "behind the end of"
            self._crossed = f"{where} a tensor of shape {block.shape} that torch had given it"
