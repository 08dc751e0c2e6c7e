"""The text of a lifted program: one file, a class `ModelNew`, kernels in C++ that a person can take over."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass

from kforge.agents.offline import cleaning, own_kernels, skeleton
from kforge.agents.offline.interface import Interface
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.translating import Translation
from kforge.agents.offline.wrapper import Kernel

_C_NUMBERS = {
    "int64_t": "ctypes.c_int64",
    "int32_t": "ctypes.c_int32",
    "long": "ctypes.c_int64",
    "double": "ctypes.c_double",
    "float": "ctypes.c_float",
    "bool": "ctypes.c_bool",
}


@dataclass(frozen=True)
class Parts:
    """What a program is made from."""

    title: str
    variant: str
    torch_version: str
    interface: Interface
    kernels: tuple[Kernel, ...]
    translation: Translation
    flags: tuple[str, ...]
    prelude: str = ""
    """C++ that the kernels need."""


def compose(parts: Parts) -> str:
    """The program's text."""
    interface = parts.interface
    sections = [_header(parts), _imports(interface), _source(parts), _flags(parts.flags), skeleton.BUILD.strip()]
    sections.append(f"library = build(SOURCE)\n\n{skeleton.FUNCTION}\n\n{_functions(parts)}")
    body = _forward(parts)
    model = _model(parts, body)
    if "expect(" in body:
        sections.append(skeleton.EXPECT.strip())
    if "same(" in body:
        sections.append(skeleton.SAME.strip())
    if "view(" in body.replace(".view(", ""):
        sections.append(skeleton.VIEW.strip())
    if interface.state:
        sections.append(skeleton.HOLD.strip())
    sections.append(model)
    text = "\n\n\n".join(section.strip("\n") for section in sections) + "\n"
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise Unliftable(f"the program came out malformed (line {error.lineno}: {error.msg})") from error
    return text


def _header(parts: Parts) -> str:
    library = sorted({name.removeprefix("torch.ops.").removesuffix(".default") for name in parts.translation.library})
    own = ", ".join(sorted(parts.translation.families))
    lines = [
        f'"""{parts.title} on the CPU, lifted from PyTorch\'s compiler: Inductor of torch {parts.torch_version}.',
        "",
    ]
    lines.append(
        "The kernels are Inductor's own C++ for exactly these shapes, compiled once when the file is imported."
    )
    if own:
        lines.append(f"Written by hand instead of a library call: {own}.")
    if library:
        lines.append(f"Still done by torch: {', '.join(library)}.")
    lines += ["", f"variant: {parts.variant}", '"""']
    return "\n".join(lines)


def _imports(interface: Interface) -> str:
    if not interface.definitions:
        return skeleton.IMPORTS
    for node in ast.walk(ast.parse(interface.definitions)):
        name = node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else name
        if name in skeleton.NAMES:
            raise Unliftable(f"the problem's file defines {name!r}, a name that the program needs")
    why = "# The reference's own definitions, for the constants that its module computes."
    return f"{skeleton.IMPORTS}\n{why}\n{interface.definitions}"


def _source(parts: Parts) -> str:
    made = parts.translation
    pieces = ["#include <torch/csrc/inductor/cpp_prefix.h>\n"]
    if made.families:
        pieces.append(own_kernels.header(made.families))
    pieces.append(parts.prelude)
    pieces += made.functions
    pieces.append(cleaning.unit(parts.kernels))
    text = "\n".join(piece.strip("\n") + "\n" for piece in pieces if piece.strip())
    if '"""' in text:
        raise Unliftable("the generated C++ holds a triple quote")
    return f'SOURCE = r"""\n{text}"""'


def _flags(flags: tuple[str, ...]) -> str:
    lines: list[str] = []
    for flag in (*skeleton.BASE_FLAGS, *flags):
        lines.append(f"    {_quoted(flag)},")
    return "FLAGS = [\n" + "\n".join(lines) + "\n]"


def _functions(parts: Parts) -> str:
    lines = []
    for kernel in parts.kernels:
        name = cleaning.short_name(kernel.name)
        result = ", result=ctypes.c_int" if cleaning.divides_integers(kernel) else ""
        lines.append(f"{name} = function({_quoted(name)}, {_kinds(kernel.types)}{result})")
    for name, count in parts.translation.called:
        lines.append(f"{name} = function({_quoted(name)}, {_kinds(('*',) * count)})")
    return "\n".join(lines)


