"""Dataclasses to JSON and back, checked on the way in.

`encode` turns a dataclass into plain JSON values; `decode` builds it again and refuses what does not fit.
Covers what KForge's records use: nested dataclasses, enums, optionals, unions with None, tuples, lists,
string-keyed dicts, literals, bytes (as base64), and floats that JSON has no word for (NaN, infinities, as strings).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import functools
import math
import types
import typing
from typing import Any, TypeVar

from kforge.errors import WireError

T = TypeVar("T")

_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(value: Any) -> Any:
    """The JSON form of a value; raises WireError for a type no record holds."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _float_name(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise WireError("only string keys can be written as JSON")
        return {key: encode(item) for key, item in value.items()}
    raise WireError(f"a {type(value).__name__} has no JSON form")


def decode(kind: type[T], data: Any) -> T:
    """Build a `kind` from its JSON form; raises WireError naming the field that does not fit."""
    return typing.cast(T, _decode(kind, data, kind.__name__))


def _float_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, data: Any, where: str) -> Any:
    if hint is Any:
        return data
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(hint, data, where)
    if origin is typing.Literal:
        if data in typing.get_args(hint):
            return data
        raise WireError(f"{where}: {data!r} is none of {typing.get_args(hint)}")
    if origin in (tuple, list):
        return _decode_sequence(origin, typing.get_args(hint), data, where)
    if origin is dict:
        return _decode_mapping(hint, data, where)
    if dataclasses.is_dataclass(hint):
        return _decode_record(typing.cast(type, hint), data, where)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(data)
        except ValueError as error:
            raise WireError(f"{where}: {error}") from None
    return _decode_scalar(hint, data, where)


def _decode_union(hint: Any, data: Any, where: str) -> Any:
    choices = typing.get_args(hint)
    if data is None and type(None) in choices:
        return None
    failures = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _decode(choice, data, where)
        except WireError as error:
            failures.append(str(error))
    raise WireError("; ".join(failures) or f"{where}: {data!r} fits no choice")


def _decode_sequence(origin: Any, args: tuple[Any, ...], data: Any, where: str) -> Any:
    if not isinstance(data, list):
        raise WireError(f"{where}: expected a list, got {type(data).__name__}")
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(args) != len(data):
            raise WireError(f"{where}: expected {len(args)} items, got {len(data)}")
        return tuple(_decode(arg, item, f"{where}[{i}]") for i, (arg, item) in enumerate(zip(args, data, strict=True)))
    return origin(_decode(args[0], item, f"{where}[{i}]") for i, item in enumerate(data))


def _decode_mapping(hint: Any, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise WireError(f"{where}: expected an object, got {type(data).__name__}")
    value_hint = typing.get_args(hint)[1]
    return {str(key): _decode(value_hint, item, f"{where}.{key}") for key, item in data.items()}


def _decode_record(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise WireError(f"{where}: expected an object, got {type(data).__name__}")
    hints = _hints(kind)
    fields = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(data) - fields)
    if unknown:
        raise WireError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(sorted(fields))}")
    values = {name: _decode(hints[name], item, f"{where}.{name}") for name, item in data.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise WireError(f"{where}: {error}") from None


def _decode_scalar(hint: Any, data: Any, where: str) -> Any:
    if hint is float:
        if isinstance(data, str) and data in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[data]
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return float(data)
    elif hint is int:
        if isinstance(data, int) and not isinstance(data, bool):
            return data
    elif hint in (str, bool):
        if isinstance(data, hint):
            return data
    elif hint is bytes:
        if isinstance(data, str):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error:
                pass
    elif hint is type(None):
        if data is None:
            return None
    else:
        raise WireError(f"{where}: no rule reads a {hint!r}")
    raise WireError(f"{where}: expected {hint.__name__}, got {data!r:.80}")
