"""What GCC and clang say about loops and calls, read and cut down to what a person can use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PLACE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed|remark):\s*(?P<what>.*)"
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_CLANG_WIDTH = re.compile(r"vectorized loop \(vectorization width: (\d+)")
_CALL = re.compile(r"statement clobbers memory:.*?\b(?:__builtin_)?(\w+) \(")
_INLINE = re.compile(r"not inlinable: (?P<into>.+?)/\d+ -> (?P<what>.+?)/\d+, (?P<why>.+)")
_EXTERNAL = ("__builtin", "GOMP_", "__cxa", "operator", "std::", "pybind11::", "at::", "c10::", "torch::", "Py")
_LOOP = re.compile(r"^(?!\s*(?:#|//)).*?\b(for|while|do)\b\s*[({]")
_OF_NO_USE = ("prefetch", "loop nest containing", "outer loop")
"""Reasons that are no fault: a loop of prefetches, or one around other loops."""
_FLOAT_BYTES = 4
_NEAR = 4
_LONGEST_LINE, _LONGEST_BODY = 300, 4000
"""Nobody's source may keep the reader busy."""
_REASONS = (
    ("possible dependence", "an element may depend on one computed just before"),
    ("control flow in loop", "control flow in the loop: an early exit or a branch"),
    ("number of iterations", "the number of rounds is not known when it starts"),
    ("complicated access pattern", "its memory accesses follow no simple stride"),
    ("unsupported use in stmt", "a value carried over that is no plain sum, maximum or minimum"),
    ("no vectype for stmt", "a type or a dependence without a vector form"),
)


@dataclass(frozen=True)
class Loop:
    """A loop of the program's own source."""

    file: str
    line: int
    source: str
    """The text of that line."""
    vector_bytes: int = 0
    """Width of the vectors it uses; 0 if it runs one element at a time."""
    reason: str = ""
    """Why it does."""


@dataclass(frozen=True)
class Call:
    """A call that the compiler did not inline."""

    file: str
    line: int
    source: str
    what: str
    why: str


@dataclass
class Remarks:
    """What was said, by place."""

    loops: dict[tuple[str, int], Loop] = field(default_factory=dict)
    calls: dict[tuple[str, int, str], Call] = field(default_factory=dict)

    def vectorised(self) -> list[Loop]:
        return sorted((loop for loop in self.loops.values() if loop.vector_bytes), key=lambda loop: loop.line)

    def missed(self, texts: dict[str, str]) -> list[Loop]:
        """Innermost loops that run one element at a time: around another loop there is nothing to vectorise."""
        split = {file: lines_of(text) for file, text in texts.items()}
        found = []
        for (file, line), loop in self.loops.items():
            last = body_end(split.get(file, []), line)
            inner = any(name == file and line < other <= last for name, other in self.loops)
            if not loop.vector_bytes and not inner:
                found.append(loop)
        return sorted(found, key=lambda loop: loop.line)


def read(lines: list[str], texts: dict[str, str], remarks: Remarks) -> None:
    """Add one build's remarks; `texts` are its source files."""
    dependences: list[tuple[str, int]] = []
    split = {file: lines_of(text) for file, text in texts.items()}
    for number, line in enumerate(lines):
        said = _PLACE.match(line)
        if said is None or said["file"] not in split:
            continue
        file, what = said["file"], said["what"]
        place = int(said["line"])
        if "loop" in what and "inlin" not in what:
            place = loop_head(split[file], place)
        source = _line(split[file], place)
        wide = _WIDTH.search(what) or _CLANG_WIDTH.search(what)
        if wide:
            width = int(wide[1]) * (_FLOAT_BYTES if wide.re is _CLANG_WIDTH else 1)
            before = remarks.loops.get((file, place))
            width = max(width, before.vector_bytes if before else 0)
            remarks.loops[file, place] = Loop(_short(file), place, source, width)
            dependences.clear()
        elif "couldn't vectorize loop" in what or "loop not vectorized" in what:
            last = body_end(split[file], place)
            depends = any(name == file and place <= other <= last for name, other in dependences)
            reason = _REASONS[0][1] if depends else _reason(lines[number + 1] if number + 1 < len(lines) else "", what)
            if not any(word in reason for word in _OF_NO_USE):
                remarks.loops.setdefault((file, place), Loop(_short(file), place, source, 0, reason))
            dependences.clear()
        elif "possible dependence" in what:
            dependences.append((file, place))
        elif "not inlinable" in what:
            _read_call(what, file, place, source, remarks)


def _read_call(what: str, file: str, line: int, source: str, remarks: Remarks) -> None:
    said = _INLINE.search(what)
    if said is None:
        return
    callee = said["what"].split("(")[0].split(" ")[-1]
    if callee and not callee.startswith(_EXTERNAL) and "body not available" not in said["why"]:
        remarks.calls.setdefault((file, line, callee), Call(_short(file), line, source, callee[:80], said["why"][:80]))


def _reason(after: str, what: str) -> str:
    """In words: from the line that follows a missed loop, or from the remark itself."""
    text = what.partition("loop not vectorized:")[2] or after
    call = _CALL.search(text)
    if call:
        return f"calls {call[1]} for each element"
    for key, words in _REASONS:
        if key in text:
            return words
    plain = text.partition("not vectorized:")[2] or text.rpartition("missed:")[2] or text
    return plain.split("[-R")[0].strip(" .")[:100] or "no reason given"


def lines_of(text: str) -> list[str]:
    return [line[:_LONGEST_LINE] for line in text.splitlines()]


def loop_head(lines: list[str], line: int) -> int:
    """Where the loop begins that the compiler places at `line`, which may be its pragma or its first statement."""
    if not 1 <= line <= len(lines) or _LOOP.search(lines[line - 1]):
        return line
    if lines[line - 1].lstrip().startswith("#pragma"):
        ahead = range(line + 1, min(line + _NEAR, len(lines)) + 1)
        return next((number for number in ahead if _LOOP.search(lines[number - 1])), line)
    behind = range(line - 1, max(line - _NEAR, 0), -1)
    around = (number for number in behind if _LOOP.search(lines[number - 1]) and body_end(lines, number) >= line)
    return next(around, line)


def body_end(lines: list[str], line: int) -> int:
    """The last line of the loop that begins on `line`; that line itself where none does."""
    if not 1 <= line <= len(lines):
        return line
    start = _LOOP.search(lines[line - 1])
    if start is None:
        return line
    depth, opened, left = 0, False, _LONGEST_BODY
    for number in range(line - 1, len(lines)):
        left -= len(lines[number]) + 1
        if left < 0:
            return number
        for letter in lines[number][start.start(1) if number == line - 1 else 0 :]:
            if letter in "({":
                depth += 1
                opened = opened or letter == "{"
            elif letter in ")}":
                depth -= 1
                if letter == "}" and depth <= 0 and opened:
                    return number + 1
            elif letter == ";" and depth == 0:
                return number + 1
    return len(lines)


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].strip()[:100] if 1 <= number <= len(lines) else ""


def _short(file: str) -> str:
    """A file's name; one that was made from a hash says nothing."""
    name = file.rpartition("/")[2]
    stem, _, ending = name.rpartition(".")
    return f"source.{ending}"[:60] if re.fullmatch(r"[0-9a-f]{12,}", stem) else name[:60]
