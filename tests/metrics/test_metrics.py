"""What a set of trials comes to: each figure against arithmetic done by hand, and what must hold for any trials."""

from __future__ import annotations

import cProfile
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.metrics.fast import GRID, fast_p
from kforge.metrics.first_programs import after
from kforge.metrics.intervals import mean_interval, share_difference_interval, sign_test, student, wilson
from kforge.metrics.per_iteration import pass_at_k
from kforge.metrics.problem_results import problem_result, speedup
from kforge.metrics.records import Mean, Summary
from kforge.metrics.score import mean_score
from kforge.metrics.summary import summarise
from kforge.types import BaselineTime, Outcome, Trial, Usage, Verdict
from makers import by_workload, verdict
from trial_makers import chains, judged, paid, scored, timed, trial, with_digest

pytestmark = pytest.mark.pure

WRONG = Outcome.MISMATCH
BROKEN = Outcome.COMPILATION_FAILURE
FIVE = [
    trial("p1", 2.0),
    trial("p2", WRONG, 1.5),
    trial("p3", 0.5),
    trial("p4", None),
    trial("p5", BROKEN, WRONG),
]
"""Correct: p1 to p4, and p4 was not timed. The makers' speedup against the best baseline is 0.8 of that over eager."""


# -- fast_p and correctness --------------------------------------------------------------------------------------------


def test_fast_p_by_hand() -> None:
    # Over eager: 2.0, 1.5, 0.5, untimed, wrong.
    expected = {0.0: 4 / 5, 0.25: 3 / 5, 0.5: 2 / 5, 1.0: 2 / 5, 1.5: 1 / 5, 1.9: 1 / 5, 2.0: 0.0, 50.0: 0.0}
    for p, share in expected.items():
        found = fast_p(FIVE, p)
        assert found is not None
        assert (found.value, found.of) == (pytest.approx(share), 5), p


def test_fast_p_against_the_best_baseline_by_hand() -> None:
    # 1.6, 1.2, 0.4, untimed, wrong.
    assert [fast_p(FIVE, p, "best").value for p in (0.0, 1.0, 1.25, 1.5, 1.7)] == pytest.approx([0.8, 0.4, 0.2, 0.2, 0])


def test_the_curve_is_fast_p_on_a_grid() -> None:
    found = summarise(FIVE)
    assert [point.p for point in found.fast["eager"]] == list(GRID)
    assert {0.0, 1.0, 1.5, 2.0, 10.0} <= set(GRID)
    assert all(point.share == fast_p(FIVE, point.p) for point in found.fast["eager"])
    assert found.correct == found.fast["best"][0].share == fast_p(FIVE, 0.0)
    assert found.untimed == {"eager": 1, "best": 1}


def test_repetitions_are_averaged_within_a_problem() -> None:
    # p1: both of two repetitions faster than 1.2; p2: one of three. (1 + 1/3) / 2 = 2/3, and two problems, not five.
    trials = [
        trial("p1", 2.0, seed=0),
        trial("p1", 1.5, seed=1),
        *(trial("p2", r, seed=n) for n, r in enumerate((3.0, 1.0, WRONG))),
    ]
    found = fast_p(trials, 1.2)
    assert found is not None
    assert (found.value, found.of) == (pytest.approx(2 / 3), 2)
    # Correct: (1 + 2/3) / 2.
    assert summarise(trials).correct.value == pytest.approx(5 / 6)


def test_without_torch_compile_there_is_no_curve_against_the_best() -> None:
    found = summarise([judged("p1", timed(2.0, None)), judged("p2", timed(3.0, None))])
    assert list(found.fast) == list(found.mean_correct) == list(found.mean_fallback) == ["eager"]


def test_a_program_without_the_best_baseline_counts_as_slow_there() -> None:
    found = summarise([judged("p1", timed(2.0, None)), judged("p2", timed(3.0, 1.5))])
    assert fast_p([judged("p1", timed(2.0, None)), judged("p2", timed(3.0, 1.5))], 1.0, "best").value == 0.5
    assert found.untimed == {"best": 1}
    assert found.mean_correct["best"].of == 1
    # sqrt(1 * 1.5): the baseline is kept where nothing is known.
    assert found.mean_fallback["best"].value == pytest.approx(math.sqrt(1.5))


