"""Every tensor a module holds, by name: what a runner describes to the judge, and a drop-in takes over."""

from __future__ import annotations

import torch


def held_tensors(module: torch.nn.Module) -> dict[str, tuple[str, torch.Tensor]]:
    """Name -> (parameter, buffer or attribute; the tensor). Plain attributes are named with a leading '='."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    found = {
        name: ("parameter" if name in parameters else "buffer", value)
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, torch.Tensor)
    }
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if type(value) is torch.Tensor:
                found[f"={prefix}.{name}" if prefix else f"={name}"] = ("attribute", value)
    return found


def module_tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """(Dotted name, tensor) of every parameter and buffer, those outside the state included, ties by each name."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return [(name, value) for name, value in named if value is not None]
