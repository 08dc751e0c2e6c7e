"""NVIDIA GPUs in Triton's language."""

from __future__ import annotations

from kforge.platforms._nvidia.gpu import NvidiaGpu


class Triton(NvidiaGpu):
    name = "triton"
    warm_imports = ("triton", "triton.language")
    needed_module = "triton"
    needed_cure = "pip install triton; torch for CUDA brings it along"


PLUGIN = Triton()