def test_without_a_correct_program_all_are_slow_and_the_baseline_is_kept() -> None:
    found = summarise([trial("p1", WRONG), trial("p2", BROKEN), trial("p3")])
    for against in ("eager", "best"):
        assert [point.p for point in found.fast[against]] == list(GRID)
        assert {point.share.value for point in found.fast[against]} == {0.0}
        assert found.mean_fallback[against] == Mean(1.0, 1.0, 1.0, 3)
    assert found.mean_correct == {}
    # Correct and not timed: nothing is known of their speed.
    untimed = summarise([trial("p1", None), trial("p2", WRONG)])
    assert untimed.fast == untimed.mean_fallback == {}
    # In emulation nothing could have been timed.
    emulated = summarise([judged("p1", replace(verdict(outcome=WRONG), emulated=True)), trial("p2", WRONG)])
    assert emulated.fast == emulated.mean_fallback == {}


def test_another_baseline_is_turned_into_eager() -> None:
    found = timed(1.2, 0.9, baseline="compile")
    known = replace(found, timing=replace(found.timing, baselines=(BaselineTime("compile", 1.5),)))
    assert speedup(judged("p1", known), "eager") == pytest.approx(1.2 * 1.5)
    assert speedup(judged("p1", found), "eager") is None


def test_p_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        fast_p(FIVE, -1.0)


# -- which problems count ----------------------------------------------------------------------------------------------


def test_each_problem_is_in_exactly_one_place() -> None:
    flawed = replace(verdict(9.0), degenerate=("the output does not depend on the input",))
    trials = [
        trial("counts", 2.0),
        trial("partly", 2.0, seed=0),
        trial("partly", seed=1, state="stopped", reason="the budget is spent"),
        trial("waits", 2.0, state="waiting", reason="2 jobs"),
        trial("new", state="new"),
        trial("broken", state="failed", reason="line 3: no class Model"),
        trial("mixed", seed=0, state="failed", reason="the judge died"),
        trial("mixed", seed=1, state="new"),
        judged("flawed", flawed),
        judged("flawed and failed", flawed, state="failed", reason="later"),
    ]
    found = summarise(trials)
    assert found.problems == ("counts", "partly")
    assert found.partial == {"partly": "stopped: the budget is spent"}
    assert found.unfinished == {"mixed": "failed: the judge died; new", "new": "new", "waits": "waiting: 2 jobs"}
    assert found.unusable == {"broken": "line 3: no class Model"}
    assert set(found.degenerate) == {"flawed", "flawed and failed"}
    assert found.degenerate["flawed"] == "the output does not depend on the input"
    assert found.correct.of == 2
    assert found.outcomes == {"correct": 2}


def test_a_degenerate_problem_is_known_by_any_of_its_verdicts() -> None:
    made = trial("p1", 2.0, confirmation=replace(verdict(2.0), degenerate=("near zero everywhere",)))
    assert summarise([made]).degenerate == {"p1": "near zero everywhere"}


def test_a_degenerate_problem_is_so_for_who_had_no_program_too() -> None:
    # Its own verdicts do not say so; those of another configuration do.
    made = trial("p1", Outcome.GENERATION_FAILURE, degenerate=("near zero everywhere",))
    found = summarise([made, trial("p2", 2.0)])
    assert (found.problems, found.degenerate) == (("p2",), {"p1": "near zero everywhere"})


def test_a_winner_counts_as_what_its_confirmation_says() -> None:
    trials = [
        trial("p1", 3.0, confirmation=verdict(1.1)),
        trial("p2", 2.0, confirmation=verdict(outcome=WRONG, detail="wrong on fresh inputs")),
    ]
    found = summarise(trials)
    assert found.correct.value == 0.5
    assert found.outcomes == {"mismatch": 1, "correct": 1}
    assert found.unconfirmed == {"p2": "mismatch: wrong on fresh inputs"}
    assert found.mean_correct["eager"].value == pytest.approx(1.1)
    assert fast_p(trials, 2.0).value == 0.0


