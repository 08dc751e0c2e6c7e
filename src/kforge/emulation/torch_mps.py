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
        **to.for_device("mps"),
        (torch.backends.mps, "is_available"): to.always(True),
        (torch.backends.mps, "is_built"): to.always(True),
        (mps, "is_available"): to.always(True),
        (mps, "device_count"): to.always(1),
        (mps, "synchronize"): to.always(None),
        (mps, "empty_cache"): to.always(None),
        (mps, "set_per_process_memory_fraction"): to.always(None),
        (mps, "current_allocated_memory"): to.always(0),
        (mps, "driver_allocated_memory"): to.always(0),
        (mps, "recommended_max_memory"): to.always(_MEMORY),
        (mps, "manual_seed"): to.of_generator("manual_seed"),
        (mps, "seed"): to.of_generator("seed"),
        (mps, "get_rng_state"): to.of_generator("get_state"),
        (mps, "set_rng_state"): to.of_generator("set_state"),
        (mps, "Event"): to.EmulatedEvent,
        (mps, "load_metallib"): to.absent("torch.mps.load_metallib"),
    }
