"""Real numbers made whole, in C++ that a front end has made.

What becomes of one that is too large, or no number at all, C++ leaves to the processor, and processors differ. Devices
take the nearest number there is: so does `kforge::whole` in `native/vectors.h`. Here it comes to stand in the place of
casts, and `kforge::initial` around what a variable of a whole type begins with.
"""

from __future__ import annotations

from kforge.emulation.tokens import SourceError, Token, closing_angle, closing_bracket, text_of, tokens_of

_ONE_WORD = {
    *("char", "short", "int", "long", "unsigned", "signed", "uchar", "ushort", "uint", "ulong", "size_t", "ptrdiff_t"),
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TYPE_WORDS = {"unsigned", "signed", "char", "short", "int", "long"}
_SIGNS = ("-", "+", "!", "~", "*", "&", "++", "--")
_NO_OPERAND_BEFORE = ("return", "case", "else", "do")
_AFTER_PARAMETERS = ("const", "noexcept", "override", "final", "volatile")
"""Words behind a function's parameters; the function's name may be a template's instance."""
_NO_TEMPLATE = ("&&", "||", ";", "=", "?", "{")


def with_whole_casts(text: str) -> str:
    """The text with its casts to whole numbers written as calls. Lines stay where they are."""
    tokens = tokens_of(text)
    before: dict[int, list[str]] = {}
    dropped: set[int] = set()
    for index in range(len(tokens)):
        if index not in dropped:
            _look(tokens, index, before, dropped)
    if not before:
        return text
    out: list[Token] = []
    for index, token in enumerate(tokens):
        replaced = "".join(before.get(index, ())) + ("" if index in dropped else token.text)
        out.append(Token(token.kind, replaced, token.line, token.space))
    return text_of(out)


def _look(tokens: list[Token], index: int, before: dict[int, list[str]], dropped: set[int]) -> None:
    text = tokens[index].text
    if text == "(":
        end = _type(tokens, index + 1)
        after_cast = index - 1 in dropped
        if end > index + 1 and _at(tokens, end) == ")" and (after_cast or not _is_operand(tokens, index - 1)):
            _old_cast(tokens, index, end, before, dropped)
    elif text == "static_cast" and _at(tokens, index + 1) == "<":
        end = _type(tokens, index + 2)
        if end > index + 2 and _at(tokens, end) == ">" and _at(tokens, end + 1) == "(":
            before.setdefault(index, []).append(f"kforge::whole<{_type_text(tokens, index + 2, end)}>")
            dropped.update(range(index, end + 1))
    elif text in _ONE_WORD and not _is_type_word(tokens, index - 1):
        end = _type(tokens, index)
        if end == index + 1 and _at(tokens, end) == "(":
            _call(tokens, index, before, dropped)
        elif _at(tokens, end + 1) == "=" and end < len(tokens) and tokens[end].kind == "name":
            _variable(tokens, index, end, before)


def _old_cast(tokens: list[Token], opening: int, closed: int, before: dict[int, list[str]], dropped: set[int]) -> None:
    """`(int)x`."""
    end = _operand(tokens, closed + 1)
    if end > closed + 1 and _at(tokens, closed + 1) not in _AFTER_PARAMETERS:
        before.setdefault(opening, []).append(f"kforge::whole<{_type_text(tokens, opening + 1, closed)}>(")
        before.setdefault(end, []).insert(0, ")")
        dropped.update(range(opening, closed + 1))


def _call(tokens: list[Token], index: int, before: dict[int, list[str]], dropped: set[int]) -> None:
    """`int(x)`, and not `int (*p)[4]` or `operator int()`."""
    end = _closing_or_end(tokens, index + 1)
    declared = _at(tokens, index + 2) in ("*", "&") and _at(tokens, end + 1) in ("(", "[")
    if end > index + 2 and not declared and _at(tokens, index - 1) not in ("operator", "::"):
        before.setdefault(index, []).append(f"kforge::whole<{tokens[index].text}>")
        dropped.add(index)


def _variable(tokens: list[Token], begin: int, name: int, before: dict[int, list[str]]) -> None:
    """`int n = x` of a function, the first of its variables."""
    end = name + 2
    while end < len(tokens) and tokens[end].text not in (";", ",", ")", "}", ">"):
        end = (_closing_or_end(tokens, end) if tokens[end].text in ("(", "[", "{", "[[") else end) + 1
    alone = end == name + 3 and tokens[name + 2].kind == "number"
    if end < len(tokens) and tokens[end].text == ";" and not alone and tokens[name + 2].text != "{":
        before.setdefault(name + 2, []).append(f"kforge::initial<{_type_text(tokens, begin, name)}>(")
        before.setdefault(end, []).insert(0, ")")


def _at(tokens: list[Token], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def _type_text(tokens: list[Token], begin: int, end: int) -> str:
    return " ".join(token.text for token in tokens[begin:end])


def _type(tokens: list[Token], index: int) -> int:
    """The index behind a whole type's words; the index itself where there are none."""
    if _at(tokens, index) in _TYPE_WORDS:
        while _at(tokens, index) in _TYPE_WORDS:
            index += 1
        return index
    return index + (_at(tokens, index) in _ONE_WORD)


def _is_type_word(tokens: list[Token], index: int) -> bool:
    """Whether the words of the type have begun before."""
    return _at(tokens, index) in _TYPE_WORDS


def _is_operand(tokens: list[Token], index: int) -> bool:
    """Whether brackets behind this token are a call's, or belong to `sizeof`."""
    if index < 0:
        return False
    token = tokens[index]
    return (token.kind == "name" and token.text not in _NO_OPERAND_BEFORE) or token.text in (")", "]")


def _closing_or_end(tokens: list[Token], opening: int) -> int:
    try:
        return closing_bracket(tokens, opening)
    except SourceError:
        return len(tokens)


def _operand(tokens: list[Token], index: int) -> int:
    """The index behind what a cast is applied to: signs, further casts, a name, a number or brackets, and what follows
    them; the index itself where there is nothing.
    """
    begin = index
    while _at(tokens, index) in _SIGNS:
        index += 1
    if index >= len(tokens):
        return begin
    if tokens[index].text == "(":
        index = _closing_or_end(tokens, index) + 1
        follows = tokens[index] if index < len(tokens) else Token("end", "", 0)
        if follows.kind in ("name", "number") or follows.text == "(":
            return _operand(tokens, index)
    elif tokens[index].kind in ("name", "number", "text") or tokens[index].text == "::":
        index += 1
    else:
        return begin
    return _after_suffixes(tokens, index)


def _after_suffixes(tokens: list[Token], index: int) -> int:
    """The index behind calls, subscripts, members and a template's arguments."""
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "[["):
            index = _closing_or_end(tokens, index) + 1
        elif text in (".", "->", "::"):
            index += 3 if _at(tokens, index + 1) == "template" else 2
        elif text == "<" and tokens[index - 1].kind == "name" and (end := _arguments(tokens, index)):
            index = end + 1
        elif text in ("++", "--"):
            index += 1
        else:
            break
    return min(index, len(tokens))


def _arguments(tokens: list[Token], opening: int) -> int:
    """The `>` of a template's arguments that are called or qualified; 0 where `<` is a comparison."""
    try:
        end = closing_angle(tokens, opening)
    except SourceError:
        return 0
    inside = {token.text for token in tokens[opening:end]}
    return end if _at(tokens, end + 1) in ("(", "::") and not inside & set(_NO_TEMPLATE) else 0
