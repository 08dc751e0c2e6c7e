"""A profile cut down to the few signals that matter, and how they changed since the attempt before.

`RULES` is a table of KForge's own rules, by the signal's name; a profiler that spoke adds its `rules`. What they find
is ordered by weight and cut to `LIMIT`, on a GPU to `GPU_LIMIT`, and to `LONGEST_TEXT`. Nothing here looks at the
machine: the same profiles give the same digest.
"""

from __future__ import annotations

from dataclasses import replace

from kforge.profilers import _gpu_rules, _rules
from kforge.profilers._changes import ended_signals, with_change, without_doubtful_change
from kforge.profilers._facts import Facts
from kforge.profilers._format import cut
from kforge.profilers._gpu_causes import causes
from kforge.profilers._gpu_facts import is_gpu
from kforge.profilers._own_rules import rules_of
from kforge.types import Digest, Image, Profile, Signal, Verdict

__all__ = ["GPU_LIMIT", "LIMIT", "LONGEST_TEXT", "RULES", "digest", "images"]

RULES = {rule.name: rule for rule in (*_rules.RULES, *_gpu_rules.RULES)}
"""Signal name -> the rule that finds it."""
LIMIT, GPU_LIMIT = 8, 12
"""Signals in a digest, at most."""
LONGEST_TEXT = 4200
"""Letters in a digest, at most: a model reads about three to four letters as one token."""
_LONGEST = 700


def digest(
    profiles: tuple[Profile, ...],
    verdict: Verdict,
    previous: Digest | None = None,
    without: tuple[str, ...] = (),
) -> Digest:
    """The signals that matter, most important first; `without` switches rules off by name."""
    facts = Facts({profile.tool: profile for profile in profiles if not profile.absent}, verdict, without)
    hits: dict[str, tuple[float, Signal]] = {}
    rules = {**rules_of(facts.profiles), **RULES}
    for name, rule in rules.items():
        hit = rule.find(facts) if name not in without else None
        if hit is not None:
            hits[name] = hit
    weighed = [
        (
            weight,
            without_doubtful_change(with_change(signal, previous, rules[name]), previous, rules[name], verdict.speedup),
        )
        for name, (weight, signal) in hits.items()
    ]
    known = {*hits, *without, *(cause.name for cause in causes(facts))}
    weighed += [(0.0, signal) for signal in ended_signals(previous, rules, known, set(facts.profiles))]
    ordered = [_shorten(signal) for _, signal in sorted(weighed, key=lambda item: -item[0])]
    return _cut_to_length(ordered[: GPU_LIMIT if is_gpu(facts) else LIMIT])


def images(profiles: tuple[Profile, ...]) -> tuple[Image, ...]:
    """Every picture the profilers took, in their order."""
    return tuple(image for profile in profiles if not profile.absent for image in profile.images)


def _cut_to_length(signals: list[Signal]) -> Digest:
    """A digest of as many signals as it may hold, from the front."""
    while signals and len(Digest(tuple(signals)).text) > LONGEST_TEXT:
        signals = signals[:-1]
    return Digest(tuple(signals))


def _shorten(signal: Signal) -> Signal:
    return replace(signal, words=cut(signal.words, _LONGEST))
