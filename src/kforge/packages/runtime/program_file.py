"""The program's own file: imported when it is first needed, what it compiles kept in a folder of its own.

A program compiles its kernels when it is imported. Where it puts them it is told by KFORGE_BUILD_DIR; Triton and
torch's extensions have folders of their own, which they share between processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import linecache
import logging
import os
import platform
import sys
import tempfile
import threading
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .carried_files import bring_files, processor_key
from .nvrtc_kernels import KernelFolder, builtins_for

_FOLDER = "KFORGE_BUILD_DIR"
_LIBRARIES = "libraries.json"
_importing: Any = sys.__dict__.setdefault("_kforge_importing", threading.RLock())
"""The folder is told by a variable of the whole process: one lock for all packages in it."""


class Unavailable(Exception):
    """The program cannot be had on this machine; the text says why, in a clause."""


class ProgramFile:
    """A program's text, and the module it becomes on each device."""

    def __init__(self, name: str, source: str, built: list[dict[str, Any]], folder: Path | None) -> None:
        """`built` lists the files of the package's folder that were compiled, for which machine, with their hashes."""
        self._name = name
        self._source = source
        self._built = built
        self._home = folder
        self._loaded: dict[str, types.ModuleType] = {}
        self._failed = ""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        """Where the cache cannot be used."""
        self.kernels: KernelFolder | None = None
        """Where the kernels are that NVRTC compiled, once the program was loaded."""
        self.done: set[Any] = set()
        """Calls that gave a result: on which device, of which shapes. In any other it may compile something."""
        self._lock = threading.Lock()

    def kind(self, device: torch.device) -> Any:
        """The class `ModelNew` for a device; Unavailable where it cannot be compiled or imported."""
        key = str(device)
        module = self._loaded.get(key)
        if module is not None and not self._failed:
            return module.ModelNew
        with self._lock:
            if self._failed:
                raise Unavailable(self._failed)
            if key not in self._loaded:
                try:
                    self._loaded[key] = self._load(device)
                except Exception as error:
                    raise self.fail(error) from error
            return self._loaded[key].ModelNew

    def fail(self, error: Exception) -> Unavailable:
        """Take note that the program cannot be had here; what to raise instead."""
        self._failed = self.explain(error)
        return Unavailable(self._failed)

    @contextlib.contextmanager
    def at_first_call(self) -> Iterator[None]:
        """For calls in which the program may compile: where it puts that is told, and what it made is noted."""
        with _importing, self._building():
            yield

    def _load(self, device: torch.device) -> types.ModuleType:
        # One name for each device: what a GPU's driver has loaded belongs to that GPU.
        suffix = hashlib.sha256(self._source.encode()).hexdigest()[:12]
        module = types.ModuleType(f"{self._name}.program_{suffix}_{device.type}{device.index or 0}")
        path = str(self._home / "program.py") if self._home is not None else f"<{self._name} {suffix}>"
        module.__file__ = path
        if self._home is None:
            # Triton reads the text of its functions where Python keeps the lines of files.
            linecache.cache[path] = (len(self._source), None, self._source.splitlines(keepends=True), path)
        with _importing, _on(device), self._building() as own, torch.enable_grad():
            self.kernels = KernelFolder(own / "nvrtc")
            imports = builtins_for(self._source, self.kernels)
            if imports is not None:
                module.__dict__["__builtins__"] = imports
            # Classes that the program defines find their module by its name.
            sys.modules[module.__name__] = module
            try:
                exec(compile(self._source, path, "exec"), module.__dict__)
            except BaseException:
                del sys.modules[module.__name__]
                raise
        return module

    @contextlib.contextmanager
    def _building(self) -> Iterator[Path]:
        """KFORGE_BUILD_DIR is a folder that is ours alone, with what came with the package; one process at a time."""
        folder = self._folder()
        with _locked(folder / "lock"):
            _forget_others(folder)
            if self._home is not None and self._built:
                bring_files(self._built, self._home, folder, self._source, self._name)
            before = os.environ.get(_FOLDER)
            os.environ[_FOLDER] = str(folder)
            if not self._loaded and not any(folder.rglob("*.so")) and "subprocess" in self._source:
                logging.getLogger(self._name).warning("compiling its kernels for this machine, once, into %s", folder)
            try:
                yield folder
                _note_libraries(folder)
            finally:
                if before is None:
                    os.environ.pop(_FOLDER, None)
                else:
                    os.environ[_FOLDER] = before

    def _folder(self) -> Path:
        if self._temporary is not None:
            return Path(self._temporary.name)
        folder = cache_folder() / self._name / machine_key(self._source)
        try:
            own_folder(folder.parent)
            own_folder(folder)
        except OSError as error:
            logging.getLogger(self._name).warning(
                "%s cannot be used (%s): kernels are compiled into a temporary folder, for this process alone",
                folder,
                error.strerror or error,
            )
            self._temporary = tempfile.TemporaryDirectory(prefix=f"{self._name}-")
            return Path(self._temporary.name)
        return folder

    def explain(self, error: Exception) -> str:
        """Why the program cannot be had, as a clause."""
        if isinstance(error, FileNotFoundError) and error.filename:
            return (
                f"there is no {Path(str(error.filename)).name} on this machine to compile the kernels with (install "
                "it, or a package that carries them built)"
            )
        if isinstance(error, ModuleNotFoundError):
            return f"the program needs the Python package {error.name}, which is not installed"
        first = next(iter(str(error).strip().splitlines()), "")
        return f"the program cannot be loaded here ({type(error).__name__}: {first[:300]})"


def cache_folder() -> Path:
    """Where what was compiled is kept: KFORGE_PACKAGE_CACHE, or the user's cache."""
    named = os.environ.get("KFORGE_PACKAGE_CACHE")
    if named:
        return Path(named)
    root = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(root) / "kforge-packages"


def machine_key(source: str) -> str:
    """What a compiled program is good for: its text, the processor, torch and Python."""
    parts = (source, processor_key(), torch.__version__, platform.python_version(), os.environ.get("CXX", ""))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def own_folder(folder: Path) -> None:
    """Make a folder that nobody else may write to; OSError where that cannot be had."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(None, "it belongs to another user")
    if found.st_mode & 0o022:
        folder.chmod(0o700)
    if not os.access(folder, os.W_OK):
        raise PermissionError(None, "it cannot be written to")


def _note_libraries(folder: Path) -> None:
    """Write down what was compiled, so that the next process can tell whether it is still that."""
    hashes = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.so"))
    }
    partial = folder / f".libraries.{uuid.uuid4().hex}"
    partial.write_text(json.dumps(hashes), encoding="utf-8")
    os.replace(partial, folder / _LIBRARIES)


def _forget_others(folder: Path) -> None:
    """Remove libraries that are not those that were compiled here: cut off, exchanged, or another user's."""
    try:
        known = json.loads((folder / _LIBRARIES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    for path in folder.rglob("*.so"):
        own = not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()
        name = path.relative_to(folder).as_posix()
        whole = own and not path.is_symlink() and hashlib.sha256(path.read_bytes()).hexdigest() == known.get(name)
        if not whole:
            path.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file's lock: of processes that compile the same program, one does, and the others find what it made."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """With a GPU as the current one."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield
