"""What holds one kernel back, with an estimate of the share of its time: waste, scarcity, or a unit at its peak."""

from __future__ import annotations

from collections.abc import Callable

from kforge.profilers._format import percent, size
from kforge.profilers._gpu_facts import KernelFacts
from kforge.profilers._stall_reasons import meaning

Hit = tuple[float, str, float | None]
"""Weight within the kernel, text, value."""
_MaybeHit = Hit | None
_GLOBAL_WAITS = ("long_scoreboard", "lg_throttle", "drain")
_SHARED_WAITS = ("mio_throttle", "short_scoreboard")
_AT_PEAK = 0.5
"""From this share of its peak on, a unit counts as what limits a kernel."""
_UNIT_WEIGHT, _LATENCY_WEIGHT = 0.6, 0.35
_HOT_SLICE = 0.3
"""The share of its peak at which a slice of the second-level cache that only adds to one address is busy."""


def causes_of(kernel: KernelFacts, without: tuple[str, ...]) -> dict[str, Hit]:
    """A kernel's causes; what only says how busy it is gives way to a reason for that."""
    hits = {name: hit for name, cause in CAUSES.items() if name not in without and (hit := cause(kernel))}
    reason = max((hit[0] for name, hit in hits.items() if name not in _GENERAL), default=0.0)
    return {name: hit for name, hit in hits.items() if name not in _GENERAL or hit[0] > reason}


def _pressure(kernel: KernelFacts, waits: tuple[str, ...], *units: str) -> float:
    """How much of the time these units, or waiting for them, stand for."""
    return max(kernel.waiting_for(*waits), *(kernel.part(unit) for unit in units))


def _uncoalesced_accesses(kernel: KernelFacts) -> _MaybeHit:
    worst = wasted = 0.0
    which = ""
    for name in ("load", "store"):
        sectors = kernel.get(f"{name}_sectors")
        if sectors <= 1 or not kernel.has(f"{name}_use"):
            continue
        waste = 1 - max(1.0, sectors * kernel.part(f"{name}_use")) / sectors
        wasted += kernel.part(f"{name}_weight") * waste
        if kernel.part(f"{name}_weight") * waste > worst:
            worst, which = kernel.part(f"{name}_weight") * waste, name
    if not which or wasted < 0.2:
        return None
    weight = min(1.0, wasted) * _pressure(kernel, _GLOBAL_WAITS, "l1_share", "l2_share", "dram_share")
    text = (
        f"uncoalesced global {which}s limit `{kernel.name}`: a warp's {which} touches "
        f"{kernel.get(f'{which}_sectors'):.3g} sectors of 32 bytes and uses {percent(kernel.part(f'{which}_use'))} of "
        "them; let neighbouring threads take neighbouring addresses (a warp per row, or a tile through shared memory)"
    )
    return weight, text, kernel.get(f"{which}_sectors")


def _bank_conflicts(kernel: KernelFacts) -> _MaybeHit:
    share = kernel.part("conflict_share")
    if share < 0.2:
        return None
    text = (
        f"bank-conflicts limit `{kernel.name}`: {percent(share)} of its shared-memory accesses are repeats because "
        f"threads of a warp hit one bank; pad the rows (`[32][33]`), swizzle the columns, or swap the index that "
        "threads run along"
    )
    return share * _pressure(kernel, _SHARED_WAITS, "shared_share"), text, share


def _spills(kernel: KernelFacts) -> _MaybeHit:
    share = kernel.part("local_share")
    if share < 0.05:
        return None
    text = (
        f"spilling limits `{kernel.name}`: {percent(share)} of its memory sectors are spilled registers or arrays in "
        f"local memory ({kernel.get('registers'):.0f} registers a thread); keep fewer values alive, index arrays with "
        "constants only, or allow more registers (a smaller block in `__launch_bounds__`, fewer blocks an SM)"
    )
    weight = share * _pressure(kernel, _GLOBAL_WAITS, "l1_share", "l2_share", "dram_share")
    return weight, text, share


def _atomics(kernel: KernelFacts) -> _MaybeHit:
    share, hottest = kernel.part("atomic_share"), kernel.part("atomic_hottest_share")
    if share < 0.02 or hottest <= 0:
        return None
    skew = 1 - kernel.part("atomic_unit_share") / hottest if hottest > 0 else 0.0
    contended = skew * min(1.0, hottest / _HOT_SLICE) * kernel.waiting_for(*_GLOBAL_WAITS)
    weight = max(kernel.part("atomic_unit_share"), contended) * (1 - kernel.part("dram_share"))
    text = (
        f"atomics limit `{kernel.name}`: {percent(share)} of its global accesses are atomic and they queue for a few "
        "addresses; reduce within the warp (`__shfl_down_sync`) and the block first, then one atomic a block, or a "
        "second small kernel"
    )
    return weight, text, share


def _occupancy(kernel: KernelFacts) -> _MaybeHit:
    limit = kernel.get("occupancy_limit", 1.0)
    if limit > 0.75:
        return None
    weight = (1 - limit) * (1 - kernel.part("issue_share")) * (1 - kernel.busiest) * kernel.beyond_launch
    what, change = occupancy_limiter(kernel)
    text = (
        f"{what} limit `{kernel.name}`: they allow {percent(limit)} of the warps an SM can hold, too few to hide "
        f"latency; {change}"
    )
    return weight, text, limit


