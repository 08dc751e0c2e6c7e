"""The rules of the digest: each finds one signal, with its weight, or nothing.

A rule returns nothing where its fact is missing, trivial or beside the point.
"""

from __future__ import annotations

from kforge.profilers._facts import BOUND, FAR, IN_ORDER, NOT_VECTORISED, SHARE, Facts, RuleResult
from kforge.profilers._format import cut, percent, size, time
from kforge.profilers._signal_rule import SignalRule
from kforge.types import Signal

_NAMED_LOOPS = 3
_LONGEST_LOOP, _LONGEST_QUOTE = 210, 60


# -- against the machine -----------------------------------------------------------------------------------------------


def _bound(facts: Facts) -> RuleResult:
    word = facts.word("roofline", BOUND)
    if word is None:
        return None
    reasons = {
        "memory": "moving the data, not arithmetic, sets the least time",
        "compute": "arithmetic, not moving the data, sets the least time",
        "overhead": "the fixed cost of a call weighs more than the work itself",
    }
    text = f"{word[0]} bound: {reasons.get(word[0], 'the ceiling that limits it')}"
    if word[0] in ("memory", "compute") and is_far(facts):
        text = f"{word[0]} sets the least time, and the program is far from it"
    return 3.0, Signal("bound", text)


def is_far(facts: Facts) -> bool:
    """Whether little of the ceiling is reached."""
    share = facts.number("roofline", "roofline_share", 1.0)
    return share is not None and share < FAR


def _speedup(facts: Facts) -> RuleResult:
    timing = facts.verdict.timing
    if timing is None:
        return None
    text = f"{timing.speedup:.2f}x the speed of {timing.baseline}, measured side by side"
    return 2.7, Signal("speedup", text, timing.speedup)


def _roofline_share(facts: Facts) -> RuleResult:
    share = facts.number("roofline", "roofline_share", 1.0)
    if share is None:
        return None
    text = f"{percent(share)} of this machine's ceiling is reached"
    bound = facts.word("roofline", BOUND)
    which, unit = ("gflops", "GFLOP/s") if bound is not None and bound[0] == "compute" else ("gbs", "GB/s")
    achieved, ceiling = facts.number("roofline", f"achieved_{which}"), facts.number("roofline", f"ceiling_{which}")
    rate = f" ({achieved:.3g} of {ceiling:.3g} {unit})" if achieved and ceiling else ""
    return 2.9, Signal("roofline_share", text + rate, share)


def _headroom(facts: Facts) -> RuleResult:
    times = facts.number("roofline", "headroom")
    if times is None or times < 1.1:
        return None
    floor = facts.number("roofline", "floor_ns")
    least = f": the least time would be {time(floor)}" if floor else ""
    return min(2.8, 0.8 + times / 4), Signal("headroom", f"up to {times:.1f}x faster is possible here{least}", times)


def _bytes_ratio(facts: Facts) -> RuleResult:
    """How much more memory is moved than must be: each tensor between operators is written once and read once."""
    least, outputs = facts.number("roofline", "bytes_min"), facts.number("roofline", "output_bytes")
    allocated = facts.number("torch_profiler", "allocated_bytes")
    if not least or outputs is None or allocated is None:
        return None
    ratio = 1.0 + 2.0 * max(0.0, allocated - outputs) / least
    if ratio < 1.1:
        return None
    text = f"tensors between operators bring the memory traffic to at least {ratio:.1f} times what is needed"
    return min(1.5, ratio / 4), Signal("bytes_ratio", text, ratio)


# -- where the time goes -----------------------------------------------------------------------------------------------


def _custom_share(facts: Facts) -> RuleResult:
    share, code = facts.number("torch_profiler", "custom_share", 1.0), "native code"
    if share is None:
        share, code = facts.verdict.custom_share, "code"
    if share is None or not 0.02 <= share <= 0.98:
        return None
    return 0.4, Signal("custom_share", f"{percent(share)} of the time is in the program's own {code}", share)


def _library_share(facts: Facts) -> RuleResult:
    share = facts.number("torch_profiler", "library_share", 1.0)
    if share is None or share < 0.02:
        return None
    return 0.5 + share, Signal("library_share", f"{percent(share)} of the time is in torch's own operators", share)


def _top_operator(facts: Facts) -> RuleResult:
    top = facts.word("torch_profiler", SHARE)
    if top is None or top[1] < 0.05:
        return None
    text = f"{top[0]} is the costliest operator: {percent(top[1])} of the time"
    return 0.4 + top[1], Signal("top_operator", text, top[1])


