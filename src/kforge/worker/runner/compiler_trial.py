"""A program loaded where its GPU is not: NVRTC compiles what the program has it compile, and says what it thinks.

What it refuses is refused where the device is too, as long as the program came there without asking for anything that
is not known here (`absent_device`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from kforge.worker.protocol.compiler import CompilerTrial, TryCompiler
from kforge.worker.runner.absent_device import (
    AbsentDevice,
    Doubts,
    NotKnownHere,
    UnknownObject,
    put_in_torch,
    unknown_module,
    watch_surroundings,
)
from kforge.worker.runner.loaded_program import LoadedProgram
from kforge.worker.runner.raised_error import ProgramFailed

_HEADERS = re.compile(r"#\s*(?:include|embed)\b|__has_(?:include|embed)\b")
_HEADER_OPTIONS = re.compile(rb"-+(?:I|include|pre-include|pch|create-pch|use-pch)")
_MOST_SOURCE = 1 << 20
_LONGEST_LOG = 100_000
_MOST_REFUSALS = 20


def try_compiler(program: LoadedProgram, request: TryCompiler) -> CompilerTrial:
    """Load the program, once; the process is of no use for anything else afterwards."""
    doubts = Doubts()
    device = AbsentDevice(doubts, request.capability, request.device_name, request.multiprocessors)
    with program.phase("start"):
        compiler = _Compiler(doubts, device)
    put_in_torch(doubts, device)
    compiler.put_in_place()
    watch_surroundings(doubts)
    error = None
    try:
        program.import_alone(request.source)
        if not compiler.compiled and not compiler.refusals:
            # Whoever has compiled by now need not be kept any longer.
            arguments = _constructor_arguments(request.problem_source, doubts)
            program.construct_alone(request.class_name, arguments)
    except NotKnownHere:
        pass
    except ProgramFailed as failed:
        error = failed.failure.error
    return CompilerTrial(error, tuple(compiler.refusals), doubts.noted)


def _constructor_arguments(source: str, doubts: Doubts) -> list[Any]:
    """What the problem's file gives its module's constructor; NotKnownHere where it does not say so here."""
    if not source:
        return []
    namespace: dict[str, Any] = {"__name__": "problem"}
    try:
        exec(compile(source, "problem.py", "exec"), namespace)
        return list(namespace.get("get_init_inputs", list)())
    except Exception as error:
        doubts.refuse(f"the problem's file, which raises {type(error).__name__}")


class _Compiler:
    """NVRTC with cuda.core's face, and under its own names; it keeps what it refused."""

    def __init__(self, doubts: Doubts, device: AbsentDevice) -> None:
        from cuda.bindings import nvrtc
        from cuda.core import ProgramOptions
        from cuda.core._utils.cuda_utils import NVRTCError

        self.doubts, self.device = doubts, device
        self.nvrtc, self._options, self.error = nvrtc, ProgramOptions, NVRTCError
        # It looks for its library once, before anybody watches.
        nvrtc.nvrtcVersion()
        self.refusals: list[str] = []
        self.compiled = 0
        self._sources: dict[int, str] = {}

    def put_in_place(self) -> None:
        """Have programs find it."""
        owner = self

        class Program(_Program):
            def __init__(self, code: Any, code_type: Any = "c++", options: Any = None) -> None:
                super().__init__(owner, code, code_type, options)

        core = unknown_module(
            self.doubts, "cuda.core", {"Device": self.device, "Program": Program, "ProgramOptions": self.make_options}
        )
        own = {**vars(self.nvrtc), "nvrtcCreateProgram": self.create, "nvrtcCompileProgram": self.compile}
        nvrtc = unknown_module(self.doubts, "cuda.bindings.nvrtc", own)
        parts = {
            name: unknown_module(self.doubts, f"cuda.bindings.{name}", {})
            for name in ("driver", "runtime", "nvjitlink", "nvvm")
        }
        bindings = unknown_module(self.doubts, "cuda.bindings", {"nvrtc": nvrtc, **parts})
        import cuda

        for name, module in (("core", core), ("bindings", bindings)):
            setattr(cuda, name, module)
            sys.modules[f"cuda.{name}"] = module
        for name, module in {"nvrtc": nvrtc, **parts}.items():
            sys.modules[f"cuda.bindings.{name}"] = module

    def make_options(self, *arguments: Any, **options: Any) -> Any:
        """cuda.core's own, which asks the device for its architecture where none is named."""
        if not arguments:
            options.setdefault("name", "default_program")
            if options.get("arch") is None:
                options["arch"] = f"sm_{self.device.arch}"
        return self._options(*arguments, **options)

    def create(self, source: Any, name: Any, count: Any, headers: Any, names: Any) -> Any:
        """As nvrtcCreateProgram."""
        if count:
            self.doubts.note("headers of its own")
        result = self.nvrtc.nvrtcCreateProgram(source, name, count, headers, names)
        if int(result[0]) == 0:
            text = source.decode(errors="replace") if isinstance(source, (bytes, bytearray)) else str(source)
            self._sources[int(result[1])] = text
        return result

    def compile(self, program: Any, count: Any, options: Any) -> Any:
        """As nvrtcCompileProgram."""
        nvrtc, source = self.nvrtc, self._sources.get(int(program), "")
        if len(source) > _MOST_SOURCE:
            self.doubts.refuse("a source of more than a megabyte")
        if _HEADERS.search(source) and any(_HEADER_OPTIONS.match(bytes(option)) for option in options or ()):
            # Those of another version may lack something, or have it.
            self.doubts.note("headers, from a folder of another machine")
        result = nvrtc.nvrtcCompileProgram(program, count, options)
        if result[0] == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            self.refusals = [*self.refusals, self.log(program)][-_MOST_REFUSALS:]
        elif int(result[0]) != 0:
            self.doubts.note(f"NVRTC: {result[0].name}")
        else:
            self.compiled += 1
        return result

    def log(self, program: Any) -> str:
        """What NVRTC said of a program."""
        size = self.nvrtc.nvrtcGetProgramLogSize(program)[1]
        text = bytearray(max(1, size))
        self.nvrtc.nvrtcGetProgramLog(program, text)
        return text.rstrip(b"\0").decode(errors="backslashreplace")[:_LONGEST_LOG]


