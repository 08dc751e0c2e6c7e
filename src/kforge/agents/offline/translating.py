"""The statements of Inductor's `call`, rewritten as the lines of a forward that needs nothing but torch and ctypes."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import Any

from kforge.agents.offline import own_kernels
from kforge.agents.offline.cleaning import divides_integers, short_name
from kforge.agents.offline.interface import Interface, Layout
from kforge.agents.offline.own_kernels import Call
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.wrapper import Kernel, Wrapper

_ITEM_BYTES = {"float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_LIBRARY = ("mm", "addmm", "bmm", "baddbmm")
_NAMESPACES = ("torch.ops.aten.", "torch.ops.mkldnn.", "torch.ops.prims.", "aten.")
_PLAIN = ("torch.float", "torch.int", "torch.uint", "torch.bfloat", "torch.bool", "torch.complex", "torch.device")


@dataclass
class Translation:
    """Lines of forward, and what they need."""

    lines: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """C functions of our own, as text."""
    families: set[str] = field(default_factory=set)
    """The families those belong to."""
    called: list[tuple[str, int]] = field(default_factory=list)
    """(name, number of pointers) of each of those functions."""
    library: list[str] = field(default_factory=list)
    """Library calls that are left."""
    kernel_calls: int = 0
    used: set[str] = field(default_factory=set)
    """The graph's inputs that are read."""
    outputs: list[str] = field(default_factory=list)
    """The expression of each output."""


