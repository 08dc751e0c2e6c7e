"""What a replay says of a claim: three answers, from two intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import makers
from kforge.cli.claim import SLACK, WIDEST, ClaimCheck, ClaimState, compare_claims
from kforge.types import Candidate, Evidence, Outcome, Problem, Settings, Timing, Verdict

pytestmark = pytest.mark.pure

HOLDS, FAILS, UNDECIDED = ClaimState.HOLDS, ClaimState.FAILS, ClaimState.UNDECIDED


def timed(speedup: float, low: float, high: float, device: str = "") -> Verdict:
    timing = Timing("eager", speedup, (low, high), None, (1.0,), (1.0,), 1, 1)
    evidence = Evidence(Problem("p", ""), Candidate(""), Settings(), {"processor": device}, {}, (), (), (), (), (), {})
    return replace(makers.verdict(), timing=timing, evidence=evidence if device else None)


@pytest.mark.parametrize(
    ("claim", "now", "state"),
    [
        ((2.90, 2.80, 3.00), (2.95, 2.85, 3.05), HOLDS),
        ((2.90, 2.80, 3.00), (3.05, 2.98, 3.12), HOLDS),
        ((2.90, 2.80, 3.00), (2.90, 0.78, 6.07), UNDECIDED),
        ((2.90, 0.78, 6.07), (2.90, 2.80, 3.00), UNDECIDED),
        ((2.90, 2.80, 3.00), (1.40, 1.35, 1.45), FAILS),
        ((1.40, 1.35, 1.45), (2.90, 2.80, 3.00), FAILS),
        ((2.90, 2.80, 3.00), (3.40, 3.10, 3.70), UNDECIDED),
        ((2.90, 0.78, 1e6), (1e9, 1e8, 1e10), FAILS),
        ((1.03, 1.01, 1.05), (1.02, 0.99, 1.04), UNDECIDED),
        ((0.97, 0.95, 0.99), (0.98, 0.96, 1.01), UNDECIDED),
        ((1.00, 0.97, 1.03), (1.01, 0.98, 1.04), HOLDS),
    ],
)
def test_two_measurements(claim: tuple[float, ...], now: tuple[float, ...], state: ClaimState) -> None:
    found = compare_claims(timed(*claim), timed(*now))
    assert found.state is state
    assert bool(found.reasons) == (state is not HOLDS)


def test_outcomes_come_before_times() -> None:
    wrong = makers.verdict(outcome=Outcome.MISMATCH)
    assert compare_claims(timed(2.0, 1.9, 2.1), wrong).state is FAILS
    assert compare_claims(wrong, timed(2.0, 1.9, 2.1)).state is FAILS
    assert compare_claims(wrong, wrong).state is HOLDS


def test_a_claim_without_times_is_about_the_outcome_and_one_with_times_needs_them() -> None:
    assert compare_claims(makers.verdict(), timed(2.0, 1.9, 2.1)).state is HOLDS
    missing = compare_claims(timed(2.0, 1.9, 2.1), makers.verdict())
    assert missing.state is UNDECIDED
    assert "nothing was timed" in missing.reasons[0]


def test_times_of_another_machine_can_confirm_a_claim_and_not_refute_it() -> None:
    here, there = timed(3.0, 2.9, 3.1, "this"), timed(3.0, 2.9, 3.1, "that")
    assert compare_claims(there, here).state is HOLDS
    slower = compare_claims(there, timed(1.5, 1.4, 1.6, "this"))
    assert slower.state is UNDECIDED
    assert "another machine" in slower.reasons[0]


def test_exit_statuses_tell_the_three_apart() -> None:
    assert [state.exit_status for state in (HOLDS, FAILS, UNDECIDED)] == [0, 1, 3]


sides = st.floats(1.0, 4.0)
figures = st.builds(
    lambda middle, below, above: (middle, middle / below, middle * above), st.floats(0.1, 50.0), sides, sides
)


@settings(deadline=None)
@given(figures, figures)
def test_the_answer_is_sound(claim: tuple[float, float, float], now: tuple[float, float, float]) -> None:
    state = compare_claims(timed(*claim), timed(*now)).state
    (speedup, low, high), (new, new_low, new_high) = claim, now
    apart = new_low > high * SLACK or new_high < low / SLACK
    assert (state is FAILS) == apart
    if state is HOLDS:
        assert max(high / low, new_high / new_low) <= WIDEST * (1 + 1e-9)
        assert max(new / speedup, speedup / new) <= WIDEST * SLACK * (1 + 1e-9), "no figure is far from the other"
        assert not low > 1 >= new_low


@settings(deadline=None)
@given(figures)
def test_a_narrow_measurement_confirms_itself_and_a_wide_one_does_not(claim: tuple[float, float, float]) -> None:
    _, low, high = claim
    same = timed(*claim)
    assert compare_claims(same, same).state is (HOLDS if high <= low * WIDEST else UNDECIDED)


def test_what_was_measured_beside_others_work_confirms_and_refutes_nothing() -> None:
    quiet = timed(1.00, 0.98, 1.02)
    for speedup in (1.0, 3.0):
        check = compare_claims(quiet, makers.contended(speedup))
        assert check.state is UNDECIDED
        assert "contended" in check.reasons[-1]
        assert compare_claims(makers.contended(speedup), quiet).state is UNDECIDED


def test_one_workload_that_does_not_hold_is_enough() -> None:
    claim = makers.by_workload({"N = 1": 1.0, "N = 8": 4.0})
    assert compare_claims(claim, claim) == ClaimCheck(HOLDS)
    # The mean is the same, and neither of its parts.
    check = compare_claims(claim, makers.by_workload({"N = 1": 2.0, "N = 8": 2.0}))
    assert check.state is FAILS
    assert check.reasons == (
        "N = 1: the speedup was 1.00 (0.98 to 1.02) and is 2.00 (1.96 to 2.04)",
        "N = 8: the speedup was 4.00 (3.92 to 4.08) and is 2.00 (1.96 to 2.04)",
    )


def test_a_workload_that_decides_nothing_is_named_and_leaves_the_mean_its_word() -> None:
    claim = makers.by_workload({"N = 1": 1.0, "N = 8": 4.0})
    first, second = claim.workloads
    assert second.timing is not None
    wide = replace(second, timing=replace(second.timing, interval=(1.0, 9.0)))
    check = compare_claims(claim, replace(claim, workloads=(first, wide)))
    assert check.state is HOLDS
    assert [reason.partition(":")[0] for reason in check.reasons] == ["N = 8"]
