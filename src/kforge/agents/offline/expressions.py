"""Expressions of Inductor's `call`, rewritten: names, views and addresses as the program writes them."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from kforge.agents.offline.interface import DenseLayout, Interface
from kforge.agents.offline.recipe import Unliftable

NAMESPACES = ("torch.ops.aten.", "torch.ops.mkldnn.", "torch.ops.prims.", "aten.")
"""Where library calls live that a program can make as they are."""
VIEW = "reinterpret_tensor"
_NUMBER = re.compile(r"torch\.tensor\(([^\[\],]+), dtype=")
_BYTES = {"64": 8, "32": 4, "16": 2}
_PLAIN = (
    *("torch.float", "torch.int", "torch.uint", "torch.bfloat", "torch.bool", "torch.complex", "torch.device"),
    *("torch.strided", "torch.contiguous_format", "torch.channels_last", "torch.preserve_format"),
)


class Scope:
    """Which variable holds which tensor, and how it lies in memory."""

    def __init__(self, inputs: tuple[str, ...], interface: Interface) -> None:
        self._numbers = {
            name: match.group(1) for name, text in interface.constants.items() if (match := _NUMBER.match(text))
        }
        """Constants that are one number, as text."""
        self._place = {name: name for name in (*inputs, *interface.constants)}
        """What the generated code calls a tensor -> the variable it is in."""
        self._fixed = frozenset(self._place)
        held = {item.name: item.layout for item in interface.state}
        self._layouts = {name: held[target] for name, target in interface.reads.items() if target in held}
        self._layouts |= {item.name: item.layout for item in interface.inputs if item.layout}
        self.used: set[str] = set()
        """The graph's inputs that were read."""

    def bind(self, name: str, layout: DenseLayout | None = None) -> None:
        """Note a new variable."""
        self._place[name] = name
        if layout is not None:
            self._layouts[name] = layout

    def alias(self, name: str, old: str) -> None:
        """Note another name for a variable."""
        self._place[name] = self.variable(old)
        if old in self._layouts:
            self._layouts[name] = self._layouts[old]

    def learn(self, name: str, layout: DenseLayout) -> None:
        """Note a layout, where none is known."""
        self._layouts.setdefault(name, layout)

    def release(self, name: str) -> str:
        """Forget a name; the variable to delete if nothing else means it, else empty."""
        variable = self._place.pop(name, "")
        return "" if variable in self._place.values() or variable in self._fixed else variable

    def knows(self, name: str) -> bool:
        return name in self._place

    def variable(self, name: str) -> str:
        if name not in self._place:
            raise Unliftable(f"the generated code reads {name}, which nothing wrote")
        if name in self._fixed:
            self.used.add(name)
        return self._place[name]

    def layout_of(self, node: ast.expr) -> DenseLayout | None:
        """How an operand lies in memory, if that is known."""
        if is_view(node):
            base, wanted, _ = self._view_parts(node)
            return wanted if base in self._layouts else None
        return self._layouts.get(node.id) if isinstance(node, ast.Name) else None

    def pointer(self, node: ast.expr) -> str:
        """The address of an operand."""
        if is_view(node):
            base, wanted, offset = self._view_parts(node)
            where = f"{self.variable(base)}.data_ptr()"
            return f"{where} + {offset * _item_bytes(wanted.dtype)}" if offset else where
        if isinstance(node, ast.Name):
            return f"{self.variable(node.id)}.data_ptr()"
        raise Unliftable(f"a kernel is given {ast.unparse(node)[:80]}")

    def operand(self, node: ast.expr) -> str:
        """What a Triton kernel is given: of a tensor it takes the address alone, whatever its shape."""
        if is_view(node):
            base, _, offset = self._view_parts(node)
            return self.view_text(node) if offset else self.variable(base)
        return self.text(node)

    def number(self, node: ast.Call) -> str:
        """The number that `constant.item()` reads; empty if it is anything else."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "item" else None
        return self._numbers.get(owner.id, "") if isinstance(owner, ast.Name) else ""

    def text(self, node: ast.expr) -> str:
        """An expression as the program writes it."""
        copy = ast.parse(ast.unparse(node), mode="eval").body
        return ast.unparse(ast.fix_missing_locations(_Rewriter(self).visit(copy)))

    def view_text(self, node: ast.expr) -> str:
        """A view of a tensor, in the plainest words that say it."""
        base, wanted, offset = self._view_parts(node)
        variable, known = self.variable(base), self._layouts.get(base)
        if known is not None and offset == 0:
            if (known.shape, known.stride) == (wanted.shape, wanted.stride):
                return variable
            if known.contiguous and wanted.contiguous and math.prod(known.shape) == math.prod(wanted.shape):
                return f"{variable}.view({', '.join(map(str, wanted.shape)) or '()'})"
            if len(known.shape) == 2 and (known.shape[::-1], known.stride[::-1]) == (wanted.shape, wanted.stride):
                return f"{variable}.t()"
        return f"view({variable}, {wanted.shape}, {wanted.stride}, {offset})"

    def _view_parts(self, node: ast.expr) -> tuple[str, DenseLayout, int]:
        """(tensor, its new layout, offset in elements) of a reinterpretation."""
        assert isinstance(node, ast.Call)
        if not isinstance(node.args[0], ast.Name):
            raise Unliftable(f"the generated code views {ast.unparse(node.args[0])[:80]}")
        base = node.args[0].id
        shape, stride, offset = (ast.literal_eval(argument) for argument in node.args[1:4])
        known = self._layouts.get(base)
        return base, DenseLayout(tuple(shape), tuple(stride), known.dtype if known else ""), int(offset)


class _Rewriter(ast.NodeTransformer):
    """Rewrites names and calls inside an expression."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = ast.unparse(node.func)
        if function == VIEW:
            return _parse(self._scope.view_text(node))
        if function == "extern_kernels.convolution":
            return self._convolution(node)
        number = self._scope.number(node)
        if number:
            return _parse(number)
        if function == "device":
            return _parse(f"torch.{ast.unparse(node)}")
        if not function.startswith(NAMESPACES):
            raise Unliftable(f"the generated code calls {function}, which is not understood")
        node.func = _parse(f"torch.ops.{function}" if function.startswith("aten.") else function)
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [ast.keyword(word.arg, self.visit(word.value)) for word in node.keywords]
        return node

    def _convolution(self, node: ast.Call) -> ast.AST:
        options = {word.arg: word.value for word in node.keywords}
        tensors = [*node.args, *([options["bias"]] if "bias" in options else [])]
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        arguments = [*map(self.visit, tensors), *(options[name] for name in names)]
        return ast.Call(_parse("torch.convolution"), arguments, [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if not text.startswith(_PLAIN):
            raise Unliftable(f"the generated code names {text}, which is not understood")
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in ("inf", "nan") and not self._scope.knows(node.id):
            return _parse(f'float("{node.id}")')
        return ast.Name(self._scope.variable(node.id))


def is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == VIEW


def value_of(node: ast.expr) -> Any:
    """A literal's value; the text of anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _item_bytes(dtype: str) -> int:
    """The size of an element; Unliftable where the type is not known."""
    if dtype in ("bool", "int8", "uint8"):
        return 1
    size = _BYTES.get(dtype[-2:])
    if size is None or dtype.startswith("complex"):
        raise Unliftable(f"a kernel starts inside a tensor of type {dtype or 'unknown'}")
    return size
