"""Inductor's generated module, taken apart: its kernels as C++ or Triton text, and the statements of its `call`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kforge.agents.offline import triton_kernel
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.triton_kernel import TritonKernel

_BOOKKEEPING = ("args.clear()", "torch.cuda.set_device(")
"""Beginnings of statements by which `call` only speaks to the machine around it."""
_BOOKKEEPING_CALLS = ("get_raw_stream", "copy_if_misaligned")


@dataclass(frozen=True)
class GeneratedKernel:
    """A C++ function of Inductor's."""

    name: str
    """What `call` calls it."""
    types: tuple[str, ...]
    """The C types of its parameters."""
    text: str
    """A whole translation unit."""


@dataclass(frozen=True)
class GeneratedModule:
    """The parts of a generated module."""

    kernels: tuple[GeneratedKernel, ...]
    inputs: tuple[str, ...]
    """The graph's inputs as `call` unpacks them."""
    body: tuple[ast.stmt, ...]
    """The statements of `call` that work on them."""
    outputs: tuple[ast.expr, ...]
    triton: tuple[TritonKernel, ...] = ()
    """Kernels in Triton's language, where those are not C++."""


def take_apart(code: str) -> GeneratedModule:
    """Read a generated module; Unliftable if it has parts that are not understood."""
    tree = ast.parse(code)
    every = [kernel for node in tree.body if (kernel := _kernel(node)) is not None]
    kernels = tuple(kernel for kernel in every if isinstance(kernel, GeneratedKernel))
    triton = tuple(kernel for kernel in every if isinstance(kernel, TritonKernel))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(calls) != 1:
        raise Unliftable("the generated module has no single entry")
    inputs: tuple[str, ...] = ()
    body: list[ast.stmt] = []
    for statement in _flatten(calls[0].body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            inputs = tuple(node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name))
        elif _is_bookkeeping(statement):
            continue
        elif isinstance(statement, ast.Return):
            value = statement.value
            outputs = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
            return GeneratedModule(kernels, inputs, tuple(body), tuple(outputs), triton)
        else:
            body.append(statement)
    raise Unliftable("the generated module returns nothing")


def _flatten(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements in order, those under a choice of device among them."""
    for statement in statements:
        if isinstance(statement, ast.With) and ast.unparse(statement.items[0]).startswith("torch.cuda._DeviceGuard("):
            yield from _flatten(statement.body)
        else:
            yield statement


def _is_bookkeeping(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in _BOOKKEEPING_CALLS
    return ast.unparse(statement).startswith(_BOOKKEEPING)


def _kernel(node: ast.stmt) -> GeneratedKernel | TritonKernel | None:
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    target = node.targets[0]
    maker = ast.unparse(node.value.func)
    if not (maker.startswith("async_compile.") and isinstance(target, ast.Name)):
        return None
    if maker == "async_compile.wait":
        return None
    if maker == "async_compile.triton":
        return triton_kernel.read(target.id, ast.literal_eval(node.value.args[1]))
    if maker != "async_compile.cpp_pybinding":
        raise Unliftable(f"the graph has a kernel made by {maker.removeprefix('async_compile.')}")
    types, text = (ast.literal_eval(argument) for argument in node.value.args[:2])
    return GeneratedKernel(target.id, tuple(types), text)
