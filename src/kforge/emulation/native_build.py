"""C++ of a front end compiled against the emulator's runtime, and the runtime itself, built once."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from kforge.emulation import conditionals, whole_casts
from kforge.emulation.tokens import SourceError

NATIVE = Path(__file__).parent / "native"
RUNTIME_VARIABLE = "KFORGE_EMULATION_RUNTIME"
"""Names a runtime that is built already: a sandbox shows one to every runner."""
_RUNTIME_SOURCES = ("runtime.cpp", "memory.cpp", "checking.cpp", "atomics.cpp")
_SHARED = ("-std=c++20", "-fPIC", "-shared")
_FAST = ("-O2",)
_ALIGNED = ("-fsanitize=alignment",)
_ALWAYS_ALIGNED = ("cuda_c.h",)
"""The language whose devices refuse a misaligned address: looked for in fast mode too."""
_CHECKED = ("-O1", "-g1", "-fno-inline-small-functions", "-fsanitize=thread", "-DKFORGE_CHECKED=1")
_SINGLE = "-fsingle-precision-constant"
_SAME_EVERYWHERE = ("-fsigned-char", "-ffp-contract=off")
"""What compilers choose by the processor they compile for, and devices do not: on Arm `char` has no sign, and GCC makes
`a * b + c` one operation wherever there is an instruction for it.
"""
_PLAIN = (
    *_SAME_EVERYWHERE,
    "-fsanitize=integer-divide-by-zero",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-threadsafe-statics",
    "-fstack-clash-protection",
    "-ftemplate-depth=200",
    "-w",
)
_SECONDS = 120
_one_runtime = threading.Lock()
_ERROR = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<what>.*)$", re.MULTILINE
)


class NoCompiler(Exception):
    """There is nothing to build with; the message has the cure."""


class CompilerRefused(Exception):
    """The compiler refused the kernel; the message is its first errors."""


@dataclass(frozen=True)
class Built:
    """A shared library with one entry for each kernel."""

    path: Path
    library: ctypes.CDLL


@functools.cache
def compiler() -> str:
    """The C++ compiler to use."""
    wanted = os.environ.get("CXX")
    chosen = next(
        (path for path in map(shutil.which, (wanted, "g++", "clang++") if wanted else ("g++", "clang++")) if path), ""
    )
    if not chosen:
        raise NoCompiler("no C++ compiler (Debian and Ubuntu: apt-get install g++; macOS: xcode-select --install)")
    return chosen


def runtime() -> Path:
    """The runtime's library: the one the environment names, or one made now in a temporary folder of this process.

    One for all threads: kernels that were linked with another copy would not find the worker that runs them.
    """
    with _one_runtime:
        return _runtime()


@functools.cache
def _runtime() -> Path:
    named = os.environ.get(RUNTIME_VARIABLE, "")
    if named and os.path.exists(named):
        return Path(named)
    folder = Path(tempfile.mkdtemp(prefix="kforge-emulation-"))
    atexit.register(_remove, folder, os.getpid())
    return build_runtime(folder)


def folder_of(owner: object) -> Path:
    """A temporary folder that lasts as long as its owner does, in this process."""
    folder = Path(tempfile.mkdtemp(prefix="kforge-kernels-"))
    weakref.finalize(owner, _remove, folder, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def build_runtime(folder: Path) -> Path:
    """The runtime's library in a folder, by the content of its sources; from before if it is there."""
    path = folder / f"libkforge_emulation_{runtime_key()}.so"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{os.getpid()}.new")
    sources = [str(NATIVE / name) for name in _RUNTIME_SOURCES]
    flags = (*_SHARED, "-O2", "-pthread", "-fno-strict-aliasing", *_SAME_EVERYWHERE)
    done = _run([compiler(), *flags, *sources, "-o", str(made)])
    if done.returncode:
        raise NoCompiler(f"the emulator's runtime cannot be built: {done.stderr.strip()[:500]}")
    os.replace(made, path)
    return path


def runtime_key() -> str:
    content = b"".join((NATIVE / name).read_bytes() for name in (*_RUNTIME_SOURCES, "runtime.h", "memory.h"))
    return hashlib.sha256(content + compiler().encode()).hexdigest()[:16]


def preprocess(source: str, name: str, definitions: tuple[str, ...]) -> str:
    """The source after its own macros; SourceError for what the preprocessor refuses."""
    flags = ("-E", "-undef", "-nostdinc", "-fsigned-char", "-x", "c++")
    done = _run([compiler(), *flags, *(f"-D{item}" for item in definitions), "-"], text=f'#line 1 "{name}"\n{source}')
    if done.returncode:
        raise CompilerRefused(first_errors(done.stderr))
    return done.stdout


