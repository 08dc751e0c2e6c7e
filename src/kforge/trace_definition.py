"""A Definition and its Workloads, as flashinfer-bench and SOL-ExecBench keep them, read as a problem file's text.

A Definition (JSON) names axes, inputs, outputs and a reference function `run`; a Workload binds axes and says where
inputs come from. The text made of them is a problem in KernelBench's format: axes and scalars are constants, each
Workload is one of the problem's workloads. Its KFORGE literal keeps what it was made of (`trace`), so that a result can
be written in the same form again.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import operator
import pprint
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.errors import ProblemError

FLASHINFER, SOL = "flashinfer", "sol"
MOST_WORKLOADS = 16
"""Each workload is verified and timed; of more, so many are taken, from the smallest to the largest."""
SOL_FILE, SOL_WORKLOADS = "definition.json", "workload.jsonl"
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_SHORT_FLOATS = ("float8_e4m3fn", "float8_e5m2")
_INTEGERS = {"int64": 1024, "int32": 1024, "int16": 1024, "int8": 128}
"""Integer dtypes, and below which magnitude random numbers of them lie."""
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LINE = 110


@dataclass(frozen=True)
class TraceOrigin:
    """What a problem's text was made of."""

    format: str
    """FLASHINFER or SOL."""
    definition: dict[str, Any]
    workloads: tuple[dict[str, Any], ...]
    """In the order of the problem's workloads."""


class _Unusable(Exception):
    """Why a Definition or one of its Workloads cannot be used, in a sentence."""


def read_definition(path: Path) -> tuple[str, str]:
    """The name and the text of the problem that a Definition's file makes; ProblemError says why there is none."""
    definition = _object(_json(path, path.read_text(encoding="utf-8")), path, "a Definition")
    file = _workload_file(path)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise ProblemError(f"its workloads are not there: {file}", path=str(path)) from None
    records = [_object(_json(file, line), file, "a Workload") for line in lines if line.strip()]
    # flashinfer-bench keeps a Workload in a Trace that has no more than it.
    workloads = [record["workload"] if isinstance(record.get("workload"), dict) else record for record in records]
    format = SOL if path.name == SOL_FILE else FLASHINFER
    name = str(definition.get("name") or (path.parent.name if format == SOL else path.stem))
    try:
        return name, _text(name, TraceOrigin(format, definition, tuple(workloads)))
    except _Unusable as reason:
        raise ProblemError(str(reason), path=str(path)) from None


