"""NVIDIA GPUs in CUDA C++, compiled at run time."""

from __future__ import annotations

from kforge.platforms._nvidia.gpu import NvidiaGpu


class Cuda(NvidiaGpu):
    name = "cuda"
    warm_imports = ("cuda.core", "triton")
    needed_module = "cuda.core"
    needed_cure = "pip install cuda-core"


PLUGIN = Cuda()
