"""The digest's rules for GPUs: the one thing that limits the call, what else holds it back, and where it stands.

The causes are rules too: switched off, a cause is neither named as the limiter nor beside it.
"""

from __future__ import annotations

from functools import partial

from kforge.profilers import _gpu_facts, _kernel_causes
from kforge.profilers._facts import SHARE, Facts, RuleResult
from kforge.profilers._format import percent, size, time
from kforge.profilers._gpu_causes import causes
from kforge.profilers._gpu_facts import kernels, traced_number
from kforge.profilers._signal_rule import SignalRule, Unit
from kforge.profilers._stall_reasons import meaning
from kforge.types import Signal

_FEW_LANES = 24.0
"""Of a warp's 32 threads: with fewer at work, divergence is worth a word."""
_WIDEST_BITS = 128


def _limiter(facts: Facts) -> RuleResult:
    """The heaviest cause; its first word names it."""
    known = causes(facts)
    return (4.0, Signal("limiter", known[0].text)) if known else None


def _other_cause(name: str, facts: Facts) -> RuleResult:
    """A cause that is not the heaviest."""
    known = causes(facts)
    limited = "limiter" not in facts.without
    hit = next((cause for place, cause in enumerate(known) if cause.name == name and (place or not limited)), None)
    return (1.0 + hit.weight, Signal(name, f"also: {hit.text}" if limited else hit.text, hit.value)) if hit else None


# -- where the costliest kernel stands ---------------------------------------------------------------------------------


def _units(facts: Facts) -> RuleResult:
    top = next(iter(kernels(facts)), None)
    if top is None or not top.has("sm_share"):
        return None
    known = (("SM", "sm_share"), ("L1 and shared memory", "l1_share"), ("L2", "l2_share"), ("DRAM", "dram_share"))
    listed = ", ".join(f"{name} {percent(top.part(key))}" for name, key in known if top.has(key))
    return 1.9, Signal("units", f"units of `{top.name}`, as shares of their peak: {listed}", top.busiest)


def _stalls(facts: Facts) -> RuleResult:
    top = next(iter(kernels(facts)), None)
    waits = top.waits()[:3] if top is not None else []
    if top is None or not waits or top.part("issue_share") >= 0.75:
        return None
    listed = ", ".join(f"{meaning(name)} ({name}) {percent(share)}" for name, share in waits)
    return 1.6, Signal("stalls", f"warps of `{top.name}` wait for: {listed} of all waiting", waits[0][1])


def _occupancy_reached(facts: Facts) -> RuleResult:
    top = next(iter(kernels(facts)), None)
    if top is None or not top.has("occupancy") or top.part("occupancy") >= 0.6:
        return None
    reached, limit = top.part("occupancy"), top.get("occupancy_limit", 1.0)
    what, _ = _kernel_causes.occupancy_limiter(top)
    why = f"{what} allow {percent(limit)}" if limit < 0.9 else f"its resources would allow {percent(limit)}"
    if limit >= 0.9 and top.get("waves", 1.0) < 1:
        why += f", its {top.get('grid_size'):.0f} blocks are too few"
    text = f"occupancy of `{top.name}` is {percent(reached)} of the warps an SM can hold: {why}"
    return 1.3, Signal("occupancy_reached", text, reached)


def _lanes(facts: Facts) -> RuleResult:
    top = next(iter(kernels(facts)), None)
    lanes = top.get("threads_active") if top is not None else 0.0
    if top is None or not 0 < lanes < _FEW_LANES:
        return None
    text = (
        f"{lanes:.0f} of 32 threads of a warp work on average in `{top.name}`: its branches diverge, or its blocks are "
        "no multiple of 32 threads"
    )
    return 1.2, Signal("lanes", text, lanes)


def _traffic_ratio(facts: Facts) -> RuleResult:
    """Bytes through DRAM against the least, where that is not said as a cause."""
    moved, least = facts.number("ncu", "dram_bytes"), facts.number("roofline", "bytes_min")
    if not moved or not least or facts.number("ncu", _gpu_facts.CUT):
        return None
    if any(cause.name == "traffic" for cause in causes(facts)):
        return None
    text = f"{size(moved)} go through DRAM a call, {moved / least:.2g} times the {size(least)} the problem needs"
    return 1.0, Signal("traffic_ratio", text, moved / least)


# -- the call as a whole -----------------------------------------------------------------------------------------------


def _launch_share(facts: Facts) -> RuleResult:
    share = traced_number(facts, "idle_share")
    if share is None or share < 0.03 or any(cause.name == "launches" for cause in causes(facts)):
        return None
    share = min(1.0, share)
    text = f"the device idles {percent(share)} of the call: launch overhead and gaps between kernels"
    return 0.8 + share, Signal("launch_share", text, share)


