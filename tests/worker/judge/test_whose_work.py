"""Whose code did the work, as far as sampled program counters can tell."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.worker.judge.code_samples import CodeSamples, is_library_work

pytestmark = pytest.mark.pure


def samples(own: int, library: int) -> CodeSamples:
    return CodeSamples(own, Counter({"libtorch_cpu.so": library}), own + library, library)


def test_a_library_behind_a_kernel_that_claims_everything() -> None:
    assert is_library_work(samples(own=3, library=57), in_operators=0.05)


def test_operators_of_torch_account_for_their_own_work() -> None:
    """Most of the call is an operator's: a share known from one call leaves no room to see more in samples."""
    assert not is_library_work(samples(own=1, library=60), in_operators=0.9)
    assert not is_library_work(samples(own=12, library=48), in_operators=0.6)


def test_few_moments_say_nothing() -> None:
    assert not is_library_work(samples(own=0, library=11), in_operators=0.0)


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0, 1), st.floats(0, 1))
def test_more_work_in_operators_never_makes_a_suspect(own: int, library: int, one: float, two: float) -> None:
    found = samples(own, library)
    assert is_library_work(found, min(one, two)) >= is_library_work(found, max(one, two))


def test_the_programs_own_files_and_those_that_serve_whoever_calls_them_are_told_apart() -> None:
    found = CodeSamples()
    known = ("/usr/", "/venv/torch/")
    found.add(
        Counter({"/tmp/kernel.so": 2, "": 1, "/usr/lib/libgomp.so.1": 5, "/usr/lib/libopenblas.so": 4, "[waiting]": 9}),
        known,
    )
    assert (found.own, dict(found.libraries)) == (3, {"libopenblas.so": 4})


def test_functions_of_the_systems_mathematics_are_a_kernels_own_work() -> None:
    """A recurrence of hyperbolic tangents is in libm most of the time, and torch only draws its initial state."""
    found = CodeSamples()
    found.add(
        Counter({"/tmp/kernel.so": 6, "/usr/lib/libm.so.6": 40, "/venv/torch/libtorch_cpu.so": 13}), ("/usr/", "/venv/")
    )
    assert found.own == 46
    assert not is_library_work(found, in_operators=0.1)


def test_a_kernel_that_moves_memory_or_waits_is_not_taken_for_the_little_that_torch_does() -> None:
    """What operators take of a call is time; a share of the moments in which something computes is not."""
    for rest in ("/usr/lib/libc.so.6", "[waiting]"):
        found = CodeSamples()
        for file in [rest] * 80 + ["/venv/torch/libtorch_cpu.so"] * 15:
            found.add(Counter({file: 1}), ("/usr/", "/venv/"))
        assert found.library_share() == 1.0
        assert not is_library_work(found, in_operators=0.1)
