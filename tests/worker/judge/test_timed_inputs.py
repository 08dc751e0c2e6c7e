"""Timed inputs: fresh every time, in the range of what was drawn, and nothing about them known beforehand."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.worker.judge.distributions import PATCH, Patchwork
from kforge.worker.memory_overlap import is_shared, overlaps_itself

SEEDS = st.integers(0, 2**47)


@pytest.mark.pure
@given(SEEDS, st.integers(PATCH, 9000), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
@settings(max_examples=50, deadline=None)
def test_content_comes_again_for_the_same_seed_and_stays_in_range(seed: int, size: int, dtype: torch.dtype) -> None:
    patchwork = Patchwork(torch.rand(5000, generator=torch.Generator().manual_seed(seed)).to(dtype))
    one, two, other = (torch.empty(size, dtype=dtype) for _ in range(3))
    patchwork.write(one, seed)
    patchwork.write(two, seed)
    patchwork.write(other, seed + 1)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert bool(((one >= 0) & (one <= 1)).all())


@pytest.mark.pure
def test_no_sum_peak_or_mean_stays_what_it_was() -> None:
    drawn = torch.rand(1 << 20, generator=torch.Generator().manual_seed(1))
    patchwork, target = Patchwork(drawn), torch.empty(1024, 1024)
    seen = []
    for seed in range(40):
        patchwork.write(target, seed)
        seen.append(torch.stack([target.sum(), target.max(), target[5].mean(), target[:, 5].mean(), target.norm()]))
    spread = torch.stack(seen)
    assert bool((spread.std(dim=0) / spread.mean(dim=0) > 0.02).all())
    for column in spread.T:
        assert len(set(column.tolist())) == 40


@pytest.mark.pure
def test_a_few_elements_do_not_tell_the_others() -> None:
    """Rows of one content are scaled by factors of their own: the mean of one says little of the next one's."""
    patchwork, target = Patchwork(torch.rand(1 << 20)), torch.empty(256, 4096)
    patchwork.write(target, 3)
    means = target.mean(dim=1)
    assert float(means.std() / means.mean()) > 0.02


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@pytest.mark.pure
@given(SHAPES, st.data())
@settings(max_examples=300, deadline=None)
def test_a_tensor_without_overlap_has_an_address_for_each_element(shape: list[int], data: st.DataObject) -> None:
    strides = [data.draw(st.integers(0, 12)) for _ in shape]
    tensor = torch.zeros(400).as_strided(shape, strides)
    places = [
        sum(index * step for index, step in zip(where, strides, strict=True))
        for where in itertools.product(*map(range, shape))
    ]
    if not overlaps_itself(tensor):
        assert len(set(places)) == len(places)
    if tensor.is_contiguous():
        assert not overlaps_itself(tensor)


@pytest.mark.pure
def test_halves_of_one_buffer_are_not_shared_and_views_of_it_are() -> None:
    buffer = torch.zeros(8, 6)
    assert not is_shared([buffer[:, :3], buffer[:, 3:]], [])
    assert not is_shared([buffer[::2], buffer[1::2]], [torch.zeros(8, 6)])
    assert is_shared([buffer[:, :4], buffer[:, 3:]], [])
    assert is_shared([buffer.view(-1)[5:9]], [buffer])
    assert is_shared([buffer], [buffer.view(torch.int32)])
    assert not is_shared([torch.zeros(0)], [buffer])
