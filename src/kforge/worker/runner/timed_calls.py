"""Timed calls in a runner: one after another, nothing between them but keeping what came back.

No clock is read here. The judge times the whole from outside, has everything stopped when it is done, and reads the
outputs from this process's memory; what is said here only tells it where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from kforge.worker import trees
from kforge.worker.arena import dtype_name
from kforge.worker.protocol.calls import CallRow, TimedOutputs
from kforge.worker.protocol.records import HeldLeaf, HeldOutput

_copy = torch.Tensor.copy_


class _PackedOutput(NamedTuple):
    """An output that was taken apart when it came back: what it is then counts, whatever it becomes."""

    tree: Any
    tensors: list[torch.Tensor]


class TimedCalls:
    """The calls of one block. Their outputs are held until the next block begins."""

    def __init__(self, seed: Callable[[int], Any]) -> None:
        self._seed = seed
        self._earlier: list[Any] = []
        """Of earlier groups of the same block."""
        self._held: list[Any] = []

    def begin(self, first: bool) -> None:
        """Begin a group of calls; the outputs of those before it are held on, but for the first of a block."""
        self._earlier = [] if first else [*self._earlier, *self._held]
        if not first:
            self._held = []

    def run(self, model: Callable[..., Any], sets: list[list[Any]], calls: list[CallRow], rounds: int) -> None:
        """Call the model on every set that is named, so many times over; the outputs of the last round are held."""
        for _ in range(rounds):
            self._held = held = []
            for number, _slot, seed in calls:
                if seed is not None:
                    self._seed(seed)
                held.append(model(*sets[number]))

    def run_and_copy(
        self, model: Callable[..., Any], sets: list[list[Any]], calls: list[CallRow], slots: list[list[torch.Tensor]]
    ) -> None:
        """Call a model that gives the same memory every time: each output is copied before the next call."""
        self._held = held = []
        for number, slot, seed in calls:
            if seed is not None:
                self._seed(seed)
            packed = _PackedOutput(*trees.pack(model(*sets[number])))
            for tensor, target in zip(packed.tensors, slots[slot], strict=False):
                if tensor.shape == target.shape and tensor.dtype == target.dtype:
                    _copy(target, tensor)
            held.append(packed)

    def repeat(self, calls: list[CallRow]) -> None:
        """Do all but the calls: what it costs to get a request, to hold outputs and to say where they are."""
        before, self._held = self._held, []
        for number, (_, _, seed) in enumerate(calls):
            if seed is not None:
                self._seed(seed)
            self._held.append(before[number])

    def forget(self) -> None:
        self._held = self._earlier = []

    def describe_outputs(
        self, kind_of: Callable[[torch.Tensor], str], where: Callable[[torch.Tensor], str]
    ) -> TimedOutputs:
        """What came back: each distinct structure once, which one each call gave, and the addresses of its tensors."""
        distinct: list[HeldOutput] = []
        which: list[int] = []
        addresses: list[int] = []
        last: Any = None
        for output in self._held:
            if type(output) is torch.Tensor and last is not None and _have_same_layout(output, last):
                which.append(len(distinct) - 1)
                addresses.append(_address(output))
                continue
            tree, tensors = output if type(output) is _PackedOutput else trees.pack(output)
            leaves = tuple(
                HeldLeaf(kind_of(tensor), dtype_name(tensor.dtype), tuple(tensor.shape), where(tensor), _stride(tensor))
                for tensor in tensors
            )
            if not distinct or distinct[-1] != (tree, leaves):
                distinct.append(HeldOutput(tree, leaves))
            which.append(len(distinct) - 1)
            addresses += map(_address, tensors)
            last = output if type(output) is torch.Tensor and output.layout == torch.strided else None
        return TimedOutputs(distinct, which, addresses)


def _have_same_layout(one: torch.Tensor, two: torch.Tensor) -> bool:
    return (
        one.dtype == two.dtype
        and one.shape == two.shape
        and one.layout == two.layout
        and one.stride() == two.stride()
        and one.device == two.device
    )


def _stride(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else ()


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0
