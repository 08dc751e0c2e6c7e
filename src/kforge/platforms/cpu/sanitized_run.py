"""Runs a command so that what it compiles is instrumented, with AddressSanitizer's library loaded before all others.

python sanitized_run.py FOLDER COMMAND...: compilers that the command finds by name are told to check every access, and
undefined behaviour. Status 86 where a fault was found, 127 where it cannot be had here. FOLDER/uninstrumented is there
afterwards if nothing was compiled so. Standard library only: it runs in a sandbox, before anything of KForge.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys

FOUND, NOT_HERE = 86, 127
_UNINSTRUMENTED = "uninstrumented"
_COMPILERS = ("g++", "c++", "clang++", "gcc", "cc", "clang")
_NO_RANDOM_ADDRESSES = 0x0040000
_FLAGS = (
    "-fsanitize=address,undefined",
    # Vectors at any address work on these processors; `vptr` takes torch's own classes for others; of what
    # `object-size` finds, the other checker says more.
    "-fno-sanitize=vptr,alignment,object-size",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
)
_OPTIONS = {
    # Python and torch leave memory to the end of the process, and are not instrumented themselves.
    "ASAN_OPTIONS": f"exitcode={FOUND}:detect_leaks=0:alloc_dealloc_mismatch=0:detect_odr_violation=0"
    ":detect_container_overflow=0:allocator_may_return_null=1:print_legend=0:color=never:quarantine_size_mb=64",
    "UBSAN_OPTIONS": f"exitcode={FOUND}:halt_on_error=1:print_stacktrace=0:color=never",
}
_WRAPPER = """#!/bin/sh
unset LD_PRELOAD
for word in "$@"; do
    case "$word" in *.cpp|*.cc|*.cxx|*.c++|*.C|*.c|-) rm -f {mark} ;; esac
done
exec {compiler} "$@" {flags}
"""


def main(folder: str, command: list[str]) -> int:
    compilers = {name: path for name in _COMPILERS if (path := shutil.which(name))}
    libraries = {name: library for name, path in compilers.items() if (library := _runtime_library(path))}
    if sys.platform != "linux" or not libraries:
        print("no compiler here has AddressSanitizer's library", file=sys.stderr)
        return NOT_HERE
    first = next(iter(libraries))
    chosen = {name: compilers[name] for name in compilers if libraries.get(name) == libraries[first]}
    environment = _environment(folder, chosen, libraries[first])
    with contextlib.suppress(AttributeError):
        # At addresses that are drawn, older versions of the library may find theirs taken.
        ctypes.CDLL(None).personality(ctypes.c_ulong(_NO_RANDOM_ADDRESSES))
    trial = [sys.executable, "-I", "-W", "ignore", "-c", "import torch; torch.ones(3).sum()"]
    tried = subprocess.run(trial, env=environment, capture_output=True, text=True)
    if tried.returncode:
        last = (tried.stderr.strip().splitlines() or ["no word"])[-1]
        print(f"torch does not run with AddressSanitizer's library: {last}", file=sys.stderr)
        return NOT_HERE
    return os.execvpe(command[0], command, environment)


def _runtime_library(compiler: str) -> str:
    """The library that what this compiler instruments needs; empty where there is none."""
    for name in ("libasan.so", f"libclang_rt.asan-{platform.machine()}.so", "libclang_rt.asan.so"):
        path = _file_of(compiler, name)
        if path:
            return path
    return ""


def _file_of(compiler: str, name: str) -> str:
    """Where a compiler has a file of its own; empty where it has none."""
    done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True)
    path = done.stdout.strip()
    return os.path.realpath(path) if done.returncode == 0 and os.path.isabs(path) and os.path.exists(path) else ""


def _environment(folder: str, compilers: dict[str, str], library: str) -> dict[str, str]:
    """The environment in which these compilers are found instrumenting."""
    wrappers, mark = os.path.join(folder, "instrumented"), os.path.join(folder, _UNINSTRUMENTED)
    os.makedirs(wrappers, exist_ok=True)
    with open(mark, "w") as file:
        file.write("nothing was compiled\n")
    flags = _FLAGS if "libclang" not in library else (*_FLAGS, "-shared-libasan")
    for name, path in compilers.items():
        text = _WRAPPER.format(mark=shlex.quote(mark), compiler=shlex.quote(path), flags=" ".join(flags))
        wrapper = os.path.join(wrappers, name)
        with open(wrapper, "w") as file:
            file.write(text)
        os.chmod(wrapper, 0o755)
    # Its function that throws must be found before torch brings it along.
    throws = _file_of(next(iter(compilers.values())), "libstdc++.so.6")
    environment = {**os.environ, **_OPTIONS}
    environment["LD_PRELOAD"] = " ".join(path for path in (library, throws) if path)
    environment["PATH"] = wrappers + os.pathsep + environment.get("PATH", os.defpath)
    for variable, names in (("CXX", ("g++", "clang++", "c++")), ("CC", ("gcc", "clang", "cc"))):
        wrapped = next((name for name in names if name in compilers), None)
        if wrapped is not None:
            environment[variable] = os.path.join(wrappers, wrapped)
    return environment


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
