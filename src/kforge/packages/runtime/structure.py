"""What a module computes, as a text: two modules with the same text compute the same, whatever they are called.

The text is the graph that torch.export finds for inputs of given shapes: operators, constants, and which tensor of the
module goes where. Names of classes, attributes and arguments are not part of it.
"""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch


class Structure:
    """A module's graph as a text, and its tensors in the order in which the graph uses them."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text = text
        self.names = names


def structure_of(module: torch.nn.Module, arguments: tuple[Any, ...]) -> Structure | None:
    """The structure of a module in a call with such arguments; None where it has no graph.

    Nothing is computed: tensors are taken for their shapes alone.
    """
    state = {name: _without_values(value) for name, value in named_tensors(module).items()}
    inputs = tuple(_without_values(item) if isinstance(item, torch.Tensor) else item for item in arguments)
    try:
        with torch.no_grad():
            exported = torch.export.export(_Functional(module), (state, *inputs), strict=False)
    except Exception:
        # It needs values, or takes other arguments: whatever it is, it is not known to be the same.
        return None
    return _read(exported, list(state))


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by their dotted names, as functional_call takes them."""
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return tensors


class _Functional(torch.nn.Module):
    """A module whose tensors are arguments of its call."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        plain = copy.copy(module)
        # Hooks are no part of what a module computes: they are called before and after, whatever it does.
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            plain.__dict__[hooks] = collections.OrderedDict()
        # In a list, so that it is no part of this one: the exporter would take its tensors for constants.
        self._inner = [plain]

    def forward(self, state: dict[str, torch.Tensor], *arguments: Any) -> Any:
        return torch.func.functional_call(self._inner[0], state, arguments)


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _read(exported: Any, names: list[str]) -> Structure:
    """Nodes in their order, tensors of the module numbered as they are used."""
    numbers: dict[Any, str] = {}
    used: list[str] = []
    inputs = [node for node in exported.graph.nodes if node.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    constants = {**exported.constants, **exported.state_dict}
    plain = 0
    pending: dict[Any, str] = {}
    for node, spec in zip(inputs, specs):  # noqa: B905
        if spec.kind.name == "USER_INPUT":
            if plain < len(names):
                # Dictionaries are flattened in the order of their keys as torch's pytrees keep them.
                pending[node] = names[plain]
            else:
                numbers[node] = f"input{plain - len(names)}"
            plain += 1
        else:
            value = constants.get(spec.target)
            numbers[node] = f"constant{_digest(value)}"
    lines: list[str] = []

    def word(item: Any) -> str:
        if isinstance(item, torch.fx.Node):
            if item in pending:
                used.append(pending.pop(item))
                numbers[item] = f"state{len(used) - 1}"
            return numbers.get(item, "?")
        if isinstance(item, (list, tuple)):
            return f"[{', '.join(map(word, item))}]"
        if isinstance(item, dict):
            return f"{{{', '.join(f'{key}: {word(value)}' for key, value in item.items())}}}"
        return repr(item)

    for node in exported.graph.nodes:
        if node.op == "placeholder":
            continue
        text = f"{node.op} {node.target} {word(node.args)} {word(node.kwargs)}"
        numbers[node] = f"%{len(lines)}"
        lines.append(text)
    return Structure("\n".join(lines), tuple(used))


def _digest(value: Any) -> str:
    """A constant tensor's values, as a word."""
    import hashlib

    if not isinstance(value, torch.Tensor):
        return f"({value!r})"
    data = value.detach().cpu().contiguous()
    whole = data.view(torch.uint8).numpy().tobytes() if data.dim() else repr(data.item()).encode()
    return f"({data.dtype} {tuple(data.shape)} {hashlib.sha256(whole).hexdigest()})"
