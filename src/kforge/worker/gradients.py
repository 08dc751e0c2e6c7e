"""Gradients of a module's call, taken the same way by the judge of its reference and by a runner of its program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kforge.worker import trees


def gradients(
    call: Callable[[list[Any]], Any], arguments: list[Any], parameters: list[torch.Tensor], seed: int
) -> list[torch.Tensor | None] | None:
    """Gradients of the floating arguments, then of the parameters, for output gradients drawn under a seed.

    None where no output is connected to any of them; raises whatever the call raises.
    """
    tree, tensors = trees.pack(arguments)
    leaves = [tensor.detach().clone() for tensor in tensors]
    wanted = [leaf.requires_grad_() for leaf in leaves if leaf.is_floating_point()]
    for parameter in parameters:
        parameter.requires_grad_()
    with torch.enable_grad():
        outputs = trees.pack(call(trees.unpack(tree, leaves)))[1]
        drawn = [(output, _draw_gradient(output, seed + number)) for number, output in enumerate(outputs)]
        connected = [(output, given) for output, given in drawn if output.requires_grad]
        if not connected:
            return None
        of, given = map(list, zip(*connected, strict=True))
        return list(torch.autograd.grad(of, [*wanted, *parameters], given, allow_unused=True))


def _draw_gradient(output: torch.Tensor, seed: int) -> torch.Tensor:
    """An output's gradient, the same wherever it is drawn."""
    generator = torch.Generator().manual_seed(seed % (1 << 62))
    return torch.randn(output.shape, generator=generator).to(output.device, output.dtype)
