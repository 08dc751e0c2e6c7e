"""The functions of a program, and those that differ by nothing but an address space: one of them is enough here."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.emulation.tokens import SourceError, Token, closing_angle, closing_bracket, split, substitute

SPACES = ("device", "thread", "threadgroup", "constant", "const", "volatile")
_OPENS_SCOPE = ("namespace", "struct", "class", "union", "extern")
_AFTER = ("const", "noexcept", "override", "final", "thread", "device", "constant", "threadgroup")


@dataclass(frozen=True)
class MslFunction:
    """Where a definition stands: `begin` is its first token, `opening` its parameters' bracket, `body` its `{`."""

    begin: int
    opening: int
    body: int
    end: int
    scope: int
    """Where the scope it stands in begins."""


def functions(tokens: list[Token]) -> list[MslFunction]:
    """Every function's definition, in namespaces and in structs too."""
    return _scope(tokens, 0, len(tokens))


def without_repeats(tokens: list[Token]) -> list[Token]:
    """The tokens without functions that repeat another's; SourceError where two overloads do different things."""
    seen: dict[tuple[str, ...], MslFunction] = {}
    dropped: set[int] = set()
    for function in functions(tokens):
        _compare(tokens, function, seen, dropped)
    return [substitute("", token) if index in dropped else token for index, token in enumerate(tokens)]


def _scope(tokens: list[Token], index: int, end: int) -> list[MslFunction]:
    """The functions defined directly in one scope, and in the scopes inside."""
    definitions: list[MslFunction] = []
    begin = start = index
    while index < end:
        text = tokens[index].text
        if text in (";", "}") or tokens[index].kind == "marker" or _is_access_label(tokens, index):
            begin = index + 1
        elif text == "(":
            function = _function(tokens, begin, index, end, start)
            if function is None:
                index = closing_bracket(tokens, index)
            else:
                definitions.append(function)
                index, begin = function.end, function.end + 1
        elif text == "{":
            inside = closing_bracket(tokens, index)
            if any(token.text in _OPENS_SCOPE for token in tokens[begin:index]):
                definitions += _scope(tokens, index + 1, inside)
            index, begin = inside, inside + 1
        index += 1
    return definitions


def _is_access_label(tokens: list[Token], index: int) -> bool:
    """Whether a `:` ends `public:` or its like."""
    return tokens[index].text == ":" and index > 0 and tokens[index - 1].text in ("public", "private", "protected")


def _function(tokens: list[Token], begin: int, opening: int, end: int, scope: int) -> MslFunction | None:
    name = tokens[opening - 1]
    if opening == begin or name.kind != "name" or name.text in ("decltype", "__attribute__", "alignas"):
        return None
    after = closing_bracket(tokens, opening) + 1
    while after < end and (tokens[after].text in _AFTER or tokens[after].text == "[["):
        after = closing_bracket(tokens, after) + 1 if tokens[after].text == "[[" else after + 1
    if after >= end or tokens[after].text != "{":
        return None
    return MslFunction(begin, opening, after, closing_bracket(tokens, after), scope)


def _compare(
    tokens: list[Token], function: MslFunction, seen: dict[tuple[str, ...], MslFunction], dropped: set[int]
) -> None:
    parameters = _parameters(tokens, function)
    if not any(word in ("*", "&", "[") for part in parameters for word in part):
        return
    template = _template(tokens, function)
    name = tokens[function.opening - 1].text
    key = (str(function.scope), name, " ".join(template), *(" ".join(part) for part in parameters))
    first = seen.setdefault(key, function)
    if first is function or _spaces(tokens, first) == _spaces(tokens, function):
        return
    if _body(tokens, first) != _body(tokens, function):
        raise SourceError(
            tokens[function.opening - 1].line,
            f"`{name}` has overloads that differ only by address space and do different things (the other is in line "
            f"{tokens[first.opening - 1].line}): address spaces are one here; give them two names",
        )
    dropped.update(i for i in range(function.begin, function.end + 1) if tokens[i].kind != "marker")


def _parts(tokens: list[Token], function: MslFunction) -> list[list[Token]]:
    return split(tokens[function.opening + 1 : closing_bracket(tokens, function.opening)])


def _names(tokens: list[Token], function: MslFunction) -> list[str]:
    parts = map(_before_default, _parts(tokens, function))
    return [next((token.text for token in reversed(part) if token.kind == "name"), "") for part in parts]


def _before_default(part: list[Token]) -> list[Token]:
    return part[: next((i for i, token in enumerate(part) if token.text == "="), len(part))]


def _parameters(tokens: list[Token], function: MslFunction) -> list[list[str]]:
    """The parameters' types, without spaces, names and defaults. A pointer to what is `const` stays another type."""
    types = []
    for part, name in zip(_parts(tokens, function), _names(tokens, function), strict=True):
        texts = [token.text for token in _before_default(part)]
        points = any(word in ("*", "&", "[") for word in texts)
        if name in texts[1:]:
            del texts[len(texts) - 1 - texts[::-1].index(name)]
        constant = points and any(word in ("const", "constant") for word in texts)
        types.append((["const"] if constant else []) + [word for word in texts if word not in SPACES])
    return types


def _spaces(tokens: list[Token], function: MslFunction) -> list[str]:
    texts = [token.text for token in tokens[function.opening : function.body]]
    return [word for word in texts if word in ("device", "thread", "threadgroup", "constant")]


def _template(tokens: list[Token], function: MslFunction) -> list[str]:
    if tokens[function.begin].text != "template" or tokens[function.begin + 1].text != "<":
        return []
    end = closing_angle(tokens, function.begin + 1)
    return ["typename" if token.text == "class" else token.text for token in tokens[function.begin + 1 : end + 1]]


def _body(tokens: list[Token], function: MslFunction) -> list[str]:
    """The body's words without address spaces, and with parameters by their number."""
    numbers = {name: f"#{number}" for number, name in enumerate(_names(tokens, function)) if name}
    texts = [token.text for token in tokens[function.body : function.end + 1] if token.kind != "marker"]
    return [numbers.get(word, word) for word in texts if word not in SPACES]
