"""Where NaN and infinity belong: certain only as far as every honest way to compute a result puts them there.

A convolution by Winograd's or Fourier's transforms carries a NaN to the neighbours of what it belongs to; whether
torch's own does depends on the library, the size and the memory that is free. So what another library gives is right as
well, and NaN within reach of one. What all of them make NaN must be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from kforge.worker.judge.compare import ExpectedLeaf

_POOLS = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}


def allow_other_places(leaf: ExpectedLeaf, others: Sequence[torch.Tensor], reach: int) -> ExpectedLeaf:
    """The leaf, with the places that other ways to compute it have for NaN and infinity.

    `reach` is how far along the axes behind the second NaN may be carried; 0 where nothing carries it.
    """
    if not leaf.eager.is_floating_point() or any(other.shape != leaf.eager.shape for other in others):
        return leaf
    differing = tuple(other for other in others if not _have_same_places(leaf.eager, other))
    if leaf.finite and not differing:
        return leaf
    spread = None
    if reach:
        nan = torch.isnan(leaf.eager) | torch.isnan(leaf.exact)
        for other in differing:
            nan |= torch.isnan(other)
        spread = _widen(nan, reach).expand(leaf.eager.shape)
    return replace(leaf, others=differing, spread=spread, finite=False)


def allow_nan_anywhere(leaf: ExpectedLeaf) -> ExpectedLeaf:
    """The leaf, with NaN anywhere if it has one: as an algorithm may carry it that adds rows and columns first."""
    if not leaf.eager.is_floating_point() or not bool(torch.isnan(leaf.eager).any()):
        return leaf
    return replace(leaf, spread=torch.ones((), dtype=torch.bool, device=leaf.eager.device).expand(leaf.eager.shape))


def _have_same_places(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether NaN and infinities are in the same places in both."""
    if not torch.equal(torch.isfinite(one), torch.isfinite(two)):
        return False
    return torch.equal(torch.isnan(one), torch.isnan(two)) and torch.equal(one == torch.inf, two == torch.inf)


def _widen(flags: torch.Tensor, reach: int) -> torch.Tensor:
    """Flags also set wherever one is within reach: in any channel, along the axes behind the second.

    Where there are no such axes, anywhere in the same entry of the first.
    """
    if flags.dim() < 3 or flags.dim() - 2 not in _POOLS or not flags.numel():
        return flags.flatten(1).any(1).reshape(-1, *[1] * (flags.dim() - 1)) if flags.dim() > 1 else flags
    wide = flags.any(1, keepdim=True).to(torch.float32)
    count = flags.dim() - 2
    for axis in range(count):
        near = min(reach, flags.shape[2 + axis] - 1)
        sizes, padding = [1] * count, [0] * count
        sizes[axis], padding[axis] = 2 * near + 1, near
        wide = _POOLS[count](wide, sizes, stride=1, padding=padding)
    return wide > 0
