"""The problem file format: KernelBench's, plus one optional literal of our own.

A problem file is Python with a class `Model(nn.Module)`, a function `get_inputs()` and a function
`get_init_inputs()`, and module-level constants that set its sizes. It may carry

    KFORGE = {
        "sizes": {"gpu": {"N": 16384}, "cpu": {"N": 1024}},      # constants per device class
        "distributions": ["natural", "scaled", "shifted"],       # leave out what the problem cannot take
        "tolerances": {"float32": 1e-4},                         # relative, per dtype
        "backward": True,                                        # a call is forward and backward
        "workloads": [{"N": 64, "weight": 0.5}, {"N": 4096}],    # constants of each, all of them timed
        "dynamic": {"N": (1, 8192)},                             # right for every N in the range
    }

`check` reads a file's text without running it and says what is missing, with the line.
`with_sizes` rewrites the module-level constants, so that constants derived from them follow.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from kforge.errors import ProblemError

DISTRIBUTIONS = ("natural", "scaled", "small", "negated", "shifted", "extremes")
"""Every input distribution the judge knows, in the order it uses them."""

_KEYS = ("sizes", "distributions", "tolerances", "backward", "workloads", "dynamic", "trace")
"""`trace` is what a text was made of (trace_definition.py), and says nothing to the judge."""

_WEIGHT = "weight"

DEVICE_CLASSES = ("cpu", "gpu", "emulator")
"""Kinds of device a problem may carry sizes for."""


@dataclass(frozen=True)
class Declarations:
    """What a problem file says about itself in its KFORGE literal."""

    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    distributions: tuple[str, ...] = DISTRIBUTIONS
    tolerances: dict[str, float] = field(default_factory=dict)
    backward: bool = False
    workloads: tuple[tuple[dict[str, Any], float], ...] = ()
    """(constants, weight) of each."""
    dynamic: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Constant -> the lowest and the highest value of the range that it varies in, and the step between values."""


def check(source: str, path: str) -> Declarations:
    """The file's declarations; ProblemError names the file, the line and what is missing."""
    tree = _parse(source, path)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions |= {alias for node in tree.body if isinstance(node, ast.Assign) for alias in _targets(node)}
    model = classes.get("Model")
    if model is None:
        near = f"; it defines {', '.join(classes)}" if classes else ""
        raise ProblemError(f"there is no class `Model`{near}", path=path, line=_last_line(source))
    if not model.bases:
        raise ProblemError("class `Model` must derive from torch.nn.Module", path=path, line=model.lineno)
    methods = {node.name for node in model.body if isinstance(node, ast.FunctionDef)}
    if "forward" not in methods and all(_is_plain_module(base) for base in model.bases):
        raise ProblemError("class `Model` has no method `forward`", path=path, line=model.lineno)
    for name in ("get_inputs", "get_init_inputs"):
        if name not in functions:
            hint = "return the list of forward's arguments" if name == "get_inputs" else "return [] if there are none"
            raise ProblemError(f"there is no function `{name}()` ({hint})", path=path, line=_last_line(source))
    return _declarations(tree, path)


def with_sizes(source: str, sizes: dict[str, Any], path: str = "") -> str:
    """The source with those module-level constants replaced, line numbers kept."""
    if not sizes:
        return source
    tree = _parse(source, path)
    lines = source.splitlines(keepends=True)
    missing = dict(sizes)
    edits: list[tuple[ast.expr, str]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        if name in missing:
            edits.append((value, repr(missing.pop(name))))
    if missing:
        raise ProblemError(f"sizes name {sorted(missing)[0]!r}, which is no module-level constant", path=path)
    for value, text in reversed(edits):
        _replace(lines, value, text)
    return "".join(lines)


def without_declarations(source: str) -> str:
    """The source without its KFORGE literal, which speaks to the judge and not to a reader of the problem."""
    node = next((n for n in _parse(source, "").body if isinstance(n, ast.Assign) and "KFORGE" in _targets(n)), None)
    if node is None:
        return source
    lines = source.splitlines(keepends=True)
    end = node.end_lineno or node.lineno
    while end < len(lines) and not lines[end].strip():
        end += 1
    kept = "".join(lines[: node.lineno - 1]).rstrip() + "\n\n\n" + "".join(lines[end:])
    return kept.lstrip("\n")


def _parse(source: str, path: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ProblemError(f"not valid Python: {error.msg}", path=path, line=error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"not valid Python: {type(error).__name__}: {error}", path=path) from None


def _replace(lines: list[str], node: ast.expr, text: str) -> None:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    kept = "\n" * (last - first)
    lines[first : last + 1] = [head + text + tail.rstrip("\n") + kept + "\n"]
    # Keep the list one entry per original line, so that earlier edits still find theirs.
    lines[first + 1 : first + 1] = [""] * (last - first)


def _declarations(tree: ast.Module, path: str) -> Declarations:
    node = next((n for n in tree.body if isinstance(n, ast.Assign) and "KFORGE" in _targets(n)), None)
    if node is None:
        return Declarations()
    try:
        data = ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError):
        raise ProblemError("KFORGE must be a literal dict: no names, no calls", path=path, line=node.lineno) from None
    if not isinstance(data, dict):
        raise ProblemError("KFORGE must be a dict", path=path, line=node.lineno)
    unknown = sorted(str(key) for key in set(data) - set(_KEYS))
    if unknown:
        known = ", ".join(_KEYS)
        raise ProblemError(f"KFORGE has no key {unknown[0]!r}; known: {known}", path=path, line=node.lineno)
    if not isinstance(data.get("backward", False), bool):
        raise ProblemError("KFORGE's backward must be True or False", path=path, line=node.lineno)
    sizes = data.get("sizes", {})
    shaped = isinstance(sizes, dict) and all(isinstance(overrides, dict) for overrides in sizes.values())
    if not shaped:
        raise ProblemError("KFORGE's sizes must be a dict of dicts", path=path, line=node.lineno)
    if not isinstance(data.get("distributions", []), (list, tuple)):
        raise ProblemError("KFORGE's distributions must be a list of names", path=path, line=node.lineno)
    rates = data.get("tolerances", {})
    if not isinstance(rates, dict) or not all(isinstance(value, (int, float)) for value in rates.values()):
        raise ProblemError("KFORGE's tolerances must be numbers by dtype", path=path, line=node.lineno)
    bad = sorted(set(map(str, sizes)) - set(DEVICE_CLASSES))
    if bad:
        known = ", ".join(DEVICE_CLASSES)
        raise ProblemError(f"sizes for {bad[0]!r}: device classes are {known}", path=path, line=node.lineno)
    distributions = tuple(data.get("distributions", DISTRIBUTIONS))
    odd = [name for name in distributions if name not in DISTRIBUTIONS]
    if odd or not distributions:
        known = ", ".join(DISTRIBUTIONS)
        raise ProblemError(f"distributions {odd or 'are empty'}: known: {known}", path=path, line=node.lineno)
    constants = {name for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign)) for name in _targets(n)}
    try:
        for device_class, overrides in sizes.items():
            _check_overrides(overrides, constants, f"sizes[{device_class!r}]")
        workloads = _workloads(data.get("workloads", []), constants)
        dynamic = _dynamic(data.get("dynamic", {}), constants, workloads)
    except Misdeclared as error:
        raise ProblemError(str(error), path=path, line=node.lineno) from None
    tolerances = {str(key): float(value) for key, value in rates.items()}
    return Declarations(sizes, distributions, tolerances, data.get("backward", False), workloads, dynamic)


