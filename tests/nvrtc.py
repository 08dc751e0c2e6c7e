"""NVIDIA's run-time compiler, where its library is installed: it needs no GPU (pip install nvidia-cuda-nvrtc)."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

INCLUDE = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


def _folders() -> Iterator[Path]:
    found = importlib.util.find_spec("nvidia")
    for root in map(Path, found.submodule_search_locations or () if found else ()):
        yield from (path.parent for path in root.glob("*/lib/libnvrtc.so.*"))
    yield INCLUDE.parent / "lib64"


@functools.cache
def library() -> ctypes.CDLL:
    """The compiler; skips the test where there is none."""
    for folder in _folders():
        for path in sorted(folder.glob("libnvrtc.so.*")):
            # It looks for its other half by name, and finds it loaded.
            for other in folder.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(other), ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(path))
    pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")


def refusal(source: str) -> str:
    """What the compiler says against a source; empty if it compiles."""
    nvrtc, program = library(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    words = ["--std=c++17", "--gpu-architecture=sm_90", f"-I{INCLUDE}", f"-I{INCLUDE / 'cccl'}"]
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    status = nvrtc.nvrtcCompileProgram(program, len(words), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(size.value, 1))
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return f"status {status}: {log.value.decode()}" if status else ""
