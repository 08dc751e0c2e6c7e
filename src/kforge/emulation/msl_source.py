"""Metal's language, written as C++ that compiles against `native/msl.h`.

Address spaces go, variables of a threadgroup come from its memory, swizzles become calls, and of each kernel it is
noted what its parameters are. What a Mac could do and this cannot is an error that names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.emulation.entries import KernelEntry, with_entries
from kforge.emulation.msl_functions import functions, without_repeats
from kforge.emulation.msl_numbers import whole_number, whole_numbers
from kforge.emulation.msl_reconvergence import with_meetings
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

ATTRIBUTES = {
    "thread_position_in_grid": -1,
    "thread_position_in_threadgroup": -2,
    "threadgroup_position_in_grid": -3,
    "threads_per_threadgroup": -4,
    "threads_per_grid": -5,
    "grid_size": -5,
    "threadgroups_per_grid": -6,
    "dispatch_threads_per_threadgroup": -7,
    "thread_index_in_threadgroup": -8,
    "thread_index_in_simdgroup": -9,
    "simdgroup_index_in_threadgroup": -10,
    "simdgroups_per_threadgroup": -11,
    "dispatch_simdgroups_per_threadgroup": -11,
    "threads_per_simdgroup": -12,
    "thread_execution_width": -12,
    "grid_origin": -13,
    "thread_index_in_quadgroup": -14,
    "quadgroup_index_in_threadgroup": -15,
    "quadgroups_per_threadgroup": -16,
    "dispatch_quadgroups_per_threadgroup": -16,
}
"""What a parameter may ask for -> its number in `native/msl.h`."""
MOST_BUFFERS = 31
_SPACES = ("device", "thread", "ray_data", "object_data")
_UNSUPPORTED = {
    "double": "Metal has no double: use float",
    "vertex": "a vertex function: only kernels are run here",
    "fragment": "a fragment function: only kernels are run here",
    "sampler": "samplers are not emulated",
    "imageblock": "image blocks are not emulated",
    "visible_function_table": "function tables are not emulated",
    "intersection_function_table": "ray tracing is not emulated",
    "command_buffer": "indirect command buffers are not emulated",
    "goto": "Metal has no goto",
    "virtual": "Metal has no virtual functions",
    "thread_local": "Metal has no thread_local",
    "dynamic_cast": "Metal has no dynamic_cast",
    "throw": "Metal has no exceptions",
}
_TEXTURE = re.compile(r"^(?:texture|depth)(?:1d|2d|3d|cube)(?:_\w+)?$|^texture_buffer$")
_UNSUPPORTED_ATTRIBUTES = {
    "function_constant": "function constants: torch.mps.compile_shader gives them no value; use a template or a buffer",
    "threadgroup": "threadgroup memory as a parameter: torch.mps.compile_shader cannot give its length; declare it in "
    "the kernel with a fixed size",
    "texture": "textures are not emulated",
    "sampler": "samplers are not emulated",
    "stage_in": "stage_in is not emulated",
    "payload": "payloads are not emulated",
}
_SWIZZLE = re.compile(r"^(?:[xyzw]{2,4}|[rgba]{2,4})$")
_PLACES = {
    **{letter: place for place, letter in enumerate("xyzw")},
    **{letter: place for place, letter in enumerate("rgba")},
}
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_HALF = re.compile(r"^((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(h|H|bf|BF)$")
_MOST_INCLUDED = re.compile(
    r"""^[ \t]*\#[ \t]*(?:include|import)[ \t]*[<"](?:metal_\w+|metal/\w+|simd/\w+(?:\.h)?)[>"][ \t]*
    (?=//|/\*|$)""",
    re.MULTILINE | re.VERBOSE,
)
_OTHER_INCLUDED = re.compile(r"^[ \t]*#[ \t]*(?:include|import)\b[^\n]*$", re.MULTILINE)


@dataclass(frozen=True)
class MslKernelSource:
    """A kernel that can be launched: what the host calls it, the function, and where each parameter comes from."""

    name: str
    function: str
    sources: tuple[int, ...]
    parameters: tuple[str, ...]

    @property
    def buffers(self) -> dict[int, str]:
        """Number -> the parameter's name."""
        return {source: name for source, name in zip(self.sources, self.parameters, strict=True) if source >= 0}