def test_a_winner_that_is_rejected_afterwards_is_listed() -> None:
    rejected = Verdict(Outcome.REJECTED, "it kept an earlier result", rule="cached_output")
    found = summarise([trial("p1", 2.0, confirmation=rejected)])
    assert found.unconfirmed == {"p1": "rejected: it kept an earlier result"}


def test_trials_of_two_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match="several"):
        summarise([trial("p1", 2.0), trial("p1", 2.0, configuration="b")])


def test_nothing_at_all_is_an_empty_summary() -> None:
    assert summarise([]) == Summary("", "", (), timed=False)
    found = summarise([trial("p1", state="new")])
    assert found.correct is None
    assert found.fast == found.mean_correct == found.pass_at == {}
    assert fast_p([trial("p1", state="new")], 1.0) is None


def test_a_finished_trial_without_a_program_is_a_failure_to_generate() -> None:
    found = summarise([trial("p1"), trial("p2", 2.0)])
    assert found.outcomes == {"generation_failure": 1, "correct": 1}
    assert found.correct.value == 0.5
    assert found.pass_at == {1: 0.5}
    assert found.iterations[0].reached["generation_failure"] == 0.5
    assert found.iterations[0].own["generation_failure"] == 0


def test_in_emulation_nothing_is_timed() -> None:
    found = summarise([judged("p1", replace(verdict(None), emulated=True)), trial("p2", WRONG)])
    assert (found.emulated, found.timed, found.fast, found.mean_fallback, found.untimed) == (True, False, {}, {}, {})
    assert found.correct.value == 0.5


# -- means, iterations, pass@k -----------------------------------------------------------------------------------------


def test_geometric_means_by_hand() -> None:
    found = summarise(FIVE)
    # Of correct and timed ones: 2.0, 1.5, 0.5. With fall-back: 2.0, 1.5, 1, 1, 1.
    assert found.mean_correct["eager"].value == pytest.approx((2.0 * 1.5 * 0.5) ** (1 / 3))
    assert found.mean_correct["eager"].of == 3
    assert found.mean_fallback["eager"].value == pytest.approx((2.0 * 1.5) ** (1 / 5))
    assert found.mean_fallback["eager"].of == 5
    # Against the best: 1.6, 1.2, 0.4.
    assert found.mean_fallback["best"].value == pytest.approx((1.6 * 1.2) ** (1 / 5))
    assert found.mean_fallback["eager"].low >= 1.0


def test_repetitions_in_the_means_by_hand() -> None:
    trials = [trial("p1", 4.0, seed=0), trial("p1", 1.0, seed=1), trial("p1", WRONG, seed=2), trial("p2", 0.5)]
    found = summarise(trials)
    # p1: sqrt(4 * 1) = 2 where correct, (4 * 1 * 1)^(1/3) with fall-back; p2: 0.5, and 1.
    assert found.mean_correct["eager"].value == pytest.approx(1.0)
    assert found.mean_fallback["eager"].value == pytest.approx(4 ** (1 / 6))


def test_one_problem_has_a_mean_and_no_spread() -> None:
    found = summarise([trial("p1", 2.0)]).mean_correct["eager"]
    assert (found.value, found.low, found.high, found.of) == pytest.approx((2.0, 2.0, 2.0, 1))


def test_iterations_by_hand() -> None:
    trials = [chains("p1", (WRONG, 2.0, WRONG), (BROKEN,)), trial("p2", 1.5)]
    first, second, third = summarise(trials).iterations
    # Three chains. After one program each: mismatch, compilation failure, correct.
    assert first.number == 1
    assert {name: share for name, share in first.reached.items() if share} == pytest.approx(
        {"mismatch": 1 / 3, "compilation_failure": 1 / 3, "correct": 1 / 3}
    )
    assert {name: share for name, share in second.reached.items() if share} == pytest.approx(
        {"compilation_failure": 1 / 3, "correct": 2 / 3}
    )
    assert {name: number for name, number in second.own.items() if number} == {"correct": 1}
    # What was correct once stays so; the third program itself was wrong.
    assert third.reached == second.reached
    assert {name: number for name, number in third.own.items() if number} == {"mismatch": 1}


