"""The text of a lifted program: one file, a class `ModelNew`, kernels in C++ that a person can take over."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass

from kforge.agents.offline import cleaning, own_kernels
from kforge.agents.offline.interface import Held, Interface
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.translating import Translation
from kforge.agents.offline.wrapper import Kernel

BASE_FLAGS = ("-O3", "-DNDEBUG", "-std=c++20", "-march=native", "-fopenmp", "-shared", "-fPIC")

_BUILD = '''
def build(source):
    """Compile to a shared library once per source text, and load it."""
    torch_home = os.path.dirname(torch.__file__)
    flags = [*FLAGS, f"-I{torch_home}/include", f"-L{torch_home}/lib", "-ltorch_cpu", "-lc10"]
    key = hashlib.sha256((source + " ".join(flags)).encode()).hexdigest()[:20]
    default = os.path.join(tempfile.gettempdir(), f"kforge-{os.getuid()}")
    folder = os.environ.get("KFORGE_BUILD_DIR", default)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    library = os.path.join(folder, f"{key}.so")
    if not os.path.exists(library):
        code = os.path.join(folder, f"{key}.cpp")
        with open(code, "w") as file:
            file.write(source)
        partial = f"{library}.{os.getpid()}"
        command = [os.environ.get("CXX", "g++"), code, *flags, "-o", partial]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"compilation failed: {' '.join(command)}\\n{done.stderr}")
        os.replace(partial, library)
    return ctypes.CDLL(library)
'''

_FUNCTION = '''
def function(name, *kinds, result=None):
    """A C function of the library; its arguments are addresses, or numbers of the kinds given."""
    found = getattr(library, name)
    found.argtypes = kinds
    found.restype = result
    return found
'''

_EXPECT = '''
def expect(tensor, name, shape, stride, dtype):
    """The tensor in the layout the kernels were made for; ValueError if they were not made for it."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "cpu":
        found = f"{tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name} must be {shape} of {dtype} on cpu, and is {found}: lift the module again for it")
    if tensor.stride() != stride:
        return torch.empty_strided(shape, stride, dtype=dtype).copy_(tensor)
    return tensor
'''

_SAME = '''
def same(value, name, expected):
    """ValueError unless an argument that is no tensor has the value the kernels were made for."""
    if type(value) is not type(expected) or value != expected:
        raise ValueError(f"{name} must be {expected!r}, and is {value!r}: lift the module again for it")
'''

_VIEW = '''
def view(tensor, shape, stride, offset):
    """The tensor's memory under another shape."""
    return torch.as_strided(tensor, shape, stride, tensor.storage_offset() + offset)
'''

_HOLD = '''
def hold(module, name, tensor, trainable):
    """Register a tensor under a dotted name, so that the reference's state loads as it is."""
    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module._modules[part]
    if trainable:
        module.register_parameter(last, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor))
    else:
        module.register_buffer(last, tensor)
'''

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


def compose(parts: Parts) -> str:
    """The program's text."""
    interface = parts.interface
    sections = [_header(parts), _imports(interface), _source(parts), _flags(parts.flags), _BUILD.strip()]
    sections.append(f"library = build(SOURCE)\n\n{_FUNCTION}\n\n{_functions(parts)}")
    body = _forward(parts)
    model = _model(parts, body)
    if "expect(" in body:
        sections.append(_EXPECT.strip())
    if "same(" in body:
        sections.append(_SAME.strip())
    if "view(" in body.replace(".view(", ""):
        sections.append(_VIEW.strip())
    if interface.state:
        sections.append(_HOLD.strip())
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
    lines = [f'"""{parts.title} on the CPU, lifted from PyTorch\'s compiler: Inductor of torch {parts.torch_version}.', ""]
    lines.append("The kernels are Inductor's own C++ for exactly these shapes, compiled once when the file is imported.")
    if own:
        lines.append(f"Written by hand instead of a library call: {own}.")
    if library:
        lines.append(f"Still done by torch: {', '.join(library)}.")
    lines += ["", f"variant: {parts.variant}", '"""']
    return "\n".join(lines)


def _imports(interface: Interface) -> str:
    text = "import ctypes\nimport hashlib\nimport os\nimport subprocess\nimport tempfile\n\nimport torch\nimport torch.nn as nn\n"
    if interface.definitions:
        taken = {"build", "function", "expect", "same", "view", "hold", "library", "SOURCE", "FLAGS", "ModelNew"}
        for node in ast.walk(ast.parse(interface.definitions)):
            name = getattr(node, "name", getattr(node, "id", ""))
            if name in taken:
                raise Unliftable(f"the problem's file uses the name {name!r}, which the program needs")
        text += f"\n# The reference's own definitions, for the constants that its module computes.\n{interface.definitions}"
    return text


def _source(parts: Parts) -> str:
    made = parts.translation
    pieces = ["#include <torch/csrc/inductor/cpp_prefix.h>\n"]
    if made.families:
        pieces.append(own_kernels.header(made.families))
    pieces += made.functions
    pieces.append(cleaning.unit(parts.kernels))
    text = "\n".join(piece.strip("\n") + "\n" for piece in pieces if piece.strip())
    if '"""' in text:
        raise Unliftable("the generated C++ holds a triple quote")
    return f'SOURCE = r"""\n{text}"""'


def _flags(flags: tuple[str, ...]) -> str:
    lines: list[str] = []
    for flag in (*BASE_FLAGS, *flags):
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
        lines.append(f"hold(self, {_quoted(item.name)}, {value}, trainable={_trainable(item)})")
    if interface.definitions:
        lines.append("reference = Model(*arguments)")
    for name, expression in interface.constants.items():
        lines.append(f'self.register_buffer("{name}", {expression}, persistent=False)')
    return lines


def _trainable(item: Held) -> bool:
    return item.parameter


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
            lines.append(f"{names[name]} = {reach(target)}")
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
    taken = {item.name for item in interface.inputs} | set(interface.parameters) | {"self", "library", "torch"}
    taken |= {cleaning.short_name(kernel.name) for kernel in parts.kernels}
    names = {item.name: item.name for item in interface.inputs}
    for name in (*interface.reads, *interface.constants):
        short = re.sub(r"^[pbc]_", "", name)
        free = short not in taken and short.isidentifier() and not keyword.iskeyword(short) and short not in _TAKEN
        names[name] = short if free and not re.fullmatch(r"(buf|gemm_|scan_|convolution_)\d+", short) else name
        taken.add(names[name])
    return names


_TAKEN = {"build", "function", "expect", "same", "view", "hold", "ctypes", "hashlib", "os", "subprocess", "tempfile", "nn"}


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
