"""What a record says of the machine: versions, and the conditions a measurement was made under."""

from __future__ import annotations

import glob
import importlib.metadata
import itertools
import os
import platform

import torch


def versions(compilers: dict[str, str]) -> dict[str, str]:
    """Everything whose version can change a verdict."""
    try:
        own = importlib.metadata.version("kforge-kernels")
    except importlib.metadata.PackageNotFoundError:
        own = "source tree"
    return {
        "kforge": own,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": f"{platform.system()} {platform.release()}",
        "threads": str(torch.get_num_threads()),
        **compilers,
    }


def conditions() -> dict[str, str]:
    """Clock, temperature and load as far as this machine shows them."""
    readings: dict[str, str] = {}
    for name, pattern in (
        ("clock_khz", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"),
        ("temperature_milli_c", "/sys/class/thermal/thermal_zone*/temp"),
    ):
        values = [value for path in sorted(glob.glob(pattern)) if (value := _read(path))]
        readings[name] = " ".join(values) or "not readable"
    readings["load"] = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return readings


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def phase_seconds(marks: list[tuple[str, float]]) -> dict[str, float]:
    """Phase -> seconds in all, from (name, time it began) marks closed by a last one."""
    spent: dict[str, float] = {}
    for (name, began), (_, later) in itertools.pairwise(marks):
        spent[name] = spent.get(name, 0.0) + later - began
    return {name: round(seconds, 4) for name, seconds in spent.items()}
