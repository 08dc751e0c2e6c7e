"""`c ? a : b` where one side is a number of 16 bits that this compiler has no type for.

Such a number is a class, which turns into a float and is made from one: C++ then finds two ways to make both sides one
type and takes neither. Written again, each side says what it is: `kforge::arm` and `kforge::result` in
`native/halves.h` see only those classes, and leave what else stands there as it is.
"""

from __future__ import annotations

import re

from kforge.emulation.tokens import SourceError, Token, closing_bracket, text_of, tokens_of

_AMBIGUOUS = re.compile(r"\?:\W? have different types|conditional expression is ambiguous")
_OPENING = {")": "(", "]": "[", "}": "{"}
_BEGINS_AFTER = {
    *(";", ",", "?", ":", "(", "[", "{", "return", "else", "do", "case"),
    *("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="),
}
_CONTINUES = {".", "+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "?"}


def is_ambiguous(errors: str) -> bool:
    """Whether a compiler found two ways to make both sides one type."""
    return _AMBIGUOUS.search(errors) is not None


def with_arms(text: str) -> str:
    """C++ in which each conditional says of both its sides which types they have. Lines stay where they are."""
    tokens = tokens_of(text)
    before: dict[int, str] = {}
    for index, token in enumerate(tokens):
        if token.text == "?":
            _rewrite(tokens, index, before)
    if not before:
        return text
    return text_of([_with_prefix(token, before.get(index, "")) for index, token in enumerate(tokens)])


def _with_prefix(token: Token, text: str) -> Token:
    return Token(token.kind, text + token.text, token.line, token.space) if text else token


def _rewrite(tokens: list[Token], question: int, before: dict[int, str]) -> None:
    """Note what to write before which token. Conditionals come from the left: an outer one is written first."""
    begin = _begin(tokens, question)
    colon = _end(tokens, question + 1)
    if colon >= len(tokens) or tokens[colon].text != ":" or begin == question:
        return
    end = _end(tokens, colon + 1)
    if end >= len(tokens):
        return
    for index, text in (
        (begin, "(kforge::result, "),
        (question + 1, "(kforge::arm, "),
        (colon, ")"),
        (colon + 1, "(kforge::arm, "),
        (end, "))"),
    ):
        before[index] = before.get(index, "") + text


def _begin(tokens: list[Token], question: int) -> int:
    """Where the condition begins."""
    index = question
    while index > 0:
        token = tokens[index - 1]
        if token.text in _BEGINS_AFTER:
            break
        if token.text == "}" and tokens[index].text not in _CONTINUES:
            break
        if token.text in _OPENING:
            opening = _opening(tokens, index - 1)
            if opening < 0 or (token.text == ")" and _is_header(tokens, opening)):
                break
            index = opening
        else:
            index -= 1
    return index


def _is_header(tokens: list[Token], opening: int) -> bool:
    """Whether brackets belong to an `if` or a loop, and a statement follows them."""
    texts = [token.text for token in tokens[max(0, opening - 2) : opening]]
    return texts[-1:] in (["if"], ["for"], ["while"], ["switch"]) or texts == ["if", "constexpr"]


def _opening(tokens: list[Token], index: int) -> int:
    depth = 0
    while index >= 0:
        text = tokens[index].text
        depth += text in (")", "]", "}")
        depth -= 2 if text == "[[" else text in ("(", "[", "{")
        if depth <= 0:
            return index
        index -= 1
    return index


def _end(tokens: list[Token], index: int) -> int:
    """Where the expression that begins here ends: at its own `:`, or at what no expression contains."""
    within = 0
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{", "[["):
            try:
                index = closing_bracket(tokens, index)
            except SourceError:
                return len(tokens)
        elif text in (")", "]", "}", ";", ",") or (text == ":" and not within):
            return index
        else:
            within += (text == "?") - (text == ":")
        index += 1
    return index
