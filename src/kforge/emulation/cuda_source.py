"""CUDA C, written as C++ that compiles against `native/cuda_c.h`.

Shared variables come from the group's memory, and of each kernel it is noted which parameters are pointers. What a GPU
could do and this cannot is an error that names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kforge.emulation.entries import KernelEntry, with_entries
from kforge.emulation.nvrtc_names import refuse_unknown_headers, with_own_names
from kforge.emulation.tokens import (
    SourceError,
    Token,
    closing_angle,
    closing_bracket,
    split,
    substitute,
    text_in_lines,
    tokens_of,
)

_INCLUDED = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda_fp16\.h|cuda_fp16\.hpp|cuda_bf16\.h|cuda_runtime\.h|math_constants\.h|"
    r"vector_types\.h|device_launch_parameters\.h|cooperative_groups\.h|cooperative_groups/reduce\.h|"
    r"cuda/std/\w+)[>\"][ \t]*(?://[^\n]*)?$",
    re.MULTILINE,
)
_OTHER_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)
_UNSUPPORTED = {
    "asm": "inline PTX is not emulated",
    "__asm__": "inline PTX is not emulated",
    "wmma": "tensor cores (wmma) are not emulated",
    "texture": "textures are not emulated",
    "surface": "surfaces are not emulated",
    "__managed__": "managed variables are not emulated",
    "__cluster_dims__": "clusters of blocks are not emulated",
    "__nanosleep": "__nanosleep is not emulated",
}
_ALIGNMENTS = ("__align__", "alignas", "__attribute__")


@dataclass(frozen=True)
class CudaKernelSource:
    """A kernel that can be launched, and of each parameter its name and whether it is a pointer."""

    name: str
    function: str
    parameters: tuple[tuple[str, bool], ...]
    named: bool = True
    """Whether a program can ask for it by that name: it is extern "C", or the name was given to the compiler."""


@dataclass(frozen=True)
class CudaTranslation:
    """C++ text and the kernels in it."""

    text: str
    kernels: tuple[CudaKernelSource, ...]


def without_includes(source: str) -> str:
    """The source for the preprocessor: CUDA's own headers are the emulator's."""
    refuse_unknown_headers(source)
    source = _INCLUDED.sub("", source)
    other = _OTHER_INCLUDED.search(source)
    if other:
        line = source.count("\n", 0, other.start()) + 1
        raise SourceError(line, f"`{other[0].strip()}`: this header is not emulated")
    return source


def translate(preprocessed: str, instances: tuple[str, ...], source: str) -> CudaTranslation:
    """C++ for a source that has been preprocessed. `instances` name kernel templates with their arguments; `source`, as
    it was written, says which headers it includes.
    """
    return _CudaTranslator(with_own_names(tokens_of(preprocessed), source)).run(instances)


class _CudaTranslator:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._out: list[Token] = []
        self._kernels: list[CudaKernelSource] = []
        self._templates: dict[str, tuple[tuple[str, bool], ...]] = {}
        self._shared = 0
        self._kernel_name = ""
        """The kernel whose body this is, or which comes next."""
        self._shared_of: dict[str, list[tuple[int, int]]] = {}
        self._in_template = False
        self._scopes: list[bool] = []
        """For each open brace: whether it is a function's or a struct's, and not a namespace's."""
        self._c_blocks: list[bool] = []
        """For each open brace: whether what is declared in it is extern "C"."""

    def run(self, instances: tuple[str, ...]) -> CudaTranslation:
        index = 0
        while index < len(self._tokens):
            index = self._step(index)
        requested = {instance.strip().removeprefix("::") for instance in instances}
        kernels = [replace(kernel, named=kernel.named or kernel.name in requested) for kernel in self._kernels]
        for instance in instances:
            name = instance.partition("<")[0].strip().removeprefix("::")
            if "<" in instance:
                if name.rpartition("::")[2] not in self._templates:
                    raise SourceError(0, f"there is no kernel template `{name}`")
                kernels.append(CudaKernelSource(instance, f"::{instance}", self._templates[name.rpartition("::")[2]]))
        calls = [
            KernelEntry(
                kernel.function, range(len(kernel.parameters)), self._shared_of.get(_bare_name(kernel.name), ())
            )
            for kernel in kernels
        ]
        return CudaTranslation(with_entries(text_in_lines(self._out), calls), tuple(kernels))

    def _at(self, index: int) -> Token:
        return self._tokens[index] if index < len(self._tokens) else Token("end", "", 0)

    def _step(self, index: int) -> int:
        token = self._tokens[index]
        if token.kind == "name":
            if token.text in _UNSUPPORTED and self._at(index - 1 if index else 0).text not in (".", "->"):
                raise SourceError(token.line, _UNSUPPORTED[token.text])
            if token.text == "template" and self._at(index + 1).text == "<":
                return self._template(index)
            if token.text == "__global__":
                return self._kernel(index)
            if token.text == "__launch_bounds__":
                self._out.append(substitute("", token))
                return closing_bracket(self._tokens, index + 1) + 1
            if token.text == "long" and self._at(index + 1).text == "double":
                # A device has none, and takes it for a double.
                self._out.append(substitute("", token))
                return index + 1
            if token.text == "__constant__":
                self._out.append(substitute("" if self._is_const(index) else "const", token))
                return index + 1
            if token.text in ("__shared__", "extern", "static", "volatile", *_ALIGNMENTS):
                return self._variable(index)
        elif token.text == "{":
            before = [item.text for item in self._tokens[max(0, index - 2) : index]]
            self._scopes.append("namespace" not in before and before[-1:] != ['"C"'])
            self._c_blocks.append(before[-1:] == ['"C"'])
        elif token.text == "}" and self._scopes:
            self._scopes.pop()
            self._c_blocks.pop()
            if not any(self._scopes):
                self._kernel_name = ""
        self._out.append(token)
        return index + 1

    def _is_const(self, index: int) -> bool:
        """Whether a declaration says `const` already."""
        texts = [token.text for token in reversed(self._out[-4:])]
        before = texts[: next((i for i, word in enumerate(texts) if word in (";", "{", "}")), len(texts))]
        return any(word in ("const", "constexpr") for word in (*before, *(self._at(index + i).text for i in (1, 2))))

    def _template(self, index: int) -> int:
        end = closing_angle(self._tokens, index + 1)
        self._out.extend(self._tokens[index : end + 1])
        self._in_template = True
        ahead = end + 1
        while self._at(ahead).text not in (";", "{", "__global__") and ahead < len(self._tokens):
            ahead += 1
        if self._at(ahead).text != "__global__":
            self._in_template = False
        return end + 1

    def _kernel(self, index: int) -> int:
        token, named = self._tokens[index], self._has_c_name(index)
        self._out.append(substitute("", token))
        index += 1
        while self._at(index).text != "(":
            item = self._at(index)
            if item.text in (";", "{") or index >= len(self._tokens):
                raise SourceError(token.line, "a kernel without parameters in brackets")
            if item.text == "__launch_bounds__":
                index = closing_bracket(self._tokens, index + 1) + 1
                continue
            self._out.append(item)
            index += 1
        name = self._tokens[index - 1].text
        end = closing_bracket(self._tokens, index)
        parts = split(self._tokens[index + 1 : end])
        parameters = tuple(
            (
                next((item.text for item in reversed(part) if item.kind == "name"), ""),
                any(item.text == "*" for item in part) or any(item.text == "[" for item in part),
            )
            for part in parts
            if [item.text for item in part] != ["void"]
        )
        self._out.extend(self._tokens[index : end + 1])
        if self._in_template:
            self._templates[name] = parameters
            self._in_template = False
        elif self._at(end + 1).text == "{":
            self._kernels.append(CudaKernelSource(name, f"::{name}", parameters, named))
        self._kernel_name = name if self._at(end + 1).text == "{" else ""
        return end + 1

    def _has_c_name(self, index: int) -> bool:
        """Whether a kernel's declaration, or a block around it, is extern "C"; the compiler changes other names."""
        texts = [item.text for item in reversed(self._tokens[:index])]
        own = texts[: next((place for place, word in enumerate(texts) if word in (";", "{", "}")), len(texts))]
        return '"C"' in own or any(self._c_blocks)

    def _variable(self, index: int) -> int:
        """A shared variable is a reference into the group's memory; one without a size has the launch's."""
        token = self._tokens[index]
        end = index
        while self._at(end).text not in (";", "{", "(", "=", "") and end < len(self._tokens):
            if self._at(end).text == "[":
                end = closing_bracket(self._tokens, end)
            elif self._at(end).text in _ALIGNMENTS and self._at(end + 1).text == "(":
                end = closing_bracket(self._tokens, end + 1)
            end += 1
        if not any(item.text == "__shared__" for item in self._tokens[index:end]):
            self._out.append(token)
            return index + 1
        if self._at(end).text != ";":
            raise SourceError(
                token.line, "a shared variable with an initialiser: write it in the kernel, before a __syncthreads()"
            )
        tokens, alignment = _without_alignment(self._tokens[index:end])
        tokens = [item for item in tokens if item.text not in ("__shared__", "static")]
        dynamic = tokens[0].text == "extern"
        tokens = tokens[1:] if dynamic else tokens
        parts = split(tokens)
        bracket = next((i for i, item in enumerate(parts[0]) if item.text == "["), len(parts[0]))
        kind = " ".join(item.text for item in parts[0][: bracket - 1])
        places: list[tuple[str, str, str]] = []
        after = f", {alignment}" if alignment else ""
        if dynamic:
            place = f"static_cast<{kind}*>(kforge::dynamic_group_memory({token.line}))"
            places.append((f"{kind}*", parts[0][bracket - 1].text, place))
        else:
            for number, part in enumerate(parts):
                start = bracket - 1 if number == 0 else 0
                dimensions = "".join(item.text for item in part[start + 1 :])
                self._shared += 1
                place = f"kforge::group_memory<{kind}{dimensions}, {self._shared}>({token.line}{after})"
                if self._kernel_name:
                    self._shared_of.setdefault(self._kernel_name, []).append((self._shared, token.line))
                places.append(("auto&", part[start].text, place))
        if any(self._scopes):
            text = "; ".join(f"{how} {name} = {place}" for how, name, place in places)
        else:
            # Outside of any function it has no address yet: every use asks for it.
            text = "".join(f"\n#define {name} ({place})" for _, name, place in places) + f"\n#line {token.line}\n"
        lines = "\n" * sum(item.space.count("\n") for item in self._tokens[index + 1 : end])
        self._out.append(substitute(text + lines, token))
        return end


def _without_alignment(tokens: list[Token]) -> tuple[list[Token], str]:
    """The tokens without `__align__(16)` and its like, and what is in its brackets."""
    kept: list[Token] = []
    alignment, index = "", 0
    while index < len(tokens):
        if tokens[index].text in _ALIGNMENTS:
            end = closing_bracket(tokens, index + 1)
            if tokens[index].text != "__attribute__":
                alignment = "".join(item.text for item in tokens[index + 1 : end + 1])
            index = end + 1
            continue
        kept.append(tokens[index])
        index += 1
    return kept, alignment


def _bare_name(name: str) -> str:
    """A kernel's name without its namespaces and its template's arguments."""
    return name.partition("<")[0].strip().rpartition("::")[2]
