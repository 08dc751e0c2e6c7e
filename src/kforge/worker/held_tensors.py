"""Every tensor a module holds, by name: what a runner describes to the judge, and a drop-in takes over.

What is in no state (buffers that are not persistent, plain attributes) is named with a leading '='.
"""

from __future__ import annotations

import torch


def held_tensors(module: torch.nn.Module) -> dict[str, tuple[str, torch.Tensor]]:
    """Name -> (parameter, buffer or attribute; the tensor)."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    tensors = {
        name: ("parameter" if name in parameters else "buffer", value)
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, torch.Tensor)
    }
    tensors |= {name: ("buffer", value) for name, value in transient_buffers(module).items()}
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if type(value) is torch.Tensor:
                tensors[f"={prefix}.{name}" if prefix else f"={name}"] = ("attribute", value)
    return tensors


def transient_buffers(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Name -> buffer, of those that are not persistent; an expanded one cannot be written to and is left out."""
    persistent = module.state_dict(keep_vars=True).keys()
    buffers = module.named_buffers(remove_duplicate=False)
    return {f"={name}": value for name, value in buffers if name not in persistent and _is_writable(value)}


def whole_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The module's state, and its buffers that are not persistent."""
    state = {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    return {**state, **{name: value.detach() for name, value in transient_buffers(module).items()}}


def load_whole_state(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Load values by name: all of the module's state, and what else is given."""
    module.load_state_dict({name: value for name, value in state.items() if name[0] != "="}, strict=True)
    outside = {name: value for name, value in state.items() if name[0] == "="}
    if outside:
        own = transient_buffers(module)
        with torch.no_grad():
            for name, value in outside.items():
                own[name].copy_(value)


def _is_writable(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and all(
        step > 0 or length <= 1 for step, length in zip(tensor.stride(), tensor.shape, strict=True)
    )


def module_tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """(Dotted name, tensor) of every parameter and buffer, those outside the state included, ties by each name."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return [(name, value) for name, value in named if value is not None]
