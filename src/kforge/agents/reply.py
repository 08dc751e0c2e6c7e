"""The program in a model's reply, wherever the model put it.

Fences of any length, several blocks, prose around bare code, a wrong class name, a JSON wrapper, a diff against the
previous program or search-and-replace blocks: each is understood, and said in the notes. What is left is a reason.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import re
import textwrap
import tokenize
from dataclasses import dataclass

from kforge.agents import edits

WANTED = "ModelNew"
NEVER_CLOSED = "the code fence was never closed"

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(r"<(code|python|answer|program)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_START = re.compile(r"^(import |from \w[\w.]* import |class |def |@|#|\"\"\"|''')")
_STARTS, _TRIES = 8, 60
"""How long a program without a fence is searched for: each try is a parse of the whole."""
_PYTHON = ("", "python", "py", "python3", "pycon", "text", "plaintext", "txt")


@dataclass(frozen=True)
class ReplyProgram:
    """What a reply held."""

    source: str | None
    reason: str = ""
    """Why there is no program."""
    notes: tuple[str, ...] = ()
    """How it was found, where that was not straightforward."""
    misfit: bool = False
    """Whether it is a diff that does not apply to the previous program."""


@dataclass(frozen=True)
class _Block:
    language: str
    text: str
    closed: bool = True


def find_program(reply: str, previous: str | None = None) -> ReplyProgram:
    """The program in a reply; `previous` is what a diff would apply to."""
    # A lone surrogate is no text: no file could hold the program.
    text = reply.encode("utf-8", "replace").decode()
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff").replace("\u200b", "")
    if not text.strip():
        return ReplyProgram(None, "the reply was empty")
    spoken = _THOUGHT.sub("", text)
    tried = [_find(part, previous) for part in dict.fromkeys((spoken, text)) if part.strip()]
    best = next((program for program in tried if program.source is not None), tried[0] if tried else None)
    return best or ReplyProgram(None, "the reply holds thoughts and no answer")


def _find(text: str, previous: str | None) -> ReplyProgram:
    blocks = _blocks(text)
    alone = [block for block in blocks if _has_import(block.text)]
    for program in (_whole_block(alone), _join_blocks(blocks), _whole_block(blocks)):
        if program:
            return program
    edited = _apply_edits(text, blocks, previous)
    if edited.source is not None:
        return edited
    for program in (
        _rename_class(blocks),
        _unwrap_json(text, previous),
        _unfenced_program(text),
        _invalid_program(blocks),
    ):
        if program:
            return program
    return edited if edited.reason else ReplyProgram(None, _no_program_reason(text, blocks))


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks, then tagged ones; a fence left open ends with the text."""
    blocks: list[_Block] = []
    opened: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if opened is None:
            if match:
                opened, lines = match, []
            continue
        if match and not match["info"].strip() and _closes(match["fence"], opened["fence"]):
            blocks.append(_Block(_language(opened), _body(lines)))
            opened = None
            continue
        lines.append(line)
    if opened is not None and any(line.strip() for line in lines):
        blocks.append(_Block(_language(opened), _body(lines), closed=False))
    return blocks or [_Block("python", _body(match[2].split("\n"))) for match in _TAGGED.finditer(text)]


def _closes(fence: str, opened: str) -> bool:
    return fence[0] == opened[0] and len(fence) >= len(opened)


def _language(opened: re.Match[str]) -> str:
    words = opened["info"].strip().lower().split()
    return words[0].strip("{}.") if words else ""


