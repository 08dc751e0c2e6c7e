"""The program's own source: where a loop begins and ends, and whether its author wrote the vectors by hand."""

from __future__ import annotations

import re
from functools import cached_property

_LOOP = re.compile(r"^(?!\s*(?:#|//)).*?\b(for|while|do)\b\s*[({]")
_AHEAD, _BEHIND = 4, 40
_LONGEST_LINE, _LONGEST_BODY = 300, 8000
_EFFORT = 2_000_000
"""Letters read in search of closing braces, all in all: nobody's source may keep the reader busy."""
_VECTOR = re.compile(
    r"\b_mm\d*_|\b__m(?:64|128|256|512)|\bVectorized\b|\bat::vec\b|\bvector_size\b|\bext_vector_type\b"
    r"|\b(?:float|u?int|bfloat)\d+x\d+(?:x\d)?_t\b|\bv(?:ld|st)\d\w*_|\bsv\w+_[fsu]\d+\b|\bsimd<|\b__builtin_ia32_"
)
_VECTOR_WORD = re.compile(
    r"\bvector\(\d+\)|vector_size|ext_vector_type|Vectorized|\b__m(?:128|256|512)|\bsimd<|\w+\d+x\d+_t\b"
)
_ALIAS = (re.compile(r"\busing\s+(\w+)"), re.compile(r"\btypedef\b[^;]*?(\w+)\s*(?:;|__attribute__|\[\[)"))
_STEP = re.compile(r"\+=\s*(?:(\d+)|\w*(?:lanes|width|step|vec|size|unroll)\w*(?:::\w+)?(?:\(\))?)[uUlL]*\s*\)", re.I)
_TAIL = re.compile(r"\bfor\s*\(\s*;")
_START = re.compile(r"\bfor\s*\([^;=]*=([^;]*);")
_LIMIT = re.compile(r"\bfor\s*\([^;]*;[^;<]*<=?\s*([A-Za-z_]\w*)\s*;")
_TAIL_NEAR = 6


class Source:
    """One file. Lines are counted from 1."""

    def __init__(self, text: str) -> None:
        self.lines = [line[:_LONGEST_LINE] for line in text.splitlines()]
        self._ends: dict[int, int] = {}
        self._starts: dict[int, re.Match[str] | None] = {}
        self._effort = _EFFORT

    def line(self, number: int) -> str:
        return self.lines[number - 1].strip() if 1 <= number <= len(self.lines) else ""

    def loop_head(self, line: int) -> int:
        """Where the loop begins that the compiler places at `line`: at its pragma, or at a statement inside it."""
        if not 1 <= line <= len(self.lines) or self._is_loop(line):
            return line
        if self.line(line).startswith("#pragma"):
            ahead = range(line + 1, min(line + _AHEAD, len(self.lines)) + 1)
            return next((number for number in ahead if self._is_loop(number)), line)
        behind = range(line - 1, max(line - _BEHIND, 0), -1)
        around = (number for number in behind if self._is_loop(number) and self.body_end(number) >= line)
        return next(around, line)

    def body_end(self, line: int) -> int:
        """The last line of the loop that begins on `line`; that line itself where none does."""
        if line not in self._ends:
            self._ends[line] = self._find_end(line)
        return self._ends[line]

    def pragma(self, line: int) -> str:
        """The pragma that stands on this line, whole; empty if none does."""
        if not self.line(line).startswith("#pragma"):
            return ""
        text = self.line(line)
        while text.endswith("\\") and line < len(self.lines):
            line += 1
            text = text[:-1] + self.line(line)
        return text

    def is_vector_type(self, name: str) -> bool:
        """Whether a type of this name holds several elements."""
        return _VECTOR_WORD.search(name) is not None or any(word in self._aliases for word in re.findall(r"\w+", name))

    def is_wide(self, line: int) -> bool:
        """Whether the loop there works on vectors already, or goes several elements a round."""
        step = _STEP.search(self.line(line))
        if step is not None and (step[1] is None or int(step[1]) > 1):
            return True
        body = self.lines[line - 1 : self.body_end(line)]
        return any(_VECTOR.search(text) or not self._aliases.isdisjoint(re.findall(r"\w+", text)) for text in body)

    def is_remainder(self, line: int) -> bool:
        """Whether the loop there only does what another just before it left over."""
        head = self.line(line)
        start = _START.search(head)
        for other in range(line - 1, max(line - _BEHIND, 0), -1):
            if not self._is_loop(other) or not line - _TAIL_NEAR <= self.body_end(other) < line:
                continue
            if _TAIL.search(head) and self.is_wide(other):
                return True
            bound = _LIMIT.search(self.line(other))
            if start is not None and bound is not None and bound[1] in re.findall(r"[A-Za-z_]\w*", start[1]):
                return True
        return False

    @cached_property
    def _aliases(self) -> frozenset[str]:
        """Names that the file gives to vector types."""
        names: set[str] = set()
        for text in self.lines:
            if _VECTOR_WORD.search(text):
                names.update(hit[1] for pattern in _ALIAS if (hit := pattern.search(text)))
        return frozenset(names)

    def _is_loop(self, line: int) -> bool:
        return self._start(line) is not None

    def _start(self, line: int) -> re.Match[str] | None:
        if line not in self._starts:
            self._starts[line] = _LOOP.search(self.lines[line - 1]) if 1 <= line <= len(self.lines) else None
        return self._starts[line]

    def _find_end(self, line: int) -> int:
        start = self._start(line)
        if start is None:
            return line
        depth, opened, left = 0, False, _LONGEST_BODY
        for number in range(line - 1, len(self.lines)):
            text = self.lines[number]
            left -= len(text) + 1
            self._effort -= len(text) + 1
            if left < 0 or self._effort < 0:
                return number
            for letter in text[start.start(1) if number == line - 1 else 0 :]:
                if letter in "({":
                    depth += 1
                    opened = opened or letter == "{"
                elif letter in ")}":
                    depth -= 1
                    if letter == "}" and depth <= 0 and opened:
                        return number + 1
                elif letter == ";" and depth == 0:
                    return number + 1
        return len(self.lines)
