"""A recorded verdict against a fresh one: whether the claim holds, does not hold, or cannot be told."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kforge.types import Timing, Verdict

SLACK = 1.05
"""Two honest measurements of one program may differ by more than either's interval: by a twentieth."""
WIDEST = 1.5
"""The upper end of an interval over its lower: beyond this, a measurement says too little to confirm another."""


class ClaimState(enum.Enum):
    """What a replay says of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "cannot tell"

    @property
    def exit_status(self) -> int:
        return {ClaimState.HOLDS: 0, ClaimState.FAILS: 1, ClaimState.UNDECIDED: 3}[self]


@dataclass(frozen=True)
class ClaimCheck:
    """The answer, and what it rests on."""

    state: ClaimState
    reasons: tuple[str, ...] = ()


def compare_claims(claim: Verdict, now: Verdict) -> ClaimCheck:
    """Whether a fresh verdict supports a recorded one.

    The outcome must be the same. Of speedups that were timed on one machine,

    - the claim does not hold if the intervals are more than SLACK apart;
    - it holds if each speedup lies in the other's interval, widened by SLACK, neither interval is wider than WIDEST,
      and a claim that is surely on one side of 1 was measured there again;
    - one that was measured while others used the machine decides nothing;
    - all else decides nothing, and so do times of another machine that disagree.

    Of several workloads the mean decides, and one that does not hold is enough for the whole claim not to hold.
    """
    moved = bool(claim.evidence and now.evidence and claim.evidence.device != now.evidence.device)
    place = ("this is another machine than the one in the record: times need not agree",) if moved else ()
    if claim.outcome is not now.outcome:
        reason = f"the outcome was {claim.outcome.value} and is {now.outcome.value}"
        return ClaimCheck(ClaimState.FAILS, (*place, reason))
    if claim.timing is None:
        return ClaimCheck(ClaimState.HOLDS, place)
    if now.timing is None:
        return ClaimCheck(ClaimState.UNDECIDED, (*place, "the record has times, and here nothing was timed"))
    state, reason = _compare_times(claim.timing, now.timing)
    by_workload = _compare_workloads(claim, now)
    reasons = [reason] if reason else []
    reasons += [f"{name}: {why}" for name, (_, why) in by_workload.items() if why]
    if any(one is ClaimState.FAILS for one, _ in by_workload.values()):
        state = ClaimState.FAILS
    if state is ClaimState.FAILS and moved:
        state = ClaimState.UNDECIDED
    return ClaimCheck(state, (*place, *reasons))


def _compare_workloads(claim: Verdict, now: Verdict) -> dict[str, tuple[ClaimState, str]]:
    """What the times of each workload say that both verdicts have."""
    timed = {item.workload: item.timing for item in now.workloads if item.timing is not None}
    return {
        item.workload: _compare_times(item.timing, timed[item.workload])
        for item in claim.workloads
        if item.timing is not None and item.workload in timed
    }


def _compare_times(claim: Timing, now: Timing) -> tuple[ClaimState, str]:
    (low, high), (new_low, new_high) = claim.interval, now.interval
    both = f"the speedup was {_figures(claim)} and is {_figures(now)}"
    for timing, which in ((claim, "the record"), (now, "this")):
        if timing.contended:
            return ClaimState.UNDECIDED, f"{both}: {which} was measured while others used the machine (contended)"
    if new_low > high * SLACK or new_high < low / SLACK:
        return ClaimState.FAILS, both
    for timing, which in ((claim, "the record's"), (now, "the new")):
        if timing.interval[1] > timing.interval[0] * WIDEST:
            return ClaimState.UNDECIDED, f"{both}: {which} interval is too wide to decide"
    if not (_covers(claim, now.speedup) and _covers(now, claim.speedup)):
        return ClaimState.UNDECIDED, f"{both}: the intervals meet, and neither figure is confirmed by the other"
    if (low > 1 and new_low <= 1) or (high < 1 and new_high >= 1):
        side = "faster" if low > 1 else "slower"
        return ClaimState.UNDECIDED, f"{both}: the record says that it is surely {side} than the baseline, and this not"
    return ClaimState.HOLDS, ""


def _covers(timing: Timing, speedup: float) -> bool:
    low, high = timing.interval
    return low / SLACK <= speedup <= high * SLACK


def _figures(timing: Timing) -> str:
    low, high = timing.interval
    return f"{timing.speedup:.2f} ({low:.2f} to {high:.2f})"
