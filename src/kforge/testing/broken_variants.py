"""Broken variants of a platform's example: one for each way in which a program can fail.

They are made from the example's text, whatever its language. Where that cannot be done, the platform brings a variant
of its own: `example/broken/<outcome>.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from kforge.platforms.base import Platform
from kforge.testing.clauses import Broken
from kforge.types import Outcome

_NOT_CODE = "\n@ broken on purpose: this is no program @\n"
"""No language has a meaning for this, wherever it stands."""
_UNKNOWN = "kforge_unknown_name"
_HARMLESS = ("staticmethod", "classmethod", "property", "functools", "torch", "contextlib", "dataclass")
"""Decorators that make no kernel of a function."""

_SCALED = """
def _kforge_scaled(value):
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bool:
            return ~value
        return value * 1.02 if value.is_floating_point() or value.is_complex() else value + 1
    if isinstance(value, dict):
        return {key: _kforge_scaled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_kforge_scaled(item) for item in value)
    return value


class ModelNew(_KForgeOwn):
    def forward(self, *inputs):
        return _kforge_scaled(super().forward(*inputs))
"""
_FOR_SHOW = """
class ModelNew(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kforge_own = _KForgeOwn(*arguments)

    def forward(self, *inputs):
        self.kforge_own(*inputs)
        return super().forward(*inputs)
"""


def variant(platform: Platform, outcome: Outcome) -> str:
    """The example's program, changed so that it must end in that outcome; Broken where that cannot be done."""
    own = platform.home() / "example" / "broken" / f"{outcome.value}.py"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    reference, candidate = platform.example()
    makers = {
        Outcome.CORRECT: lambda: candidate,
        Outcome.GENERATION_FAILURE: lambda: remove_class(candidate),
        Outcome.COMPILATION_FAILURE: lambda: break_kernels(candidate, own),
        Outcome.RUNTIME_ERROR: lambda: raise_in_forward(candidate),
        Outcome.MISMATCH: lambda: scale_results(candidate),
        Outcome.REJECTED: lambda: reference_as_program(reference),
    }
    return makers[outcome]()


def remove_class(candidate: str) -> str:
    """The program without a ModelNew."""
    return _rename(candidate, "ModelNew", "ModelOther")


def break_kernels(candidate: str, instead: Path) -> str:
    """Spoil the kernels' text: texts in another language, or functions that a decorator makes kernels of."""
    tree = ast.parse(candidate)
    prose = {id(node) for node in _docstrings(tree)}
    texts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.strip().count("\n") > 1
        and id(node) not in prose
    ]
    for text in texts:
        text.value = str(text.value) + _NOT_CODE
    kernels = (
        [] if texts else [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
    )
    for kernel in kernels:
        kernel.body.insert(0, ast.parse(f"{_UNKNOWN} = {_UNKNOWN}_too").body[0])
    if not texts and not kernels:
        raise Broken(
            "no kernel was found in the example that could be spoilt, neither a text of several lines nor a function "
            f"under a decorator: write a program that does not compile to {instead}"
        )
    return _unparse(tree)


def raise_in_forward(candidate: str) -> str:
    """The program with an exception in forward."""
    tree = ast.parse(candidate)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "forward":
                    member.body.insert(0, ast.parse('raise RuntimeError("broken on purpose")').body[0])
                    return _unparse(tree)
    raise Broken("the example's ModelNew has no forward of its own: define it there")


def scale_results(candidate: str) -> str:
    """The program with results two per cent too large."""
    return _join_sources("import torch", _rename(candidate, "ModelNew", "_KForgeOwn"), _SCALED)


def reference_as_program(reference: str) -> str:
    """The reference itself as the program: all of it is torch's work."""
    return _rename(reference, "Model", "ModelNew")


def add_unused_kernel(reference: str, candidate: str) -> str:
    """A program whose kernel runs for show: torch's result is returned."""
    return _join_sources(_rename(candidate, "ModelNew", "_KForgeOwn"), reference, _FOR_SHOW)


def _rename(source: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, source)


def _join_sources(*sources: str) -> str:
    """Several files as one: what must stand first does."""
    parts = [node for source in sources for node in ast.parse(source).body]
    first = [node for node in parts if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return _unparse(ast.Module([*first, *(node for node in parts if node not in first)], []))


def _unparse(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _docstrings(tree: ast.Module) -> list[ast.Constant]:
    """Every text that stands for itself: documentation, whoever's it is."""
    return [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).split("(")[0].split(".")[0] not in _HARMLESS for decorator in node.decorator_list)
