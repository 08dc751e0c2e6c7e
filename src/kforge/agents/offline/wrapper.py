"""Inductor's generated module, taken apart: its kernels as C++ text, and the statements of its `call`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kforge.agents.offline.recipe import Unliftable


@dataclass(frozen=True)
class Kernel:
    """A C++ function of Inductor's."""

    name: str
    """What `call` calls it."""
    types: tuple[str, ...]
    """The C types of its parameters."""
    text: str
    """A whole translation unit."""


@dataclass(frozen=True)
class Wrapper:
    """The parts of a generated module."""

    kernels: tuple[Kernel, ...]
    inputs: tuple[str, ...]
    """The graph's inputs as `call` unpacks them."""
    body: tuple[ast.stmt, ...]
    """What it does with them."""
    outputs: tuple[ast.expr, ...]


def take_apart(code: str) -> Wrapper:
    """Read a generated module; Unliftable if it has parts that are not understood."""
    tree = ast.parse(code)
    kernels = [kernel for node in tree.body if (kernel := _kernel(node)) is not None]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(calls) != 1:
        raise Unliftable("the generated module has no single entry")
    statements = list(calls[0].body)
    inputs: tuple[str, ...] = ()
    body: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            inputs = tuple(node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name))
        elif ast.unparse(statement) == "args.clear()":
            continue
        elif isinstance(statement, ast.Return):
            value = statement.value
            outputs = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
            return Wrapper(tuple(kernels), inputs, tuple(body), tuple(outputs))
        else:
            body.append(statement)
    raise Unliftable("the generated module returns nothing")


def _kernel(node: ast.stmt) -> Kernel | None:
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    target = node.targets[0]
    maker = ast.unparse(node.value.func)
    if not (maker.startswith("async_compile.") and isinstance(target, ast.Name)):
        return None
    if maker != "async_compile.cpp_pybinding":
        raise Unliftable(f"the graph has a kernel made by {maker.removeprefix('async_compile.')}, not C++")
    types, text = (ast.literal_eval(argument) for argument in node.value.args[:2])
    return Kernel(target.id, tuple(types), text)