class _Program:
    """As cuda.core's `Program`, for CUDA C++."""

    def __init__(self, owner: _Compiler, code: Any, code_type: Any, options: Any) -> None:
        if str(code_type).lower() != "c++" or not isinstance(code, str):
            owner.doubts.refuse(f"a program in {str(code_type)[:40]}")
        self._owner = owner
        given = options if isinstance(options, dict) else {}
        self._options = owner.make_options(**given) if options is None or isinstance(options, dict) else options
        name = (self._options.name or "default_program").encode()
        self._handle = self._take(owner.create(code.encode(), name, 0, [], []))

    def compile(self, target_type: Any = "cubin", name_expressions: Sequence[Any] = (), logs: Any = None) -> Any:
        """What NVRTC makes of it; its own error otherwise."""
        owner = self._owner
        target = str(target_type).lower()
        if target not in ("cubin", "ptx"):
            owner.doubts.refuse(f"a program compiled to {target[:40]}")
        expressions = [item if isinstance(item, bytes) else str(item).encode() for item in name_expressions]
        for expression in expressions:
            self._take(owner.nvrtc.nvrtcAddNameExpression(self._handle, expression))
        options = self._options.as_bytes("nvrtc", target)
        self._take(owner.compile(self._handle, len(options), options))
        if logs is not None:
            logs.write(owner.log(self._handle))
        names = [self._take(owner.nvrtc.nvrtcGetLoweredName(self._handle, each)) for each in expressions]
        return _ObjectCode(owner.doubts, self._code(target), dict(zip(expressions, names, strict=True)))

    def close(self) -> None:
        """It is kept for as long as its process."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._owner.doubts.refuse(f"Program.{name}")

    def _code(self, target: str) -> bytes:
        kind = target.upper()
        nvrtc = self._owner.nvrtc
        code = bytearray(self._take(getattr(nvrtc, f"nvrtcGet{kind}Size")(self._handle)))
        self._take(getattr(nvrtc, f"nvrtcGet{kind}")(self._handle, code))
        return bytes(code)

    def _take(self, result: tuple[Any, ...]) -> Any:
        """What a call gives; an error is told as cuda.core tells it."""
        status = result[0]
        if int(status) == 0:
            return result[1] if len(result) > 1 else None
        message = f"{int(status)}: {status.name}"
        if status == self._owner.nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            message += f", compilation log:\n\n{self._owner.log(self._handle)}"
        raise self._owner.error(message)


class _ObjectCode:
    """Compiled kernels, which nobody runs here."""

    def __init__(self, doubts: Doubts, code: bytes, names: dict[bytes, Any]) -> None:
        self._doubts, self.code = doubts, code
        self.symbol_mapping = names

    def get_kernel(self, name: Any) -> UnknownObject:
        """A kernel of that name, if there is one; that there is none is the device's to say."""
        key = name if isinstance(name, bytes) else str(name).encode()
        symbol = self.symbol_mapping.get(key, key)
        symbol = symbol if isinstance(symbol, bytes) else str(symbol).encode()
        if not re.search(rb"(?:\.text\.|\.entry )" + re.escape(symbol) + rb"(?![\w$])", self.code):
            self._doubts.refuse(f"a kernel {key.decode(errors='replace')[:80]}")
        return UnknownObject(self._doubts, "Kernel")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._doubts.refuse(f"ObjectCode.{name}")
