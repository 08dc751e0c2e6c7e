"""What a live module is to be called with: its workloads and the sizes that vary, from example inputs."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kforge import kernelbench
from kforge.errors import ProblemError
from kforge.live_module import shape_text
from kforge.types.workload import DynamicSize, Workload

_LONGEST_NAME = 60
_LONGEST_VALUE = 16


@dataclass(frozen=True)
class LiveWorkloads:
    """The arguments of each workload's call, and what a problem says of them."""

    arguments: list[list[Any]]
    workloads: tuple[Workload, ...]
    """None where there is but one."""
    dynamic: tuple[DynamicSize, ...]

    @property
    def description(self) -> str:
        """The lines of a problem's text that say how forward is called; they tell the problem from others."""
        calls = [", ".join(map(shape_text, arguments)) for arguments in self.arguments]
        if not self.workloads:
            lines = [f"# forward is called with: {calls[0]}"]
        else:
            lines = ["# forward is called with, each of them a workload:"]
            pairs = zip(self.workloads, calls, strict=True)
            lines += [f"#   {call} (weight {workload.weight:.17g})" for workload, call in pairs]
        if self.dynamic:
            lines.append(f"# Sizes that vary: {'; '.join(map(str, self.dynamic))}")
        return "\n".join(lines)


def live_workloads(module: Any, example_inputs: Any, dynamic: Any = None, weights: Any = None) -> LiveWorkloads:
    """Read what a caller gives beside a module; ProblemError says what cannot be meant.

    `example_inputs` are the arguments of a call, or a list of such lists: forward's signature tells them apart.
    `weights` are those of the lists, and say that there are several, or one. `dynamic` is an argument's name or
    position -> axis -> (lowest, highest).
    """
    if weights is not None:
        shares = _weights(weights, example_inputs)
        arguments = [list(item) for item in example_inputs]
        _check_signature(module, arguments)
    else:
        arguments = _argument_lists(module, example_inputs)
        shares = [1.0] * len(arguments)
    names = _argument_names(module, max(map(len, arguments)))
    workloads = tuple(
        Workload(inputs=number, weight=weight, name=name)
        for number, (weight, name) in enumerate(zip(shares, _workload_names(arguments, names), strict=True))
    )
    return LiveWorkloads(arguments, workloads if len(workloads) > 1 else (), _dynamic_sizes(dynamic, arguments, names))


# -- workloads ---------------------------------------------------------------------------------------------------------


def _weights(weights: Any, example_inputs: Any) -> list[float]:
    lists = isinstance(example_inputs, (list, tuple)) and all(
        isinstance(item, (list, tuple)) for item in example_inputs
    )
    if not lists or not example_inputs:
        raise ProblemError(
            "weights belong to workloads: give a list of argument lists, [[x1, y1], [x2, y2]], with them"
        )
    if not isinstance(weights, (list, tuple)) or len(weights) != len(example_inputs):
        raise ProblemError(
            f"weights is {weights!r}: give a list with a number for each of the {len(example_inputs)} argument lists"
        )
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            raise ProblemError(f"a weight of {weight!r} is none: it must be a positive number")
    return [float(weight) for weight in weights]


def _check_signature(module: Any, arguments: list[list[Any]]) -> None:
    for number, items in enumerate(arguments):
        if not _binds(module, items):
            raise ProblemError(
                f"workload {number} has {len(items)} arguments, which forward{inspect.signature(module.forward)} does "
                "not take: give a list of its arguments for each weight"
            )


def _argument_lists(module: Any, given: Any) -> list[list[Any]]:
    """The argument list of each workload: several only where that is the one way to read what was given."""
    if not isinstance(given, (list, tuple)):
        return [[given]]
    several = len(given) > 1 and all(isinstance(item, (list, tuple)) for item in given)
    if not several or not all(_binds(module, item) for item in given):
        return [list(given)]
    if _binds(module, given):
        as_one, as_several = _runs(module, given), all(_runs(module, item) for item in given)
        if as_one and as_several:
            ones = ", ".join("1" for _ in given)
            raise ProblemError(
                f"the example inputs can be the arguments of one call, or of {len(given)}: give weights=[{ones}] to "
                "mean a workload for each, or put one more list around them and give weights=[1] to mean one call"
            )
        if not as_several:
            return [list(given)]
    return [list(item) for item in given]


