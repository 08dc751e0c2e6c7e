"""A profile cut down to the few signals that matter, and how they changed since the attempt before.

`RULES` is a table: a signal's name and the function that finds it. What the rules find is ordered by weight and cut to
`LIMIT`. Nothing here looks at the machine: the same profiles give the same digest.
"""

from __future__ import annotations

from dataclasses import replace

from kforge.profilers._changes import believable, compared, gone
from kforge.profilers._facts import Facts
from kforge.profilers._rules import RULES
from kforge.profilers._wording import cut
from kforge.types import Digest, Image, Profile, Signal, Verdict

__all__ = ["LIMIT", "RULES", "digest", "images"]

LIMIT = 8
"""Signals in a digest, at most."""
_LONGEST = 700


def digest(
    profiles: tuple[Profile, ...],
    verdict: Verdict,
    previous: Digest | None = None,
    without: tuple[str, ...] = (),
) -> Digest:
    """The signals that matter, most important first; `without` switches rules off by name."""
    facts = Facts({profile.tool: profile for profile in profiles if not profile.absent}, verdict)
    found: dict[str, tuple[float, Signal]] = {}
    for name, rule in RULES.items():
        hit = rule(facts) if name not in without else None
        if hit is not None:
            found[name] = hit
    weighed = [
        (weight, believable(compared(signal, previous), previous, verdict.speedup)) for weight, signal in found.values()
    ]
    weighed += [(0.0, signal) for signal in gone(previous, set(found) | set(without), set(facts.profiles))]
    ordered = sorted(weighed, key=lambda item: -item[0])
    return Digest(tuple(_short(signal) for _, signal in ordered[:LIMIT]))


def images(profiles: tuple[Profile, ...]) -> tuple[Image, ...]:
    """Every picture the profilers took, in their order."""
    return tuple(image for profile in profiles if not profile.absent for image in profile.images)


def _short(signal: Signal) -> Signal:
    return replace(signal, words=cut(signal.words, _LONGEST))
