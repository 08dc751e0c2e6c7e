"""Kernels in Triton's language as they stand in a program: plain functions, each with a launch of its own."""

from __future__ import annotations

import re

from kforge.agents.offline import skeleton, triton_functions
from kforge.agents.offline.program import Kernels
from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.triton_kernel import HELPER, TritonKernel

_DEFINED = re.compile(r"^def (\w+)", re.MULTILINE)
_FOREIGN = re.compile(r"\b(?:triton_helpers|triton_heuristics|tl_math|torch|_inductor)\b")


def triton_kernels(kernels: tuple[TritonKernel, ...]) -> Kernels:
    """The program's part in Triton."""
    functions = triton_functions.texts({helper for kernel in kernels for helper in kernel.uses})
    texts: dict[str, str] = {}
    for kernel in kernels:
        for helper in kernel.helpers:
            _add(texts, _without_helpers(helper))
        _add(texts, _without_helpers(kernel.text))
    sections = [*functions, *(f"@triton.jit\n{text}" for text in texts.values())]
    imports = skeleton.TRITON_IMPORTS
    if any("libdevice." in section for section in sections):
        imports += skeleton.LIBDEVICE
    return Kernels(
        where="an NVIDIA GPU",
        summary="The kernels are Inductor's own Triton code for exactly these shapes, each with one fixed launch.",
        imports=imports,
        sections=tuple(sections),
        names=frozenset(_DEFINED.findall("\n".join(sections))) | skeleton.TRITON_NAMES,
        device="cuda",
    )


def _add(texts: dict[str, str], text: str) -> None:
    """Add a function under its name; two of one name must be the same."""
    definition = _DEFINED.search(text)
    assert definition is not None
    if texts.setdefault(definition.group(1), text) != text:
        raise Unliftable(f"two kernels define {definition.group(1)} in different ways")


def _without_helpers(text: str) -> str:
    """A function's text, naming nothing of Inductor's."""
    text = HELPER.sub(lambda match: triton_functions.own_name(match.group(1)), text)
    text = text.replace("tl_math.", "tl.math.")
    left = _FOREIGN.search(text)
    if left:
        raise Unliftable(f"a kernel names {left.group(0)}, which a plain program does not have")
    return text
