"""NVIDIA's command-line tools: where they are, and what is in the way of using them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kforge.platforms._nvidia import driver
from kforge.platforms._nvidia.gpu import toolkit
from kforge.profilers.base import NothingSeen, ProfilingContext

DENIED = "ERR_NVGPUCTRPERM"
"""What NVIDIA's tools say where the counters are for administrators only."""
DENIED_WORDS = (
    f"the driver keeps the GPU's counters to administrators ({DENIED}): load it with "
    "NVreg_RestrictProfilingToAdminUsers=0 (`options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file under "
    "/etc/modprobe.d, then a restart)"
)
_PARAMETERS = Path("/proc/driver/nvidia/params")


def find(name: str) -> str:
    """Where a tool is, on the PATH or in the toolkit; empty if nowhere."""
    home = toolkit()
    return shutil.which(name) or (shutil.which(name, path=os.path.join(home, "bin")) if home else None) or ""


def no_gpu_because() -> str:
    """Why no GPU can be looked at here; empty if one can."""
    try:
        gpus = driver.gpus()
    except driver.NoDriver as error:
        return f"{error} (install NVIDIA's driver; `nvidia-smi` must list the GPU)"
    return "" if gpus else "no NVIDIA GPU is visible (CUDA_VISIBLE_DEVICES may hide it)"


def counters_denied_reason(parameters: Path = _PARAMETERS) -> str:
    """Why the hardware counters cannot be read by this user; empty if they can, or if nobody can tell beforehand."""
    try:
        settings = parameters.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return DENIED_WORDS if "RmProfilingAdminOnly: 1" in settings and os.geteuid() != 0 else ""


def require_cuda(name: str, context: ProfilingContext) -> None:
    """NothingSeen for a program that does not run on an NVIDIA GPU."""
    if context.platform.device != "cuda":
        raise NothingSeen(f"{name} looks at kernels on NVIDIA GPUs; platform {context.platform.name} has none")


def last_line(text: str) -> str:
    """The last line of a text that says something: the reason why a tool failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
