"""A kernel, its buffers and its grid: run to the end, or a sentence that says what went wrong and where."""

from __future__ import annotations

import ctypes
import operator
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kforge.emulation import native_build
from kforge.emulation.entries import excess_of

MOST_THREADS = 1024
GROUP_MEMORY = 32 << 10
_MOST_COUNTED = (1 << 32) - 1
_BUFFER = re.compile(r"buffer (\d+)")
_MOST_NOTED = 1000
_MOST_BUFFERS, _MOST_STORAGES = 256, 1024
"""As the runtime has room for (native/memory.h)."""
_launched: list[str] = []


class KernelFault(RuntimeError):
    """A kernel did what it must not do, or what the emulator noticed it doing."""


@dataclass(frozen=True)
class Buffer:
    """Memory bound to a number: a stretch of a storage, which several buffers may share."""

    storage: int
    """The storage's address."""
    storage_bytes: int
    offset: int


@dataclass(frozen=True)
class StoredAddress:
    """An address that stands in memory: in a table of pointers, or in a struct."""

    place: Buffer
    """Where it stands."""
    target: Buffer
    """What it leads to."""


@dataclass(frozen=True)
class LaunchRequest:
    """What to run: all a launch needs beside the library."""

    kernel: str
    entry: str
    buffers: dict[int, Buffer]
    grid: tuple[int, int, int]
    """The grid's size in threads."""
    group: tuple[int, int, int]
    checked: bool = False
    group_memory: int = GROUP_MEMORY
    exited_threads_count: bool = False
    """Whether a barrier counts threads that have returned."""
    dynamic_group_bytes: int = 0
    """Bytes for a shared variable whose size the launch gives."""
    least_alignment: int = 0
    """From how many bytes on a misaligned address is a fault, where the build looks for them."""
    most_groups: tuple[int, int, int] = (_MOST_COUNTED, _MOST_COUNTED, _MOST_COUNTED)
    """The most groups in each direction."""
    most_group: tuple[int, int, int] = (MOST_THREADS, MOST_THREADS, MOST_THREADS)
    """The most threads of a group in each direction."""
    names: dict[int, str] = field(default_factory=dict)
    """Buffer -> what the kernel calls it."""
    addresses: tuple[StoredAddress, ...] = ()
    """Addresses in the memory of buffers, and in memory that they lead to."""


class _Storage(ctypes.Structure):
    _fields_ = (("host", ctypes.c_void_p), ("bytes", ctypes.c_uint64))


