"""Nsight Compute: hardware counters of CUDA kernels."""

from __future__ import annotations

import shutil

from kforge.profilers.face import Profiler


class Ncu(Profiler):
    name = "ncu"
    what = "hardware counters of CUDA kernels"

    def absent_because(self) -> str:
        if shutil.which("ncu") is None:
            return "ncu is not installed (part of NVIDIA's CUDA toolkit)"
        if shutil.which("nvidia-smi") is None:
            return "no NVIDIA driver on this machine"
        return ""


PLUGIN = Ncu()
