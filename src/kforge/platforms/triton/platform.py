"""NVIDIA GPUs in Triton's language."""

from __future__ import annotations

from kforge.platforms._nvidia.gpu import NvidiaGpu
from kforge.platforms.base import Dialect


class Triton(NvidiaGpu):
    name = "triton"
    warm_imports = ("triton", "triton.language")
    needed_module = "triton"
    needed_cure = "pip install triton; torch for CUDA brings it along"
    dialect = Dialect(language="python", marks=r"@triton\.(?:jit|autotune)\b|\btriton\.language\b")
    terms = {
        "kernel": "kernel, a function under `@triton.jit`",
        "grid": "grid, sized in programs: `kernel[grid](...)`",
        "block": "program, `tl.program_id(axis)`",
        "thread": "element of a block of values: no code is written for a single one",
        "global index": "`tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`",
        "warp": "warp, left to the compiler: `num_warps`",
        "warp exchange": "`tl.sum`, `tl.max`, `tl.reduce` along an axis",
        "shared memory": "none to declare: a block's values are placed by the compiler",
        "barrier": "none to write",
        "global memory": "pointers, `tl.load` and `tl.store` with a mask",
        "constant": "argument; `tl.constexpr` where it is fixed",
        "wide access": "wide loads, left to the compiler",
        "atomic": "`tl.atomic_add(pointer, value)`",
        "matrix unit": "`tl.dot`",
        "functions": "`tl.exp`, `tl.rsqrt`, `tl.maximum`, `libdevice.tanh`",
        "double": "`tl.float64`",
    }


PLUGIN = Triton()