def _binds(module: Any, arguments: Sequence[Any]) -> bool:
    """Whether forward's signature takes the arguments; True where it has none that can be read."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _runs(module: Any, arguments: Sequence[Any]) -> bool:
    """Whether a copy of the module takes copies of the arguments; the caller's generator stays where it is."""
    import torch

    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy.deepcopy(module)(*map(_copied, arguments))
    except Exception:
        return False
    return True


def _copied(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return copy.deepcopy(value)


def _argument_names(module: Any, count: int) -> list[str]:
    """What forward calls its arguments, by position."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{number}]" for number in range(count - len(names))]
    return names + [f"argument {number}" for number in range(len(names), count)]


def _workload_names(arguments: list[list[Any]], names: list[str]) -> list[str]:
    """A short name for each workload, made of the arguments in which they differ; no two are the same."""
    texts = [[_argument_text(names[place], value) for place, value in enumerate(items)] for items in arguments]
    same = {text for text in texts[0] if all(text in others for others in texts)} if len(texts) > 1 else set()
    found: list[str] = []
    for number, items in enumerate(texts):
        telling = [text for text in items if text not in same] or items
        name = ", ".join(telling) or "no arguments"
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 4]} ..."
        found.append(f"{name} ({number + 1})" if name in found else name)
    return found


def _argument_text(name: str, value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"{name} {shape} {str(value.dtype).removeprefix('torch.')}"
    text = " ".join(shape_text(value).split())
    return f"{name} {text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + '...'}"


# -- sizes that vary ---------------------------------------------------------------------------------------------------


def _dynamic_sizes(declared: Any, arguments: list[list[Any]], names: list[str]) -> tuple[DynamicSize, ...]:
    """The declared ranges; axes with one length in every example, and one range, are one size."""
    if declared is None:
        return ()
    if not isinstance(declared, Mapping):
        raise ProblemError('dynamic must be a dict, as in {"x": {0: (1, 8192)}}: argument -> axis -> (lowest, highest)')
    together: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    taken: set[tuple[int, int]] = set()
    for argument, axes in declared.items():
        position = _position(argument, names)
        if not isinstance(axes, Mapping):
            raise ProblemError(f"dynamic[{argument!r}] is {axes!r}: give its axes, as in {{0: (1, 8192)}}")
        for given, span in axes.items():
            where = f"dynamic[{argument!r}][{given!r}]"
            axis, lengths = _axis(position, given, arguments, where)
            low, high, step = _span(span, where)
            if (position, axis) in taken:
                raise ProblemError(f"{where} is there twice: name each axis once")
            taken.add((position, axis))
            outside = [length for length in lengths if length not in range(low, high + 1, step)]
            if outside:
                raise ProblemError(
                    f"an example of {names[position]} has length {outside[0]} along axis {axis}, outside of {where} = "
                    f"{tuple(span)}: widen the range, or give another example"
                )
            together.setdefault((lengths, low, high, step), []).append((position, axis))
    return tuple(
        DynamicSize(" = ".join(f"{names[position]}[{axis}]" for position, axis in found), low, high, step, tuple(found))
        for (_, low, high, step), found in together.items()
    )


def _position(argument: Any, names: list[str]) -> int:
    if type(argument) is int and 0 <= argument < len(names):
        return argument
    if argument in names:
        return names.index(argument)
    raise ProblemError(
        f"dynamic names {argument!r}, which is no argument of forward: it has {', '.join(names) or 'none'}"
    )


def _axis(position: int, axis: Any, arguments: list[list[Any]], where: str) -> tuple[int, tuple[int, ...]]:
    """An axis counted from the first, and its length in each example."""
    shapes = []
    for items in arguments:
        value: Any = items[position] if position < len(items) else None
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            kind = type(value).__name__ if position < len(items) else "argument that is left out"
            raise ProblemError(f"{where} is an axis of a {kind}: only tensors have lengths that vary")
        shapes.append(tuple(value.shape))
    dimensions = {len(shape) for shape in shapes}
    if len(dimensions) > 1:
        raise ProblemError(
            f"{where}: the examples have {sorted(dimensions)} dimensions; give examples with as many each"
        )
    (count,) = dimensions
    if type(axis) is not int or not -count <= axis < count:
        raise ProblemError(f"{where} is no axis of a tensor with {count} dimensions")
    return axis % count, tuple(shape[axis] for shape in shapes)


def _span(span: Any, where: str) -> tuple[int, int, int]:
    try:
        return kernelbench.read_span(span, where)
    except kernelbench.Misdeclared as error:
        raise ProblemError(str(error)) from None
