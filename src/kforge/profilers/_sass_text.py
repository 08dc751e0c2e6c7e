"""What cuobjdump says of a program's device code: resources per kernel, and the instructions that matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kforge.profilers._kernel_names import short_name

_FUNCTION = re.compile(r"^\s*Function\s*:\s*(\S+)")
_RESOURCES = re.compile(r"^\s*Function (\S+?):\s*$")
_USED = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)")
_TENSOR = re.compile(r"^(?:[HIDBQO]G?MMA|UTC[HIQO]?MMA)$")
_ATOMIC = ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "UBLKRED", "REDAS")
_DOUBLE = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
_SPILL = ("LDL", "STL")
_ASYNCHRONOUS = ("LDGSTS", "UBLKCP", "UTMALDG")
_BITS = re.compile(r"\.(8|16|32|64|128|256|[US]8|[US]16)\b")
_MOST_LINES, _MOST_FUNCTIONS = 2_000_000, 500


@dataclass
class SassFunction:
    """One kernel's code."""

    name: str
    registers: int = 0
    stack_bytes: int = 0
    """Spilled registers and arrays that are not in registers."""
    shared_bytes: int = 0
    """Static shared memory."""
    instructions: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """tensor, atomic, fp64, spill, special, asynchronous, fma -> instructions of that kind."""
    loads: dict[int, int] = field(default_factory=dict)
    """Width in bits -> global loads of that width."""
    stores: dict[int, int] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        return self.counts.get(kind, 0)


def functions(resources: str, sass: str) -> list[SassFunction]:
    """The kernels of both texts, in the order they appear."""
    by_name: dict[str, SassFunction] = {}
    _read_resources(resources, by_name)
    _read_code(sass, by_name)
    return list(by_name.values())


def _get(by_name: dict[str, SassFunction], mangled: str) -> SassFunction | None:
    if mangled not in by_name and len(by_name) >= _MOST_FUNCTIONS:
        return None
    return by_name.setdefault(mangled, SassFunction(short_name(mangled)))


def _lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        if number >= _MOST_LINES:
            return
        yield line[:300]


def _read_resources(text: str, by_name: dict[str, SassFunction]) -> None:
    current: SassFunction | None = None
    for line in _lines(text):
        named = _RESOURCES.match(line)
        if named:
            current = _get(by_name, named[1])
        elif current is not None and "REG:" in line:
            used = {name: int(value) for name, value in _USED.findall(line)}
            current.registers = used.get("REG", 0)
            current.stack_bytes = max(used.get("STACK", 0), used.get("LOCAL", 0))
            current.shared_bytes = used.get("SHARED", 0)
            current = None


def _read_code(text: str, by_name: dict[str, SassFunction]) -> None:
    current: SassFunction | None = None
    for line in _lines(text):
        named = _FUNCTION.match(line)
        if named:
            current = _get(by_name, named[1])
            continue
        instruction = _INSTRUCTION.match(line) if current is not None else None
        if instruction is not None and current is not None:
            _count(current, instruction[1], instruction[2])


def _count(function: SassFunction, operation: str, modifiers: str) -> None:
    if operation == "NOP":
        return
    function.instructions += 1
    if operation in ("LDG", "STG"):
        widths = function.loads if operation == "LDG" else function.stores
        bits = _bits(modifiers)
        widths[bits] = widths.get(bits, 0) + 1
        return
    kind = _kind(operation)
    if kind:
        function.counts[kind] = function.counts.get(kind, 0) + 1


def _kind(operation: str) -> str:
    if _TENSOR.match(operation):
        return "tensor"
    if operation in _ATOMIC:
        return "atomic"
    if operation in _DOUBLE:
        return "fp64"
    if operation in _SPILL:
        return "spill"
    if operation in _ASYNCHRONOUS:
        return "asynchronous"
    return {"MUFU": "special", "FFMA": "fma", "HFMA2": "fma"}.get(operation, "")


def _bits(modifiers: str) -> int:
    """The width of an access; 32 where none is written."""
    width = _BITS.search(modifiers)
    return int(width[1].lstrip("US")) if width else 32
