"""The search `refine`: a pure function of history, chain and plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge import registry
from kforge.types import Attempt, Intent, Move, Outcome, Plan, Stop, best_attempt
from makers import attempt, contended

pytestmark = pytest.mark.pure

refine = registry.load("search", "refine")
FAILED = Outcome.MISMATCH


def past(*results: float | Outcome, plan: Plan = Plan(iterations=50)) -> tuple[Attempt, ...]:
    """A chain that followed the search's own moves and came to these results."""
    history: tuple[Attempt, ...] = ()
    for result in results:
        move = refine.propose(history, 0, plan)
        assert isinstance(move, Move)
        history += (attempt(move.step, result, move.intent, move.parent),)
    return history


def test_it_begins_fresh() -> None:
    assert refine.propose((), 0, Plan()) == Move(0, 1, Intent.FRESH)


def test_a_failure_is_repaired() -> None:
    assert refine.propose(past(FAILED), 0, Plan()) == Move(0, 2, Intent.REPAIR, 1)


def test_a_correct_program_is_optimised() -> None:
    assert refine.propose(past(1.5), 0, Plan()) == Move(0, 2, Intent.OPTIMISE, 1)


def test_optimising_starts_from_the_best_not_the_last() -> None:
    assert refine.propose(past(1.5, 1.2), 0, Plan()) == Move(0, 3, Intent.OPTIMISE, 1)


def test_failed_repairs_go_back_to_the_best_correct_program() -> None:
    plan = Plan(iterations=50, repairs=2)
    history = past(1.5, FAILED, FAILED, FAILED, plan=plan)
    assert [item.move.intent for item in history[1:]] == [Intent.OPTIMISE, Intent.REPAIR, Intent.REPAIR]
    assert refine.propose(history, 0, plan) == Move(0, 5, Intent.OPTIMISE, 1)


def test_after_going_back_repairs_count_anew() -> None:
    plan = Plan(iterations=50, repairs=2)
    history = past(1.5, FAILED, FAILED, FAILED, FAILED, plan=plan)
    assert refine.propose(history, 0, plan) == Move(0, 6, Intent.REPAIR, 5)


def test_without_a_correct_program_failed_repairs_start_afresh() -> None:
    plan = Plan(iterations=50, repairs=1)
    assert refine.propose(past(FAILED, FAILED, plan=plan), 0, plan) == Move(0, 3, Intent.FRESH)


def test_it_stops_after_n() -> None:
    stop = refine.propose(past(1.0, FAILED), 0, Plan(iterations=2))
    assert isinstance(stop, Stop)
    assert stop.reason == "iterations"


def test_it_stops_at_the_target_wherever_it_was_reached() -> None:
    history = (attempt(1, 2.5, chain=1),)
    stop = refine.propose(history, 0, Plan(target_speedup=2.0, samples=2))
    assert isinstance(stop, Stop)
    assert stop.reason == "target"
    assert not isinstance(refine.propose(history, 0, Plan(target_speedup=3.0, samples=2)), Stop)


def test_the_target_must_be_reached_surely() -> None:
    history = (attempt(1, 2.01),)
    assert not isinstance(refine.propose(history, 0, Plan(target_speedup=2.0)), Stop), "1.97 is its lower end"


def test_it_stops_on_a_plateau() -> None:
    plan = Plan(iterations=50, plateau=2, minimum_gain=0.05)
    assert not isinstance(refine.propose(past(1.5, 1.52, plan=plan), 0, plan), Stop)
    stop = refine.propose(past(1.5, 1.52, 1.51, plan=plan), 0, plan)
    assert isinstance(stop, Stop)
    assert stop.reason == "plateau"
    assert not isinstance(refine.propose(past(1.5, 1.52, 1.9, 1.91, plan=plan), 0, plan), Stop)


def test_chains_do_not_see_each_other() -> None:
    other = (attempt(1, 3.0, chain=1), attempt(2, FAILED, Intent.OPTIMISE, 1, chain=1))
    own = past(FAILED)
    assert refine.propose(other + own, 0, Plan(samples=2)) == refine.propose(own, 0, Plan(samples=2))


results = st.one_of(st.floats(0.1, 10), st.sampled_from([item for item in Outcome if item is not Outcome.CORRECT]))


@given(st.lists(results, max_size=12), st.integers(1, 4), st.integers(1, 4))
def test_any_run_of_it_is_sound(outcomes: list[float | Outcome], repairs: int, plateau: int) -> None:
    plan = Plan(iterations=12, repairs=repairs, plateau=plateau)
    history: tuple[Attempt, ...] = ()
    for outcome in outcomes:
        move = refine.propose(history, 0, plan)
        assert move == refine.propose(history, 0, plan)
        if isinstance(move, Stop):
            assert move.final
            return
        assert move.step == len(history) + 1
        parent = next((item for item in history if item.move.step == move.parent), None)
        if move.intent is Intent.OPTIMISE:
            assert parent is best_attempt(history)
        if move.intent is Intent.REPAIR:
            assert parent is history[-1]
            assert not parent.correct
        history += (attempt(move.step, outcome, move.intent, move.parent),)
    streak = 0
    for item in history:
        streak = streak + 1 if item.move.intent is Intent.REPAIR else 0
        assert streak <= repairs


def test_a_time_beside_others_work_reaches_no_target_and_is_no_plateau() -> None:
    busy = [replace(attempt(step, 3.0), verdict=contended(3.0)) for step in range(1, 5)]
    plan = Plan(iterations=50, target_speedup=2.0, plateau=2)
    assert isinstance(refine.propose(tuple(busy), 0, plan), Move)
    sure = attempt(5, 1.1)
    assert best_attempt((*busy, sure)) is sure


@given(st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), min_size=1, max_size=8))
def test_who_was_timed_alone_is_preferred_to_who_was_not(results: list[tuple[float, bool]]) -> None:
    history = tuple(
        replace(attempt(step, value), verdict=contended(value)) if busy else attempt(step, value)
        for step, (value, busy) in enumerate(results, 1)
    )
    best = best_attempt(history)
    assert best is not None
    rivals = [value for value, busy in results if not busy] or [value for value, _ in results]
    assert best.speedup == max(rivals)
