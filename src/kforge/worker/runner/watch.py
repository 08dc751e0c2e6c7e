"""What a candidate tries that no kernel needs: an audit hook that notes it and lets the sandbox refuse it.

The hook cannot be removed once installed. It only records, but for native code beside an emulator's kernels, which it
does not let in; the kernel's namespaces are what holds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from kforge.worker.protocol.base import RunnerFinding

_NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_INTROSPECTION = ("gc.get_objects", "gc.get_referrers", "sys._current_frames")
_LISTINGS = ("os.listdir", "os.scandir")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "shutil.rmtree", "os.chmod", "os.symlink", "os.link")
_LOADS = ("ctypes.dlopen", "import")
_FILE_EVENTS = frozenset(("open", "shutil.copyfile", *_LISTINGS, *_CHANGES, *_LOADS))
_MAX_FINDINGS = 20
_COMPILERS = tuple(
    os.path.dirname(spec.origin) + os.sep
    for name in ("triton",)
    if (spec := importlib.util.find_spec(name)) is not None and spec.origin
)
"""Folders of compilers that write native code themselves."""
_EMULATOR = str(Path(__file__).parents[2] / "emulation") + os.sep
_LIBRARY_CACHES = ("/inductor/", "/triton/")
_CTYPES = os.path.dirname(ctypes.__file__) + os.sep


class ForeignCode(RuntimeError):
    """A program on an emulated device loads native code of its own."""


class Watch:
    """Installs the hook; `findings` grows as the candidate misbehaves."""

    def __init__(self, home: str, kernels_only: bool = False) -> None:
        """`kernels_only`: kernels that an emulator builds are the only native code a program may bring along."""
        self._kernels_only = kernels_only
        self.findings: list[RunnerFinding] = []
        prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix, *(p for p in sys.path if p)]
        prefixes += [
            path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))
        ]
        real = [os.path.realpath(path) for path in prefixes]
        self._readable = tuple({path.rstrip("/") + "/" for path in [*prefixes, *real] if path not in ("", "/")})
        # As far as a runner is concerned, a folder it may write to is its own.
        self._writable = (home.rstrip("/") + "/", "/tmp/", "/dev/", "/proc/self/")
        self._busy = False
        self._written: set[str] = set()
        """Files the program's own Python wrote, as opposed to a compiler it ran."""

        self._copies: dict[str, str] = {}

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def written_libraries(self, folder: str) -> list[RunnerFinding]:
        """Findings on libraries below a folder whose bytes the program's own Python wrote."""
        return [
            RunnerFinding("embedded_binary", f"wrote the bytes of {path} itself")
            for path in sorted(self._written - set(self._copies))
            if path.endswith(".so") and path.startswith(folder.rstrip("/") + "/")
        ]

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy:
            return
        if event in _FILE_EVENTS:
            self._busy = True
            try:
                self._check_file_event(event, arguments)
            finally:
                self._busy = False
        elif event in _NETWORK:
            shown = [item for item in arguments if isinstance(item, (str, bytes, int, tuple))][:2]
            self._note("network", f"{event} {shown}")
        elif event in _INTROSPECTION:
            self._note("introspection", event)

    def _check_file_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            self._check_open(arguments)
        elif event in _LOADS:
            self._check_load(arguments[1] if event == "import" else arguments[0])
        else:
            self._check_change(event, arguments)

    def _check_load(self, name: Any) -> None:
        """Note native code that is loaded and that no compiler made."""
        path = _absolute(name)
        if path is not None and path in self._written and path not in self._copies:
            self._note("embedded_binary", f"loaded {path}, whose bytes the program itself wrote")
        if self._kernels_only and path is not None and self._is_brought(os.fsdecode(name), path):
            what = f"loaded native code of its own, {os.path.basename(path)}, beside the kernels that the emulator runs"
            self._note("foreign_code", what)
            raise ForeignCode(f"{what}: it cannot be told here whether that is what would run on the device")

    def _is_brought(self, name: str, path: str) -> bool:
        """Whether a library is one that the program made. A name without a folder is one of the system's."""
        if os.sep not in name or not self._is_own(path) or any(cache in path for cache in _LIBRARY_CACHES):
            return False
        return not _called_from((_EMULATOR,), (_CTYPES,))

    def _check_open(self, arguments: tuple[Any, ...]) -> None:
        name, mode, flags = arguments
        path = _absolute(name)
        if path is None:
            return
        wants_write = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        wants_write = wants_write or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)))
        if wants_write and not _comes_from_compiler():
            self._written.add(path)
        if wants_write and not self._is_own(path):
            self._note("foreign_files", f"opened {path} for writing")
        elif self._is_private(path):
            self._note("foreign_files", f"opened {path}")

    def _check_change(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = _absolute(arguments[0] if arguments else None)
        if path is None:
            return
        if event == "os.rename":
            target = _absolute(arguments[1])
            if target is not None and path in self._written:
                self._written.add(target)
            elif target is not None:
                self._written.discard(target)
        elif event == "shutil.copyfile":
            target = _absolute(arguments[1])
            if target is not None and path not in self._written:
                # The copy is opened for writing next, and is as good as what it copies.
                self._copies[target] = path
        if (event in _CHANGES and not self._is_own(path)) or self._is_private(path):
            self._note("foreign_files", f"{event} {path}")

    def _is_own(self, path: str) -> bool:
        return (path + "/").startswith(self._writable) or path.startswith(f"/proc/{os.getpid()}/")

    def _is_private(self, path: str) -> bool:
        """Whether a path is a place of the user's, or of another process."""
        if (path + "/").startswith(self._readable) or self._is_own(path):
            return False
        if path.startswith(("/root", "/home/", "/Users/", "/var/", "/mnt/", "/srv/", "/run/", "/etc/shadow")):
            return True
        parts = path.split("/")
        return len(parts) > 2 and parts[1] == "proc" and parts[2].isdigit() and int(parts[2]) != os.getpid()

    def _note(self, rule: str, what: str) -> None:
        if len(self.findings) < _MAX_FINDINGS and (rule, what) not in self.findings:
            self.findings.append(RunnerFinding(rule, what))


def _comes_from_compiler() -> bool:
    """Whether the write is made by a compiler written in Python, which puts what it has built into its cache."""
    return _called_from(_COMPILERS)


def _called_from(folders: tuple[str, ...], past: tuple[str, ...] = ()) -> bool:
    """Whether the code that did it lies in one of these folders, once this file and those of `past` are left out."""
    frame = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename == __file__ or (past and frame.f_code.co_filename.startswith(past))
    ):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(folders)


def _absolute(name: Any) -> str | None:
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        return None
    return os.path.normpath(os.path.join(os.getcwd(), name)) if not name.startswith("/") else os.path.normpath(name)
