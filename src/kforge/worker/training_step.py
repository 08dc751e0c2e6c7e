"""A call of a module that is forward and backward: what the judge and a runner call where gradients are part of it.

The outputs' gradients are one more argument, the last: a list with a tensor for each tensor of the output, None where
it has no gradient. What comes back is one structure of plain tensors, held to what any output is held to:
[the output, gradients of the floating arguments, gradients of the parameters].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import span

_grad = torch.autograd.grad
_enable_grad = torch.enable_grad
NO_GRADIENT = (
    "{} does not require grad: autograd cannot see into a kernel; wrap it in a torch.autograd.Function with a backward"
)


@dataclass
class ForwardPass:
    """What forward gave, and what backward needs."""

    output: Any
    leaves: list[torch.Tensor]
    """The floating arguments, as tensors that autograd follows."""
    differentiable: list[torch.Tensor]
    """The output's tensors whose gradients are given."""
    gradients: list[torch.Tensor]


class TrainingStep:
    """Calls a module forward and backward. The parameters of these names are the ones that are trained."""

    def __init__(self, call: Callable[..., Any], module: torch.nn.Module, names: Sequence[str]) -> None:
        """`call` is the module, or what stands around it."""
        self._call = call
        self._module = module
        self._names = tuple(names)
        self._parameters: list[torch.Tensor] | None = None

    def __call__(self, *arguments: Any) -> list[Any]:
        return self.backward(self.forward(*arguments))

    def forget_parameters(self) -> None:
        """Look for the parameters again: other tensors may have taken their places."""
        self._parameters = None

    def parameters(self) -> list[torch.Tensor]:
        """The parameters that are trained."""
        if self._parameters is None:
            held = dict(self._module.named_parameters(remove_duplicate=False))
            missing = [name for name in self._names if name not in held]
            if missing:
                raise ValueError(f"the module has no parameter `{missing[0]}`")
            frozen = [name for name in self._names if not held[name].requires_grad]
            if frozen:
                raise ValueError(f"the module's parameter `{frozen[0]}` does not require grad")
            self._parameters = [held[name] for name in self._names]
        return self._parameters

    def forward(self, *arguments: Any) -> ForwardPass:
        """Call the module, with autograd at work."""
        *given, gradients = arguments
        leaves: list[torch.Tensor] = []
        followed = [_follow(value, leaves) for value in given]
        with _enable_grad():
            output = self._call(*followed)
        tensors = [output] if type(output) is torch.Tensor else trees.pack(output)[1]
        if len(tensors) != len(gradients):
            raise ValueError(f"the output has {len(tensors)} tensors, expected {len(gradients)}")
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for number, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
            if gradient is None:
                continue
            name = f"output {number}" if len(tensors) > 1 else "the output"
            if tensor.shape != gradient.shape or tensor.dtype != gradient.dtype:
                actual, wanted = (f"{str(item.dtype)[6:]} {tuple(item.shape)}" for item in (tensor, gradient))
                raise ValueError(f"{name} is {actual}, expected {wanted}")
            if not tensor.requires_grad:
                raise RuntimeError(NO_GRADIENT.format(name))
            pairs.append((tensor, gradient))
        return ForwardPass(output, leaves, [pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def backward(self, made: ForwardPass) -> list[Any]:
        """The output and all gradients."""
        parameters = self.parameters()
        wanted = [*made.leaves, *parameters]
        results = list(_grad(made.differentiable, wanted, made.gradients, allow_unused=True, materialize_grads=True))
        results = _in_own_memory(results, [*made.gradients, *made.leaves, *parameters])
        count = len(made.leaves)
        return [_detach(made.output), results[:count], results[count:]]


def saved_bytes(step: TrainingStep, arguments: Sequence[Any]) -> int:
    """Bytes of the distinct storages that forward saves for backward; those of arguments and parameters are left out.

    What a program keeps without autograd's knowledge is not among them.
    """
    given = [*trees.pack(list(arguments))[1], *step.parameters()]
    known = {tensor.untyped_storage().data_ptr() for tensor in given}
    sizes: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        made = step.forward(*arguments)
    total = sum(size for address, size in sizes.items() if address not in known)
    del made
    return total


def _follow(value: Any, leaves: list[torch.Tensor]) -> Any:
    """The argument with its floating tensors as leaves of their own; containers are always new."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        leaves.append(value.detach().requires_grad_())
        return leaves[-1]
    if isinstance(value, (list, tuple)):
        items = [_follow(item, leaves) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _follow(item, leaves) for key, item in value.items()}
    return value


def _detach(value: Any) -> Any:
    """The output without what autograd knows of it."""
    if type(value) is torch.Tensor:
        return value.detach()
    if type(value) in (list, tuple):
        return type(value)(_detach(item) for item in value)
    if type(value) is dict:
        return {key: _detach(item) for key, item in value.items()}
    return value.detach() if isinstance(value, torch.Tensor) else value


def _in_own_memory(gradients: list[torch.Tensor], others: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, copied where they share memory with these or with one another, or are expanded.

    A gradient may well be the output's gradient itself, or the same for two arguments; an optimiser's `.grad` never is.
    """
    taken = [_range(tensor) for tensor in others]
    results: list[torch.Tensor] = []
    for gradient in gradients:
        if type(gradient) is not torch.Tensor or gradient.layout != torch.strided:
            results.append(gradient)
            continue
        start, stop = _range(gradient)
        if not gradient.is_contiguous() and span(tuple(gradient.shape), gradient.stride()) != gradient.numel():
            gradient = gradient.contiguous()
        elif any(start < other[1] and other[0] < stop for other in taken):
            gradient = gradient.clone()
        else:
            taken.append((start, stop))
        results.append(gradient)
    return results


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """First address, and one behind the last of a tensor that is dense; of another, of its storage's rest."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return 0, 0
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size()
