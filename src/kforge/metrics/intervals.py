"""What a few values say of many: intervals and a test, none of which takes the values to be normal for granted."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from statistics import NormalDist

RESAMPLES = 1000
"""The fewest resamples; more are drawn where the interval's level leaves fewer than twenty of them beyond each end."""
_MOST_RESAMPLES = 10000
_FEWEST_DIFFERENT = 6
"""From fewer different values a bootstrap draws the same few sets over and over."""
_EQUAL = 1e-9
"""Values this close together are one value that was rounded."""

Interval = tuple[float, float]


def wilson(share: float, of: int, level: float = 0.95) -> Interval:
    """Wilson's score interval (1927) of a share of `of` problems; it never leaves 0 to 1, nor has no width."""
    z = _normal(level)
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def mean_interval(values: Sequence[float], level: float = 0.95, seed: int = 0) -> Interval:
    """The wider of Student's interval and the studentised bootstrap's, at each end.

    Student's is short on one side where values are skewed, the bootstrap's where many are tied. Values that are all the
    same give no width: the caller has to know.
    """
    count = len(values)
    middle = math.fsum(values) / count
    error = _standard_error(values, middle)
    if error == 0.0:
        return middle, middle
    reach = student(level, count - 1)
    low, high = -reach, reach
    if len({round(value / _EQUAL) for value in values}) >= _FEWEST_DIFFERENT:
        drawn = _studentised_means([value - middle for value in values], level, seed)
        beyond = int(len(drawn) * (1 - level) / 2)
        if drawn:
            low, high = min(low, -drawn[-1 - beyond]), max(high, -drawn[beyond])
    return middle + low * error, middle + high * error


def share_difference_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Bonett and Price's (2012) interval for a difference of paired shares: with one more win and one more loss.

    Differences are 1, 0 or -1, or between them for problems with several repetitions.
    """
    count = len(differences) + 2
    middle = math.fsum(differences) / count
    spread = (math.fsum(value * value for value in differences) + 2.0) / count - middle * middle
    half = _normal(level) * math.sqrt(spread / count)
    return max(-1.0, middle - half), min(1.0, middle + half)


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided p of so uneven a split, or a more uneven one, of fair coins; ties are left out before."""
    count = wins + losses
    tail = sum(math.comb(count, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / (1 << count)))


def same(values: Sequence[float]) -> bool:
    """Whether no two values differ by more than rounding."""
    return max(values) - min(values) <= _EQUAL


def sign(value: float) -> int:
    """1, -1, or 0 for what is no more than rounding."""
    return 0 if abs(value) <= _EQUAL else (1 if value > 0 else -1)


@functools.cache
def student(level: float, freedom: int) -> float:
    """The multiple of the standard error within which Student's t lies with that probability."""
    low, high = 0.0, 1.0
    while _student_within(high, freedom) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, freedom) < level else (low, middle)
    return high


def _student_within(t: float, freedom: int) -> float:
    """P(|T| <= t), by the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= square * k / (k + 1)
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if odd else inner


def _studentised_means(centred: Sequence[float], level: float, seed: int) -> list[float]:
    """Means of resamples over their own standard errors, in order; a resample without spread says nothing."""
    # One complex number holds a value and its square, so that one sum over a resample gives both moments.
    pairs = [complex(value, value * value) for value in centred]
    count = len(pairs)
    least = _EQUAL * _EQUAL
    choose = random.Random(seed).choices
    ratios = []
    for _ in range(min(_MOST_RESAMPLES, max(RESAMPLES, math.ceil(40 / (1 - level))))):
        total = sum(choose(pairs, k=count))
        middle = total.real / count
        spread = total.imag / count - middle * middle
        if spread > least:
            ratios.append(middle / math.sqrt(spread / (count - 1)))
    return sorted(ratios)


def _standard_error(values: Sequence[float], middle: float) -> float:
    count = len(values)
    if count < 2 or same(values):
        return 0.0
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (count - 1) / count)


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
