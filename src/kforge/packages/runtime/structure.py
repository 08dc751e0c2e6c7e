"""What a module computes, as a text: two modules with the same text compute the same, whatever they are called.

The text is the graph that torch.export finds for inputs of given shapes: operators, constants, and which tensor of the
module goes where. Names of classes, attributes and arguments are not part of it.
"""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch

from .guard import tensor_digest

_USUAL = frozenset((*vars(torch.nn.Module()), "_is_hf_initialized"))
"""What every module has in its dictionary."""


class Structure:
    """A module's graph as a text, and its tensors in the order in which the graph uses them."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text = text
        self.names = names


def structure_of(module: torch.nn.Module, arguments: tuple[Any, ...]) -> Structure | None:
    """The structure of a module in a call with such arguments; None where it has no graph.

    Nothing is computed: tensors are taken for their shapes alone.
    """
    names = list(named_tensors(module))
    state = [_without_values(value) for value in named_tensors(module).values()]
    inputs = tuple(_without_values(item) if isinstance(item, torch.Tensor) else item for item in arguments)
    try:
        traced = _Functional(module, names)
        with torch.no_grad():
            exported = torch.export.export(traced, (state, *inputs), strict=False)
        if traced.has_left_something():
            return None
        return _read(exported, names)
    except Exception:
        # It needs values, or takes other arguments: whatever it is, it is not known to be the same.
        return None


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by their dotted names, as functional_call takes them."""
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return tensors


class _Functional(torch.nn.Module):
    """A module whose tensors are arguments of its call."""

    def __init__(self, module: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self._names = names
        plain = copy.copy(module)
        # Hooks are no part of what a module computes: they are called before and after, whatever it does.
        for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            plain.__dict__[hooks] = collections.OrderedDict()
        self._before = own_values(plain)
        # In a list, so that it is no part of this one: the exporter would take its tensors for constants.
        self._inner = [plain]

    def has_left_something(self) -> bool:
        """Whether a call has left something in the module, beside what it returned."""
        after = own_values(self._inner[0])
        return after.keys() != self._before.keys() or not all(
            is_same(after[name], self._before[name]) for name in after
        )

    def forward(self, state: list[torch.Tensor], *arguments: Any) -> Any:
        named = dict(zip(self._names, state))  # noqa: B905
        return torch.func.functional_call(self._inner[0], named, arguments, tie_weights=False)


def is_same(one: Any, two: Any) -> bool:
    """Whether a value is what it was; the exporter puts copies of containers in their place."""
    if one is two:
        return True
    try:
        return type(one) is type(two) and bool(one == two)
    except (RuntimeError, ValueError):
        return False


def own_values(module: torch.nn.Module) -> dict[str, Any]:
    """A module's attributes, but for those that every module has."""
    return {name: value for name, value in vars(module).items() if name not in _USUAL}


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
            return numbers[item]
        if isinstance(item, (list, tuple)):
            return f"[{', '.join(map(word, item))}]"
        if isinstance(item, dict):
            return f"{{{', '.join(f'{key}: {word(value)}' for key, value in item.items())}}}"
        return repr(item)

    def read_inner(owner: Any, name: str) -> str:
        """What is under a name: a graph within the graph (a region with autocast, a branch), or a constant."""
        inner = owner
        for step in name.split("."):
            inner = getattr(inner, step)
        if isinstance(inner, torch.fx.GraphModule):
            return f"{{{read_nodes(inner)}}}"
        if isinstance(inner, torch.Tensor):
            return f"constant{_digest(inner)}"
        raise ValueError(f"{name} is a {type(inner).__name__}")

    def read_nodes(owner: Any) -> str:
        found = []
        for count, node in enumerate(owner.graph.nodes):
            if node.op == "placeholder":
                if node not in numbers and node not in pending:
                    numbers[node] = f"given{count}"
                continue
            target = read_inner(owner, node.target) if node.op == "get_attr" else str(node.target)
            found.append(f"{node.op} {target} {word(node.args)} {word(node.kwargs)}")
            lines.append(found[-1])
            numbers[node] = f"%{len(lines)}"
        return "; ".join(found)

    read_nodes(exported.graph_module)
    lines.append(f"returns {exported.call_spec.out_spec}")
    return Structure("\n".join(lines), tuple(used))


def _digest(value: Any) -> str:
    """A constant's values, as a word; ValueError where it has none."""
    if not isinstance(value, torch.Tensor):
        return f"({value!r})"
    if value.device.type == "meta":
        raise ValueError("a constant without values")
    return f"({tensor_digest(value)})"