class _Binding(ctypes.Structure):
    _fields_ = (
        ("storage", ctypes.c_int32),
        ("unused", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    )


class _StoredAddress(ctypes.Structure):
    _fields_ = (
        ("storage", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("at", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("storages", ctypes.POINTER(_Storage)),
        ("bindings", ctypes.POINTER(_Binding)),
        ("addresses", ctypes.POINTER(_StoredAddress)),
        ("storage_count", ctypes.c_uint32),
        ("binding_count", ctypes.c_uint32),
        ("address_count", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("group", ctypes.c_uint32 * 3),
        ("workers", ctypes.c_uint32),
        ("checked", ctypes.c_uint32),
        ("group_memory_bytes", ctypes.c_uint32),
        ("exited_threads_count", ctypes.c_uint32),
        ("dynamic_group_bytes", ctypes.c_uint32),
        ("least_alignment", ctypes.c_uint32),
    )


class _Report(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int32),
        ("line", ctypes.c_uint32),
        ("pc", ctypes.c_uint64),
        ("group", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("message", ctypes.c_char * 1000),
    )


def launch(built: native_build.Built, order: LaunchRequest, source: str = "") -> None:
    """Run a kernel; KernelFault with a sentence where it cannot be run to its end."""
    _check_sizes(order)
    if 0 in order.grid:
        return
    _check_shared(built, order, source)
    storages: dict[tuple[int, int], int] = {}
    for buffer in (*order.buffers.values(), *(address.target for address in order.addresses)):
        storages.setdefault((buffer.storage, buffer.storage_bytes), len(storages))
    count = max(order.buffers, default=-1) + 1
    if count > _MOST_BUFFERS or len(storages) > _MOST_STORAGES:
        raise KernelFault(
            f"{order.kernel}: {count} arguments, and memory in {len(storages)} places; the emulator takes "
            f"{_MOST_BUFFERS} and {_MOST_STORAGES}"
        )
    bindings = (_Binding * max(count, 1))(*[_Binding(-1, 0, 0, 0)] * max(count, 1))
    for number, buffer in order.buffers.items():
        place = storages[(buffer.storage, buffer.storage_bytes)]
        bindings[number] = _Binding(place, 0, buffer.offset, buffer.storage_bytes - buffer.offset)
    addresses = (_StoredAddress * max(len(order.addresses), 1))(
        *(
            _StoredAddress(
                storages[(one.place.storage, one.place.storage_bytes)],
                storages[(one.target.storage, one.target.storage_bytes)],
                one.place.offset,
                one.target.offset,
            )
            for one in order.addresses
        )
    )
    held = (_Storage * max(len(storages), 1))(*(_Storage(address, size) for address, size in storages))
    entry = ctypes.cast(getattr(built.library, order.entry), ctypes.c_void_p)
    native_launch = _Launch(
        entry,
        held,
        bindings,
        addresses,
        len(storages),
        count,
        len(order.addresses),
        (ctypes.c_uint32 * 3)(*order.grid),
        (ctypes.c_uint32 * 3)(*order.group),
        _workers(),
        order.checked,
        order.group_memory,
        order.exited_threads_count,
        order.dynamic_group_bytes,
        order.least_alignment,
    )
    report = _Report()
    if ctypes.CDLL(str(native_build.runtime())).kforge_launch(ctypes.byref(native_launch), ctypes.byref(report)):
        raise KernelFault(_sentence(built, order, report, source))
    if len(_launched) < _MOST_NOTED:
        _launched.append(order.kernel)


def take_launched() -> list[str]:
    """Names of the kernels that ran to their end since this was last asked."""
    names = _launched.copy()
    _launched.clear()
    return names


def sizes(value: int | Sequence[int], what: str) -> tuple[int, ...]:
    """One to three whole numbers, as a launch is given them."""
    try:
        counts = tuple(map(operator.index, value if isinstance(value, Sequence) else (value,)))
    except TypeError:
        counts = ()
    if not 1 <= len(counts) <= 3:
        raise KernelFault(f"{what} is one to three whole numbers, not {value!r}")
    return counts


def pad_to_three(counts: tuple[int, ...]) -> tuple[int, int, int]:
    """The sizes, with 1 for those that were left out."""
    x, y, z = (*counts, 1, 1)[:3]
    return x, y, z


def _check_sizes(order: LaunchRequest) -> None:
    threads = order.group[0] * order.group[1] * order.group[2]
    if threads > MOST_THREADS:
        sizes = " x ".join(map(str, order.group))
        raise KernelFault(f"{order.kernel}: a group of {sizes} = {threads} threads; {MOST_THREADS} are allowed")
    if min(order.group) < 1 or min(order.grid) < 0:
        raise KernelFault(
            f"{order.kernel}: a grid of {order.grid} threads in groups of {order.group}: a group has at least one "
            "thread in each direction, and a grid none or more"
        )
    if max(order.grid) > _MOST_COUNTED:
        raise KernelFault(f"{order.kernel}: a grid of {order.grid} threads; a position is a number of 32 bits")
    for axis, threads, group, most, most_group in zip(
        "xyz", order.grid, order.group, order.most_groups, order.most_group, strict=True
    ):
        if group > most_group:
            raise KernelFault(f"{order.kernel}: a group of {group} threads in {axis}; {most_group} are allowed there")
        if -(-threads // group) > most:
            raise KernelFault(f"{order.kernel}: {-(-threads // group)} groups in {axis}; {most} are allowed there")


def _check_shared(built: native_build.Built, order: LaunchRequest, source: str) -> None:
    """KernelFault where shared variables are too large: what a kernel declares counts, whether it is reached or not."""
    excess = getattr(built.library, excess_of(order.entry), None)
    if excess is None:
        return
    size = ctypes.c_uint64()
    limit = order.group_memory - order.dynamic_group_bytes
    line = excess(ctypes.c_uint64(limit), ctypes.byref(size))
    if line:
        what = f"a group's shared variables take {size.value} bytes, and it may have {limit}"
        raise KernelFault(f"{order.kernel}, line {line}: {what}{_source_line(source, line)}")


def _sentence(built: native_build.Built, order: LaunchRequest, report: _Report, source: str) -> str:
    line = report.line or _line(built.path, report.pc)
    what = _BUFFER.sub(lambda match: _with_name(match, order.names), report.message.decode(errors="replace"))
    place = f", line {line}" if line else ""
    sentence = f"{order.kernel}{place}: {what}\n  (thread {tuple(report.thread)} of group {tuple(report.group)})"
    return sentence + _source_line(source, line)


def _source_line(source: str, line: int) -> str:
    lines = source.splitlines()
    return f"\n  {line} | {lines[line - 1].strip()[:160]}" if 0 < line <= len(lines) else ""


def _with_name(match: re.Match[str], names: dict[int, str]) -> str:
    name = names.get(int(match[1]))
    return f"{match[0]} (`{name}`)" if name else match[0]


def _line(path: Path, pc: int) -> int:
    if not pc:
        return 0
    base = _base(path)
    return native_build.line_of(path, base, pc) if base else 0


def _base(path: Path) -> int:
    """Where this process has a library; 0 where that cannot be told."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                if line.rstrip().endswith(str(path)):
                    return int(line.split("-")[0], 16)
    except OSError:
        pass
    return 0


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
