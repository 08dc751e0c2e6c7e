"""Which kernels ran on the device in one call, and whose they are; through CUPTI, by way of torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType

from kforge.worker.runner import modes

_COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
_FUSED = ("fused_", "kernel", "CudaCodeGen")
"""Names that torch's script compilers give the kernels they make."""
_TRANSFERS = ("Memcpy ", "Memset ")
"""With a space, which no kernel's name has there."""
_LIBRARIES = re.compile(
    r"^(void )?(at::|at_cuda|c10::|cutlass_\d|cublas|cudnn|nvjet_|sm\d+_xmma|sm\d+_sgemm|xmma_cudnn::|"
    r"(ampere|volta|turing|hopper)_[a-z0-9_]*(gemm|cudnn)|gemmk1_kernel|gemv2[NT]_|gemvNSP_|splitKreduce_kernel|magma_|"
    r"implicit_convolve|(vector|regular|composite)_(\w+_)?fft|cusparse)"
    r"|\bcutlass::Kernel2?<cutlass_\d|\bcudnn::|\bcublas\w*(Params|Tensor|Lt)|\bat::native::"
)
"""Names of kernels that come with torch and the vendor's libraries; what a program compiles from CUTLASS has others."""
_LONGEST = 200
_MOST = 500


def record(
    call: Callable[[], Any], synchronize: Callable[[], None], scripted: bool
) -> tuple[list[Any], list[Any], int]:
    """Run `call` under the profiler: (kernels as (name, whose, nanoseconds), operators as `modes.record_operators`,
    nanoseconds in which any kernel ran).

    Whose is own, torch (an operator launched it) or library (torch's or a vendor's code, launched past the operators:
    by a captured graph, by torch's compilers, by a library called directly). `scripted`: whether the program had
    anything made by torch's script compiler.
    """
    from torch._C._profiler import _ExperimentalConfig

    everywhere = _ExperimentalConfig(profile_all_threads=True)
    with torch.autograd.profiler.profile(
        use_kineto=True, use_device="cuda", record_shapes=True, experimental_config=everywhere
    ) as profile:
        call()
        synchronize()
    events = profile.function_events
    compiled = any(event.name.startswith(_COMPILED) for event in events)
    by_library: dict[str, float] = {}
    for event in events:
        if event.name.startswith("aten::"):
            for kernel in event.kernels:
                by_library[kernel.name] = by_library.get(kernel.name, 0.0) + kernel.duration
    launched: dict[tuple[str, str], float] = {}
    spans: list[tuple[float, float]] = []
    for event in events:
        if event.device_type != DeviceType.CUDA or event.name.startswith(_TRANSFERS):
            continue
        if getattr(event, "is_user_annotation", False):
            continue
        spent = max(0.0, event.time_range.elapsed_us())
        whose = "own"
        if by_library.get(event.name, 0.0) > 0:
            whose = "torch"
        elif (
            _LIBRARIES.search(event.name)
            or (compiled and event.name.startswith("triton_"))
            or (scripted and event.name.startswith(_FUSED))
        ):
            whose = "library"
        spans.append((event.time_range.start, event.time_range.end))
        key = (event.name[:_LONGEST], whose)
        launched[key] = launched.get(key, 0.0) + spent
    # By time, so that many small launches cannot push a large one out.
    costliest = sorted(launched.items(), key=lambda item: -item[1])[:_MOST]
    kernels = [(name, whose, round(spent * 1000)) for (name, whose), spent in costliest]
    return kernels, modes.operators_of(profile), round(1000 * _covered_time(spans))


def _covered_time(spans: list[tuple[float, float]]) -> float:
    """How long at least one of these spans lasted: kernels may run side by side."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def scripted_functions(module: Any = None) -> int:
    """How much torch's script compiler has made so far: functions, and modules in this one."""
    parts = sum(isinstance(part, torch.jit.ScriptModule) for part in module.modules()) if module is not None else 0
    try:
        unit: Any = torch.jit._state._python_cu
        return parts + len(unit.get_functions())
    except Exception:
        return parts
