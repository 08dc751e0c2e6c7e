"""The statements of Inductor's `call`, rewritten as the lines of a forward that needs none of Inductor."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from kforge.agents.offline import own_kernels, triton_kernel
from kforge.agents.offline.expressions import NAMESPACES, Scope, is_view, value_of
from kforge.agents.offline.interface import DenseLayout, Interface
from kforge.agents.offline.own_kernels import LibraryCall, OwnFunction
from kforge.agents.offline.readable_cpp import divides_integers, short_name
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.triton_kernel import TritonKernel
from kforge.agents.offline.triton_launch import Tuning, launch_of
from kforge.agents.offline.wrapper import GeneratedKernel, GeneratedModule

_INTO = ("mm", "addmm", "bmm", "baddbmm")
"""Library calls that write into memory that is there already."""
_ALLOCATORS = {"empty_strided_cpu": "", "empty_strided_cuda": "cuda"}
"""How `call` makes memory, and the device it is on; empty for the default."""


@dataclass
class CallTranslation:
    """Lines of forward, and what they need."""

    lines: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    """The expression of each output."""
    functions: list[str] = field(default_factory=list)
    """C functions of our own, as text."""
    families: set[str] = field(default_factory=set)
    """The families that these functions belong to."""
    called: list[tuple[str, int]] = field(default_factory=list)
    """(name, number of pointers) of each of those functions."""
    library: list[str] = field(default_factory=list)
    """Library calls that are left."""
    kernel_calls: int = 0
    used: set[str] = field(default_factory=set)
    """The graph's inputs that are read."""


def translate(
    wrapper: GeneratedModule, interface: Interface, own: tuple[str, ...] = (), tuning: Tuning = Tuning()
) -> CallTranslation:
    """The whole of `call`; `own` names the families of library calls to replace."""
    translator = _CallTranslator(wrapper, interface, own, tuning)
    for place, statement in enumerate(wrapper.body):
        translator.statement(statement, wrapper.body[place + 1 : place + 2])
    made = translator.made
    made.outputs = [translator.scope.text(expression) for expression in wrapper.outputs]
    made.used = translator.scope.used
    while made.lines and made.lines[-1].startswith("del "):
        made.lines.pop()
    return made


