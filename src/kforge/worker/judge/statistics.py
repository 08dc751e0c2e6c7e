"""Ratios from interleaved samples: a median and an interval that does not promise too much."""

from __future__ import annotations

import math

import torch

_RESAMPLES = 2000


def _group_sums(samples: list[float]) -> list[float]:
    """One sum per ABBA group: two neighbouring samples of a side; of less than a group, each sample."""
    usable = len(samples) // 2 * 2
    return [samples[i] + samples[i + 1] for i in range(0, usable, 2)] or list(samples)


def group_ratios(baseline: list[float], candidate: list[float]) -> list[float]:
    """One ratio per ABBA group, so that drift cancels."""
    return [b / c for b, c in zip(_group_sums(baseline), _group_sums(candidate), strict=True)]


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values: list[float], seed: int = 0) -> tuple[float, float]:
    """A 95 % interval: the wider of a bootstrap and the distribution-free interval from order statistics."""
    low, high = _order_interval(values)
    if len(values) >= 3:
        generator = torch.Generator().manual_seed(seed)
        data = torch.tensor(values, dtype=torch.float64)
        draws = data[torch.randint(len(values), (_RESAMPLES, len(values)), generator=generator)]
        middles = draws.quantile(0.5, dim=1)
        low = min(low, float(middles.quantile(0.025)))
        high = max(high, float(middles.quantile(0.975)))
    return low, high


def _order_interval(values: list[float]) -> tuple[float, float]:
    """The interval between the k-th smallest and k-th largest, k as large as 95 % coverage allows."""
    ordered = sorted(values)
    count = len(ordered)
    k = 0
    below = 0.0
    while k < count // 2:
        below += math.comb(count, k) / 2**count
        if 2 * below > 0.05:
            break
        k += 1
    k = max(k - 1, 0)
    return ordered[k], ordered[count - 1 - k]


def relative_width(interval: tuple[float, float]) -> float:
    """Half the interval's width as a share of its middle, on a log scale."""
    return 0.5 * math.log(interval[1] / interval[0])