def test_what_is_reached_after_so_many_programs_by_hand() -> None:
    trials = [trial("p1", 2.0, 1.2, 4.0), trial("p2", WRONG, 1.2), trial("p3", BROKEN, WRONG, WRONG)]
    # A winner that was slower when it was judged once more is what it was in the run.
    trials[0] = replace(trials[0], confirmation=verdict(1.1))
    first, second, third = summarise(trials).iterations
    assert [item.correct.value for item in (first, second, third)] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    means = [item.mean_correct["eager"].value for item in (first, second, third)]
    assert means == pytest.approx([2.0, math.sqrt(2.0 * 1.2), math.sqrt(4.0 * 1.2)])
    shares = [{point.p: point.share.value for point in item.fast["eager"]}[1.5] for item in (first, second, third)]
    assert shares == pytest.approx([1 / 3] * 3)


def test_trials_after_one_program_have_no_confirmation_but_of_the_same_winner() -> None:
    better, same = (
        replace(trial(name, *speeds), confirmation=verdict(1.1))
        for name, speeds in (("p1", (2.0, 3.0)), ("p2", (2.0, 1.5)))
    )
    found, kept = after([better, same], 1)
    assert [item.move.step for item in found.history] == [1]
    assert found.confirmation is None
    assert kept.confirmation == same.confirmation


def test_what_came_so_far_counts_after_so_many_programs() -> None:
    begun = trial("p1", 2.0, state="stopped")
    assert [item.state for n in (1, 2) for item in after([begun], n)] == ["finished", "stopped"]
    assert after([trial("p2", state="failed")], 1)[0].state == "failed"


def test_pass_at_k_by_hand() -> None:
    # Four chains of which one passes: 1/4, then 1 - C(3,2)/C(4,2) = 1/2.
    p1 = chains("p1", (WRONG, 2.0), (WRONG,), (BROKEN,), (WRONG, WRONG))
    # Two repetitions of two chains each, three of which pass: 3/4, then 1 - 0/6 = 1.
    p2 = [chains("p2", (1.0,), (WRONG,), seed=0), chains("p2", (1.0,), (1.0,), seed=1)]
    assert summarise([p1, *p2]).pass_at == pytest.approx({1: 0.5, 2: 0.75})
    # A problem with one chain leaves k = 1 only: (1/4 + 3/4 + 0) / 3.
    assert summarise([p1, *p2, trial("p3", WRONG)]).pass_at == pytest.approx({1: 1 / 3})


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_rises_with_k_and_begins_at_the_share(tries: tuple[int, int]) -> None:
    tried, passed = tries
    values = [pass_at_k(tried, passed, k) for k in range(1, tried + 1)]
    assert values[0] == pytest.approx(passed / tried)
    assert values == sorted(values)
    assert values[-1] == (1.0 if passed else 0.0)


# -- cost and making ---------------------------------------------------------------------------------------------------


def test_costs_by_hand() -> None:
    flawed = judged("p4", replace(verdict(9.0), degenerate=("constant",)))
    trials = [
        paid(trial("p1", 2.0), 1000, 0.5),
        paid(trial("p2", WRONG), 3000, 1.5),
        paid(trial("p3", 1.5, state="stopped"), 2000, 1.0),
        paid(flawed, 4000, 2.0),
    ]
    trials[0] = replace(trials[0], history=tuple(replace(item, seconds={"judge": 6.0}) for item in trials[0].history))
    found = summarise(trials)
    # Everything was paid for: 10,000 tokens, 5 dollars, 6 seconds; p1 and p3 are correct, p4 means nothing.
    assert found.usage == Usage(4, 10000, 0, 5.0)
    assert found.correct_kernels == 2
    assert (found.tokens_per_correct, found.dollars_per_correct, found.seconds_per_correct) == (5000, 2.5, 3.0)


def test_an_unknown_price_is_not_a_price() -> None:
    found = summarise([paid(trial("p1", 2.0), 1000, 0.5, unpriced=1)])
    assert (found.tokens_per_correct, found.dollars_per_correct) == (1000, None)
    assert summarise([paid(trial("p1", WRONG), 1000, 0.5)]).dollars_per_correct is None


def test_whose_code_it_is_by_hand() -> None:
    def owning(problem: str, share: float | None) -> Trial:
        return judged(problem, replace(verdict(2.0), custom_share=share))

    trials = [owning("p1", 1.0), owning("p2", 0.96), owning("p3", 0.4), owning("p4", None), trial("p5", WRONG)]
    found = summarise(trials)
    assert found.custom_share == 0.96
    assert (found.own_code_only.value, found.own_code_only.of) == (pytest.approx(2 / 3), 3)


