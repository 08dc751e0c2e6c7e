"""The text of a lifted program: one file, a class `ModelNew`, kernels that a person can take over."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass

from kforge.agents.offline import skeleton
from kforge.agents.offline.call_translation import CallTranslation
from kforge.agents.offline.interface import DenseLayout, Interface, StateTensor
from kforge.agents.offline.recipe import Unliftable


@dataclass(frozen=True)
class Kernels:
    """What a program's kernels look like in its file."""

    where: str
    """What the kernels run on, as a text."""
    summary: str
    """What the kernels are, for the header."""
    imports: str
    sections: tuple[str, ...]
    """Texts between the imports and the class."""
    names: frozenset[str]
    """Names that the sections define."""
    device: str
    """torch's word for where the tensors must be."""


@dataclass(frozen=True)
class Parts:
    """What a program is made from."""

    title: str
    variant: str
    torch_version: str
    interface: Interface
    translation: CallTranslation
    kernels: Kernels


def compose(parts: Parts) -> str:
    """The program's text."""
    interface = parts.interface
    sections = [_header(parts), _imports(parts), *parts.kernels.sections]
    body = _forward(parts)
    model = _model(parts, body)
    if "expect(" in body or "module_tensor(" in body:
        sections.append(skeleton.EXPECT.replace("DEVICE", parts.kernels.device))
    if "module_tensor(" in body:
        sections.append(skeleton.MODULE_TENSOR)
    if "refuse_gradients(" in body:
        sections.append(skeleton.REFUSE_GRADIENTS)
    if "same(" in body:
        sections.append(skeleton.SAME)
    if "view(" in body.replace(".view(", ""):
        sections.append(skeleton.VIEW)
    if interface.state:
        sections.append(skeleton.HOLD)
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
        f'"""{parts.title} on {parts.kernels.where}, lifted from PyTorch\'s compiler: '
        f"Inductor of torch {parts.torch_version}.",
        "",
        parts.kernels.summary,
    ]
    if own:
        lines.append(f"Written by hand instead of a library call: {own}.")
    if library:
        lines.append(f"Still done by torch: {', '.join(library)}.")
    lines += ["", f"variant: {parts.variant}", '"""']
    return "\n".join(lines)


def _imports(parts: Parts) -> str:
    interface, imports = parts.interface, parts.kernels.imports
    if not interface.definitions:
        return imports
    reserved = parts.kernels.names | skeleton.NAMES
    for node in ast.walk(ast.parse(interface.definitions)):
        name = node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else name
        if name in reserved:
            raise Unliftable(f"the problem's file defines {name!r}, a name that the program needs")
    why = "# The reference's own definitions, for the constants that its module computes."
    return f"{imports}\n{why}\n{interface.definitions}"


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
        value = reach(item.tied) if item.tied else _empty(item)
        ending = "" if item.persistent else ", persistent=False"
        lines.append(f"hold(self, {quote(item.name)}, {value}, trainable={item.parameter}{ending})")
    if interface.definitions:
        lines.append("reference = Model(*arguments)")
    for name, expression in interface.constants.items():
        lines.append(f'self.register_buffer("{name}", {expression}, persistent=False)')
    return lines


def _empty(item: StateTensor) -> str:
    """The expression for a tensor whose values come later.

    Nothing says so when those of a buffer that is not persistent are left out: then its results must not look right.
    """
    layout, dtype = item.layout, f"torch.{item.layout.dtype}"
    number = "0" if item.persistent or layout.dtype == "bool" else f"torch.iinfo({dtype}).min"
    if not item.persistent and ("float" in layout.dtype or "complex" in layout.dtype):
        number = 'float("nan")'
    if not layout.contiguous:
        return f"torch.empty_strided({layout.shape}, {layout.stride}, dtype={dtype}).fill_({number})"
    if number == "0":
        return f"torch.zeros({layout.shape}, dtype={dtype})"
    return f"torch.full({layout.shape}, {number}, dtype={dtype})"


def _forward(parts: Parts) -> str:
    interface, made = parts.interface, parts.translation
    lines = []
    names = _local_names(parts)
    for item in interface.inputs:
        if item.layout is None:
            lines.append(f"same({item.access}, {quote(item.access)}, {item.value})")
        elif item.name in made.used:
            layout = item.layout
            lines.append(f"{names[item.name]} = expect({item.access}, {quote(item.access)}, {_layout_text(layout)})")
    lines += _gradient_lines(interface)
    held = {item.name: item.layout for item in interface.state}
    for name, target in interface.reads.items():
        if name in made.used:
            # A library call into memory that is there takes no tensor that wants a gradient.
            detached = ".detach()" if made.library else ""
            checked = f"module_tensor({reach(target)}, {quote(target)}, {_layout_text(held[target])})"
            lines.append(f"{names[name]} = {checked}{detached}")
    for name in interface.constants:
        if name in made.used:
            described = _layout_text(interface.constant_layouts[name])
            lines.append(f"{names[name]} = module_tensor(self.{name}, {quote(name)}, {described})")
    lines += [_rename(line, names) for line in made.lines]
    outputs = []
    for index, text in enumerate(made.outputs):
        text = _rename(text, names)
        is_input = any(re.search(rf"\b{re.escape(names[name])}\b", text) for name in made.used)
        outputs.append(f"{text}.clone()" if is_input and index in interface.copied else text)
    lines.append(f"return {interface.result.format(*outputs)}")
    return "\n".join(f"        {line}" for line in lines)


def _gradient_lines(interface: Interface) -> list[str]:
    """Lines that refuse a call that autograd would follow."""
    tensors = [item.access for item in interface.inputs if item.layout is not None and "float" in item.layout.dtype]
    tensors += ["*self.parameters()"] if any(item.parameter for item in interface.state) else []
    return ["if torch.is_grad_enabled():", f"    refuse_gradients({', '.join(tensors)})"] if tensors else []


def _layout_text(layout: DenseLayout) -> str:
    return f"{layout.shape}, {layout.stride}, torch.{layout.dtype}"


def _local_names(parts: Parts) -> dict[str, str]:
    """Short names for what the graph reads: p_norm_weight -> norm_weight, where that is free."""
    interface = parts.interface
    reserved = (
        {item.name for item in interface.inputs} | set(interface.parameters) | skeleton.NAMES | parts.kernels.names
    )
    names = {item.name: item.name for item in interface.inputs}
    for name in (*interface.reads, *interface.constants):
        short = re.sub(r"^[pbc]_", "", name)
        free = short not in reserved and short.isidentifier() and not keyword.iskeyword(short)
        names[name] = short if free and not re.fullmatch(r"(buf|gemm_|scan_|convolution_)\d+", short) else name
        reserved.add(names[name])
    return names


def _rename(line: str, names: dict[str, str]) -> str:
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


def quote(text: str) -> str:
    """A string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