def occupancy_limiter(kernel: KernelFacts) -> tuple[str, str]:
    """What keeps more blocks from an SM, beginning with a word for it, and what to change."""
    block, registers = kernel.get("block_size"), kernel.get("registers")
    held = size(kernel.get("shared_bytes"))
    known = {
        "registers": (
            f"registers ({registers:.0f} a thread, {block:.0f} threads a block)",
            "keep fewer values alive (smaller tiles, less unrolling) or cap them with `__launch_bounds__`",
        ),
        "shared": (
            f"shared-memory demands ({held} a block)",
            "use smaller tiles or fewer stages, or let more threads share a block's memory",
        ),
        "warps": (
            f"block-size limits ({block:.0f} threads a block)",
            "choose a block size that divides an SM's threads",
        ),
        "barriers": ("barriers", "use fewer barriers a block"),
        "blocks": (f"block-count limits ({block:.0f} threads a block)", "use larger blocks"),
    }
    blocks = {name: kernel.get(f"blocks_by_{name}", 1e9) for name in known}
    tightest = min(blocks, key=lambda name: blocks[name])
    return known[tightest]


def _parallelism(kernel: KernelFacts) -> _MaybeHit:
    waves = kernel.get("waves", 1.0)
    if waves >= 0.9:
        return None
    weight = (1 - waves) * (1 - kernel.busiest) * kernel.beyond_launch
    text = (
        f"parallelism limits `{kernel.name}`: {kernel.get('grid_size'):.0f} blocks of {kernel.get('block_size'):.0f} "
        f"threads fill {percent(waves)} of the device once; split the work over more blocks (fewer elements a thread, "
        "a split reduction)"
    )
    return weight, text, waves


def _unit(kernel: KernelFacts) -> _MaybeHit:
    """The unit that works nearest its peak."""
    memory = {"dram": kernel.part("dram_share"), "l2": kernel.part("l2_share"), "l1": kernel.part("l1_share")}
    pipes = {
        **{name: kernel.part(f"{name}_share") for name in ("tensor", "fma", "alu", "xu", "fp64")},
        "issue": kernel.part("issue_share"),
    }
    if memory["dram"] >= 0.8 * memory["l2"]:
        memory["l2"] = 0.0
    name, share = max([*memory.items(), *pipes.items()], key=lambda item: item[1])
    if share < _AT_PEAK:
        return None
    return _UNIT_WEIGHT * share, _UNIT_TEXTS[name](kernel, percent(share)), share


def _memory_text(kernel: KernelFacts, share: str) -> str:
    rate = kernel.get("dram_bytes") / max(1.0, kernel.get("time_ns"))
    return (
        f"memory limits `{kernel.name}`: DRAM works at {share} of its peak ({rate:.0f} GB/s); only fewer bytes help: "
        "fuse with what comes before or after, read nothing twice, use smaller types"
    )


def _compute_text(pipe: str, change: str) -> Callable[[KernelFacts, str], str]:
    def text(kernel: KernelFacts, share: str) -> str:
        return (
            f"compute limits `{kernel.name}`: {pipe} at {share} of its peak, DRAM at "
            f"{percent(kernel.part('dram_share'))}; {change}"
        )

    return text


_FEWER = "fewer or cheaper instructions help: hoist what repeats, packed or tensor-core arithmetic where allowed"
_UNIT_TEXTS: dict[str, Callable[[KernelFacts, str], str]] = {
    "dram": _memory_text,
    "l2": lambda kernel, share: (
        f"L2-cache traffic limits `{kernel.name}`: it works at {share} of its peak; reuse more from registers and "
        "shared memory (larger tiles), or let blocks that share data run together"
    ),
    "l1": lambda kernel, share: (
        f"L1-cache and shared-memory accesses limit `{kernel.name}`: that unit works at {share} of its peak; reuse "
        "more from registers (several results a thread), wider accesses (`float4`)"
    ),
    "tensor": _compute_text("the tensor cores work", "keep them fed: more stages, larger tiles, less besides"),
    "fma": _compute_text("the multiply-add pipe works", _FEWER),
    "alu": _compute_text("the integer and logic pipe works", "simplify index arithmetic, or let a thread do more"),
    "xu": _compute_text("the special-function pipe works", "fewer exp, log, sqrt, divisions and conversions"),
    "fp64": _compute_text(
        "the double-precision pipe works", "no double constants or double functions where float will do"
    ),
    "issue": _compute_text("instruction issue works", _FEWER),
}


def _latency(kernel: KernelFacts) -> _MaybeHit:
    if kernel.busiest >= _AT_PEAK:
        return None
    waits = kernel.waits()
    top = f"warps wait for {meaning(waits[0][0])} {percent(waits[0][1])} of the time they wait; " if waits else ""
    text = (
        f"latency limits `{kernel.name}`: no unit works at more than {percent(kernel.busiest)} of its peak; {top}"
        "give each thread more independent work (several loads before the first use), or use more warps"
    )
    return _LATENCY_WEIGHT * (1 - kernel.busiest) * kernel.beyond_launch, text, kernel.busiest


CAUSES: dict[str, Callable[[KernelFacts], _MaybeHit]] = {
    "uncoalesced": _uncoalesced_accesses,
    "bank_conflicts": _bank_conflicts,
    "spilling": _spills,
    "atomics": _atomics,
    "occupancy": _occupancy,
    "parallelism": _parallelism,
    "unit": _unit,
    "latency": _latency,
}
"""Name -> the rule that finds it."""
_GENERAL = ("unit", "latency")
