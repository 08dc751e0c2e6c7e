"""Where lanes that parted meet again: behind a branch or a loop, and before a loop's next turn.

A GPU's lanes run in step. Here each runs until it has to wait for the others, so one that skips what its neighbours do
together must wait for them. Only statements in which lanes do something together are concerned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.emulation.msl_functions import MslFunction, functions
from kforge.emulation.tokens import SourceError, Token, closing_bracket, substitute

_TOGETHER = re.compile(r"^(?:simd|quad)_\w+$|^simdgroup_(?:load|store|multiply\w*|barrier)$")


def with_meetings(tokens: list[Token]) -> list[Token]:
    """The tokens, with `kforge::meet` where lanes meet."""
    definitions = functions(tokens)
    insertions = _Insertions({}, _names_of(tokens, definitions))
    for function in definitions:
        if insertions.has_joint_calls(tokens, function.body, function.end):
            _block(tokens, function.body, insertions)
    if not insertions.before:
        return tokens
    out: list[Token] = []
    for index, token in enumerate(tokens):
        out += (substitute(text, Token("made", "", token.line)) for text in insertions.before.get(index, ()))
        out.append(token)
    return out


@dataclass(frozen=True)
class _Insertions:
    before: dict[int, list[str]]
    """Index of a token -> what to write before it."""
    names: set[str]
    """The program's own functions in which lanes do something together."""

    def add(self, index: int, text: str, first: bool = False) -> None:
        texts = self.before.setdefault(index, [])
        texts.insert(0 if first else len(texts), text)

    def has_joint_calls(self, tokens: list[Token], begin: int, end: int) -> bool:
        return any(_is_call(tokens, index, self.names) for index in range(begin, end))

    def place(self, tokens: list[Token], end: int) -> str:
        """A place, as text: after all that stands on the line, and after the places that ended before."""
        return f"{tokens[end].line}, {end}"


def _is_call(tokens: list[Token], index: int, names: set[str]) -> bool:
    token = tokens[index]
    if token.kind != "name" or index + 1 >= len(tokens) or tokens[index + 1].text not in ("(", "<"):
        return False
    return token.text in names or _TOGETHER.match(token.text) is not None


def _names_of(tokens: list[Token], definitions: list[MslFunction]) -> set[str]:
    names: set[str] = set()
    while True:
        more = {
            tokens[function.opening - 1].text
            for function in definitions
            if any(_is_call(tokens, index, names) for index in range(function.body, function.end))
        }
        if more <= names:
            return names
        names |= more


def _block(tokens: list[Token], opening: int, insertions: _Insertions) -> int:
    """Look into the statements between braces; the index behind them."""
    end = closing_bracket(tokens, opening)
    index = opening + 1
    while index < end:
        begin = _skip_markers(tokens, index, end)
        if begin >= end:
            break
        index = max(_statement(tokens, begin, insertions), begin + 1)
        parts = tokens[begin].text in ("if", "for", "while", "do", "switch")
        if parts and insertions.has_joint_calls(tokens, begin, index):
            insertions.add(index, f" kforge::meet({insertions.place(tokens, index - 1)});", first=True)
    return end + 1


def _skip_markers(tokens: list[Token], index: int, end: int) -> int:
    while index < end and tokens[index].kind == "marker":
        index += 1
    return index


def _statement(tokens: list[Token], index: int, insertions: _Insertions) -> int:
    """Look into one statement; the index behind it."""
    index = _skip_markers(tokens, index, len(tokens))
    if index >= len(tokens):
        raise SourceError(tokens[-1].line, "a statement is missing at the end")
    text = tokens[index].text
    if text == "{":
        return _block(tokens, index, insertions)
    if text in ("if", "switch"):
        header = index + 2 if tokens[index + 1].text == "constexpr" else index + 1
        end = _statement(tokens, closing_bracket(tokens, header) + 1, insertions)
        following = _skip_markers(tokens, end, len(tokens))
        if text == "if" and following < len(tokens) and tokens[following].text == "else":
            return _statement(tokens, following + 1, insertions)
        return end
    if text in ("for", "while"):
        body = _skip_markers(tokens, closing_bracket(tokens, index + 1) + 1, len(tokens) - 1)
        end = _statement(tokens, body, insertions)
        if _turns_apart(tokens, body, end, insertions):
            _turn(tokens, index, insertions.place(tokens, end - 1), insertions)
        return end
    if text == "do":
        end = _statement(tokens, index + 1, insertions)
        if _turns_apart(tokens, index + 1, end, insertions):
            _turn(tokens, end, insertions.place(tokens, end - 1), insertions)
        return closing_bracket(tokens, end + 1) + 2
    if text in ("case", "default"):
        while index < len(tokens) and tokens[index].text not in (":", "}"):
            index += 1
        return index + (index < len(tokens) and tokens[index].text == ":")
    return _simple(tokens, index)


def _simple(tokens: list[Token], index: int) -> int:
    while index < len(tokens) and tokens[index].text != ";":
        if tokens[index].text == "}":
            return index
        index = closing_bracket(tokens, index) if tokens[index].text in ("(", "[", "{", "[[") else index
        index += 1
    return min(index + 1, len(tokens))


def _turns_apart(tokens: list[Token], body: int, end: int, insertions: _Insertions) -> bool:
    """Whether a lane may begin the next turn of a loop without having met the others in this one."""
    texts = {token.text for token in tokens[body:end]}
    skips = "continue" in texts or (tokens[body].text != "{" and bool(texts & {"if", "for", "while", "switch"}))
    return skips and insertions.has_joint_calls(tokens, body, end)


def _turn(tokens: list[Token], loop: int, place: str, insertions: _Insertions) -> None:
    """Write a meeting into the brackets of a loop, where each turn passes."""
    opening = loop + 1
    end = closing_bracket(tokens, opening)
    if tokens[loop].text == "while":
        insertions.add(opening + 1, f"kforge::meet({place}), (")
        insertions.add(end, ")")
        return
    marks, index = 0, opening + 1
    while index < end and marks < 2:
        if tokens[index].text in ("(", "[", "{"):
            index = closing_bracket(tokens, index)
        marks += tokens[index].text == ";"
        index += 1
    if marks == 2:
        insertions.add(index, f" kforge::meet({place})" + ("," if index < end else ""))
