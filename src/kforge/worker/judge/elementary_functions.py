"""Which code in torch's own library is an elementary function: tanh, exp and the like, vectorised.

torch's headers (`at::vec`) call Sleef, whose functions lie in `libtorch_cpu.so` beside torch's operators. A kernel
computes with them as it does with libm's. They are told by the symbols that the library itself exports; where it
exports none of them, nothing is an elementary function.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import mmap
import os
import struct
from typing import NamedTuple

import torch

_PREFIX = b"Sleef_"
_MAGIC = b"\x7fELF\x02\x01"
"""An ELF file of 64 bits, least significant byte first: those of x86_64 and aarch64."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOADED, _DYNAMIC_SYMBOLS, _FUNCTION = 1, 11, 2

Range = tuple[int, int]
"""First byte, and the one after the last."""


class _Segment(NamedTuple):
    address: int
    offset: int
    size: int


def torch_library() -> str:
    """The file of torch's operators on the processor, as the kernel names it."""
    return os.path.realpath(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))


def is_elementary(path: str, offset: int) -> bool:
    """Whether a place in a mapped file is in an elementary function of torch's own library."""
    return path == torch_library() and contains(function_ranges(path), offset)


def contains(ranges: tuple[Range, ...], offset: int) -> bool:
    """Whether an offset lies in one of these ranges, which are in order and apart."""
    place = bisect.bisect_right(ranges, offset, key=lambda item: item[0]) - 1
    return place >= 0 and offset < ranges[place][1]


@functools.cache
def function_ranges(path: str) -> tuple[Range, ...]:
    """Where elementary functions lie in a library's file, in order and apart; none where it cannot be read."""
    with (
        contextlib.suppress(OSError, ValueError, IndexError, OverflowError, struct.error),
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return merge_ranges(_read_ranges(data))
    return ()


def _read_ranges(data: mmap.mmap) -> list[Range]:
    if data[: len(_MAGIC)] != _MAGIC:
        return []
    segments_at, sections_at = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, section_size, section_count = struct.unpack_from("<HHHH", data, 54)
    loaded = []
    for number in range(segment_count):
        kind, _, offset, address, _, size, _, _ = _SEGMENT.unpack_from(data, segments_at + number * segment_size)
        if kind == _LOADED:
            loaded.append(_Segment(address, offset, size))
    sections = [_SECTION.unpack_from(data, sections_at + number * section_size) for number in range(section_count)]
    ranges = []
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind == _DYNAMIC_SYMBOLS:
            names_at = sections[link][4]
            for name, info, _, section, address, length in _SYMBOL.iter_unpack(data[offset : offset + size]):
                # Section 0 holds what another library defines.
                if section and info & 0xF == _FUNCTION and _is_named(data, names_at + name):
                    ranges += _place_in_file(address, length, loaded)
    return ranges


def _is_named(data: mmap.mmap, start: int) -> bool:
    return data[start : start + len(_PREFIX)] == _PREFIX


def _place_in_file(address: int, length: int, loaded: list[_Segment]) -> list[Range]:
    return [
        (address - segment.address + segment.offset, address - segment.address + segment.offset + length)
        for segment in loaded
        if segment.address <= address and address + length <= segment.address + segment.size
    ]


def merge_ranges(ranges: list[Range]) -> tuple[Range, ...]:
    """The same places in ranges that are in order and apart."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
