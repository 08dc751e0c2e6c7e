"""What NVRTC compiles, kept: the next process, or a server without NVRTC, takes it from a folder.

A program compiles by `cuda.core.Program(text, ...).compile("cubin")`. Where it imports `cuda.core`, it is given a class
in place of `Program` that looks into the folder first; nobody else in the process is.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import hashlib
import json
import logging
import os
import re
import types
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_KEPT = ("cubin", "ptx")
_NOT_PART = (b"-arch=", b"--gpu-architecture=", b"--include-path=", b"-I")
"""Options that are no part of a kernel's name: the GPU has a place of its own in it, folders are each machine's."""


_OWN_HEADER = re.compile(r"^\s*#\s*include\s*\"", re.M)
_FOR_ONE_GPU = re.compile(r"__CUDA_ARCH_(?:FEAT|SPECIFIC|FAMILY_SPECIFIC)_")


class KernelFolder:
    """Compiled kernels in a folder, by what they were compiled from. A file that is not whole is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.compiled: list[KeptProgram] = []
        """The programs that were compiled here, in this process, and not taken from the folder."""

    def read(self, name: str) -> tuple[bytes, dict[str, Any]] | None:
        """A kernel's code and the names in it; None where there is none, or not what was compiled."""
        file = self.path / name
        try:
            told = json.loads(file.with_name(f"{name}.json").read_text(encoding="utf-8"))
            own = not hasattr(os, "getuid") or file.lstat().st_uid == os.getuid()
            code = file.read_bytes()
            if not own or file.is_symlink() or told["sha256"] != _hash(code, told["symbols"]):
                return None
            return code, {key: value.encode() for key, value in told["symbols"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def keep(self, name: str, code: bytes, symbols: dict[str, Any]) -> None:
        """Put a kernel into the folder; where that cannot be written, it is compiled again next time."""
        told = {"sha256": _hash(code, symbols), "symbols": symbols}
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, exist_ok=True)
            for file, data in ((name, code), (f"{name}.json", json.dumps(told).encode())):
                partial = self.path / f".{uuid.uuid4().hex}"
                partial.write_bytes(data)
                os.replace(partial, self.path / file)

    def names(self, key: str, target: str) -> list[str]:
        """Kernels of one text and its options, for whatever GPU."""
        return sorted(path.name for path in self.path.glob(f"{key}.*.{target}"))

    def compile_for(self, architectures: Iterable[str]) -> list[tuple[str, str]]:
        """Compile what was compiled here for other GPUs too, and as PTX for later ones.

        Of what could not be, its form and a sentence with the reason.
        """
        failed = []
        for program in list(self.compiled):
            for target, architecture in [("ptx", program.plain_architecture), *(("cubin", a) for a in architectures)]:
                try:
                    program.compile_anew(architecture, target)
                except Exception as error:
                    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                    failed.append((target, f"no {target} for {architecture}: {reason[:200]}"))
        return failed


class KeptProgram:
    """As `cuda.core.Program`: compiles, unless the folder holds what would come of it."""

    def __init__(self, core: Any, folder: KernelFolder, code: Any, code_type: str, options: Any = None) -> None:
        self._core = core
        self._folder = folder
        self._code, self._code_type, self._options = code, code_type, options
        self._program: Any = None
        self._names: list[tuple[str, ...]] = []
        """The instances of templates that were asked for, of each time it was compiled."""

    def compile(self, target_type: str, name_expressions: Any = (), logs: Any = None, **more: Any) -> Any:
        """The compiled code, as an ObjectCode."""
        names = tuple(name_expressions)
        key = "" if logs is not None or more else self._key(target_type, names)
        if not key:
            return self._compiler().compile(target_type, name_expressions, logs, **more)
        name = f"{key}.{self._options.arch}.{target_type}"
        kept = self._folder.read(name)
        if kept is not None:
            return self._object(target_type, *kept)
        try:
            made = self._compiler().compile(target_type, names)
        except Exception as error:
            other = self._other_kernel(key, error) if target_type == "cubin" else None
            if other is None:
                raise
            return other
        symbols = {_text(one): _text(two) for one, two in dict(made.symbol_mapping).items()}
        self._folder.keep(name, bytes(made.code), symbols)
        if target_type == "cubin":
            self._names.append(names)
            self._folder.compiled.append(self)
        return made

    @property
    def plain_architecture(self) -> str:
        """The GPU it was compiled for, without what only that one has: its PTX is for later ones too."""
        return str(self._options.arch).rstrip("af")

    def compile_anew(self, architecture: str, target: str) -> None:
        """Compile it for another GPU, into the folder; ValueError where its text is for one GPU alone."""
        if _FOR_ONE_GPU.search(self._code):
            raise ValueError(
                "the program's text asks for features of one GPU alone, and leaves out what others would run"
            )
        options = copy.copy(self._options)
        options.arch = architecture
        other = KeptProgram(self._core, KernelFolder(self._folder.path), self._code, self._code_type, options)
        for names in self._names:
            other.compile(target, names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler(), name)

    def _compiler(self) -> Any:
        if self._program is None:
            self._program = self._core.Program(self._code, self._code_type, self._options)
        return self._program

    def _key(self, target: str, names: tuple[str, ...]) -> str:
        """What the text and its options come to, whatever the GPU; empty where that cannot be told."""
        if target not in _KEPT or self._code_type != "c++" or not isinstance(self._code, str):
            return ""
        if _OWN_HEADER.search(self._code) or not all(isinstance(name, str) for name in names):
            # What a header of the program's own says may change while the text does not.
            return ""
        try:
            options = [item for item in self._options.as_bytes("nvrtc") if not item.startswith(_NOT_PART)]
            if any(re.match(rb"-+(pre-include|include=|pch|create-pch|use-pch)", item) for item in options):
                return ""
            if not all(map(_is_toolkits, _folders(self._options.include_path))):
                return ""
            if not isinstance(self._options.arch, str) or not re.fullmatch(r"\w+", self._options.arch):
                return ""
        except Exception:
            # Another version of cuda.core, or options that it will refuse itself.
            return ""
        parts = [self._code, *(item.decode() for item in sorted(options)), *map(_text, names)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def _other_kernel(self, key: str, error: Exception) -> Any:
        """What was built for this GPU without its own features, or PTX that the driver makes code for it of, if any."""
        wanted = str(self._options.arch)
        names = [f"{key}.{self.plain_architecture}.cubin", *self._folder.names(key, "ptx")]
        for name in names:
            made_for, target = name.split(".")[1:]
            kept = self._folder.read(name)
            if kept is not None and (target == "cubin" or _runs_on(made_for, wanted)):
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                logging.getLogger(__name__.split(".")[0]).warning(
                    "its kernels cannot be compiled for %s here (%s): what was built for %s is used%s",
                    wanted,
                    reason[:200],
                    made_for,
                    "" if target == "cubin" else ", and the driver makes its code of that",
                )
                return self._object(target, *kept)
        return None

    def _object(self, target: str, code: bytes, symbols: dict[str, Any]) -> Any:
        make = self._core.ObjectCode.from_cubin if target == "cubin" else self._core.ObjectCode.from_ptx
        return make(code, name=self._options.name or "", symbol_mapping=symbols)


def builtins_for(source: str, folder: KernelFolder) -> dict[str, Any] | None:
    """The builtins of a program that compiles with NVRTC: what it imports as cuda.core keeps what it compiles.

    None for any other program, and where cuda.core is not installed.
    """
    if not re.search(r"\bcuda\.core\b|\bfrom\s+cuda\s+import\b", source):
        return None
    try:
        import cuda.core as core
    except ImportError:
        return None

    class Program(KeptProgram):
        def __init__(self, code: Any, code_type: str, options: Any = None) -> None:
            super().__init__(core, folder, code, code_type, options)

    own = types.ModuleType("cuda.core")
    own.__dict__.update(core.__dict__)
    own.Program = Program  # type: ignore[attr-defined]

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> types.ModuleType:
        module = builtins.__import__(name, globals, locals, fromlist, level)
        if level or name.partition(".")[0] != "cuda":
            return module
        if module is core:
            return own
        if module.__name__ != "cuda":
            return module
        top = types.ModuleType("cuda")
        top.__dict__.update(module.__dict__)
        top.core = own  # type: ignore[attr-defined]
        return top

    return {**vars(builtins), "__import__": import_module}


def _runs_on(made_for: str, architecture: str) -> bool:
    """Whether PTX for one GPU can be made code for another: for later ones, unless it is for one alone."""
    one, other = (re.fullmatch(r"(?:sm|compute)_(\d+)([af]?)", name) for name in (made_for, architecture))
    if one is None or other is None:
        return False
    return int(other[1]) == int(one[1]) if one[2] else int(other[1]) >= int(one[1])


def _folders(include_path: Any) -> list[str]:
    """The folders that headers are looked for in."""
    if not include_path:
        return []
    return [str(item) for item in ([include_path] if isinstance(include_path, str) else include_path)]


def _is_toolkits(folder: str) -> bool:
    """Whether a folder of headers is CUDA's own, whose contents are those of the compiler's version."""
    return bool(re.search(r"/(cuda[^/]*|nvidia)/", f"{folder}/")) or any(
        os.environ.get(name) and folder.startswith(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH")
    )


def _hash(code: bytes, symbols: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(symbols, sort_keys=True).encode() + b"\0" + code).hexdigest()


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
