"""What GCC and clang say about loops and calls, read and cut down to what a person can use."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

from kforge.profilers import _reasons
from kforge.profilers._format import cut
from kforge.profilers._source import Source

_PLACE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed|remark|note):\s*(?P<what>.*)"
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_ANY_WIDTH, _LEAST_BYTES = "loop vectorized using variable length vectors", 16
"""The remark on SVE's vectors, whose length the processor chooses: 16 bytes at least."""
_CLANG_WIDTH = re.compile(r"vectorized loop \(vectorization width: (\d+)")
_PART = "basic block part vectorized"
_IN_ORDER = "using an in-order (fold-left) reduction"
_CARRIED = re.compile(r"operand ([A-Za-z]\w*)_\d+ = PHI.*type of def: (?:reduction|unknown)")
_TYPE = re.compile(r"^\s*scalar_type:\s*(.*)|no vectype for stmt: (.*)")
_INLINE = re.compile(r"not inlinable: (?P<into>.+?)/\d+ -> (?P<what>.+?)/\d+, (?P<why>.+)")
_EXTERNAL = ("__builtin", "GOMP_", "__cxa", "operator", "std::", "pybind11::", "at::", "c10::", "torch::", "Py")
_FLOAT_BYTES = 4
_LONGEST_SOURCE, _LONGEST_NAME = 100, 80


@dataclass(frozen=True)
class LoopRemark:
    """A loop of the program's own source."""

    file: str
    line: int
    source: str
    """The text of that line."""
    vector_bytes: int = 0
    """Width of the vectors it uses; 0 if it runs one element at a time."""
    reason: str = ""
    """Why it runs so, or why its vectors are of little use."""
    in_order: bool = False
    """Whether its sum is taken element by element, from vectors or without them."""
    any_width: bool = False
    """Whether its vectors are as long as the processor's; `vector_bytes` is the least."""


@dataclass(frozen=True)
class CallRemark:
    """A call that the compiler did not inline."""

    file: str
    line: int
    source: str
    what: str
    why: str


@dataclass
class Remarks:
    """What the compilers said, by place."""

    sources: dict[str, Source] = field(default_factory=dict)
    loops: dict[tuple[str, int], LoopRemark] = field(default_factory=dict)
    calls: dict[tuple[str, int, str], CallRemark] = field(default_factory=dict)
    parts: set[tuple[str, int]] = field(default_factory=set)
    """Lines outside vectorised loops whose statements were put together into vectors."""
    by_hand: set[tuple[str, int]] = field(default_factory=set)
    """Loops over vector types, as the compiler sees them."""

    def vectorised_loops(self) -> list[LoopRemark]:
        return _unique_loops([loop for loop in self.loops.values() if loop.vector_bytes and not loop.in_order])

    def missed_loops(self) -> list[LoopRemark]:
        """Innermost loops that work one element at a time, and whose author did not see to it himself."""
        inside: dict[str, list[int]] = {file: [] for file in self.sources}
        for file, line in sorted({*self.loops, *self.parts}):
            inside[file].append(line)
        return _unique_loops(
            [loop for place, loop in self.loops.items() if self._is_at_fault(place, loop, inside[place[0]])]
        )

    def calls_not_inlined(self) -> list[CallRemark]:
        return list({(call.file, call.line, call.what): call for call in self.calls.values()}.values())

    def count_by_hand(self) -> int:
        """Loops the compiler left alone because they are vectorised in the source."""
        return sum(not loop.vector_bytes and self._is_by_hand(place) for place, loop in self.loops.items())

    def _is_by_hand(self, place: tuple[str, int]) -> bool:
        return place in self.by_hand or self.sources[place[0]].is_wide(place[1])

    def _is_at_fault(self, place: tuple[str, int], loop: LoopRemark, others: list[int]) -> bool:
        """Whether a loop could be mended; `others`: the lines of all loops and vectorised parts of its file, sorted."""
        file, line = place
        source = self.sources[file]
        if source.is_remainder(line):
            return False
        if loop.in_order:
            return True
        if loop.vector_bytes or self._is_by_hand(place):
            return False
        after = bisect.bisect_right(others, line)
        around = after < len(others) and others[after] <= source.body_end(line)
        return not around and place not in self.parts


def _unique_loops(loops: list[LoopRemark]) -> list[LoopRemark]:
    return sorted({(loop.file, loop.line): loop for loop in loops}.values(), key=lambda loop: (loop.line, loop.file))


def read(lines: list[str], texts: dict[str, str], remarks: Remarks) -> None:
    """Add one build's remarks; `texts` are its source files."""
    remarks.sources |= {file: Source(text) for file, text in texts.items() if file not in remarks.sources}
    reader = _Reader(remarks, {file: remarks.sources[file] for file in texts})
    for number, line in enumerate(lines):
        remark = _PLACE.match(line)
        if remark is not None and remark["file"] in reader.sources:
            reader.take(remark, lines[number + 1 : number + 3])


