"""From values to places on an axis, and the round values an axis is marked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

_MANTISSAS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 7.0, 8.0, 9.0),
)
"""Mantissas of marks, from few to many; the last for small effects."""


@dataclass(frozen=True)
class Linear:
    """Equal steps are equally long."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Log:
    """Equal ratios are equally long. Values beyond the ends are drawn at the ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        held = min(max(value, self.low), self.high)
        share = math.log(held / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values, as many as there is room for."""
        best: list[float] = []
        for mantissas in _MANTISSAS:
            marks = self._marks(mantissas)
            if len(marks) > most:
                break
            best = marks
        powers = self._marks((1.0,))
        return best or powers[:: math.ceil(len(powers) / most) or 1]

    def _marks(self, mantissas: tuple[float, ...]) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        marks = (mantissa * 10.0**power for power in range(first, last + 1) for mantissa in mantissas)
        return [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]


def around(values: list[float], margin: float = 1.15, least: float = 1.5) -> tuple[float, float]:
    """Ends of a log axis that holds the values with some air, and at least `least` to either side of its middle."""
    low, high = min(values) / margin, max(values) * margin
    middle = math.sqrt(low * high)
    return min(low, middle / least), max(high, middle * least)


def plain(value: float) -> str:
    """A mark's label: 0.5, 1, 20, 5k."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"