class Misdeclared(Exception):
    """What is wrong with what a problem declares, in a sentence."""


def _check_overrides(overrides: dict[str, Any], constants: set[str], where: str) -> None:
    for name, value in overrides.items():
        if name not in constants:
            raise Misdeclared(f"{where} names {name!r}, which is no module-level constant")
        if not _is_size(value):
            raise Misdeclared(f"{where}[{name!r}] is {value}, which is no size")


def _workloads(declared: Any, constants: set[str]) -> tuple[tuple[dict[str, Any], float], ...]:
    if not isinstance(declared, (list, tuple)) or not all(isinstance(item, dict) for item in declared):
        raise Misdeclared("KFORGE's workloads must be a list of dicts, constants by name")
    workloads: list[tuple[dict[str, Any], float]] = []
    for number, item in enumerate(declared):
        overrides = {name: value for name, value in item.items() if name != _WEIGHT}
        _check_overrides(overrides, constants, f"workloads[{number}]")
        weight = item.get(_WEIGHT, 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            raise Misdeclared(f"workloads[{number}] has a weight of {weight!r}: it must be a positive number")
        if any(overrides == other for other, _ in workloads):
            raise Misdeclared(f"workloads[{number}] is there twice: {overrides}")
        workloads.append((overrides, float(weight)))
    return tuple(workloads)


def _dynamic(
    declared: Any, constants: set[str], workloads: tuple[tuple[dict[str, Any], float], ...]
) -> dict[str, tuple[int, int, int]]:
    if not isinstance(declared, dict):
        raise Misdeclared("KFORGE's dynamic must be a dict: constants by name, each with (lowest, highest)")
    spans = {}
    for name, span in declared.items():
        if name not in constants:
            raise Misdeclared(f"dynamic names {name!r}, which is no module-level constant")
        low, high, step = spans[name] = read_span(span, f"dynamic[{name!r}]")
        values = range(low, high + 1, step)
        for number, (overrides, _) in enumerate(workloads):
            if name in overrides and overrides[name] not in values:
                message = f"workloads[{number}] has {name} = {overrides[name]!r}, outside of its range {tuple(span)}"
                raise Misdeclared(message)
    return spans


def read_span(span: Any, where: str) -> tuple[int, int, int]:
    """The lowest and the highest value of a declared range, and the step; Misdeclared if it is none."""
    whole = isinstance(span, (list, tuple)) and len(span) in (2, 3) and all(type(end) is int for end in span)
    if not whole or not 1 <= span[0] <= span[1] or min(span) < 1:
        raise Misdeclared(f"{where} is {span!r}: it must be (lowest, highest), both from 1 on, or with a step behind")
    return span[0], span[1], span[2] if len(span) > 2 else 1


def _is_size(value: object) -> bool:
    """Numbers, texts, and lists of them: what a file can hold and a record keeps."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_size, value))
    return value is None or isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value))


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_plain_module(base: ast.expr) -> bool:
    return ast.unparse(base) in ("nn.Module", "torch.nn.Module", "Module")


def _last_line(source: str) -> int:
    return max(1, len(source.splitlines()))
