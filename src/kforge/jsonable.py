"""Dataclasses to JSON and back, checked on the way in.

`encode` turns a dataclass into plain JSON values; `decode` builds it again and refuses what does not fit, whoever wrote
it. Covers what KForge's records use: nested dataclasses, named tuples (as lists), enums, optionals, unions with None,
tuples, lists, string-keyed dicts, literals, bytes (as base64), and floats that JSON has no word for (NaN, infinities,
as strings).

What reads a type is made once: messages of a runner are read between timed calls.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from kforge.errors import WireError

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Builds a value from its JSON form."""

_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN = (int, str, bool, type(None))
"""Types whose values are their own JSON form."""
_LONGEST_SHOWN = 80


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


def _float_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def decode(kind: type[T], data: Any, *, ignore_unknown: bool = False) -> T:
    """Build a `kind` from its JSON form; raises WireError naming the field that does not fit.

    `ignore_unknown`: fields that the record does not have are left out, and not refused.
    """
    try:
        value: T = _reader(typing.cast(Hashable, kind), ignore_unknown)(data)
    except _Unfit as error:
        raise WireError(f"{kind.__name__}{error.where}: {error.reason}") from None
    return value


class _Unfit(Exception):
    """A value does not fit its type; `where` is the way to it from the value that was asked for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.where = ""

    def add_step(self, step: str) -> _Unfit:
        self.where = step + self.where
        return self

    def __str__(self) -> str:
        return f"{self.where.lstrip('.')}: {self.reason}" if self.where else self.reason


def _unfit_error(what: str, data: Any) -> _Unfit:
    """The error for data of another kind. A structure is not shown: it may be long, or deeper than can be printed."""
    if isinstance(data, str):
        data = data[:_LONGEST_SHOWN]
    structured = isinstance(data, (list, dict))
    return _Unfit(f"expected {what}, got {type(data).__name__ if structured else repr(data)[:_LONGEST_SHOWN]}")


@functools.cache
def _reader(hint: Any, lenient: bool) -> Reader:
    """What reads values of a type; `lenient` about fields that a record does not have."""
    if hint is Any:
        return lambda data: data
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments, lenient)
    if origin is typing.Literal:
        return _literal_reader(arguments)
    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return _sequence_reader(origin, arguments[0], lenient)
    if origin is dict:
        return _mapping_reader(arguments[1], lenient)
    if dataclasses.is_dataclass(hint):
        return _record_reader(typing.cast(type, hint), lenient)
    if origin is tuple:
        return _row_reader(tuple, {f"[{number}]": part for number, part in enumerate(arguments)}, lenient)
    if _is_named_tuple(hint):
        parts = typing.get_type_hints(hint)
        return _row_reader(hint._make, {f".{name}": part for name, part in parts.items()}, lenient)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return functools.partial(_read_enum, hint)
    if hint in _SCALAR_READERS:
        return _SCALAR_READERS[hint]
    raise WireError(f"no rule reads a {hint!r}")


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


# -- scalars ---------------------------------------------------------------------------------------------------------


def _read_int(data: Any) -> Any:
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    raise _unfit_error("int", data)


def _read_str(data: Any) -> Any:
    if isinstance(data, str):
        return data
    raise _unfit_error("str", data)


def _read_bool(data: Any) -> Any:
    if isinstance(data, bool):
        return data
    raise _unfit_error("bool", data)


def _read_none(data: Any) -> Any:
    if data is None:
        return None
    raise _unfit_error("None", data)


def _read_float(data: Any) -> Any:
    if isinstance(data, str) and data in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[data]
    if isinstance(data, (int, float)) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            pass
    raise _unfit_error("float", data)


def _read_bytes(data: Any) -> Any:
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError:
            pass
    raise _unfit_error("bytes", data)


_SCALAR_READERS: dict[Any, Reader] = {
    int: _read_int,
    str: _read_str,
    bool: _read_bool,
    float: _read_float,
    bytes: _read_bytes,
    type(None): _read_none,
}


def _read_enum(kind: type[enum.Enum], data: Any) -> Any:
    try:
        return kind(data)
    except (ValueError, TypeError) as error:
        raise _Unfit(str(error)) from None


def _literal_reader(choices: tuple[Any, ...]) -> Reader:
    def read(data: Any) -> Any:
        if data in choices:
            return data
        raise _unfit_error(f"one of {choices}", data)

    return read


# -- structures ------------------------------------------------------------------------------------------------------


def _union_reader(choices: tuple[Any, ...], lenient: bool) -> Reader:
    readers = [_reader(choice, lenient) for choice in choices if choice is not type(None)]
    optional = type(None) in choices

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        failures = []
        for reader in readers:
            try:
                return reader(data)
            except _Unfit as error:
                failures.append(str(error))
        raise _Unfit("; ".join(failures))

    return read


def _plain_types(hint: Any) -> frozenset[type]:
    """The types of values that are their own JSON form, where a type allows no others; empty otherwise."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return frozenset(choices) if all(choice in _PLAIN for choice in choices) else frozenset()


def _sequence_reader(origin: Callable[[Any], Any], item: Any, lenient: bool) -> Reader:
    reader, plain = _reader(item, lenient), _plain_types(item)

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _unfit_error("a list", data)
        if plain.issuperset(map(type, data)):
            return origin(data)
        items: list[Any] = []
        try:
            for value in data:
                items.append(reader(value))
        except _Unfit as error:
            raise error.add_step(f"[{len(items)}]") from None
        return origin(items)

    return read


def _row_reader(make: Callable[[Any], Any], parts: dict[str, Any], lenient: bool) -> Reader:
    """A fixed number of values, each of its own type; `parts`: how a message names each of them -> its type."""
    names, readers = list(parts), [_reader(part, lenient) for part in parts.values()]

    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _unfit_error("a list", data)
        if len(data) != len(readers):
            raise _Unfit(f"expected {len(readers)} items, got {len(data)}")
        values: list[Any] = []
        try:
            for reader, value in zip(readers, data, strict=True):
                values.append(reader(value))
        except _Unfit as error:
            raise error.add_step(names[len(values)]) from None
        return make(values)

    return read


def _mapping_reader(value: Any, lenient: bool) -> Reader:
    reader = _reader(value, lenient)

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _unfit_error("an object", data)
        mapping: dict[str, Any] = {}
        for key, item in data.items():
            try:
                mapping[str(key)] = reader(item)
            except _Unfit as error:
                raise error.add_step(f".{str(key)[:_LONGEST_SHOWN]}") from None
        return mapping

    return read


def _record_reader(kind: type, lenient: bool) -> Reader:
    readers: dict[str, tuple[Reader, frozenset[type]]] | None = None

    def read(data: Any) -> Any:
        nonlocal readers
        if not isinstance(data, dict):
            raise _unfit_error("an object", data)
        if readers is None:
            # Only now: a record may hold records of its own type.
            hints = typing.get_type_hints(kind)
            named = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
            readers = {name: (_reader(hint, lenient), _plain_types(hint)) for name, hint in named.items()}
        if not lenient:
            unknown = sorted(set(data) - set(readers))
            if unknown:
                raise _Unfit(f"unknown field {unknown[0]!r}; known: {', '.join(sorted(readers))}")
        values: dict[str, Any] = {}
        for name, (reader, plain) in readers.items():
            if name not in data:
                continue
            if type(data[name]) in plain:
                values[name] = data[name]
            else:
                try:
                    values[name] = reader(data[name])
                except _Unfit as error:
                    raise error.add_step(f".{name}") from None
        try:
            return kind(**values)
        except (TypeError, ValueError) as error:
            raise _Unfit(str(error)) from None

    return read
