"""Which value an option takes, told from its type: files and command lines give values as they are written."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal

_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
}


def expected_kind(value: Any, kind: Any) -> str:
    """What should stand there instead of a value that is not of that kind; empty if it is."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return ""
        wanted = [expected_kind(value, one) for one in inner if one is not type(None)]
        return "" if "" in wanted else " or ".join(dict.fromkeys(wanted))
    if origin is Literal:
        return "" if value in inner else f"one of {', '.join(map(str, inner))}"
    if origin is tuple:
        noun = _KINDS[inner[0]][1].removeprefix("a ")
        right = isinstance(value, (list, tuple)) and not any(expected_kind(item, inner[0]) for item in value)
        return "" if right else f"a list of {noun}s"
    if kind not in _KINDS:
        return "" if isinstance(value, kind) else _noun(kind)
    types_, noun = _KINDS[kind]
    return "" if isinstance(value, types_) and (kind is bool or not isinstance(value, bool)) else noun


def _noun(kind: type) -> str:
    """What a value of a class is called: a path is written as a text, and a record by its name."""
    return f"a {kind.__name__}" if hasattr(kind, "__dataclass_fields__") else "a text"
