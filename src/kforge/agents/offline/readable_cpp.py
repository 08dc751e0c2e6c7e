"""Generated C++ made readable: one translation unit, a name for each kernel, casts that say nothing left out."""

from __future__ import annotations

import re

from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.wrapper import GeneratedKernel

_ENTRY = re.compile(r'extern "C"\s+void\s+kernel\(')
_INCLUDE = re.compile(r"^#include <torch/csrc/inductor/cpp_prefix\.h>\n", re.MULTILINE)
_CAST = re.compile(r"static_cast<int64_t>\((-?\d+)L?\)")
_INDEX = re.compile(r"static_cast<int64_t>\(((?:x\d+|\d+L?|[*+ ])+)\)")
_DIVISION = re.compile(r"^ *(?:std::atomic<int> )?inductor_cpu_(?:integer_div_error|throw_if)\w*.*\n", re.MULTILINE)
_THROW = "inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);"
_INTEGER_DIVISION = ("_integral(", "mod(", "div_by_zero")


def short_name(name: str) -> str:
    """cpp_fused_add_gelu_0 -> fused_add_gelu_0, at most 48 characters long."""
    name = name.removeprefix("cpp_")
    if len(name) <= 48:
        return name
    head, _, number = name.rpartition("_")
    return f"{head[:40].rstrip('_')}_{number}"


def unit(kernels: tuple[GeneratedKernel, ...]) -> str:
    """The kernels one after the other."""
    return "\n".join(_clean(kernel) for kernel in kernels)


def divides_integers(kernel: GeneratedKernel) -> bool:
    """Whether a kernel may meet a division by zero; it then returns 1 for one."""
    return any(name in kernel.text for name in _INTEGER_DIVISION)


def _bare_index(match: re.Match[str]) -> str:
    index = match.group(1)
    return f"({index})" if " " in index or "*" in index else index


def _clean(kernel: GeneratedKernel) -> str:
    text = _INCLUDE.sub("", kernel.text).strip("\n")
    if not _ENTRY.search(text):
        raise Unliftable(f"kernel {kernel.name} has no entry of the usual form")
    kind = "int" if divides_integers(kernel) else "void"
    text = _ENTRY.sub(f'extern "C" {kind} {short_name(kernel.name)}(', text)
    if divides_integers(kernel):
        # An exception must not pass through a C function.
        text = text.replace(_THROW, "return inductor_cpu_integer_div_error.load();")
    else:
        text = _DIVISION.sub("", text)
    text = _CAST.sub(r"\1L", text)
    text = _INDEX.sub(_bare_index, text)
    head = text[: text.index('extern "C"')].strip()
    if head:
        # Helpers of two kernels may share a name.
        return f"namespace {short_name(kernel.name)}_parts {{\n{text}\n}}\n"
    return text + "\n"
