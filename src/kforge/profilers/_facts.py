"""What the digest's rules read, and the names that profilers and rules agree on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kforge.types import Profile, Signal, Verdict

NOT_VECTORISED = "not vectorised: "
"""How a line about a loop that runs one element at a time begins, in the compiler's profile."""
IN_ORDER = "sum in order: "
"""How a line about a loop begins whose vectors are added up element by element."""
BOUND, SHARE = "bound/", "share/"
"""Metrics whose name carries a word: `bound/memory` is 1 where memory is the bound, `share/aten::mm` is its share."""
FAR = 0.4
"""Below this share of the ceiling, the ceiling is not what holds a program back."""


@dataclass(frozen=True)
class Facts:
    """What the rules read: every tool's numbers, checked."""

    profiles: dict[str, Profile]
    verdict: Verdict
    without: tuple[str, ...] = ()
    """Rules that are switched off."""

    def number(self, tool: str, name: str, highest: float = math.inf) -> float | None:
        """A metric that makes sense: finite, not negative, at most `highest`."""
        profile = self.profiles.get(tool)
        value = profile.metrics.get(name) if profile is not None else None
        if value is None or not math.isfinite(value) or value < 0:
            return None
        return min(float(value), highest)

    def word(self, tool: str, prefix: str) -> tuple[str, float] | None:
        """The largest of the metrics that begin with a prefix: the rest of its name, and its value."""
        profile = self.profiles.get(tool)
        matches = [
            (name.removeprefix(prefix), min(float(value), 1.0))
            for name, value in (profile.metrics.items() if profile is not None else ())
            if name.startswith(prefix) and math.isfinite(value) and value > 0
        ]
        return max(matches, key=lambda item: (item[1], item[0]), default=None)


RuleResult = tuple[float, Signal] | None
"""A signal with its weight, or nothing."""
