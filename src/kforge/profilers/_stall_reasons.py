"""Why a GPU's warps wait: ncu's reasons in words."""

from __future__ import annotations

_MEANINGS = {
    "long_scoreboard": "global or local memory",
    "short_scoreboard": "shared memory or special functions",
    "lg_throttle": "room in the queue of global accesses",
    "mio_throttle": "room in the queue of shared memory and special functions",
    "tex_throttle": "room in the texture queue",
    "barrier": "other warps at a barrier",
    "membar": "a memory fence",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "dispatch_stall": "the dispatcher (register banks)",
    "not_selected": "their turn, being ready",
    "wait": "a fixed delay between instructions",
    "drain": "stores to leave at the end",
    "branch_resolving": "a branch",
    "no_instruction": "the instruction cache",
    "imc_miss": "constants",
    "sleeping": "a sleep to end",
    "gmma": "the tensor cores",
    "warpgroup_arrive": "their warp group",
}


def meaning(stall: str) -> str:
    """A stall reason of ncu's in words."""
    return _MEANINGS.get(stall, stall.replace("_", " "))
