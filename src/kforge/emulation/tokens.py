"""Source text of C-like languages as tokens. Nothing is parsed: what is rewritten is found by its neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_TOKEN = re.compile(
    r"""(?P<marker>^\#[^\n]*$)
    |(?P<space>[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/)
    |(?P<text>(?:u8|u|U|L)?"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.]|'(?=\w))*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>\[\[|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_LINE = re.compile(r'#\s*(?:line\s+)?(\d+)(?:\s+"((?:[^"\\]|\\.)*)")?')
_LINE_OF_OURS = re.compile(r"^#line (\d+)\n", re.MULTILINE)
_PAIRS = {"(": ")", "[": "]", "{": "}", "[[": "]]"}


@dataclass(frozen=True)
class Token:
    """A word of the source. `space` is what stood before it."""

    kind: str
    text: str
    line: int
    space: str = ""

    def __str__(self) -> str:
        return self.text


class SourceError(Exception):
    """The source cannot be run here; the message says which feature, in which line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line


def tokens_of(source: str) -> list[Token]:
    """The tokens of a source; `]]` is two, since it also ends nested subscripts."""
    return list(_scan(source))


def _scan(source: str) -> Iterator[Token]:
    line, space = 1, ""
    for match in _TOKEN.finditer(source):
        kind, text = str(match.lastgroup), match[0]
        if kind == "marker":
            directive = _LINE.match(text)
            if directive:
                # The next line is the one it names.
                line = int(directive[1]) - 1
            yield Token(kind, text, line, space)
            space = ""
        elif kind == "space":
            space += text if "\n" in text or text.strip() == "" else " "
        else:
            yield Token(kind, text, line, space)
            space = ""
        line += text.count("\n")


def text_of(tokens: list[Token]) -> str:
    return "".join(token.space + token.text for token in tokens)


def text_in_lines(tokens: list[Token]) -> str:
    """The tokens' text, with each token in its own line even where others before it were left out."""
    out: list[str] = []
    line = 1
    for token in tokens:
        line += token.space.count("\n")
        missing = token.line - line if token.kind not in ("made", "marker") else 0
        out += (token.space, "\n" * missing, token.text)
        line = token.line if token.kind == "marker" else max(line, line + missing) + token.text.count("\n")
        for directive in _LINE_OF_OURS.finditer(token.text if token.kind == "made" else ""):
            line = int(directive[1]) + token.text.count("\n", directive.end())
    return "".join(out)


def substitute(text: str, like: Token) -> Token:
    """A token of our own, where another stood."""
    return replace(like, kind="made", text=text)


def closing_bracket(tokens: list[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`."""
    if opening >= len(tokens) or tokens[opening].text not in _PAIRS:
        before = tokens[min(opening, len(tokens)) - 1]
        raise SourceError(before.line, f"a bracket is missing after `{before.text}`")
    if tokens[opening].text == "[[":
        return _closing_attribute(tokens, opening)
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if text in ("(", "[", "{", "[["):
            depth += 2 if text == "[[" else 1
        elif text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return index
    raise SourceError(tokens[opening].line, f"`{tokens[opening].text}` is never closed")


def _closing_attribute(tokens: list[Token], opening: int) -> int:
    """The second of the two brackets."""
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        depth += {"[[": 2, "[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(text, 0)
        if depth == 0:
            return index
    raise SourceError(tokens[opening].line, "an attribute is never closed")


def closing_angle(tokens: list[Token], opening: int) -> int:
    """The `>` that closes a template's `<`; brackets inside may hold comparisons."""
    depth, index = 0, opening
    while index < len(tokens):
        text = tokens[index].text
        if text in ("(", "[", "{"):
            index = closing_bracket(tokens, index)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
        elif text == ";":
            break
        if depth == 0:
            return index
        index += 1
    raise SourceError(tokens[opening].line, "a template's `<` is never closed")


def split(tokens: list[Token], mark: str = ",") -> list[list[Token]]:
    """The parts between marks that stand in no bracket, not even a template's."""
    parts: list[list[Token]] = [[]]
    index = 0
    while index < len(tokens):
        text = tokens[index].text
        end = index
        if text in _PAIRS:
            end = closing_bracket(tokens, index)
        elif text == "<" and parts[-1] and parts[-1][-1].kind == "name":
            try:
                end = closing_angle(tokens, index)
            except SourceError:
                end = index
        elif text == mark:
            parts.append([])
            index += 1
            continue
        parts[-1].extend(tokens[index : end + 1])
        index = end + 1
    return parts if parts != [[]] else []
