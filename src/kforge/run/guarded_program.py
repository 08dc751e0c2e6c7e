"""A program as it is handed to a user: with a guard that keeps it to what it was verified for.

A verdict speaks of one device, one set of dtypes and shapes, and of inference, or of training too. The text of the
guard (`guard_template.py`) stands at the end of every exported file, and of what `result.module()` imports.
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

from kforge.types import Domain, TensorLayout

_TEMPLATE = Path(__file__).with_name("guard_template.py")
_KINDS = {"b": "bool", "i": "int", "f": "float", "c": "complex", "s": "str", "l": "list", "u": "tuple", "d": "dict"}
"""Tags of a tree, and the types they stand for."""
_VALUES = ("n", "b", "i", "f", "c", "s")
_RULE = (
    "# -- KForge's guard: what lies outside of what was verified is refused in a sentence, and never computed wrongly "
)


def add_guard(source: str, name: str, domain: Domain | None) -> str:
    """The program's text with the guard behind it; without a domain only tracers and gradients are refused."""
    guard = _TEMPLATE.read_text(encoding="utf-8").rstrip()
    verified = {
        "name": repr(name),
        "device": repr(domain.device if domain else "cpu"),
        "arguments": _specs(domain) if domain else "None",
        "state": _state(domain.state) if domain else "[]",
        "training": repr(domain.training if domain else None),
        "exact_shapes": repr(domain.exact_shapes if domain else True),
        "backward": repr(domain.backward if domain else False),
    }
    lines = "".join(f"        {key!r}: {text},\n" for key, text in verified.items())
    use = f"_kforge_guard(\n    ModelNew,\n    {{\n{lines}    }},\n)"
    return "\n\n\n".join((source.rstrip(), f"{_RULE:-<119}", guard, use)) + "\n"


def domain_lines(domain: Domain | None) -> list[str]:
    """What a program was verified for, a line each, for the head of its file."""
    if domain is None:
        return ["What it was verified for is not on record: only gradients and tracers are refused."]
    tensors = ", ".join(f"{item.dtype} {item.shape}" for item in domain.tensors) or "no tensors"
    mode = {None: "", True: ", in training mode", False: ", in evaluation mode"}[domain.training]
    use = "inference and training (first derivatives)" if domain.backward else "inference"
    lines = [f"Verified on {domain.device} for {use} with {tensors}{mode}; any other call raises an error."]
    if not domain.exact_shapes:
        lines.append("Verified on an emulator, at smaller sizes: judge it on the hardware before you rely on it.")
    return [wrapped for line in lines for wrapped in textwrap.wrap(line, 117)]


def _specs(domain: Domain) -> str:
    """forward's arguments as the guard reads them; the tree's root is their list."""
    return f"[{', '.join(_spec(item, domain.tensors) for item in domain.arguments[1])}]"


def _spec(tree: list[Any], tensors: tuple[TensorLayout, ...]) -> str:
    tag = tree[0]
    if tag == "T":
        return f'("tensor", {_layout(tensors[tree[1]])})'
    if tag == "D":
        return f'("dtype", {tree[1]!r})'
    if tag == "*":
        return f'("any", {_KINDS.get(tree[1], "object")!r})'
    if tag in _VALUES:
        return f'("value", {_value(tag, tree[1] if len(tree) > 1 else None)})'
    if tag == "d":
        pairs = (
            f"({_value(key[0], key[1] if len(key) > 1 else None)}, {_spec(item, tensors)})" for key, item in tree[1]
        )
        return f'("dict", [{", ".join(pairs)}])'
    return f'("{"list" if tag == "l" else "tuple"}", [{", ".join(_spec(item, tensors) for item in tree[1])}])'


def _value(tag: str, content: Any) -> str:
    """A Python expression for a leaf that is no tensor."""
    if tag in ("f", "c") and not (isinstance(content, float) and math.isfinite(content)):
        return f"{'float' if tag == 'f' else 'complex'}({str(content)!r})"
    return repr(content)


def _state(state: tuple[TensorLayout, ...]) -> str:
    if not state:
        return "[]"
    return "[\n" + "".join(f"            ({item.name!r}, {_layout(item)}),\n" for item in state) + "        ]"


def _layout(item: TensorLayout) -> str:
    return f"{item.dtype!r}, {item.shape!r}, {item.stride!r}"