def build(text: str, header: str, folder: Path, checked: bool, double: bool = False) -> Built:
    """A library from C++ text; CompilerRefused with the first errors where it does not compile.

    `double`: whether `1.0` is a double, as the language has it.
    """
    flags = [*_SHARED, *((*_CHECKED, *_checks()) if checked else _FAST), *_PLAIN, *_rounding()]
    flags += [*(_ALIGNED if checked or header in _ALWAYS_ALIGNED else ()), *(() if double else (_SINGLE,))]
    stem = f"{'checked' if checked else 'fast'}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    thing, path = folder / f"{stem}.o", folder / f"{stem}.so"
    errors = _compile(whole_casts.with_whole_casts(text), header, flags, thing)
    if errors:
        # What is said of the source is said of it as it stands.
        errors = _compile(text, header, flags, thing)
    if not errors:
        # Linked apart: the instrumentation's own run-time libraries must stay out.
        linked = [*_SHARED, str(thing), str(runtime()), f"-Wl,-rpath,{runtime().parent}", "-lm", "-o", str(path)]
        done = _run([compiler(), *linked])
        errors = done.stderr if done.returncode else ""
    if errors:
        raise CompilerRefused(first_errors(errors))
    try:
        return Built(path, ctypes.CDLL(str(path)))
    except OSError as error:
        raise CompilerRefused(f"the kernel uses what there is not: {str(error).rpartition(': ')[2]}") from None


def _compile(text: str, header: str, flags: list[str], thing: Path, arms: bool = True) -> str:
    """Compile C++ text into an object file; the compiler's errors where it refused, and nothing where it did not.

    `arms`: whether its conditionals may be written again.
    """
    source = thing.with_suffix(".cpp")
    source.write_text(f'#include "{header}"\n{text}', encoding="utf-8")
    done = _run([compiler(), *flags, f"-I{NATIVE}", "-c", str(source), "-o", str(thing)])
    errors = (done.stderr or "it says nothing") if done.returncode else ""
    if arms and conditionals.is_ambiguous(errors):
        return _compile(conditionals.with_arms(text), header, flags, thing, arms=False)
    return errors


@functools.cache
def _rounding() -> tuple[str, ...]:
    """The flag that keeps this compiler from computing with more digits than a half has, where there is one."""
    return next(filter(_accepts, (("-fexcess-precision=16",), ("-ffloat16-excess-precision=none",), ())))


@functools.cache
def _checks() -> tuple[str, ...]:
    """The flags for each check: the first that this compiler takes."""
    wanted = (
        # GCC's plain one leaves out arrays that end a struct.
        (("-fsanitize=bounds-strict",), ("-fsanitize=bounds",)),
        # What is never written holds numbers that are not to be taken for a result.
        (("-ftrivial-auto-var-init=pattern",), ()),
        (("--param=tsan-distinguish-volatile=1",), ("-mllvm", "-tsan-distinguish-volatile=1"), ()),
    )
    best = tuple(flag for first, *_ in wanted for flag in first)
    if _accepts(best):
        return best
    return tuple(flag for choices in wanted for flag in next(filter(_accepts, choices)))


def _accepts(flags: tuple[str, ...]) -> bool:
    command = [compiler(), "-Werror", *flags, "-fsyntax-only", "-x", "c++", os.devnull]
    return not flags or _run(command).returncode == 0


def first_errors(output: str, most: int = 4) -> str:
    """A compiler's errors in the kernel's own lines, the first few; all of the output if there are none."""
    errors = [f"{match['file']}:{match['line']}: error: {match['what']}" for match in _ERROR.finditer(output)]
    own = [line for line in errors if "/native/" not in line and not line.startswith("entries:")]
    return "\n".join(dict.fromkeys((own or errors)[:most])) or output.strip()[:1500]


def line_of(library: Path, base: int, pc: int) -> int:
    """The line of the kernel's source for an address in its library; 0 where that cannot be told."""
    tool = shutil.which("addr2line")
    if tool is None or not pc:
        return 0
    done = _run([tool, "-i", "-e", str(library), hex(pc - base - 1)])
    # With inlining, the innermost place may be in the emulator's headers: the first that is the kernel's counts.
    for place in done.stdout.splitlines():
        name, _, line = place.split(" ")[0].rpartition(":")
        if "/native/" not in name and name != "??" and line.isdigit() and int(line):
            return int(line)
    return 0


def _run(command: list[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise CompilerRefused(f"compiling took longer than {_SECONDS} s") from None


def refuse_empty(source: str) -> None:
    """SourceError where there is nothing to compile."""
    if not source.strip():
        raise SourceError(0, "the source is empty")