def _kinds(types: tuple[str, ...]) -> str:
    kinds = []
    for kind in types:
        if "*" not in kind and kind not in _C_NUMBERS:
            raise Unliftable(f"a kernel takes a {kind}")
        kinds.append("ctypes.c_void_p" if "*" in kind else _C_NUMBERS[kind])
    if kinds and set(kinds) == {"ctypes.c_void_p"}:
        return f"*[ctypes.c_void_p] * {len(kinds)}"
    return ", ".join(kinds)


def _model(parts: Parts, body: str) -> str:
    interface = parts.interface
    lines = ["class ModelNew(nn.Module):", "    def __init__(self, *arguments):"]
    lines.append('        """Takes what the reference takes; the shapes are those it was lifted for."""')
    lines.append("        super().__init__()")
    lines += [f"        {line}" for line in _registrations(interface)]
    lines += ["", f"    def forward({', '.join(('self', *interface.parameters))}):", body]
    return "\n".join(lines)


def _registrations(interface: Interface) -> list[str]:
    lines = []
    for item in interface.state:
        if item.tied:
            value = reach(item.tied)
        elif item.layout.contiguous:
            value = f"torch.zeros({item.layout.shape}, dtype=torch.{item.layout.dtype})"
        else:
            layout = item.layout
            value = f"torch.empty_strided({layout.shape}, {layout.stride}, dtype=torch.{layout.dtype}).zero_()"
        lines.append(f"hold(self, {_quoted(item.name)}, {value}, trainable={item.parameter})")
    if interface.definitions:
        lines.append("reference = Model(*arguments)")
    for name, expression in interface.constants.items():
        lines.append(f'self.register_buffer("{name}", {expression}, persistent=False)')
    return lines


def _forward(parts: Parts) -> str:
    interface, made = parts.interface, parts.translation
    lines = []
    names = _local_names(parts)
    for item in interface.inputs:
        if item.layout is None:
            lines.append(f"same({item.access}, {_quoted(item.access)}, {item.value})")
        elif item.name in made.used:
            layout = item.layout
            described = f"{layout.shape}, {layout.stride}, torch.{layout.dtype}"
            lines.append(f"{names[item.name]} = expect({item.access}, {_quoted(item.access)}, {described})")
    for name, target in interface.reads.items():
        if name in made.used:
            # A library call into memory that is there takes no tensor that wants a gradient.
            detached = ".detach()" if made.library else ""
            lines.append(f"{names[name]} = {reach(target)}{detached}")
    lines += [f"{names[name]} = self.{name}" for name in interface.constants if name in made.used]
    lines += [_renamed(line, names) for line in made.lines]
    outputs = []
    for index, text in enumerate(made.outputs):
        text = _renamed(text, names)
        is_input = any(re.search(rf"\b{re.escape(names[name])}\b", text) for name in made.used)
        outputs.append(f"{text}.clone()" if is_input and index in interface.copied else text)
    lines.append(f"return {interface.result.format(*outputs)}")
    return "\n".join(f"        {line}" for line in lines)


def _local_names(parts: Parts) -> dict[str, str]:
    """Short names for what the graph reads: p_norm_weight -> norm_weight, where that is free."""
    interface = parts.interface
    taken = {item.name for item in interface.inputs} | set(interface.parameters) | skeleton.NAMES
    taken |= {cleaning.short_name(kernel.name) for kernel in parts.kernels}
    names = {item.name: item.name for item in interface.inputs}
    for name in (*interface.reads, *interface.constants):
        short = re.sub(r"^[pbc]_", "", name)
        free = short not in taken and short.isidentifier() and not keyword.iskeyword(short)
        names[name] = short if free and not re.fullmatch(r"(buf|gemm_|scan_|convolution_)\d+", short) else name
        taken.add(names[name])
    return names


def _renamed(line: str, names: dict[str, str]) -> str:
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return line
    return re.sub(r"(?<![\w.])(" + "|".join(map(re.escape, changed)) + r")(?!\w)", lambda m: changed[m.group(1)], line)


def reach(target: str) -> str:
    """The expression for a dotted name, numbered parts included."""
    text = "self"
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f'getattr({text}, "{part}")'
    return text


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
