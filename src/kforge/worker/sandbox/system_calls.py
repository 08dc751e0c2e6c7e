"""A filter on system calls: what could wake a stopped process, or work for it while it is stopped.

Timers and message queues may send any signal, the one that continues a process included; a descriptor may be told which
signal to send when data arrive; a ring of requests is worked on by the kernel's own threads; a page can be made to be
filled by somebody else, when it is read. No kernel needs any of them.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_NUMBERS = {
    "x86_64": {
        "timer_create": 222,
        "mq_notify": 244,
        "io_setup": 206,
        "io_submit": 209,
        "timerfd_create": 283,
        "perf_event_open": 298,
        "bpf": 321,
        "userfaultfd": 323,
        "io_uring_setup": 425,
    },
    "aarch64": {
        "io_setup": 0,
        "io_submit": 2,
        "timerfd_create": 85,
        "timer_create": 107,
        "mq_notify": 184,
        "perf_event_open": 241,
        "bpf": 280,
        "userfaultfd": 282,
        "io_uring_setup": 425,
    },
}
_FCNTL = {"x86_64": 72, "aarch64": 25}
_FCNTL_DENIED = (10, 1024, 1026)
"""F_SETSIG, F_SETLEASE, F_NOTIFY."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _SECOND_ARGUMENT_AT = 0, 4, 24
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand."""


def deny_what_wakes() -> bool:
    """Put the filter on this process and all it will start; says whether the kernel took it.

    The process must have given up new privileges before.
    """
    program = make_filter(platform.machine())
    if not program:
        return False
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    header = Program(len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(header), 0, 0) == 0)


def make_filter(machine: str) -> list[Instruction]:
    """The instructions of the kernel's packet filter, for calls of this architecture; empty for one not known."""
    if machine not in _ARCHITECTURES:
        return []
    denied = list(_NUMBERS[machine].values())
    refuse = (_RETURN, 0, 0, _FAIL | errno.EPERM)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        # Calls of another architecture have other numbers: none of them is let through.
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        refuse,
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), refuse]
    for number in denied:
        program += [(_EQUAL, 0, 1, number), refuse]
    program += [
        (_EQUAL, 0, 1 + 2 * len(_FCNTL_DENIED), _FCNTL[machine]),
        (_LOAD, 0, 0, _SECOND_ARGUMENT_AT),
    ]
    for command in _FCNTL_DENIED:
        program += [(_EQUAL, 0, 1, command), refuse]
    return [*program, (_RETURN, 0, 0, _ALLOW)]
