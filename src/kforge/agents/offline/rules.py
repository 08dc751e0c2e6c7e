"""The analyst that is no model: rules over the digest say which bound the program is at, and so which move is next."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kforge.agents.base import Advice, Situation
from kforge.agents.offline import variant_history, variants
from kforge.agents.offline.recipe import CPP, language_of
from kforge.agents.offline.variants import VARIANTS, Variant
from kforge.types import Attempt, Recommendation

_OVERHEAD_SHARE = 0.2
_GOOD_ROOFLINE = 0.6
_SHORT_CALL_NS = 60_000.0
_LIMITERS = {
    "launches": "overhead",
    "memory": "memory",
    "traffic": "memory",
    "uncoalesced": "memory",
    "L2-cache": "memory",
    "compute": "compute",
    "tensor-cores": "compute",
}
"""A GPU limiter's first word -> the kind of bound; the others are about too little at a time."""


@dataclass(frozen=True)
class Reading:
    """What holds a program back."""

    bound: str
    """overhead, memory, compute or latency."""
    evidence: str
    """The facts that say so."""


@dataclass(frozen=True)
class RankedMove:
    """A move with its reason."""

    action: str
    reading: Reading


class RulesAnalyst:
    """Names the next move; the same past gives the same advice."""

    async def advise(self, situation: Situation) -> Advice:
        choices = ranked_moves(situation)
        if not choices:
            return Advice(None, notes=("no move is left that could help",))
        choice = choices[0]
        return Advice(Recommendation(VARIANTS[choice.action].advice, choice.reading.evidence, choice.action))


def ranked_moves(situation: Situation) -> tuple[RankedMove, ...]:
    """Every move that could be made from the parent, those against what holds it back first."""
    parent, language = situation.parent, language_of(situation.target.device_class)
    order = [reading.bound for reading in readings(parent, language)] if parent else []
    choices = possible_moves(situation)
    return tuple(sorted(choices, key=lambda choice: [*order, choice.reading.bound].index(choice.reading.bound)))


def possible_moves(situation: Situation) -> tuple[RankedMove, ...]:
    """Every move that would change the parent's program and has not failed, in the order of declaration."""
    parent = situation.parent
    if parent is None or parent.candidate is None:
        return ()
    start = variant_history.parent_variant(situation)
    done = variant_history.spent_names(situation)
    bad = _harmful_moves(situation)
    language = language_of(situation.target.device_class)
    by_bound = {reading.bound: reading for reading in reversed(readings(parent, language))}
    moves = []
    for variant in variants.for_language(language):
        new = not variant.repair and variant.name not in {*variants.moves_in(start), *bad}
        if new and variants.combine(start, variant.name) not in done and _fits(variant, parent.candidate.source):
            moves.append(
                RankedMove(variant.name, by_bound.get(variant.helps) or Reading("", _untested_reason(variant)))
            )
    return tuple(moves)


def _fits(variant: Variant, source: str) -> bool:
    return not variant.needs or re.search(variant.needs, source) is not None


def readings(parent: Attempt, language: str = CPP) -> tuple[Reading, ...]:
    """What holds the program back, the heaviest first; from the digest, or from the verdict alone."""
    return _cpu_readings(parent) if language == CPP else _gpu_readings(parent)


def _gpu_readings(parent: Attempt) -> tuple[Reading, ...]:
    """The limiter, then what the digest names beside it, then where the program is on the roofline."""
    signals = parent.digest.signals if parent.digest else ()
    result = []
    for signal in signals:
        text = signal.words.removeprefix("also: ")
        if signal.name == "limiter" or signal.words != text:
            kind = _LIMITERS.get(text.split(" ")[0], "latency")
            result.append(Reading(kind, f"{signal.name}: {text}"))
    kind = _signal_text(parent, "bound").split(" ")[0]
    if kind in _LIMITERS.values() and kind not in {reading.bound for reading in result}:
        result.append(Reading(kind, f"bound: {_signal_text(parent, 'bound')}"))
    return tuple(result)


def _cpu_readings(parent: Attempt) -> tuple[Reading, ...]:
    result: list[Reading] = []
    overhead = _signal(parent, "call_overhead_share")
    roofline = _signal(parent, "roofline_share")
    if overhead is not None and overhead >= _OVERHEAD_SHARE:
        result.append(Reading("overhead", f"call_overhead_share: {overhead:.0%} of a call is spent around the kernels"))
    elif _signal_text(parent, "bound").startswith("overhead"):
        result.append(Reading("overhead", f"bound: {_signal_text(parent, 'bound')}"))
    elif (spent := _nanoseconds(parent)) is not None and spent < _SHORT_CALL_NS:
        result.append(Reading("overhead", f"a call takes only {spent / 1000:.0f} µs, so starting threads weighs"))
    traffic = _signal(parent, "bytes_ratio")
    bound = _signal_text(parent, "bound")
    kind = bound.split(" ")[0]
    memory = kind == "memory" or (traffic is not None and traffic > 1.2)
    if memory:
        detail = f"bytes_ratio: it moves {traffic:.1f} times the least" if traffic is not None else f"bound: {bound}"
        if roofline is not None and roofline < _GOOD_ROOFLINE:
            detail += f"; roofline_share: {roofline:.0%} of the machine's ceiling"
        result.append(Reading("memory", detail))
    loops = _signal(parent, "unvectorised_loops")
    if kind == "compute" or loops:
        detail = f"bound: {bound}" if kind == "compute" else f"unvectorised_loops: {loops:.0f}"
        result.append(Reading("compute", detail))
    return tuple(result)


def _harmful_moves(situation: Situation) -> set[str]:
    """Moves that made a program slower, or wrong, when they were the only change."""
    parents = {item.attempt.move.step: item for item in variant_history.tried_variants(situation)}
    bad = set()
    for item in variant_history.tried_variants(situation):
        before = parents.get(item.attempt.move.parent or 0)
        if before is None:
            continue
        added = set(variants.moves_in(item.name)) - set(variants.moves_in(before.name))
        old, new = before.attempt.speedup, item.attempt.speedup
        if len(added) == 1 and (not item.attempt.correct or (old is not None and new is not None and new < old)):
            bad |= added
    return bad


def _signal(parent: Attempt, name: str) -> float | None:
    return parent.digest.value(name) if parent.digest else None


def _signal_text(parent: Attempt, name: str) -> str:
    signals = parent.digest.signals if parent.digest else ()
    return next((signal.words for signal in signals if signal.name == name), "")


def _nanoseconds(parent: Attempt) -> float | None:
    timing = parent.verdict.timing
    if timing is None or not timing.candidate_ns:
        return None
    return sorted(timing.candidate_ns)[len(timing.candidate_ns) // 2]


def _untested_reason(variant: Variant) -> str:
    return f"nothing in the profile speaks against it, and the program has what {variant.name} changes"