def _body(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def _whole_block(blocks: list[_Block]) -> ReplyProgram | None:
    """The last block that is a whole program."""
    whole = [block for block in blocks if _defines(block.text, WANTED)]
    if not whole:
        return None
    notes = [f"the last of {len(whole)} programs in the reply was taken"] if len(whole) > 1 else []
    notes += [] if whole[-1].closed else [NEVER_CLOSED]
    return ReplyProgram(whole[-1].text, notes=tuple(notes))


def _join_blocks(blocks: list[_Block]) -> ReplyProgram | None:
    """A program spread over several Python blocks."""
    parts = [block for block in blocks if block.language in _PYTHON and _parse(block.text)]
    if len(parts) < 2:
        return None
    joined = "\n\n".join(block.text for block in parts)
    if _defines(joined, WANTED):
        return ReplyProgram(joined, notes=(f"{len(parts)} blocks of the reply were joined",))
    return None


def _apply_edits(text: str, blocks: list[_Block], previous: str | None) -> ReplyProgram:
    """The previous program with the reply's edits made; a reason if they do not apply."""
    pieces = [block.text for block in blocks if edits.looks_like_edits(block.text)]
    if not pieces and edits.looks_like_edits(text):
        pieces = [text]
    if not pieces:
        return ReplyProgram(None)
    if previous is None:
        return ReplyProgram(None, "the reply is a diff, and there is no previous program to apply it to")
    source = previous
    for piece in pieces:
        try:
            source = edits.apply(piece, source)
        except edits.DoesNotApply as error:
            return ReplyProgram(None, f"the reply is a diff that does not apply: {error}", misfit=True)
    if not _defines(source, WANTED):
        return ReplyProgram(None, f"with the reply's diff applied, the program has no class `{WANTED}`")
    return ReplyProgram(source, notes=("the reply was a diff against the previous program",))


def _rename_class(blocks: list[_Block]) -> ReplyProgram | None:
    """A program whose class has another name."""
    for block in reversed(blocks):
        name = _module_class(block.text)
        if name:
            renamed = _rename(block.text, name)
            return ReplyProgram(renamed, notes=(f"class `{name}` was renamed `{WANTED}`",))
    return None


def _unwrap_json(text: str, previous: str | None) -> ReplyProgram | None:
    """A program inside a JSON object."""
    stripped = text.strip()
    try:
        data = json.loads(stripped) if stripped.startswith("{") else None
    except ValueError:
        return None
    for value in data.values() if isinstance(data, dict) else ():
        if isinstance(value, str) and "class " in value:
            inner = find_program(value, previous)
            if inner.source is not None:
                return ReplyProgram(inner.source, notes=("the program was inside a JSON object", *inner.notes))
    return None


def _unfenced_program(text: str) -> ReplyProgram | None:
    """Code without any fence, prose before and after it cut off."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    ends = [number for number, line in enumerate(lines, 1) if line.strip()]
    last_code = max((number for number, line in enumerate(lines, 1) if line.startswith((" ", "\t"))), default=0)
    tries = 0
    for start in starts[:_STARTS]:
        for end in [end for end in reversed(ends) if end >= last_code]:
            tries += 1
            if tries > _TRIES:
                return None
            source = "\n".join(lines[start:end]) + "\n"
            if _defines(source, WANTED):
                return ReplyProgram(source, notes=("the program stood in the reply without a code fence",))
            name = _module_class(source)
            if name:
                note = f"class `{name}` of unfenced code was renamed `{WANTED}`"
                return ReplyProgram(_rename(source, name), notes=(note,))
    return None


def _invalid_program(blocks: list[_Block]) -> ReplyProgram | None:
    """A program that is meant to be one and is not valid Python: the judge will say where."""
    for block in reversed(blocks):
        if block.closed and re.search(rf"^class\s+{WANTED}\b", block.text, re.MULTILINE):
            return ReplyProgram(block.text, notes=("the program is not valid Python",))
    return None


def _no_program_reason(text: str, blocks: list[_Block]) -> str:
    if any(not block.closed for block in blocks):
        return "the reply ends inside its code block: it was cut off"
    if blocks:
        return f"none of the reply's {len(blocks)} code blocks defines a class `{WANTED}`"
    if re.search(rf"class\s+{WANTED}\b", text):
        return f"the reply mentions class `{WANTED}`, and no valid program could be cut out of it"
    return "the reply holds no code"


@functools.lru_cache(maxsize=8)
def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _has_import(source: str) -> bool:
    """Whether a source can stand alone: a module without a single import is a part of something."""
    tree = _parse(source)
    return tree is not None and any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)


def _defines(source: str, name: str) -> bool:
    tree = _parse(source)
    return tree is not None and any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body)


def _module_class(source: str) -> str:
    """The class that is meant: the last nn.Module no other class of the file is built from."""
    tree = _parse(source)
    if tree is None:
        return ""
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any("Module" in ast.unparse(base) for base in node.bases)
    ]
    with_forward = [
        node
        for node in classes
        if any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body)
    ]
    likely = [node for node in with_forward if "model" in node.name.lower()] or with_forward
    return likely[-1].name if likely else ""


def _rename(source: str, name: str) -> str:
    """`source` with the identifier `name` called ModelNew, strings and comments untouched."""
    lines = source.split("\n")
    places = [
        token.start
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME and token.string == name
    ]
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + WANTED + line[column + len(name) :]
    return "\n".join(lines)
