"""NVIDIA GPUs in CUDA C++, compiled at run time. Without NVIDIA's driver, programs are verified in emulation."""

from __future__ import annotations

from kforge.platforms._emulated import Emulated
from kforge.platforms._nvidia import driver
from kforge.platforms._nvidia.gpu import NvidiaGpu
from kforge.platforms.base import Platform


class Cuda(NvidiaGpu):
    name = "cuda"
    warm_imports = ("cuda.core", "triton")
    needed_module = "cuda.core"
    needed_cure = "pip install cuda-core"


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
            "toolkit": "none",
            "include": "/usr/local/cuda/include",
        }


PLUGIN: Platform = Cuda() if driver.is_installed() else EmulatedCuda()