def test_the_mean_score_by_hand() -> None:
    # 8/11 at twice eager's speed with a limit of a fifth; 1 at the limit; 0 where wrong; p4 has no score and no say.
    trials = [
        judged("p1", scored(2.0, 20.0)),
        judged("p2", scored(5.0, 20.0)),
        trial("p3", WRONG),
        trial("p4", 2.0),
    ]
    found = summarise(trials)
    assert found.score == mean_score(trials)
    assert (found.score.value, found.score.of, found.scored) == (pytest.approx((8 / 11 + 1 + 0) / 3), 3, 2)
    assert found.score.low < found.score.value < found.score.high


def test_repetitions_share_their_problems_score() -> None:
    again = [judged("p1", scored(1.0, 20.0)), trial("p1", WRONG, seed=1), judged("p2", scored(5.0, 20.0))]
    assert mean_score(again).value == pytest.approx((0.25 + 1) / 2)


def test_no_mean_score_where_none_is_known() -> None:
    assert mean_score([]) is None
    assert mean_score([trial("p1", 2.0), trial("p2", WRONG)]) is None
    assert mean_score([trial("p1", WRONG), trial("p2", BROKEN)]).value == 0.0
    emulated = judged("p1", replace(verdict(None), emulated=True))
    assert mean_score([emulated, trial("p2", WRONG)]) is None
    assert (summarise([trial("p1", 2.0)]).score, summarise([trial("p1", 2.0)]).scored) == (None, 0)


def test_the_score_is_that_of_the_confirmation() -> None:
    lucky = judged("p1", scored(5.0, 20.0), confirmation=scored(1.0, 20.0))
    assert mean_score([lucky]).value == pytest.approx(0.5)


def test_the_roofline_is_that_of_winners_where_it_is_known() -> None:
    trials = [
        with_digest(trial("p1", 2.0), roofline_share=0.8),
        with_digest(trial("p2", 2.0), roofline_share=0.5),
        with_digest(trial("p3", 2.0), bound=1.0),
        with_digest(trial("p4", WRONG), roofline_share=0.1),
    ]
    found = summarise(trials)
    assert (found.roofline_share, found.roofline_of) == (pytest.approx(0.65), 2)


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_intervals_against_tables() -> None:
    # Wilson, 5 of 10: z = 1.959964, middle 0.5, half = z / (1 + z²/10) * sqrt(0.025 + z²/400) = 0.2634.
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    # Student's t in any table, 95 % two-sided.
    assert [student(0.95, n) for n in (1, 2, 5, 10, 30)] == pytest.approx(
        [12.706, 4.303, 2.571, 2.228, 2.042], abs=1e-3
    )
    # Mean 2, standard deviation 1, three values: 2 ± 4.303 / sqrt(3).
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    # Nine won, one lost: 2 * (1 + 10) / 1024.
    assert sign_test(9, 1) == sign_test(1, 9) == 22 / 1024
    assert sign_test(0, 0) == sign_test(3, 3) == 1.0
    # Bonett and Price: 10 pairs, 3 won, 1 lost: middle 2/12, spread (4 + 2)/12 - 1/36, over 12.
    half = 1.959964 * math.sqrt((0.5 - 1 / 36) / 12)
    assert share_difference_interval([1, 1, 1, -1] + [0] * 6) == pytest.approx((1 / 6 - half, 1 / 6 + half), abs=1e-6)


def test_values_that_hardly_differ_have_an_interval() -> None:
    # Six values apart by rounding among many that are equal: no resample has a spread to divide by.
    low, high = mean_interval([0.0] * 300 + [k * 1e-9 for k in range(1, 6)])
    assert -1e-9 < low < high < 1e-9


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_stays_between_0_and_1(found: tuple[int, int]) -> None:
    hits, of = found
    low, high = wilson(hits / of, of)
    assert 0.0 <= low <= hits / of <= high <= 1.0
    assert low < high


