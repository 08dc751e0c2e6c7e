"""Noise of a last place: what it moves, and what it leaves as it is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from kforge.worker.judge.rounding_noise import RoundingNoise

pytestmark = pytest.mark.cpu

NAN, INFINITY = float("nan"), float("inf")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**40), size=st.sampled_from([1e-12, 2.0**-23, 2.0**-10]))
def test_every_element_stays_within_its_own_share(seed: int, size: float) -> None:
    values = torch.randn(512, dtype=torch.float64) * 1e3
    moved = RoundingNoise(seed).add_to(values, size)
    last_place = torch.finfo(torch.float64).eps  # the sum is rounded too
    assert ((moved - values).abs() <= (size + last_place) * values.abs()).all()
    assert (moved != values).float().mean() > 0.5


def test_what_is_not_finite_or_zero_stays_as_it_is() -> None:
    values = torch.tensor([INFINITY, -INFINITY, NAN, 0.0] * 64)
    for seed in range(8):
        assert torch.equal(RoundingNoise(seed).add_to(values).nan_to_num(7.0), values.nan_to_num(7.0))


def test_attention_in_steps_has_noise_where_its_mask_is_minus_infinity() -> None:
    query, key, value = (torch.randn(2, 2, 16, 8, dtype=torch.float64) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        usual = attend(query, key, value, is_causal=True)
        with RoundingNoise(3, 2.0**-23):
            moved = attend(query, key, value, is_causal=True)
    assert torch.isfinite(moved).all()
    assert not torch.equal(moved, usual)
    torch.testing.assert_close(moved, usual, rtol=1e-4, atol=1e-5)