def origin_of(source: str) -> TraceOrigin | None:
    """What a problem's text was made of; None where it was not made of a Definition."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KFORGE":
            trace = ast.literal_eval(node.value).get("trace")
            if trace is not None:
                return TraceOrigin(trace["format"], trace["definition"], tuple(trace["workloads"]))
    return None


def _workload_file(path: Path) -> Path:
    """Where the Workloads of a Definition lie: beside it, or in the tree beside its own."""
    if path.name == SOL_FILE:
        return path.parent / SOL_WORKLOADS
    parts = list(path.absolute().parts)
    places = [place for place, part in enumerate(parts[:-1]) if part == "definitions"]
    if not places:
        raise ProblemError("a Definition lies in a folder definitions, beside one called workloads", path=str(path))
    parts[places[-1]] = "workloads"
    return Path(*parts).with_suffix(".jsonl")


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProblemError(f"is not JSON: {error}", path=str(path)) from None


def _object(data: Any, path: Path, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProblemError(f"{what} is a JSON object, and this is {str(data)[:40]!r}", path=str(path))
    return data


# -- the text ----------------------------------------------------------------------------------------------------------


def _text(name: str, origin: TraceOrigin) -> str:
    definition = origin.definition
    for key in ("axes", "inputs", "outputs"):
        if not isinstance(definition.get(key), dict) or not all(isinstance(v, dict) for v in definition[key].values()):
            raise _Unusable(f"a Definition has {key}, an object of objects")
    reference = definition.get("reference")
    if not isinstance(reference, str):
        raise _Unusable("a Definition has a reference, a text with a function run")
    taken = _names_of(reference)
    if "run" not in taken:
        raise _Unusable("its reference has no function run")
    reserved = taken & {"Model", "get_inputs", "get_init_inputs", "KFORGE"}
    if reserved:
        raise _Unusable(f"its reference has a {sorted(reserved)[0]} of its own")
    inputs = definition["inputs"]
    for argument in inputs:
        if not argument.isidentifier() or keyword.iskeyword(argument):
            raise _Unusable(f"an input is called {argument!r}, which is no name in Python")
    maker = _Maker(definition, taken)
    kept, left_out = _usable(origin.workloads, maker)
    if not kept:
        reasons = "; ".join(dict.fromkeys(left_out)) or "there is none"
        raise _Unusable(f"none of its {len(origin.workloads)} workloads can be used: {reasons}")
    chosen = _spread(kept, maker)
    constants = [maker.constants(workload) for workload in chosen]
    declared: dict[str, Any] = {}
    if len(constants) > 1:
        telling = [name for name in constants[0] if len({item[name] for item in constants}) > 1]
        declared["workloads"] = [{name: item[name] for name in telling} for item in constants]
    ranges = _ranges(definition, constants, maker)
    if ranges:
        declared["dynamic"] = ranges
    if maker.entry:
        declared["distributions"] = ["natural"]
    declared["trace"] = {"format": origin.format, "definition": definition, "workloads": list(chosen)}
    of_all = f"{len(chosen)} of its {len(origin.workloads)} workloads"
    return "\n".join(
        [
            f'"""{_quotable(name)}: made of a Definition and {of_all}."""',
            reference.strip("\n"),
            "",
            "import torch",
            "import torch.nn as nn",
            "",
            *maker.constant_lines(constants[0]),
            "",
            "",
            "class Model(nn.Module):",
            f"    def forward(self, {', '.join(inputs)}):" if inputs else "    def forward(self):",
            f"        return run({', '.join(inputs)})",
            "",
            "",
            "def get_inputs():",
            *(f"    {line}" for line in maker.input_lines(chosen[0])),
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
            "",
            f"KFORGE = {pprint.pformat(declared, width=_LINE, sort_dicts=False)}",
            "",
        ]
    )


def _names_of(reference: str) -> set[str]:
    """The names that a reference's text has at its top."""
    try:
        body = ast.parse(reference).body
    except (SyntaxError, ValueError) as error:
        raise _Unusable(f"its reference is not valid Python: {error}") from None
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            names |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return names


def _quotable(text: str) -> str:
    return "".join(letter if letter.isprintable() and letter not in '\\"' else " " for letter in text)


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