def _call_overhead_share(facts: Facts) -> RuleResult:
    share = facts.number("torch_profiler", "overhead_share", 1.0)
    if share is None or share < 0.05:
        return None
    return 0.3 + 2 * share, Signal(
        "call_overhead_share",
        f"{percent(share)} of the time is Python, dispatch and allocation, outside any kernel",
        share,
    )


def _operator_calls(facts: Facts) -> RuleResult:
    calls = facts.number("torch_profiler", "operator_calls")
    if calls is None or calls <= 3:
        return None
    return 0.1, Signal("operator_calls", f"{calls:.0f} torch operators are called each time", calls)


def _allocated_bytes(facts: Facts) -> RuleResult:
    allocated = facts.number("torch_profiler", "allocated_bytes")
    outputs = facts.number("roofline", "output_bytes") or 0.0
    if allocated is None or allocated <= 1.05 * outputs + 4096:
        return None
    beyond = f", {size(allocated - outputs)} more than its result" if outputs else ""
    return 0.2, Signal("allocated_bytes", f"each call allocates {size(allocated)}{beyond}", allocated)


# -- what the compiler said --------------------------------------------------------------------------------------------


def _unvectorised_loops(facts: Facts) -> RuleResult:
    count = facts.number("compiler_remarks", "unvectorised_loops")
    if not count:
        return None
    lines = facts.profiles["compiler_remarks"].text.splitlines()
    marks = (NOT_VECTORISED, IN_ORDER)
    named = [_loop(line.partition(": ")[2]) for line in lines if line.startswith(marks)]
    shown = "; ".join(named[:_NAMED_LOOPS])
    what = "loop works" if count == 1 else "loops work"
    text = f"{count:.0f} {what} one element at a time" + (f": {shown}" if shown else "")
    return 3.5 if is_far(facts) else 1.4, Signal("unvectorised_loops", text, count)


def _loop(line: str) -> str:
    """A loop's place, source and reason; the source gives way first."""
    place, quote, rest = line.strip().partition("`")
    source, end, reason = rest.partition("`")
    return cut(f"{place}{quote}{cut(source, _LONGEST_QUOTE)}{end}{reason}", _LONGEST_LOOP)


def _vectorised_loops(facts: Facts) -> RuleResult:
    count = facts.number("compiler_remarks", "vectorised_loops")
    if not count:
        return None
    width = facts.number("compiler_remarks", "vector_bytes")
    wide = f", the widest with {width:.0f}-byte vectors" if width else ""
    what = "loop was" if count == 1 else "loops were"
    return 0.3, Signal("vectorised_loops", f"{count:.0f} {what} vectorised{wide}", count)


def _instructions_per_cycle(facts: Facts) -> RuleResult:
    rate = facts.number("perf", "instructions_per_cycle")
    if rate is None or rate >= 1:
        return None
    text = f"{rate:.2g} instructions a cycle: the processor mostly waits"
    return 0.6, Signal("instructions_per_cycle", text, rate)


RULES = (
    SignalRule("bound", _bound),
    SignalRule("roofline_share", _roofline_share, unit="share", follows_speed=1),
    SignalRule(
        "headroom",
        _headroom,
        unit="times",
        gone="the least possible time is all but reached ({was} was missing)",
        source="roofline",
        follows_speed=-1,
    ),
    SignalRule("speedup", _speedup, unit="speedup"),
    SignalRule(
        "unvectorised_loops",
        _unvectorised_loops,
        gone="no loop runs one element at a time any more (there were {was})",
        source="compiler_remarks",
        others="other loops than before",
    ),
    SignalRule(
        "call_overhead_share",
        _call_overhead_share,
        unit="share",
        gone="Python, dispatch and allocation take next to no time now (they took {was})",
        source="torch_profiler",
    ),
    SignalRule(
        "library_share",
        _library_share,
        unit="share",
        gone="torch's own operators take next to no time now (they took {was})",
        source="torch_profiler",
    ),
    SignalRule("top_operator", _top_operator, unit="share"),
    SignalRule(
        "bytes_ratio",
        _bytes_ratio,
        unit="times",
        gone="no memory traffic beyond what is needed is left between operators (it was {was} the least)",
        source="torch_profiler",
    ),
    SignalRule("instructions_per_cycle", _instructions_per_cycle, unit="number"),
    SignalRule("custom_share", _custom_share, unit="share"),
    SignalRule("vectorised_loops", _vectorised_loops),
    SignalRule(
        "allocated_bytes",
        _allocated_bytes,
        unit="bytes",
        gone="a call allocates no more than its result now (it was {was})",
        source="torch_profiler",
    ),
    SignalRule("operator_calls", _operator_calls),
)
"""In the order in which signals of the same weight are listed."""
