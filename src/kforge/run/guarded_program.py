"""A program as it is handed to a user: with a guard that keeps it to what it was verified for.

A verdict speaks of one device, of the dtypes and shapes that were verified, and of inference, or of training too. The
text of the guard (`guard_template.py`) stands at the end of every exported file, and of what `result.module()` imports.
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
        "calls": _calls(domain) if domain else "[(None, [], [])]",
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
    tensors = " or ".join(_describe_tensors(item) for item in (domain, *domain.others))
    mode = {None: "", True: ", in training mode", False: ", in evaluation mode"}[domain.training]
    use = "inference and training (first derivatives)" if domain.backward else "inference"
    lines = [f"Verified on {domain.device} for {use} with {tensors}{mode}; any other call raises an error."]
    if not domain.exact_shapes:
        lines.append("Verified on an emulator, at smaller sizes: judge it on the hardware before you rely on it.")
    return [wrapped for line in lines for wrapped in textwrap.wrap(line, 117)]


def _describe_tensors(domain: Domain) -> str:
    """The tensors of a call, with ranges for lengths that may be others."""
    spans = {place: f"{span.low} to {span.high}" for span in domain.ranges for place in span.axes}
    parts = []
    for number, item in enumerate(domain.tensors):
        lengths = [spans.get((number, axis), str(length)) for axis, length in enumerate(item.shape)]
        parts.append(f"{item.dtype} ({', '.join(lengths)}{',' if len(lengths) == 1 else ''})")
    return ", ".join(parts) or "no tensors"


def _calls(domain: Domain) -> str:
    """The calls that were verified, a line each: arguments, ranges and the module's state."""
    lines = []
    for each in (domain, *domain.others):
        ranges = ", ".join(f"({span.low}, {span.high}, {span.step})" for span in each.ranges)
        lines.append(f"            ({_specs(each)}, [{ranges}], {_state(each.state)}),\n")
    return "[\n" + "".join(lines) + "        ]"


def _specs(domain: Domain) -> str:
    """forward's arguments as the guard reads them; the tree's root is their list.

    A length below 0 stands for any of a range: -1 for the first.
    """
    places = {place: -1 - number for number, span in enumerate(domain.ranges) for place in span.axes}
    moving = {number for number, _ in places}
    tensors = []
    for number, item in enumerate(domain.tensors):
        shape = tuple(places.get((number, axis), length) for axis, length in enumerate(item.shape))
        tensors.append(_layout(item.dtype, shape, None if number in moving else item.stride))
    return f"[{', '.join(_spec(item, tensors) for item in domain.arguments[1])}]"


def _spec(tree: list[Any], tensors: list[str]) -> str:
    tag = tree[0]
    if tag == "T":
        return f'("tensor", {tensors[tree[1]]})'
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
    lines = [f"                ({item.name!r}, {_layout(item.dtype, item.shape, item.stride)}),\n" for item in state]
    return "[\n" + "".join(lines) + "            ]"


def _layout(dtype: str, shape: tuple[int, ...], stride: tuple[int, ...] | None) -> str:
    return f"{dtype!r}, {shape!r}, {stride!r}"