@pytest.mark.parametrize("count", [10, 20, 40])
def test_intervals_of_skewed_values_hold_the_mean(count: int) -> None:
    chance = random.Random(count)
    intervals = [mean_interval([chance.expovariate(1.0) for _ in range(count)]) for _ in range(100)]
    # Of 100 intervals at 95 %, 87 or fewer hold the mean once in a thousand times.
    assert sum(low <= 1.0 <= high for low, high in intervals) > 87


# -- what must hold for any trials -------------------------------------------------------------------------------------

results = st.one_of(st.floats(0.05, 50.0), st.none(), st.sampled_from([WRONG, BROKEN, Outcome.GENERATION_FAILURE]))
any_trials = st.lists(
    st.builds(
        lambda problem, seed, found, state, price: paid(
            trial(f"p{problem}", *found, seed=seed, state=state), 1000, price
        ),
        st.integers(0, 6),
        st.integers(0, 2),
        st.lists(results, max_size=4),
        st.sampled_from(["finished", "finished", "finished", "failed", "stopped"]),
        st.floats(0.0, 9.0),
    ),
    max_size=12,
    unique_by=lambda item: (item.cell.problem, item.cell.seed),
)


@settings(max_examples=40, deadline=None)
@given(any_trials)
def test_fast_p_falls_with_p_and_is_a_share(trials: list[Trial]) -> None:
    for points in summarise(trials).fast.values():
        shares = [point.share for point in points]
        assert all(0.0 <= share.low <= share.value <= share.high <= 1.0 for share in shares)
        values = [share.value for share in shares]
        assert values == sorted(values, reverse=True)


@settings(max_examples=40, deadline=None)
@given(any_trials, st.randoms(use_true_random=False))
def test_the_order_of_trials_does_not_matter(trials: list[Trial], chance: random.Random) -> None:
    mixed = list(trials)
    chance.shuffle(mixed)
    assert summarise(trials) == summarise(mixed)


def test_a_sum_of_prices_does_not_depend_on_their_order() -> None:
    trials = [paid(trial(f"p{number}", 2.0), 1000, price) for number, price in enumerate((0.1, 0.2, 0.3))]
    assert summarise(trials) == summarise(trials[::-1])


@settings(max_examples=40, deadline=None)
@given(any_trials)
def test_a_summary_adds_up(trials: list[Trial]) -> None:
    found = summarise(trials)
    places = [*found.problems, *found.unfinished, *found.unusable, *found.degenerate]
    assert sorted(places) == sorted({item.cell.problem for item in trials})
    for mean in (*found.mean_correct.values(), *found.mean_fallback.values()):
        assert mean.low <= mean.value * (1 + 1e-9)
        assert mean.value <= mean.high * (1 + 1e-9)
    assert all(math.isclose(sum(item.reached.values()), 1.0) for item in found.iterations)


def test_the_work_of_a_summary_grows_as_the_study_does() -> None:
    """Calls are counted, and not seconds: what else a machine does is no fault of the summary."""

    def calls(problems: int) -> int:
        chance = random.Random(1)
        trials = [trial(f"p{n}", *(chance.lognormvariate(0.3, 0.5) for _ in range(5))) for n in range(problems)]
        profile = cProfile.Profile()
        assert profile.runcall(summarise, trials).correct.of == problems
        return sum(entry.callcount for entry in profile.getstats())

    few, many = calls(60), calls(240)
    assert many < 5 * few
    # Half of them draw for the bootstraps, of which it makes fourteen.
    assert many < 12_000_000


def test_a_problem_with_workloads_counts_once_with_their_mean() -> None:
    both = by_workload({"N = 1": 0.5, "N = 8": 8.0})
    summary = summarise([judged("p1", both), trial("p2", 3.0)])
    assert summary.problems == ("p1", "p2")
    assert summary.correct is not None
    assert summary.correct.of == 2
    assert summary.outcomes == {"correct": 2}
    assert summary.mean_correct["eager"].value == pytest.approx((2.0 * 3.0) ** 0.5)
    assert summary.mean_correct["eager"].of == 2
    assert problem_result([judged("p1", both)]).logs["eager"] == pytest.approx(math.log(2.0))
    # Slower on one workload, faster by the mean: it is faster.
    assert fast_p([judged("p1", both)], 1.0).value == 1.0
