"""Whether tensors lie in the same memory: to the element, so that two halves of one buffer do not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

_MOST_ELEMENTS = 1 << 26
"""Beyond so many elements, views of one storage are taken for separate."""


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor are one: expanded, or windows that slide."""
    reach = 1
    for step, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length < 2:
            continue
        if step < reach:
            return True
        reach = step * (length - 1) + reach
    return False


def is_shared(outputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether an output shares an element with another output, or with one of these."""
    outputs, others = [t for t in outputs if _lies_in_memory(t)], [t for t in others if _lies_in_memory(t)]
    pairs = itertools.chain(itertools.combinations(outputs, 2), itertools.product(outputs, others))
    return any(_share(one, two) for one, two in pairs)


def _lies_in_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.numel() > 0


def _share(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.device != two.device:
        return False
    low, high = _range(one), _range(two)
    if low[0] >= high[1] or high[0] >= low[1]:
        return False
    start = min(low[0], high[0])
    size = max(low[1], high[1]) - start
    if size > _MOST_ELEMENTS or one.element_size() != two.element_size():
        return size <= _MOST_ELEMENTS
    item = one.element_size()
    seen = torch.zeros(size // item, dtype=torch.bool)
    for tensor, (begin, _) in ((one, low), (two, high)):
        view = seen[(begin - start) // item :].as_strided(tensor.shape, tensor.stride())
        if tensor is two and bool(view.any()):
            return True
        view.fill_(True)
    return False


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """First address, and the one behind the last."""
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
