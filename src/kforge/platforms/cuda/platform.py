"""NVIDIA GPUs in CUDA C++, compiled at run time. Without NVIDIA's driver, programs are verified in emulation."""

from __future__ import annotations

from kforge.platforms._emulated import Emulated
from kforge.platforms._nvidia import driver
from kforge.platforms._nvidia.gpu import NvidiaGpu
from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.platforms.base import Dialect, Platform


class Cuda(NvidiaGpu):
    name = "cuda"
    warm_imports = ("cuda.core", "triton")
    needed_module = "cuda.core"
    needed_cure = "pip install cuda-core"
    dialect = Dialect(
        language="cuda",
        marks=r"\b__global__\b|\b__shared__\b|\b__syncthreads\b|\bthreadIdx\b",
        suffixes=(".cu", ".cuh"),
    )
    terms = {
        "kernel": 'kernel, `extern "C" __global__ void`, built by NVRTC or `load_inline`',
        "grid": "grid, sized in blocks",
        "block": "block, `blockIdx`, `blockDim`",
        "thread": "thread, `threadIdx`",
        "global index": "`blockIdx.x * blockDim.x + threadIdx.x`",
        "warp": "warp, 32 threads",
        "warp exchange": "`__shfl_down_sync`, `__shfl_xor_sync`, `__shfl_sync`",
        "shared memory": "shared memory, `__shared__`",
        "barrier": "`__syncthreads()`",
        "warp barrier": "`__syncwarp()`",
        "global memory": "global memory, `float*`",
        "constant": "`__constant__`, or an argument by value",
        "wide access": "`float4`, 16 bytes a load",
        "atomic": "`atomicAdd(&x, value)`",
        "matrix unit": "tensor cores, `wmma`, `mma.sync`",
        "functions": "`expf`, `rsqrtf`, `fmaxf`, `tanhf`",
        "double": "`double`",
    }

    def language_facts(self) -> dict[str, str]:
        return {"nvrtc": nvrtc_version() or "unknown"}


class EmulatedCuda(Emulated):
    name = "cuda"
    stand_in = "kforge.emulation.cuda"

    def hardware(self) -> Platform:
        return Cuda()

    def facts(self, number: int = 0) -> dict[str, str]:
        unknown = dict.fromkeys(
            ("multiprocessors", "threads", "registers", "l2", "bandwidth", "float32_rate", "tensor_rate"), "unknown"
        )
        return {
            **unknown,
            "processor": "an NVIDIA GPU, emulated on this machine's processor",
            "capability": "9.0",
            "arch": "sm_90",
            "shared": "228 KiB",
            "shared_block": "48 KiB, or 227 KiB of dynamic shared memory",
            "memory": "the machine's",
            "driver": "none: programs are verified in emulation and not timed",
            "toolkit": "none. The emulator runs CUDA C++: a program with inline PTX, tensor cores, clusters, "
            "asynchronous copies, CUDA graphs or a torch extension is refused",
            "include": "/usr/local/cuda/include",
        }


PLUGIN: Platform = Cuda() if driver.is_installed() else EmulatedCuda()
