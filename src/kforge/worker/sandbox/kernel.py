"""The few Linux calls the sandbox needs that Python's standard library has no name for."""

from __future__ import annotations

import ctypes
import os
import platform

NEW_NS, NEW_UTS, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 4, 24
_PR_SET_SECUREBITS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 28, 36, 38
_SECBIT_LOCKED_NO_ROOT = 0x3
_CAP_VERSION_3 = 0x20080522

# (x86_64, aarch64)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {target}")


def make_read_only(target: str) -> None:
    """Make a mount and everything mounted below it read-only."""

    class Attributes(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]

    attributes = Attributes(set=_MOUNT_ATTR_RDONLY)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"read-only {target}")


def pivot_root(new: str, old: str) -> None:
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: no system call number for {platform.machine()}")
    _check(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), "pivot_root")


def detach(target: str) -> None:
    _check(_libc.umount2(target.encode(), _MNT_DETACH), f"umount {target}")


def _prctl(option: int, value: int) -> int:
    return int(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def set_dumpable(on: bool) -> None:
    """Set whether other processes of the user may read this one's memory, environment and descriptors."""
    _prctl(_PR_SET_DUMPABLE, int(on))


def forbid_inspection() -> None:
    """Keep other processes of the user from reading this one's, where there is a way to."""
    try:
        set_dumpable(False)
    except (AttributeError, OSError):
        # Not Linux.
        pass


def adopt_orphans() -> None:
    """Orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def drop_privileges() -> None:
    """Give up every capability, and the ways to get one back."""
    for capability in range(64):
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_SECUREBITS, _SECBIT_LOCKED_NO_ROOT)

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    header = Header(_CAP_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