def _kernel_list(facts: Facts) -> RuleResult:
    tool = next((tool for tool in ("torch_trace", "nsys", "ncu") if facts.number(tool, "launches")), "")
    launches = facts.number(tool, "launches")
    if not launches or launches < 2:
        return None
    metrics = facts.profiles[tool].metrics
    shares = [(name.removeprefix(SHARE), facts.number(tool, name, 1.0)) for name in metrics if name.startswith(SHARE)]
    ordered = sorted(((name, share) for name, share in shares if share), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"`{name}` {percent(share)}" for name, share in ordered[:4])
    cut = "the first " if facts.number(tool, _gpu_facts.CUT) else ""
    return 0.9, Signal("kernel_list", f"{cut}{launches:.0f} launches a call: {listed} of the device's time", launches)


def _library_kernels(facts: Facts) -> RuleResult:
    share = traced_number(facts, "library_share")
    if share is None or share < 0.02:
        return None
    share = min(1.0, share)
    text = f"{percent(share)} of the device's time is in kernels of torch and NVIDIA's libraries"
    return 0.6 + 0.5 * share, Signal("library_kernels", text, share)


def _copies(facts: Facts) -> RuleResult:
    share = traced_number(facts, "copy_share")
    if share is None or share < 0.02:
        return None
    share = min(1.0, share)
    text = f"{percent(share)} of the device's time is copying and filling memory: write results where they belong"
    return 0.7 + share, Signal("copies", text, share)


# -- what the compiler made of it --------------------------------------------------------------------------------------


def _load_width(facts: Facts) -> RuleResult:
    bits = facts.number("sass", "load_bits")
    if not bits or bits >= _WIDEST_BITS:
        return None
    top = next(iter(kernels(facts)), None)
    if top is not None and max(top.part("dram_share"), top.part("l2_share"), top.part("l1_share")) < 0.2:
        return None
    text = f"the widest global load is {bits:.0f} bits: aligned 128-bit accesses (`float4`) would need fewer"
    return 0.9, Signal("load_width", text, bits)


def _spill_code(facts: Facts) -> RuleResult:
    count = facts.number("sass", "spill_instructions")
    if not count or any(cause.name == "spilling" for cause in causes(facts)):
        return None
    most = facts.number("sass", "stack_bytes") or 0.0
    text = f"{count:.0f} instructions move spilled registers or local arrays (up to {size(most)} a thread)"
    return 0.7, Signal("spill_code", text, count)


def _double_code(facts: Facts) -> RuleResult:
    count = facts.number("sass", "fp64_instructions")
    if not count or facts.number("roofline", "arithmetic/float64"):
        return None
    text = f"{count:.0f} instructions are double precision: a constant without `f`, or a double function"
    return 0.9, Signal("double_code", text, count)


def _device_time(facts: Facts) -> RuleResult:
    busy = traced_number(facts, "busy_ns")
    if not busy:
        return None
    return 0.2, Signal("device_time", f"kernels and copies keep the device busy for {time(busy)} a call", busy)


def _cause_rule(name: str, unit: Unit = "share", gone: str = "") -> SignalRule:
    return SignalRule(name, partial(_other_cause, name), unit, gone, source="ncu")


RULES = (
    SignalRule("limiter", _limiter),
    _cause_rule("launches", "count"),
    _cause_rule("traffic", "times", "DRAM carries little more than the problem needs now (it was {was} the least)"),
    _cause_rule("tensor_cores"),
    _cause_rule("uncoalesced", "count", "global accesses are coalesced now (a warp's touched {was} sectors)"),
    _cause_rule(
        "bank_conflicts",
        gone="shared memory is accessed without bank conflicts now (they were {was} of the accesses)",
    ),
    _cause_rule("spilling", gone="nothing of note is spilled any more (it was {was} of the memory sectors)"),
    _cause_rule("atomics", gone="atomics do not queue any more (they were {was} of the global accesses)"),
    _cause_rule("occupancy"),
    _cause_rule("parallelism"),
    _cause_rule("unit"),
    _cause_rule("latency"),
    SignalRule("units", _units, unit="share"),
    SignalRule("stalls", _stalls, unit="share"),
    SignalRule("occupancy_reached", _occupancy_reached, unit="share"),
    SignalRule("lanes", _lanes),
    SignalRule("traffic_ratio", _traffic_ratio, unit="times"),
    SignalRule(
        "launch_share",
        _launch_share,
        unit="share",
        gone="the device hardly idles within a call now (it idled {was})",
        source="torch_trace",
    ),
    SignalRule("kernel_list", _kernel_list),
    SignalRule(
        "library_kernels",
        _library_kernels,
        unit="share",
        gone="no library kernel takes time any more (they took {was})",
        source="torch_trace",
    ),
    SignalRule(
        "copies", _copies, unit="share", gone="no time goes into copies any more ({was} did)", source="torch_trace"
    ),
    SignalRule(
        "load_width", _load_width, gone="global loads are 128 bits wide now (the widest were {was})", source="sass"
    ),
    SignalRule(
        "spill_code",
        _spill_code,
        gone="no instruction moves spilled registers any more (there were {was})",
        source="sass",
    ),
    SignalRule(
        "double_code",
        _double_code,
        gone="nothing is done in double precision any more ({was} instructions were)",
        source="sass",
    ),
    SignalRule("device_time", _device_time, unit="nanoseconds"),
)
"""In the order in which signals of the same weight are listed."""
