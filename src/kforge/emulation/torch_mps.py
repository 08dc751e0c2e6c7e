"""torch.mps as programs ask it, where there is no Mac."""

from __future__ import annotations

import torch

from kforge.emulation import torch_patches as to
from kforge.emulation.torch_patches import Patches

_MEMORY = 16 << 30


def patches() -> Patches:
    """What replaces torch.mps's own, `compile_shader` apart."""
    mps = torch.mps
    return {
        **to.device_patches("mps"),
        (torch.backends.mps, "is_available"): to.constant_function(True),
        (torch.backends.mps, "is_built"): to.constant_function(True),
        (mps, "is_available"): to.constant_function(True),
        (mps, "device_count"): to.constant_function(1),
        (mps, "synchronize"): to.constant_function(None),
        (mps, "empty_cache"): to.constant_function(None),
        (mps, "set_per_process_memory_fraction"): to.constant_function(None),
        (mps, "current_allocated_memory"): to.constant_function(0),
        (mps, "driver_allocated_memory"): to.constant_function(0),
        (mps, "recommended_max_memory"): to.constant_function(_MEMORY),
        (mps, "manual_seed"): to.generator_function("manual_seed"),
        (mps, "seed"): to.generator_function("seed"),
        (mps, "get_rng_state"): to.generator_function("get_state"),
        (mps, "set_rng_state"): to.generator_function("set_state"),
        (mps, "Event"): to.EmulatedEvent,
        (mps, "load_metallib"): to.absent_function("torch.mps.load_metallib"),
    }