@dataclass(frozen=True)
class MslTranslation:
    """C++ text and the kernels in it."""

    text: str
    kernels: tuple[MslKernelSource, ...]


def without_includes(source: str) -> str:
    """The source for the preprocessor: Metal's own headers are the emulator's, and there are no others."""
    source = _MOST_INCLUDED.sub("", source.replace("\r\n", "\n").lstrip("\ufeff"))
    other = _OTHER_INCLUDED.search(source)
    if other:
        line = source.count("\n", 0, other.start()) + 1
        raise SourceError(line, f"`{other[0].strip()}`: only Metal's own headers exist")
    return source


def translate(preprocessed: str) -> MslTranslation:
    """C++ for a source that has been preprocessed."""
    return _MslTranslator(with_meetings(without_repeats(tokens_of(preprocessed)))).run()


class _MslTranslator:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._out: list[Token] = []
        self._kernels: list[MslKernelSource] = []
        self._templates: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        self._scopes: list[str | None] = []
        self._group_variables = 0
        self._function = ""
        """The kernel whose body this is."""
        self._shared: dict[str, list[tuple[int, int]]] = {}
        """Kernel -> (number, line) of its threadgroup variables."""
        self._members = _members(tokens)
        self._numbers = whole_numbers(tokens)
        self._host_name = ""
        """What the next kernel is called by the host, if not by its own name."""

    def run(self) -> MslTranslation:
        tokens, index = self._tokens, 0
        while index < len(tokens):
            index = self._step(index)
        _refuse_static_variables(tokens)
        calls = [
            KernelEntry(kernel.function, kernel.sources, self._shared.get(kernel.function.partition("<")[0], ()))
            for kernel in self._kernels
        ]
        return MslTranslation(with_entries(text_in_lines(self._out), calls), tuple(self._kernels))

    def _step(self, index: int) -> int:
        token = self._tokens[index]
        text = token.text
        if token.kind == "name":
            if (text in _UNSUPPORTED or _TEXTURE.match(text)) and not self._is_member(index):
                raise SourceError(token.line, _UNSUPPORTED.get(text, "textures are not emulated"))
            if text == "kernel" and self._at(index + 1).kind in ("name", "mark"):
                return self._kernel(index)
            if text == "template":
                return self._template(index)
            if text == "namespace":
                return self._namespace(index)
            if text == "threadgroup":
                return self._threadgroup(index)
            if text in _SPACES:
                self._emit_space(token)
                return index + 1
            if text == "constant":
                return self._constant(index)
            if _SWIZZLE.match(text) and self._is_member(index):
                return self._swizzle(index)
        elif token.kind == "number":
            half = _HALF.match(text)
            if half:
                kind = "half" if half[2].lower() == "h" else "bfloat"
                self._emit(substitute(f"{kind}({half[1]}{'' if any(c in half[1] for c in '.eE') else '.0'}f)", token))
                return index + 1
        elif text == "[[":
            return self._attribute(index)
        elif text == "{":
            self._scopes.append(None)
        elif text == "}" and self._scopes:
            self._scopes.pop()
            if None not in self._scopes:
                self._function = ""
        self._emit(token)
        return index + 1

    def _at(self, index: int) -> Token:
        return self._tokens[index] if index < len(self._tokens) else Token("end", "", 0)

    def _is_member(self, index: int) -> bool:
        return index > 0 and self._tokens[index - 1].text in (".", "->")

    def _emit(self, *tokens: Token) -> None:
        self._out.extend(tokens)

    def _emit_space(self, token: Token) -> None:
        self._emit(substitute("", token))

    # -- what stands at the top level ------------------------------------------------------------------------------

    def _namespace(self, index: int) -> int:
        """A namespace's name is noted, so that a kernel inside can be called from outside."""
        end = index
        while self._at(end).text not in ("{", ";", "=", ""):
            end += 1
        self._emit(*self._tokens[index:end])
        if self._at(end).text != "{":
            return end
        self._emit(self._tokens[end])
        self._scopes.append("".join(token.text for token in self._tokens[index + 1 : end]))
        return end + 1

    def _qualified_name(self, name: str) -> str:
        """A kernel's name from the outside: Metal's own library may have the same one."""
        return "::".join(["", *(scope for scope in self._scopes if scope), name])

    def _attribute(self, index: int) -> int:
        """Attributes of functions mean nothing here, but for one that makes a kernel."""
        end = closing_bracket(self._tokens, index)
        inside = self._tokens[index + 1 : end - 1]
        names = {token.text for token in inside if token.kind == "name"}
        for name in names & set(_UNSUPPORTED_ATTRIBUTES):
            raise SourceError(self._tokens[index].line, _UNSUPPORTED_ATTRIBUTES[name])
        if "host_name" in names:
            self._host_name = _text_in(inside)
        if "kernel" in names:
            return self._kernel(end)
        self._emit(substitute("", self._tokens[index]))
        return end + 1

    def _template(self, index: int) -> int:
        """A template goes through; an explicit instance with a name for the host becomes a kernel."""
        following = self._at(index + 1)
        if following.text == "<":
            end = closing_angle(self._tokens, index + 1)
            after = end + 1
            while self._at(after).text == "[[" and "kernel" not in self._attribute_names(after):
                after = closing_bracket(self._tokens, after) + 1
            for token in self._tokens[index : end + 1]:
                self._emit(token)
            if self._at(after).text == "kernel" or self._at(after).text == "[[":
                return self._kernel(
                    after if self._at(after).text == "kernel" else closing_bracket(self._tokens, after), template=True
                )
            return end + 1
        end = index
        while self._at(end).text not in (";", "{") and end < len(self._tokens):
            end += 1
        instance = self._tokens[index + 1 : end]
        host = _text_in(instance)
        if not host and not any(token.text == "kernel" for token in instance):
            self._emit(self._tokens[index])
            return index + 1
        self._instance(instance, host, self._tokens[index].line)
        self._emit(substitute("", self._tokens[index]))
        return end + 1

    def _attribute_names(self, index: int) -> set[str]:
        return {
            token.text for token in self._tokens[index : closing_bracket(self._tokens, index)] if token.kind == "name"
        }

    def _instance(self, tokens: list[Token], host: str, line: int) -> None:
        """`template [[host_name("f_float")]] kernel void f<float>(...)`, or `... decltype(f<float>) f<float>`."""
        plain = _without_attributes(tokens)
        index = 0
        while index < len(plain) and plain[index].text != "<":
            index = closing_bracket(plain, index) + 1 if plain[index].text == "(" else index + 1
        if index == len(plain):
            raise SourceError(line, "an instance of a kernel template without its arguments")
        begin = index - 1
        while begin >= 2 and plain[begin - 1].text == "::":
            begin -= 2
        name = "".join(token.text for token in plain[begin:index])
        end = closing_angle(plain, index)
        # Address spaces are no part of a type here.
        arguments = " ".join(token.text for token in plain[index : end + 1] if token.text not in _SPACES)
        if name not in self._templates:
            raise SourceError(line, f"there is no kernel template `{name}`")
        sources, parameters = self._templates[name]
        function = f"{self._qualified_name(name)}{arguments}"
        self._kernels.append(MslKernelSource(host or name, function, sources, parameters))

    # -- kernels ---------------------------------------------------------------------------------------------------

    def _kernel(self, index: int, template: bool = False) -> int:
        """A kernel, from the word that makes it one to the end of its parameters."""
        tokens = self._tokens
        opening = index + 1
        while self._at(opening).text != "(":
            if opening >= len(tokens) or self._at(opening).text in (";", "{"):
                raise SourceError(tokens[index].line, "a kernel without parameters in brackets")
            if self._at(opening).text == "[[":
                opening = closing_bracket(tokens, opening) + 1
                continue
            opening += 1
        name = tokens[opening - 1]
        end = closing_bracket(tokens, opening)
        self._emit(substitute("", tokens[index]))
        skip = index + 1
        while skip < opening:
            if tokens[skip].text == "[[":
                skip = closing_bracket(tokens, skip) + 1
                continue
            self._emit(tokens[skip])
            skip += 1
        self._emit(tokens[opening])
        parts = split(tokens[opening + 1 : end])
        sources, names = self._parameters(parts)
        for number, part in enumerate(parts):
            if number:
                self._emit(Token("made", ",", part[0].line))
            inner = _MslTranslator(_without_attributes(part))
            inner._group_variables, inner._members = self._group_variables, self._members
            position = 0
            while position < len(inner._tokens):
                position = inner._step(position)
            self._emit(*inner._out)
        self._emit(tokens[end])
        after = end + 1
        while self._at(after).text == "[[":
            after = closing_bracket(tokens, after) + 1
        self._function = self._qualified_name(name.text) if self._at(after).text == "{" else ""
        if template:
            self._templates[name.text] = (sources, names)
        elif self._at(after).text == "{":
            self._kernels.append(
                MslKernelSource(self._host_name or name.text, self._qualified_name(name.text), sources, names)
            )
        self._host_name = ""
        return after

    def _parameters(self, parts: list[list[Token]]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        sources: list[int | None] = []
        names: list[str] = []
        for part in parts:
            source, name = self._parameter(part)
            if source is not None and source >= 0 and source in sources:
                raise SourceError(
                    part[0].line, f"[[buffer({source})]] twice: `{names[sources.index(source)]}` and `{name}`"
                )
            sources.append(source)
            names.append(name)
        used = {source for source in sources if source is not None and source >= 0}
        free = (number for number in range(MOST_BUFFERS) if number not in used)
        return tuple(next(free) if source is None else source for source in sources), tuple(names)

    def _parameter(self, part: list[Token]) -> tuple[int | None, str]:
        line = part[0].line if part else 0
        name = next((token.text for token in reversed(_without_attributes(part)) if token.kind == "name"), "")
        for index, token in enumerate(part):
            if token.text != "[[":
                continue
            inside = part[index + 1 : closing_bracket(part, index) - 1]
            texts = [item.text for item in inside] or [""]
            if texts[0] == "buffer":
                number = whole_number(inside[1:], self._numbers)
                if number is None or not 0 <= number < MOST_BUFFERS:
                    raise SourceError(
                        token.line, f"[[buffer({''.join(texts[2:-1])})]]: buffers are 0 to {MOST_BUFFERS - 1}"
                    )
                return number, name
            if texts[0] in ATTRIBUTES:
                return ATTRIBUTES[texts[0]], name
            if texts[0] in _UNSUPPORTED_ATTRIBUTES:
                raise SourceError(token.line, _UNSUPPORTED_ATTRIBUTES[texts[0]])
            raise SourceError(token.line, f"the attribute [[{''.join(texts)}]] of a kernel's parameter is not emulated")
        if not any(token.text in ("*", "&") for token in part):
            raise SourceError(line, f"the parameter `{name}` is neither a buffer nor has it an attribute")
        if part and any(token.text == "threadgroup" for token in part):
            raise SourceError(line, _UNSUPPORTED_ATTRIBUTES["threadgroup"])
        return None, name

    # -- address spaces --------------------------------------------------------------------------------------------

    def _constant(self, index: int) -> int:
        """Write `const`, once."""
        token = self._tokens[index]
        near = [self._at(index + 1).text, *(item.text for item in self._out[-2:])]
        already = any(word in ("const", "constexpr") for word in near)
        self._emit(substitute("" if already else "const", token))
        return index + 1

    def _threadgroup(self, index: int) -> int:
        """A variable of the threadgroup is a reference into its memory; elsewhere the word says where one points."""
        token = self._tokens[index]
        end = index
        while self._at(end).text not in (";", ")", "{", "=", "") and end < len(self._tokens):
            if self._at(end).text in ("(", "[", "[["):
                end = closing_bracket(self._tokens, end)
            end += 1
        tokens = _without_alignment(self._tokens[index + 1 : end])
        if (
            self._at(end).text in ("=", "{")
            and not any(word.text in ("*", "&", "(") for word in tokens)
            and _declaration(tokens)[1]
        ):
            raise SourceError(
                token.line, "a threadgroup variable cannot have an initialiser: one thread writes it, before a barrier"
            )
        if (
            self._at(end).text != ";"
            or any(word.text in ("*", "&") for word in _outside_brackets(tokens))
            or not tokens
        ):
            self._emit_space(token)
            return index + 1
        kind, declarators = _declaration(tokens)
        if not declarators:
            self._emit_space(token)
            return index + 1
        type_text = " ".join(item.text for item in kind)
        made_text = []
        for name, dimensions in declarators:
            self._group_variables += 1
            made_text.append(
                f"auto& {name} = kforge::group_memory<{type_text}{dimensions}, {self._group_variables}>({token.line})"
            )
            if self._function:
                self._shared.setdefault(self._function, []).append((self._group_variables, token.line))
        lines = "\n" * sum(word.space.count("\n") for word in self._tokens[index + 1 : end])
        self._emit(substitute("; ".join(made_text) + lines, token))
        return end

    # -- swizzles --------------------------------------------------------------------------------------------------

    def _swizzle(self, index: int) -> int:
        token = self._tokens[index]
        if token.text in self._members or self._at(index + 1).text == "(":
            self._emit(token)
            return index + 1
        places = ", ".join(str(_PLACES[letter]) for letter in token.text)
        written = self._at(index + 1).text in _ASSIGNS
        self._emit(substitute(f"template {'swref' if written else 'sw'}<{places}>()", token))
        return index + 1


def _refuse_static_variables(tokens: list[Token]) -> None:
    """SourceError for a static variable: Metal's last only for the threads of a group, or never change."""
    for function in functions(tokens):
        for index in range(function.body, function.end):
            if tokens[index].text != "static":
                continue
            texts = [token.text for token in tokens[max(index - 2, function.body) : index + 4]]
            if not {"const", "constexpr", "constant"} & set(texts):
                raise SourceError(tokens[index].line, "Metal has no static variables in functions: use a buffer")


def _text_in(tokens: list[Token]) -> str:
    return "".join(token.text[1:-1] for token in tokens if token.kind == "text")


def _without_alignment(tokens: list[Token]) -> list[Token]:
    """The tokens without `alignas(...)` and `__attribute__((...))`: a group's memory is aligned well enough."""
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        if tokens[index].text in ("alignas", "__attribute__") and index + 1 < len(tokens):
            index = closing_bracket(tokens, index + 1) + 1
            continue
        kept.append(tokens[index])
        index += 1
    return kept


def _without_attributes(part: list[Token]) -> list[Token]:
    kept: list[Token] = []
    index = 0
    while index < len(part):
        if part[index].text == "[[":
            index = closing_bracket(part, index) + 1
            continue
        kept.append(part[index])
        index += 1
    return kept


def _outside_brackets(tokens: list[Token], but: str = "") -> list[Token]:
    """The tokens without what stands in brackets, a template's included, but for brackets of the kind `but`."""
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{", "[[") and text != but:
            index = closing_bracket(tokens, index) + 1
            continue
        if text == "<" and kept and kept[-1].kind == "name":
            try:
                index = closing_angle(tokens, index) + 1
                continue
            except SourceError:
                pass
        kept.append(tokens[index])
        index += 1
    return kept


def _declaration(tokens: list[Token]) -> tuple[list[Token], list[tuple[str, str]]]:
    """`float a[4], b[2][8]` as its type and (name, dimensions)."""
    parts = split(tokens)
    first = parts[0]
    bracket = next((i for i, token in enumerate(first) if token.text == "["), len(first))
    if bracket < 2 or first[bracket - 1].kind != "name":
        return [], []
    kind = first[: bracket - 1]
    declarators = [(first[bracket - 1].text, "".join(t.space + t.text for t in first[bracket:]).strip())]
    for part in parts[1:]:
        if not part or part[0].kind != "name":
            return [], []
        declarators.append((part[0].text, "".join(t.space + t.text for t in part[1:]).strip()))
    return kind, declarators


def _members(tokens: list[Token]) -> set[str]:
    """Names that look like swizzles and are members of the program's own structs."""
    names: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text not in ("struct", "class", "union"):
            continue
        opening = index
        while opening < len(tokens) and tokens[opening].text not in ("{", ";", "(", ")"):
            opening += 1
        if opening < len(tokens) and tokens[opening].text == "{":
            body = _outside_brackets(tokens[opening + 1 : closing_bracket(tokens, opening)], "[")
            for before, member, after in zip(body, body[1:], body[2:], strict=False):
                declared = before.kind == "name" or before.text in (",", "*", "&", ">")
                if declared and _SWIZZLE.match(member.text) and after.text in (";", ",", "[", "="):
                    names.add(member.text)
    return names