class _Maker:
    """Lines of Python for the axes and inputs of a Definition."""

    def __init__(self, definition: dict[str, Any], taken: set[str]) -> None:
        self.axes: dict[str, dict[str, Any]] = definition["axes"]
        self.inputs: dict[str, dict[str, Any]] = definition["inputs"]
        self.entry: str = definition.get("custom_inputs_entrypoint") or ""
        self._is_sampling = definition.get("op_type") == "sampling"
        scalars = [name for name, spec in self.inputs.items() if spec.get("shape", ()) is None]
        self.names: dict[str, str] = {}
        """Axes and scalars, and the constants that stand for them."""
        for name in (*self.axes, *scalars):
            plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).upper()
            self.names[name] = _free_name(
                plain if plain.isidentifier() else f"AXIS_{plain}", taken | set(self.names.values())
            )
        self._made = _free_name("made", taken | set(self.inputs))
        for name, axis in self.axes.items():
            if axis.get("type") not in ("const", "var", "expr"):
                raise _Unusable(f"the axis {name!r} is {axis.get('type')!r}: it must be const, var or expr")

    def constants(self, workload: dict[str, Any]) -> dict[str, Any]:
        """The values that a workload gives to constants."""
        found: dict[str, Any] = {}
        for name, axis in self.axes.items():
            if axis["type"] == "var":
                found[self.names[name]] = workload["axes"][name]
        for name, spec in self.inputs.items():
            if spec.get("shape", ()) is None:
                found[self.names[name]] = workload["inputs"][name]["value"]
        return found

    def constant_lines(self, values: dict[str, Any]) -> list[str]:
        lines = []
        computed = []
        for name, constant in self.names.items():
            axis = self.axes.get(name, {})
            if axis.get("type") == "const":
                lines.append(f"{constant} = {int(axis['value'])}")
            elif axis.get("type") == "expr":
                computed.append(f"{constant} = int({self.expression(str(axis['expression']))})")
            else:
                lines.append(f"{constant} = {values[constant]!r}")
        return lines + computed

    def expression(self, text: str) -> str:
        """An expression over axes with constants for their names; nothing but arithmetic."""
        try:
            tree = ast.parse(text, mode="eval")
        except SyntaxError:
            raise _Unusable(f"{text!r} is no expression over axes") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in self.names:
                node.id = self.names[node.id]
            elif not (isinstance(node, _ARITHMETIC) or (isinstance(node, ast.Constant) and type(node.value) is int)):
                raise _Unusable(f"{text!r} is no expression over axes")
        return ast.unparse(tree)

    def input_lines(self, workload: dict[str, Any]) -> list[str]:
        """The body of get_inputs."""
        lines = []
        if self.entry:
            given = ", ".join(f"{name!r}: {constant}" for name, constant in self.names.items())
            lines.append(f"{self._made} = {self.entry}({{{given}}}, torch.get_default_device())")
        values = [self._value(name, workload["inputs"].get(name, {}).get("type", "random")) for name in self.inputs]
        return [*lines, "return [", *(f"    {value}," for value in values), "]"]

    def _value(self, name: str, kind: str) -> str:
        spec = self.inputs[name]
        if spec.get("shape", ()) is None:
            return self.names[name]
        if kind == "custom":
            return f"{self._made}[{name!r}]"
        sizes = ", ".join(self.expression(str(length)) for length in spec["shape"])
        shape = f"({sizes},)" if sizes else "()"
        dtype = spec.get("dtype")
        if dtype in _FLOATS:
            drawn = f"torch.randn({shape}, dtype=torch.{dtype})"
            return f"torch.softmax({drawn}, dim=-1)" if self._is_sampling and name == "probs" else drawn
        if dtype in _SHORT_FLOATS:
            return f"torch.randn({shape}).clamp(-2, 2).to(torch.{dtype})"
        if dtype == "bool":
            return f"torch.randint(0, 2, {shape}).to(torch.bool)"
        if dtype in _INTEGERS:
            most = _INTEGERS[dtype]
            return f"torch.randint(-{most}, {most}, {shape}, dtype=torch.{dtype})"
        raise _Unusable(f"there are no random numbers of the dtype {dtype!r}")

    def volume(self, workload: dict[str, Any]) -> int:
        """How many elements the inputs of a workload have together."""
        values = self.constants(workload)
        for name, axis in self.axes.items():
            if axis["type"] == "const":
                values[self.names[name]] = int(axis["value"])
        for name, axis in self.axes.items():
            if axis["type"] == "expr":
                values[self.names[name]] = int(_computed(self.expression(str(axis["expression"])), values))
        shapes = [spec.get("shape") or () for spec in self.inputs.values()]
        return sum(
            math.prod(int(_computed(self.expression(str(length)), values)) for length in shape) for shape in shapes
        )