class _CallTranslator:
    def __init__(self, wrapper: GeneratedModule, interface: Interface, own: tuple[str, ...], tuning: Tuning) -> None:
        self._kernels = {kernel.name: kernel for kernel in wrapper.kernels}
        self._triton = {f"{kernel.name}.run": kernel for kernel in wrapper.triton}
        self._own = own
        self._tuning = tuning
        self.scope = Scope(wrapper.inputs, interface)
        self.made = CallTranslation()

    def statement(self, node: ast.stmt, following: tuple[ast.stmt, ...]) -> None:
        if isinstance(node, ast.Delete):
            gone = [self.scope.release(ast.unparse(target)) for target in node.targets]
            self.made.lines += [f"del {variable}" for variable in gone if variable]
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._assign(node.targets[0].id, node.value, following)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)
        else:
            raise Unliftable(f"the generated code holds a step that is not understood: {ast.unparse(node)[:120]}")

    def _assign(self, name: str, value: ast.expr, following: tuple[ast.stmt, ...]) -> None:
        if isinstance(value, ast.Name):
            self.scope.alias(name, value.id)
            return
        layout = _layout_asserted_next(name, following)
        if is_view(value):
            layout = self.scope.layout_of(value)
        elif isinstance(value, ast.Call):
            function = ast.unparse(value.func)
            if function in _ALLOCATORS:
                self._allocate(name, _allocation_layout(value), _ALLOCATORS[function])
                return
            if self._replace(name, value, function, layout):
                return
            self.made.library.append(function.removeprefix("extern_kernels."))
        self.made.lines.append(f"{name} = {self.scope.text(value)}")
        self.scope.bind(name, layout)

    def _allocate(self, name: str, layout: DenseLayout, device: str = "") -> None:
        self.made.lines.append(f"{name} = {allocation(layout, device)}")
        self.scope.bind(name, layout)

    def _call(self, node: ast.Call) -> None:
        function = ast.unparse(node.func)
        if function == "assert_size_stride" and isinstance(node.args[0], ast.Name):
            self.scope.learn(node.args[0].id, _assertion_layout(node))
        elif function in ("assert_size_stride", "assert_alignment"):
            return
        elif function in self._kernels:
            self._kernel_call(self._kernels[function], node)
        elif function in self._triton:
            self._launch(self._triton[function], node)
        elif function.startswith("extern_kernels.") and any(word.arg == "out" for word in node.keywords):
            self._library_call(function.removeprefix("extern_kernels.").removeprefix("bias_"), node)
        elif function.startswith(NAMESPACES):
            self.made.library.append(function)
            self.made.lines.append(self.scope.text(node))
        elif (
            isinstance(node.func, ast.Attribute) and node.func.attr == "copy_" and isinstance(node.func.value, ast.Name)
        ):
            self.made.lines.append(f"{self.scope.text(node.func.value)}.copy_({self.scope.text(node.args[0])})")
        else:
            raise Unliftable(f"the generated code calls {function}, which is not understood")

    def _kernel_call(self, kernel: GeneratedKernel, node: ast.Call) -> None:
        arguments = [
            self.scope.pointer(argument) if "*" in kind else self.scope.text(argument)
            for kind, argument in zip(kernel.types, node.args, strict=True)
        ]
        text = f"{short_name(kernel.name)}({', '.join(arguments)})"
        self.made.kernel_calls += 1
        if divides_integers(kernel):
            self.made.lines += [f"if {text}:", '    raise RuntimeError("ZeroDivisionError")']
        else:
            self.made.lines.append(text)

    def _launch(self, kernel: TritonKernel, node: ast.Call) -> None:
        by_parameter = dict(zip(kernel.parameters, node.args, strict=True))
        grid = tuple(value_of(by_parameter.pop(name)) for name in kernel.parameters if name.startswith("_grid_"))
        launch = launch_of(kernel, grid, self._tuning)
        arguments = [self.scope.operand(value) for name, value in by_parameter.items() if name not in kernel.dropped]
        text = ", ".join((*arguments, launch.arguments))
        # To turn a tensor round for the library is no work of its own.
        self.made.kernel_calls += not kernel.only_copies
        self.made.lines.append(f"{triton_kernel.short_name(kernel.name)}[{launch.grid}]({text})")

    def _library_call(self, operator: str, node: ast.Call) -> None:
        if operator not in _INTO:
            raise Unliftable(f"the generated code calls {operator}, which is not understood")
        out = next(word.value for word in node.keywords if word.arg == "out")
        options = {word.arg or "": value_of(word.value) for word in node.keywords if word.arg != "out"}
        result = self.scope.layout_of(out)
        if result is not None:
            own = self._own_function(operator, node.args, result, options)
            if own is not None:
                self._own_call(own, [*node.args, out])
                return
        settings = [f"{name}={value!r}" for name, value in options.items() if value != 1]
        arguments = [*map(self.scope.text, node.args), *settings, f"out={self.scope.text(out)}"]
        self.made.library.append(operator)
        self.made.lines.append(f"torch.{operator}({', '.join(arguments)})")

    def _replace(self, name: str, value: ast.Call, function: str, claimed: DenseLayout | None) -> bool:
        """Replace a library call that returns its result by a function of our own; whether there is one."""
        operator = function.removeprefix("torch.ops.aten.").removeprefix("extern_kernels.").removesuffix(".default")
        options = {word.arg or "": value_of(word.value) for word in value.keywords if word.arg != "bias"}
        tensors = list(value.args)
        if own_kernels.family_of(operator) == "scan":
            options.setdefault("dim", value_of(tensors[1]) if len(tensors) > 1 else None)
            tensors = tensors[:1]
            claimed = self.scope.layout_of(tensors[0])
        source = self.scope.layout_of(tensors[0]) if tensors else None
        if claimed is None or source is None:
            return False
        result = DenseLayout(claimed.shape, claimed.stride, source.dtype)
        own = self._own_function(operator, tensors, result, options)
        if own is None:
            return False
        self._allocate(name, result)
        self._own_call(own, [*tensors, ast.Name(name)])
        return True

    def _own_function(
        self, operator: str, tensors: list[ast.expr], result: DenseLayout, options: dict[str, Any]
    ) -> OwnFunction | None:
        if own_kernels.family_of(operator) not in self._own:
            return None
        layouts = [self.scope.layout_of(tensor) for tensor in tensors]
        if any(layout is None for layout in layouts):
            return None
        return own_kernels.own_function(LibraryCall(operator, tuple(layouts), result, options))

    def _own_call(self, own: OwnFunction, tensors: list[ast.expr]) -> None:
        name = f"{own.family}_{len(self.made.called)}"
        self.made.functions.append(f'extern "C" void {name}({own.parameters}) {{\n{own.body}}}\n')
        self.made.families.add(own.family)
        self.made.called.append((name, len(tensors)))
        self.made.lines.append(f"{name}({', '.join(map(self.scope.pointer, tensors))})")


def allocation(layout: DenseLayout, device: str = "") -> str:
    """The expression that makes an uninitialised tensor."""
    form = f"dtype=torch.{layout.dtype}" + (f', device="{device}"' if device else "")
    if layout.contiguous:
        return f"torch.empty({layout.shape}, {form})"
    return f"torch.empty_strided({layout.shape}, {layout.stride}, {form})"


def _allocation_layout(node: ast.Call) -> DenseLayout:
    shape, stride = (tuple(ast.literal_eval(argument)) for argument in node.args[:2])
    return DenseLayout(shape, stride, ast.unparse(node.args[2]).removeprefix("torch."))


def _assertion_layout(node: ast.Call) -> DenseLayout:
    """The layout that an assertion names, without the type, which it does not say."""
    shape, stride = (tuple(ast.literal_eval(argument)) for argument in node.args[1:3])
    return DenseLayout(shape, stride, "")


def _layout_asserted_next(name: str, following: tuple[ast.stmt, ...]) -> DenseLayout | None:
    """The layout that the next statement claims for a result."""
    for statement in following:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call).startswith(f"assert_size_stride({name},"):
            return _assertion_layout(call)
    return None
