"""A module and its inputs as they would be on a GPU, but without memory: enough to trace and to lower.

Nothing is computed, so the device is neither filled nor disturbed, and a problem's size costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kforge.worker.held_tensors import module_tensors

_DEVICE = "cuda:0"


class Phantoms:
    """A maker of tensors without memory; all that meet in one graph must come from one maker."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the same shape and type on the GPU."""
        with self.mode, torch.no_grad():
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_DEVICE)

    def inputs(self, make: Callable[[], Sequence[Any]]) -> tuple[Any, ...]:
        """The inputs that a problem makes; made with their numbers, where the problem looks at them."""
        try:
            with self.mode:
                made = tuple(make())
        except Exception:
            made = tuple(make())
        return tuple(self.move(made))

    def move(self, values: Any) -> Any:
        """The values with every tensor on the GPU."""
        return pytree.tree_map_only(torch.Tensor, self.tensor, values)

    def module(self, module: torch.nn.Module) -> torch.nn.Module:
        """A copy of the module on the GPU: parameters, buffers, and tensors that are plain attributes."""
        made = copy.deepcopy(module)
        moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """Old and new tensors by the identity of the old one, which is kept so that no other takes its place."""
        for part in made.modules():
            tables: tuple[dict[str, Any], ...] = (part._parameters, part._buffers, part.__dict__)
            for held in tables:
                for name, value in list(held.items()):
                    if isinstance(value, torch.Tensor):
                        held[name] = moved.setdefault(id(value), (value, self._like(value)))[1]
        return made

    def _like(self, value: torch.Tensor) -> torch.Tensor:
        made = self.tensor(value)
        return torch.nn.Parameter(made, requires_grad=False) if isinstance(value, torch.nn.Parameter) else made

    def shared_outputs(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> list[bool]:
        """For each tensor that forward returns, whether it lies in memory that was there before."""
        arguments = self.move(inputs)
        before = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        before += [tensor for _, tensor in module_tensors(module)]
        with self.mode, torch.no_grad():
            outputs = pytree.tree_leaves(module(*arguments))
        storages = {tensor.untyped_storage()._cdata for tensor in before}
        return [isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata in storages for leaf in outputs]