def _computed(expression: str, values: dict[str, Any]) -> Any:
    """The value of an expression over constants."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in values:
                raise _Unusable(f"{expression!r} names an axis that is computed after it")
            return values[node.id]
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand) if isinstance(node.op, ast.USub) else value(node.operand)
        assert isinstance(node, ast.BinOp)
        return _OPERATORS[type(node.op)](value(node.left), value(node.right))

    try:
        return value(ast.parse(expression, mode="eval").body)
    except (ArithmeticError, KeyError, ValueError):
        raise _Unusable(f"{expression!r} has no value") from None


# -- workloads ---------------------------------------------------------------------------------------------------------


def _usable(workloads: tuple[dict[str, Any], ...], maker: _Maker) -> tuple[list[dict[str, Any]], list[str]]:
    """The workloads that can be used, each once, and why others cannot."""
    kept: list[dict[str, Any]] = []
    reasons: list[str] = []
    form = None
    for workload in workloads:
        try:
            _check_workload(workload, maker)
            kinds = {name: workload["inputs"].get(name, {}).get("type", "random") for name in maker.inputs}
            if form is not None and kinds != form:
                raise _Unusable("its inputs come from elsewhere than those of the first")
            constants = maker.constants(workload)
            maker.input_lines(workload)
            maker.volume(workload)
        except _Unusable as reason:
            reasons.append(str(reason))
            continue
        form = kinds
        if all(constants != maker.constants(other) for other in kept):
            kept.append(workload)
    return kept, reasons


def _check_workload(workload: dict[str, Any], maker: _Maker) -> None:
    axes, inputs = workload.get("axes"), workload.get("inputs")
    if not isinstance(axes, dict) or not isinstance(inputs, dict):
        raise _Unusable("a workload has axes and inputs")
    for name, axis in maker.axes.items():
        if axis["type"] == "var" and not (type(axes.get(name)) is int and axes[name] >= 1):
            raise _Unusable(f"the axis {name} has no length, or none")
    for name, spec in maker.inputs.items():
        source = inputs.get(name, {"type": "random"})
        kind = source.get("type") if isinstance(source, dict) else None
        is_scalar = spec.get("shape", ()) is None
        if kind == "safetensors":
            raise _Unusable(f"{name} is read from a file of tensors")
        if is_scalar and kind != "scalar":
            raise _Unusable(f"{name} is a number that the workload does not give")
        if is_scalar and not (isinstance(source.get("value"), (int, float)) and math.isfinite(source["value"])):
            raise _Unusable(f"{name} is {source.get('value')!r}, which is no number")
        if kind == "custom" and not maker.entry:
            raise _Unusable(f"{name} is made by a function that the Definition does not name")
        if kind not in ("random", "scalar", "custom") or (kind == "scalar" and not is_scalar):
            raise _Unusable(f"{name} comes from {kind!r}")


def _spread(workloads: list[dict[str, Any]], maker: _Maker) -> list[dict[str, Any]]:
    """At most MOST_WORKLOADS, from the smallest to the largest; the largest comes first, since it stands for all."""
    ordered = sorted(workloads, key=maker.volume, reverse=True)
    if len(ordered) <= MOST_WORKLOADS:
        return ordered
    step = (len(ordered) - 1) / (MOST_WORKLOADS - 1)
    return [ordered[round(number * step)] for number in range(MOST_WORKLOADS)]


def _ranges(
    definition: dict[str, Any], constants: list[dict[str, Any]], maker: _Maker
) -> dict[str, tuple[int, int, int]]:
    """The range of the one axis that varies.

    Where several vary, or constraints tie an axis to values, a length between those of two workloads need not be meant.
    """
    varying = [maker.names[name] for name, axis in maker.axes.items() if axis["type"] == "var"]
    if len(varying) != 1 or definition.get("constraints") or maker.entry:
        return {}
    (name,) = varying
    lengths = sorted({item[name] for item in constants})
    if len(lengths) < 2:
        return {}
    return {name: (lengths[0], lengths[-1], math.gcd(*lengths))}
