"""The problem file format: KernelBench's, plus one optional literal of our own.

A problem file is Python with a class `Model(nn.Module)`, a function `get_inputs()` and a function
`get_init_inputs()`, and module-level constants that set its sizes. It may carry

    KFORGE = {
        "sizes": {"gpu": {"N": 16384}, "cpu": {"N": 1024}},      # constants per device class
        "distributions": ["natural", "scaled", "shifted"],       # leave out what the problem cannot take
        "tolerances": {"float32": 1e-4},                         # relative, per dtype
        "backward": True,                                        # a call is forward and backward
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

_KEYS = ("sizes", "distributions", "tolerances", "backward")

DEVICE_CLASSES = ("cpu", "gpu", "emulator")
"""Kinds of device a problem may carry sizes for."""


@dataclass(frozen=True)
class Declarations:
    """What a problem file says about itself in its KFORGE literal."""

    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    distributions: tuple[str, ...] = DISTRIBUTIONS
    tolerances: dict[str, float] = field(default_factory=dict)
    backward: bool = False


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
    for device_class, overrides in sizes.items():
        for name, value in overrides.items():
            if name not in constants:
                message = f"sizes[{device_class!r}] names {name!r}, which is no module-level constant"
                raise ProblemError(message, path=path, line=node.lineno)
            if not _is_size(value):
                message = f"sizes[{device_class!r}][{name!r}] is {value}, which is no size"
                raise ProblemError(message, path=path, line=node.lineno)
    tolerances = {str(key): float(value) for key, value in rates.items()}
    return Declarations(sizes, distributions, tolerances, data.get("backward", False))


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
