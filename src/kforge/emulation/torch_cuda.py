"""torch.cuda as programs ask it, where there is no GPU of NVIDIA's."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from kforge.emulation import torch_patches as to
from kforge.emulation.torch_patches import Patches

MULTIPROCESSORS = 16
"""As many as a small GPU has: programs size their grids by it."""
GROUP_MEMORY, MOST_DYNAMIC = 48 << 10, 227 << 10
_MEMORY = 16 << 30
_NAME = "an emulated GPU"
PROPERTIES = types.SimpleNamespace(
    name=_NAME,
    major=9,
    minor=0,
    multi_processor_count=MULTIPROCESSORS,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block=GROUP_MEMORY,
    shared_memory_per_block_optin=MOST_DYNAMIC,
    shared_memory_per_multiprocessor=228 << 10,
    regs_per_multiprocessor=65536,
    L2_cache_size=50 << 20,
    total_memory=_MEMORY,
)
_stream = to.EmulatedStream()


def patches() -> Patches:
    """What replaces torch.cuda's own."""
    cuda = torch.cuda
    quiet = ("set_device", "set_stream", "synchronize", "empty_cache", "init", "ipc_collect", "reset_peak_memory_stats")
    nought = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    return {
        **to.device_patches("cuda"),
        **{(cuda, name): to.constant_function(None) for name in quiet},
        **{(cuda, name): to.constant_function(0) for name in nought},
        (cuda, "is_available"): to.constant_function(True),
        (cuda, "is_initialized"): to.constant_function(True),
        (cuda, "is_bf16_supported"): to.constant_function(True),
        (cuda, "device_count"): to.constant_function(1),
        (cuda, "current_device"): to.constant_function(0),
        (cuda, "current_stream"): to.constant_function(_stream),
        (cuda, "default_stream"): to.constant_function(_stream),
        (cuda, "get_device_properties"): to.constant_function(PROPERTIES),
        (cuda, "get_device_capability"): to.constant_function((9, 0)),
        (cuda, "get_device_name"): to.constant_function(_NAME),
        (cuda, "get_arch_list"): to.constant_function(["sm_90"]),
        (cuda, "mem_get_info"): to.constant_function((_MEMORY, _MEMORY)),
        (cuda, "manual_seed"): to.generator_function("manual_seed"),
        (cuda, "manual_seed_all"): to.generator_function("manual_seed"),
        (cuda, "get_rng_state"): to.generator_function("get_state"),
        (cuda, "set_rng_state"): to.generator_function("set_state"),
        (cuda, "Stream"): to.EmulatedStream,
        (cuda, "ExternalStream"): to.EmulatedStream,
        (cuda, "Event"): to.EmulatedEvent,
        (cuda, "stream"): to.NullContext,
        (cuda, "StreamContext"): to.NullContext,
        (cuda, "device"): to.NullContext,
        (cuda, "device_of"): to.NullContext,
        **{(cuda.nvtx, name): to.constant_function(None) for name in ("mark", "range_push", "range_pop")},
        (cuda.nvtx, "range"): to.NullContext,
        (torch.backends.cudnn, "is_acceptable"): to.constant_function(False),
        (torch.Tensor, "record_stream"): to.constant_function(None),
        (cuda, "is_current_stream_capturing"): to.constant_function(False),
        (cuda, "CUDAGraph"): to.absent_function("torch.cuda.CUDAGraph"),
        (cuda, "graph"): to.absent_function("torch.cuda.graph"),
        (cuda, "make_graphed_callables"): to.absent_function("torch.cuda.make_graphed_callables"),
        (cuda, "cudart"): to.absent_function("torch.cuda.cudart"),
        (cuda, "_lazy_init"): _refuse_rest,
    }


def _refuse_rest(*_: Any) -> None:
    """Refuse whatever else of torch.cuda needs a GPU."""
    caller = sys._getframe(1)
    module = str(caller.f_globals.get("__name__", "torch.cuda"))
    to.absent_function(f"{module}.{caller.f_code.co_name}")()
