"""Where the invalid access was that ended a runner: its last act is to write the address down for its keeper.

The handler is machine code, for the two processors that KForge is used on: the access may be made by any thread, at a
moment when no other code can run. It changes nothing else. The default action follows, and ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
import struct
import sys

_SA_SIGINFO, _SA_ONSTACK, _SA_RESETHAND = 0x4, 0x08000000, 0x80000000
_READ_EXECUTE = 0x1 | 0x4
_FORM = struct.Struct("=QQ")
"""The address of the access, and that of the inputs."""


class _Action(ctypes.Structure):
    """C's `struct sigaction`."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class FaultRecord:
    """A page that a runner shares with its keeper, who makes it before the fork."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._code: mmap.mmap | None = None

    def install(self) -> None:
        """In the runner: have the address of an invalid access written down; nothing where that cannot be had."""
        code = _handler_code(platform.machine(), _address(self._page))
        if sys.platform != "linux" or not code:
            return
        self._code = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._code[: len(code)] = code
        address = _address(self._code)
        libc = ctypes.CDLL(None)
        if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), _READ_EXECUTE) == 0:
            flags = ctypes.c_int(_SA_SIGINFO | _SA_ONSTACK | _SA_RESETHAND).value
            action = _Action(handler=address, flags=flags)
            libc.sigaction(int(signal.SIGSEGV), ctypes.byref(action), None)

    def note_inputs(self, address: int) -> None:
        """In the runner: where the memory of its inputs begins; 0 for nowhere."""
        _FORM.pack_into(self._page, 0, 0, address)

    def offset(self) -> int | None:
        """In the keeper: how far from the start of the inputs the access was; None where nothing is known."""
        fault, inputs = _FORM.unpack_from(self._page)
        return fault - inputs if fault and inputs else None


def _handler_code(machine: str, target: int) -> bytes:
    """A handler that stores its second argument's `si_addr` at an address; empty for a machine not known."""
    if machine == "x86_64":
        # endbr64; mov rax, [rsi+16]; mov rdx, target; mov [rdx], rax; ret
        return bytes.fromhex("f30f1efa 488b4610 48ba") + struct.pack("<Q", target) + bytes.fromhex("488902 c3")
    if machine == "aarch64":
        # ldr x3, [x1, 16]; ldr x2, target; str x3, [x2]; ret
        return struct.pack("<IIIIQ", 0xF9400823, 0x58000062, 0xF9000043, 0xD65F03C0, target)
    return b""


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_byte.from_buffer(memory))
