"""Kernels in C++ as they stand in a program: one text, compiled once at import, called through ctypes."""

from __future__ import annotations

from kforge.agents.offline import own_kernels, readable_cpp, skeleton
from kforge.agents.offline.call_translation import CallTranslation
from kforge.agents.offline.program import Kernels, quote
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.wrapper import GeneratedKernel

_C_NUMBERS = {
    "int64_t": "ctypes.c_int64",
    "int32_t": "ctypes.c_int32",
    "long": "ctypes.c_int64",
    "double": "ctypes.c_double",
    "float": "ctypes.c_float",
    "bool": "ctypes.c_bool",
}


def cpp_kernels(
    kernels: tuple[GeneratedKernel, ...], made: CallTranslation, flags: tuple[str, ...], prelude: str = ""
) -> Kernels:
    """The program's part in C++; `prelude` is C++ that the kernels need."""
    functions = f"library = build(SOURCE)\n\n{skeleton.FUNCTION}\n\n{_functions(kernels, made)}"
    return Kernels(
        where="the CPU",
        summary="The kernels are Inductor's own C++ for exactly these shapes, compiled once when the file is imported.",
        imports=skeleton.CPP_IMPORTS,
        sections=(_source(kernels, made, prelude), _flags(flags), skeleton.BUILD, functions),
        names=frozenset(readable_cpp.short_name(kernel.name) for kernel in kernels) | skeleton.CPP_NAMES,
        device="cpu",
    )


def _source(kernels: tuple[GeneratedKernel, ...], made: CallTranslation, prelude: str) -> str:
    pieces = ["#include <torch/csrc/inductor/cpp_prefix.h>\n"]
    if made.families:
        pieces.append(own_kernels.header(made.families))
    pieces.append(prelude)
    pieces += made.functions
    pieces.append(readable_cpp.unit(kernels))
    text = "\n".join(piece.strip("\n") + "\n" for piece in pieces if piece.strip())
    if '"""' in text:
        raise Unliftable("the generated C++ holds a triple quote")
    return f'SOURCE = r"""\n{text}"""'


def _flags(flags: tuple[str, ...]) -> str:
    lines: list[str] = []
    for flag in (*skeleton.BASE_FLAGS, *flags):
        lines.append(f"    {quote(flag)},")
    return "FLAGS = [\n" + "\n".join(lines) + "\n]"


def _functions(kernels: tuple[GeneratedKernel, ...], made: CallTranslation) -> str:
    lines = []
    for kernel in kernels:
        name = readable_cpp.short_name(kernel.name)
        result = ", result=ctypes.c_int" if readable_cpp.divides_integers(kernel) else ""
        lines.append(f"{name} = function({quote(name)}, {_kinds(kernel.types)}{result})")
    for name, count in made.called:
        lines.append(f"{name} = function({quote(name)}, {_kinds(('*',) * count)})")
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
