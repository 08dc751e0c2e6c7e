"""Whole numbers that a program gives names to: a buffer's number may be one of them."""

from __future__ import annotations

import re

from kforge.emulation.tokens import SourceError, Token, closing_bracket, split

_DIGITS = re.compile(r"^(?:(0[xX][0-9a-fA-F]+|0[bB][01]+|0|[1-9]\d*)|0([0-7]+))[uUlL]*$")
_KINDS = {"int", "uint", "short", "ushort", "long", "ulong", "char", "uchar", "size_t", "auto", "int32_t", "uint32_t"}
_BINDING = {"*": 3, "/": 3, "%": 3, "+": 2, "-": 2, "<<": 1, "|": 0}


def whole_number(tokens: list[Token], known: dict[str, int]) -> int | None:
    """The value of an expression of constants; None for anything else."""
    value, end = _sum(tokens, 0, known, 0)
    return value if end == len(tokens) else None


def whole_numbers(tokens: list[Token]) -> dict[str, int]:
    """Name -> value, of a program's enumerations and constants."""
    known: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.text == "enum":
            _enumeration(tokens, index, known)
        elif token.text in _KINDS and [item.text for item in tokens[index + 2 : index + 3]] == ["="]:
            _constant(tokens, index, known)
    return known


def _enumeration(tokens: list[Token], index: int, known: dict[str, int]) -> None:
    opening = index
    while opening < len(tokens) and tokens[opening].text not in ("{", ";", ")"):
        opening += 1
    if opening == len(tokens) or tokens[opening].text != "{":
        return
    following: int | None = 0
    before = [token.text for token in tokens[index + 1 : opening]]
    prefix = f"{before[1]}::" if before[:1] in (["class"], ["struct"]) and len(before) > 1 else ""
    for part in split(tokens[opening + 1 : closing_bracket(tokens, opening)]):
        if not part:
            continue
        if len(part) > 2 and part[1].text == "=":
            following = whole_number(part[2:], known)
        if following is None:
            return
        known[prefix + part[0].text] = following
        following += 1


def _constant(tokens: list[Token], index: int, known: dict[str, int]) -> None:
    """`constant int name = 3;`, from the type on."""
    if not index or tokens[index - 1].text not in ("constant", "constexpr", "const"):
        return
    end = index + 3
    while end < len(tokens) and tokens[end].text not in (";", ","):
        end += 1
    value = whole_number(tokens[index + 3 : end], known)
    if value is not None:
        known[tokens[index + 1].text] = value


def _sum(tokens: list[Token], index: int, known: dict[str, int], least: int) -> tuple[int | None, int]:
    """The value of operands joined by marks that bind as tightly as `least` or more, and the index behind them."""
    value, index = _operand(tokens, index, known)
    while value is not None and index < len(tokens) and _BINDING.get(tokens[index].text, -1) >= least:
        mark = tokens[index].text
        right, index = _sum(tokens, index + 1, known, _BINDING[mark] + 1)
        value = _combine(mark, value, right)
    return value, index


def _combine(mark: str, left: int, right: int | None) -> int | None:
    if right is None or (mark in "/%" and right == 0) or (mark == "<<" and not 0 <= right < 64):
        return None
    return {
        "*": lambda: left * right,
        "/": lambda: int(left / right),
        "%": lambda: left - right * int(left / right),
        "+": lambda: left + right,
        "-": lambda: left - right,
        "<<": lambda: left << right,
        "|": lambda: left | right,
    }[mark]()


def _operand(tokens: list[Token], index: int, known: dict[str, int]) -> tuple[int | None, int]:
    if index >= len(tokens):
        return None, index
    token = tokens[index]
    if token.text == "(":
        try:
            end = closing_bracket(tokens, index)
        except SourceError:
            return None, index
        return whole_number(tokens[index + 1 : end], known), end + 1
    if token.kind == "number":
        digits = _DIGITS.match(token.text)
        return (None if not digits else int(digits[1], 0) if digits[1] else int(digits[2], 8)), index + 1
    name, end = token.text, index + 1
    while token.kind == "name" and end + 1 < len(tokens) and tokens[end].text == "::":
        name += "::" + tokens[end + 1].text
        end += 2
    return known.get(name), end
