"""Numbers as a reader sees them; a dash where there is none."""

from __future__ import annotations

from collections.abc import Iterable

from kforge.metrics.records import STATES as FROM_WORST
from kforge.metrics.records import Mean, Point, Share

NONE = "–"
STATES = tuple(reversed(FROM_WORST))
"""How a program can end, from best to worst."""


def times(value: float | None) -> str:
    """1.43, 12.4, 318: three figures."""
    if value is None:
        return NONE
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(value: float | None) -> str:
    """A share as 62 %; nothing but all is 100 %, and nothing but none is 0 %."""
    if value is None:
        return NONE
    if min(value, 1 - value) < 1e-9 or 0.005 < value < 0.995:
        return f"{100 * value:.0f} %"
    return "<0.1 %" if value < 0.001 else ">99.9 %" if value > 0.999 else f"{100 * value:.1f} %"


def money(value: float | None) -> str:
    if value is None:
        return NONE
    return f"${value:.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}" if value >= 1e-4 else "<$0.0001"


def amount(value: float | None) -> str:
    """Tokens: 812, 4.1k, 1.2M."""
    if value is None:
        return NONE
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{unit}" if value < 999.5 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def seconds(value: float | None) -> str:
    """0.4 s, 12 s, 3 min 20 s, 2 h 05 min."""
    if value is None:
        return NONE
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def share(value: Share | None) -> str:
    """62 % (48 to 74)."""
    return NONE if value is None else f"{percent(value.value)} ({100 * value.low:.0f} to {100 * value.high:.0f})"


def score(value: Share | None) -> str:
    """0.62 (0.48 to 0.74)."""
    return NONE if value is None else f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f})"


def mean(value: Mean | None) -> str:
    """1.43 (1.30 to 1.57); of one problem, or of one value only, there is no interval."""
    if value is None:
        return NONE
    shown = times(value.value)
    return f"{shown} ({times(value.low)} to {times(value.high)})" if value.low < value.high else shown


def at(points: Iterable[Point], p: float) -> Share | None:
    """fast_p at exactly this p, if the curve has it."""
    return next((point.share for point in points if abs(point.p - p) < 1e-9), None)


def state(name: str) -> str:
    """compilation_failure -> compilation failure."""
    return name.replace("_", " ")


def several(number: int, word: str) -> str:
    """1 problem, 2 problems."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