@dataclass
class _Reader:
    """The remarks of one build, in the order they came: what is said of a loop comes before its outcome."""

    remarks: Remarks
    sources: dict[str, Source]
    depending: list[tuple[str, int]] = field(default_factory=list)
    in_order: set[tuple[str, int]] = field(default_factory=set)
    names: dict[tuple[str, int], str] = field(default_factory=dict)
    """Place -> the variable that is carried round."""

    def take(self, remark: re.Match[str], after: list[str]) -> None:
        file, line, what = remark["file"], int(remark["line"]), remark["what"]
        wide, carried = _WIDTH.search(what) or _CLANG_WIDTH.search(what), _CARRIED.search(what)
        if wide:
            self._add_vectorised(file, line, int(wide[1]) * (_FLOAT_BYTES if wide.re is _CLANG_WIDTH else 1))
        elif _ANY_WIDTH in what:
            self._add_vectorised(file, line, _LEAST_BYTES, any_width=True)
        elif _PART in what:
            self.remarks.parts.add((file, line))
        elif "couldn't vectorize loop" in what or "loop not vectorized" in what:
            self._add_missed(file, line, what, after)
        elif _IN_ORDER in what:
            self.in_order.add((file, line))
        elif carried:
            self.names[file, line] = carried[1]
        elif "possible dependence" in what:
            self.depending.append((file, line))
        elif "not inlinable" in what:
            self._add_call(what, file, line)

    def _add_vectorised(self, file: str, raw: int, width: int, any_width: bool = False) -> None:
        source = self.sources[file]
        place = source.loop_head(raw)
        pragma = source.pragma(raw)
        # The loop that a simd pragma's reduction ends with adds up one vector: that is in order, and nothing.
        ordered = (file, raw) in self.in_order and not ("simd" in pragma and "reduction" in pragma)
        before = self.remarks.loops.get((file, place))
        if before is not None and before.vector_bytes:
            width, ordered = max(width, before.vector_bytes), ordered or before.in_order
            any_width = any_width or before.any_width
        reason = f"vectorised, but {self._order_advice(file, raw)}" if ordered else ""
        loop = LoopRemark(_short_file(file), place, self._text(file, place), width, reason, ordered, any_width)
        self.remarks.loops[file, place] = loop
        self.depending.clear()

    def _add_missed(self, file: str, raw: int, what: str, after: list[str]) -> None:
        source = self.sources[file]
        place = source.loop_head(raw)
        last = source.body_end(place)
        reason = (
            _reasons.of_clang(what) if "loop not vectorized" in what else _reasons.of_loop(after[0] if after else "")
        )
        if any(name == file and place <= other <= last for name, other in self.depending):
            reason = _reasons.DEPENDS
        self.depending.clear()
        if reason == _reasons.CARRIED:
            reason = reason.replace("name", self.names.get((file, raw), "name"))
        # With short vectors that does not pay, and the loop is given up for its cost.
        ordered = (file, raw) in self.in_order and reason == _reasons.NO_GAIN
        if ordered:
            reason = self._order_advice(file, raw)
        if any((hit := _TYPE.search(line)) and source.is_vector_type(hit[1] or hit[2]) for line in after):
            self.remarks.by_hand.add((file, place))
        if reason != _reasons.NO_FAULT:
            loop = LoopRemark(_short_file(file), place, self._text(file, place), 0, cut(reason, 160), ordered)
            self.remarks.loops.setdefault((file, place), loop)

    def _add_call(self, what: str, file: str, line: int) -> None:
        call_site = _INLINE.search(what)
        if call_site is None:
            return
        callee = call_site["what"].split("(")[0].split(" ")[-1]
        why = _reasons.of_call(call_site["why"])
        if callee and why and not callee.startswith(_EXTERNAL):
            call = CallRemark(_short_file(file), line, self._text(file, line), cut(callee, _LONGEST_NAME), why)
            self.remarks.calls.setdefault((file, line, callee), call)

    def _order_advice(self, file: str, raw: int) -> str:
        name = self.names.get((file, raw)) or "name"
        return f"the sum is kept in order: `#pragma omp simd reduction(+:{name})` allows a real one"

    def _text(self, file: str, line: int) -> str:
        # A backtick of the program's own would end the quotation.
        return cut(self.sources[file].line(line).replace("`", "'"), _LONGEST_SOURCE)


def _short_file(file: str) -> str:
    """A file's name; one that was made from a hash says nothing."""
    name = file.rpartition("/")[2]
    stem, _, ending = name.rpartition(".")
    return f"source.{ending}"[:60] if re.fullmatch(r"[0-9a-f]{12,}", stem) else name[:60]