class Translator:
    """Walks the statements once; `own` names the families of library calls to replace."""

    def __init__(self, wrapper: Wrapper, interface: Interface, own: tuple[str, ...]) -> None:
        self._wrapper = wrapper
        self._kernels = {kernel.name: kernel for kernel in wrapper.kernels}
        self._own = own
        self._place = {name: name for name in (*wrapper.inputs, *interface.constants)}
        """What the generated code calls a tensor -> the variable it is in."""
        self._fixed = set(self._place)
        held = {item.name: item.layout for item in interface.state}
        self._layouts = {name: held[target] for name, target in interface.reads.items() if target in held}
        self._layouts |= {item.name: item.layout for item in interface.inputs if item.layout}
        self._views = _View(self)
        self._allocated: set[str] = set()
        self.made = Translation()

    def run(self) -> Translation:
        for index, statement in enumerate(self._wrapper.body):
            self._statement(statement, self._wrapper.body[index + 1 : index + 2])
        self.made.outputs = [self.text(expression) for expression in self._wrapper.outputs]
        while self.made.lines and self.made.lines[-1].startswith("del "):
            self.made.lines.pop()
        return self.made

    # -- statements ------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt, following: tuple[ast.stmt, ...]) -> None:
        if isinstance(node, ast.Delete):
            for target in node.targets:
                self._forget(ast.unparse(target))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._assign(node.targets[0].id, node.value, following)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)
        else:
            raise Unliftable(f"the generated code holds a step that is not understood: {ast.unparse(node)[:120]}")

    def _assign(self, name: str, value: ast.expr, following: tuple[ast.stmt, ...]) -> None:
        if isinstance(value, ast.Name):
            # A buffer under a new name.
            self._place[name] = self._variable(value.id)
            self._copy_layout(value.id, name)
            return
        function = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if isinstance(value, ast.Call) and function.startswith("empty_strided_cpu"):
            layout = _layout(value.args)
            self._layouts[name] = layout
            self._allocated.add(name)
            self._emit(name, allocation(layout))
            return
        expected = _asserted(name, following)
        if isinstance(value, ast.Call) and function == "reinterpret_tensor":
            base, wanted, _ = self.view_parts(value)
            self._layouts[name] = wanted
            self._allocated |= {name} & ({name} if base in self._allocated else set())
        elif isinstance(value, ast.Call) and self._replaced(name, value, function, expected):
            return
        if isinstance(value, ast.Call) and function != "reinterpret_tensor":
            self.made.library.append(function)
        self._emit(name, self.text(value))
        if expected is not None:
            self._layouts[name] = expected

    def _emit(self, name: str, text: str) -> None:
        self._place[name] = name
        self.made.lines.append(f"{name} = {text}")

    def _forget(self, name: str) -> None:
        variable = self._place.pop(name, name)
        if variable not in self._place.values() and variable not in self._fixed:
            self.made.lines.append(f"del {variable}")

    def _call(self, node: ast.Call) -> None:
        function = ast.unparse(node.func)
        if function in ("assert_size_stride", "assert_alignment"):
            if function == "assert_size_stride" and isinstance(node.args[0], ast.Name):
                self._learn(node)
        elif function in self._kernels:
            self._kernel_call(self._kernels[function], node)
        elif function.startswith("extern_kernels.") and any(word.arg == "out" for word in node.keywords):
            self._library_call(function.removeprefix("extern_kernels."), node)
        elif function.startswith(_NAMESPACES):
            self.made.library.append(function)
            self.made.lines.append(self.text(node))
        else:
            raise Unliftable(f"the generated code calls {function}, which is not understood")

    def _learn(self, node: ast.Call) -> None:
        name = ast.unparse(node.args[0])
        known = self._layouts.get(name)
        if known is None:
            shape, stride = (tuple(ast.literal_eval(argument)) for argument in node.args[1:3])
            self._layouts[name] = Layout(shape, stride, "")

    def _kernel_call(self, kernel: Kernel, node: ast.Call) -> None:
        arguments = [
            self._pointer(argument) if "*" in kind else self.text(argument)
            for kind, argument in zip(kernel.types, node.args, strict=True)
        ]
        text = f"{short_name(kernel.name)}({', '.join(arguments)})"
        self.made.kernel_calls += 1
        if divides_integers(kernel):
            self.made.lines += [f"if {text}:", '    raise RuntimeError("ZeroDivisionError")']
        else:
            self.made.lines.append(text)

    def _library_call(self, operator: str, node: ast.Call) -> None:
        """A matrix product into memory that is there already."""
        out = next(word.value for word in node.keywords if word.arg == "out")
        options = {word.arg or "": _value(word.value) for word in node.keywords if word.arg != "out"}
        if operator == "bias_addmm":
            operator = "addmm"
        if operator not in _LIBRARY:
            raise Unliftable(f"the generated code calls {operator}, which is not understood")
        result = self._layout_of(out)
        own = None
        if "gemm" in self._own and result is not None:
            own = self._own_function(operator, node.args, result, options)
        if own is not None:
            self._own_call(own, [*node.args, out])
            return
        words = [f"{name}={value!r}" for name, value in options.items() if value != 1]
        arguments = [*(self.text(argument) for argument in node.args), *words, f"out={self.text(out)}"]
        self.made.library.append(operator)
        self.made.lines.append(f"torch.{operator}({', '.join(arguments)})")

    # -- own functions ---------------------------------------------------------------------------------------------

    def _replaced(self, name: str, value: ast.Call, function: str, expected: Layout | None) -> bool:
        """Whether a library call that returns its result was replaced by a function of our own."""
        operator = function.removeprefix("torch.ops.aten.").removeprefix("extern_kernels.").removesuffix(".default")
        if own_kernels.family_of(operator) not in self._own:
            return False
        options = {word.arg or "": _value(word.value) for word in value.keywords if word.arg != "bias"}
        tensors = list(value.args)
        if operator in ("cumsum", "cumprod"):
            options.setdefault("dim", _value(tensors[1]) if len(tensors) > 1 else None)
            tensors = tensors[:1]
            expected = self._layout_of(tensors[0])
        source = self._layout_of(tensors[0])
        if expected is None or source is None:
            return False
        expected = Layout(expected.shape, expected.stride, source.dtype)
        own = self._own_function(operator, tensors, expected, options)
        if own is None:
            return False
        self._layouts[name] = expected
        self._emit(name, allocation(expected))
        self._own_call(own, [*tensors, ast.Name(name)])
        return True

    def _own_function(
        self, operator: str, tensors: list[ast.expr], result: Layout, options: dict[str, Any]
    ) -> own_kernels.Own | None:
        layouts = [self._layout_of(tensor) for tensor in tensors]
        if any(layout is None for layout in layouts):
            return None
        return own_kernels.own_function(Call(operator, tuple(layouts), result, options))

    def _own_call(self, own: own_kernels.Own, tensors: list[ast.expr]) -> None:
        name = f"{own.family}_{len(self.made.called)}"
        self.made.functions.append(f'extern "C" void {name}({own.parameters}) {{\n{own.body}}}\n')
        self.made.families.add(own.family)
        self.made.called.append((name, len(tensors)))
        self.made.lines.append(f"{name}({', '.join(map(self._pointer, tensors))})")

    # -- expressions -----------------------------------------------------------------------------------------------

    def text(self, node: ast.expr) -> str:
        """An expression of the generated code as the program writes it."""
        return ast.unparse(ast.fix_missing_locations(self._views.visit(_copy(node))))

    def _pointer(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            base, wanted, offset = self.view_parts(node)
            where = f"{self._variable(base)}.data_ptr()"
            return f"{where} + {offset * _ITEM_BYTES.get(wanted.dtype, 1)}" if offset else where
        if isinstance(node, ast.Name):
            return f"{self._variable(node.id)}.data_ptr()"
        raise Unliftable(f"a kernel is given {ast.unparse(node)[:80]}")

    def view_parts(self, node: ast.Call) -> tuple[str, Layout, int]:
        """(tensor, its new layout, offset in elements) of a reinterpretation."""
        if not isinstance(node.args[0], ast.Name):
            raise Unliftable(f"the generated code views {ast.unparse(node.args[0])[:80]}")
        base = node.args[0].id
        shape, stride, offset = (ast.literal_eval(argument) for argument in node.args[1:4])
        known = self._layouts.get(base)
        return base, Layout(tuple(shape), tuple(stride), known.dtype if known else ""), int(offset)

    def view_text(self, node: ast.Call) -> str:
        base, wanted, offset = self.view_parts(node)
        variable, known = self._variable(base), self._layouts.get(base)
        if known is not None and offset == 0:
            if (known.shape, known.stride) == (wanted.shape, wanted.stride):
                return variable
            if known.contiguous and wanted.contiguous and math.prod(known.shape) == math.prod(wanted.shape):
                return f"{variable}.view({', '.join(map(str, wanted.shape))})" if wanted.shape else f"{variable}.view(())"
            if len(known.shape) == 2 and (known.shape[::-1], known.stride[::-1]) == (wanted.shape, wanted.stride):
                return f"{variable}.t()"
        return f"view({variable}, {wanted.shape}, {wanted.stride}, {offset})"

    def _layout_of(self, node: ast.expr) -> Layout | None:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            base, wanted, offset = self.view_parts(node)
            return wanted if base in self._layouts else None
        return self._layouts.get(node.id) if isinstance(node, ast.Name) else None

    def _variable(self, name: str) -> str:
        if name not in self._place:
            raise Unliftable(f"the generated code reads {name}, which nothing wrote")
        if name in self._fixed:
            self.made.used.add(name)
        return self._place[name]

    def variable(self, name: str) -> str | None:
        """The variable a tensor is in; None if the name is no tensor's."""
        return self._variable(name) if name in self._place else None

    def _copy_layout(self, old: str, new: str) -> None:
        if old in self._layouts:
            self._layouts[new] = self._layouts[old]


class _View(ast.NodeTransformer):
    """Rewrites names and helper calls inside an expression."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = ast.unparse(node.func)
        if function == "reinterpret_tensor":
            return ast.parse(self._translator.view_text(node), mode="eval").body
        if function == "extern_kernels.convolution":
            return self._convolution(node)
        if function.startswith("device"):
            return ast.parse(f"torch.{ast.unparse(node)}", mode="eval").body
        if not function.startswith(_NAMESPACES) and function not in ("float", "int", "bool"):
            raise Unliftable(f"the generated code calls {function}, which is not understood")
        node.func = ast.parse(function.replace("aten.", "torch.ops.aten.", 1) if function.startswith("aten.") else function, mode="eval").body
        node.args = [self.visit(argument) for argument in node.args]
        node.keywords = [ast.keyword(word.arg, self.visit(word.value)) for word in node.keywords]
        return node

    def _convolution(self, node: ast.Call) -> ast.AST:
        words = {word.arg: word.value for word in node.keywords}
        tensors = [*node.args, *([words["bias"]] if "bias" in words else [])]
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        arguments = [*map(self.visit, tensors), *(words[name] for name in names)]
        return ast.Call(ast.parse("torch.convolution", mode="eval").body, arguments, [])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if not text.startswith((*_PLAIN, "torch.strided", "torch.contiguous", "torch.channels", "torch.preserve")):
            raise Unliftable(f"the generated code names {text}, which is not understood")
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        variable = self._translator.variable(node.id)
        if variable is not None:
            return ast.Name(variable)
        if node.id in ("inf", "nan"):
            return ast.parse(f'float("{node.id}")', mode="eval").body
        raise Unliftable(f"the generated code reads {node.id}, which nothing wrote")


def allocation(layout: Layout) -> str:
    """The expression that makes an uninitialised tensor."""
    if layout.contiguous:
        return f"torch.empty({layout.shape}, dtype=torch.{layout.dtype})"
    return f"torch.empty_strided({layout.shape}, {layout.stride}, dtype=torch.{layout.dtype})"


def _layout(arguments: list[ast.expr]) -> Layout:
    shape, stride = (tuple(ast.literal_eval(argument)) for argument in arguments[:2])
    return Layout(shape, stride, ast.unparse(arguments[2]).removeprefix("torch."))


def _asserted(name: str, following: tuple[ast.stmt, ...]) -> Layout | None:
    """The layout that the next statement claims for a result."""
    for statement in following:
        text = ast.unparse(statement)
        if text.startswith(f"assert_size_stride({name},"):
            call = ast.parse(text, mode="eval").body
            assert isinstance(call, ast.Call)
            shape, stride = (tuple(ast.literal_eval(argument)) for argument in call.args[1:3])
            return Layout(shape, stride, "")
    return None


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body
