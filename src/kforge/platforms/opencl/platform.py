"""Any OpenCL device, through pyopencl. Tensors stay in the host's memory; what a program moves is part of its time."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
from typing import Any

from kforge.platforms.base import Dialect, Platform

_POCL = "Debian and Ubuntu: apt-get install pocl-opencl-icd, which runs OpenCL on the processor"
_KINDS = ("int", "half", "float", "double")
_CHOICE = "PYOPENCL_CTX"
"""Where pyopencl reads which device to use: `driver:device`, by number."""


class OpenCl(Platform):
    name = "opencl"
    profilers = ("opencl_events", "roofline")
    address_space_limited = False
    notes_launches = True
    dialect = Dialect(language="opencl", marks=r"\bpyopencl\b|\b__kernel\b|\bget_global_id\b", suffixes=(".cl",))
    terms = {
        "kernel": "kernel, `__kernel void`, built by `pyopencl.Program`",
        "grid": "NDRange, sized in work-items: global size, then local size",
        "block": "work-group, `get_group_id(axis)`, `get_local_size(axis)`",
        "thread": "work-item, `get_local_id(axis)`",
        "global index": "`get_global_id(0)`",
        "warp": "sub-group, where the device has them; its size differs between devices",
        "warp exchange": "`sub_group_reduce_add`, `sub_group_broadcast`; without sub-groups, local memory",
        "shared memory": "local memory, `__local`",
        "barrier": "`barrier(CLK_LOCAL_MEM_FENCE)`",
        "warp barrier": "`sub_group_barrier(CLK_LOCAL_MEM_FENCE)`, where the device has sub-groups",
        "global memory": "global memory, `__global float*`",
        "constant": "`__constant`, or an argument by value",
        "wide access": "`float4`, `vload4`",
        "atomic": "`atomic_add(&x, value)` for integers; for floats a loop over `atomic_cmpxchg`",
        "matrix unit": "none in the language: tiles in local memory",
        "functions": "`exp`, `rsqrt`, `fmax`, `tanh`",
        "double": "`double`, where the device has fp64",
    }

    def unavailable_reason(self) -> str:
        if importlib.util.find_spec("pyopencl") is None:
            return "pyopencl is not installed (pip install pyopencl)"
        if not _drivers():
            return f"no OpenCL driver is installed ({_POCL})"
        if not _devices():
            return f"{', '.join(name for name, _ in _drivers())} found no device that this user may open ({_POCL})"
        if _choice() not in _devices():
            known = ", ".join(f"{key} ({device.name})" for key, device in _devices().items())
            return f"{_CHOICE}={os.environ[_CHOICE]} names no device (unset it, or use one of: {known})"
        return ""

    def environment(self, number: int = 0) -> dict[str, str]:
        """The judge's device. Drivers keep what they compile below HOME, so pyopencl need not."""
        return {_CHOICE: _choice(), "PYOPENCL_NO_CACHE": "1"}

    def folders(self) -> tuple[str, ...]:
        return ("/etc/OpenCL", "/opt/intel", "/opt/rocm")

    def device_files(self) -> tuple[str, ...]:
        return tuple(node for kind in ("/dev/dri/renderD*", "/dev/kfd", "/dev/nvidia*") for node in glob.glob(kind))

    def enter_runner(self) -> None:
        cl: Any = importlib.import_module("pyopencl")
        launch = self.noting(cl.enqueue_nd_range_kernel, lambda queue, kernel, *_, **__: str(kernel.function_name))
        cl.enqueue_nd_range_kernel = cl._cl.enqueue_nd_range_kernel = launch

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def facts(self, number: int = 0) -> dict[str, str]:
        if self.unavailable_reason():
            return {}
        device, traits = _devices()[_choice()], importlib.import_module("pyopencl.characterize")
        widths = {kind: getattr(device, f"preferred_vector_width_{kind}") for kind in _KINDS}
        return {
            "processor": device.name.strip(),
            "cores": str(device.max_compute_units),
            "vectors": ", ".join(f"{kind}{width}" for kind, width in widths.items() if width > 1) or "none",
            "local": f"{device.local_mem_size >> 10} KiB",
            "group": str(device.max_work_group_size),
            "lanes": str(traits.get_simd_group_size(device, 4) or "unknown"),
            **{key: "yes" if f"cl_khr_{key}" in device.extensions else "no" for key in ("fp64", "fp16", "subgroups")},
            "memory": f"{device.global_mem_size / (1 << 30):.3g} GiB",
            "whose": "the host's" if device.host_unified_memory else "its own",
            "language": device.opencl_c_version.strip(),
            "driver": f"{device.platform.name} {device.driver_version}",
        }


@functools.cache
def _drivers() -> list[tuple[str, list[Any]]]:
    """Each driver's name with its devices."""
    cl: Any = importlib.import_module("pyopencl")
    try:
        return [(each.name, each.get_devices()) for each in cl.get_platforms()]
    except cl.Error:
        return []


def _devices() -> dict[str, Any]:
    """Every device, named as PYOPENCL_CTX does."""
    return {f"{row}:{place}": one for row, (_, devices) in enumerate(_drivers()) for place, one in enumerate(devices)}


def _choice() -> str:
    """The device that was asked for, or the first."""
    wanted = os.environ.get(_CHOICE, "") or next(iter(_devices()), "0")
    return wanted if ":" in wanted else f"{wanted}:0"


PLUGIN = OpenCl()
