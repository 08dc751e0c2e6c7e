"""Two sides on the same problems: effects by hand, what is shown and what is not, and every thin case."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import jsonable
from kforge.metrics.comparison import compare, questions_of
from kforge.metrics.comparison_text import comparison_sentences
from kforge.metrics.records import QUESTIONS, Comparison, PairedDifference
from kforge.types import Candidate, Evidence, Outcome, Problem, Settings, Trial
from makers import by_workload, contended, verdict
from trial_makers import Result, judged, timed, trial

pytestmark = pytest.mark.pure

WRONG = Outcome.MISMATCH


def side(name: str, values: Sequence[Result]) -> list[Trial]:
    return [trial(f"p{number:02}", value, configuration=name) for number, value in enumerate(values)]


def versus(a: Sequence[Result], b: Sequence[Result], questions: int | None = None) -> Comparison:
    return compare(side("a", a), side("b", b), ("A", "B"), questions)


def found(comparison: Comparison, question: str) -> PairedDifference:
    return next(item for item in comparison.differences if item.question == question)


def noisy(count: int, effect: float, noise: float, seed: int) -> tuple[list[float], list[float]]:
    """Speedups of two sides; problems differ widely, the second side is `effect` times as fast."""
    chance = random.Random(seed)
    own = [chance.lognormvariate(0.3, 0.6) for _ in range(count)]
    return (
        [value * chance.lognormvariate(0.0, noise) for value in own],
        [value * effect * chance.lognormvariate(0.0, noise) for value in own],
    )


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_effects_by_hand() -> None:
    a = [1.0, 2.0, 4.0, WRONG, 0.5, WRONG]
    b = [2.0, 2.0, 2.0, 3.0, 2.0, WRONG]
    comparison = versus(a, b)
    assert [item.question for item in comparison.differences] == list(QUESTIONS)
    assert (comparison.questions, questions_of(side("a", a), side("b", b))) == (4, 4)
    correct = found(comparison, "correct")
    # 4 of 6 against 5 of 6: one problem won, five tied.
    assert (correct.a, correct.b, correct.effect) == pytest.approx((4 / 6, 5 / 6, 1 / 6))
    assert (correct.wins, correct.losses, correct.ties, correct.pairs, correct.sign_p) == (1, 0, 5, 6, 1.0)
    speed = found(comparison, "speedup vs eager")
    # Correct on both sides: ratios 2, 1, 1/2, 4, whose product is 4; sides (1 * 2 * 4 * 0.5) and (2 * 2 * 2 * 2).
    assert (speed.a, speed.b, speed.effect) == pytest.approx((4**0.25, 2.0, 4**0.25))
    assert (speed.wins, speed.losses, speed.ties, speed.pairs) == (2, 1, 1, 4)
    # Logarithms in units of ln 2: 1, 0, -1, 2; mean 1/2, standard deviation sqrt(5/3), t(98.75 %, 3) = 5.3919.
    half = math.log(2) * 5.3919 * math.sqrt(5 / 3) / 2
    assert speed.high == pytest.approx(4**0.25 * math.exp(half), rel=1e-3)
    assert speed.level == pytest.approx(0.9875)
    kept = found(comparison, "fall-back vs eager")
    # With fall-back: 1, 2, 4, 1, 1, 1 against 2, 2, 2, 3, 2, 1: products 8 and 48.
    assert (kept.a, kept.b, kept.effect) == pytest.approx((8 ** (1 / 6), 48 ** (1 / 6), 6 ** (1 / 6)))
    assert (kept.wins, kept.losses, kept.ties) == (3, 1, 2)


def test_pairs_say_who_wins_where() -> None:
    first, second, third = versus([1.0, WRONG, None], [2.0, 3.0, 1.5]).pairs
    assert (first.a, first.b, first.ratio) == pytest.approx((1.0, 2.0, 2.0))
    assert (second.a, second.b, second.ratio, second.a_state) == (None, pytest.approx(3.0), None, "mismatch")
    assert (third.a, third.ratio, third.a_state, third.a_correct) == (None, None, "correct", 1.0)


def test_repetitions_are_one_pair() -> None:
    a = [trial("p1", 1.0, seed=0), trial("p1", 4.0, seed=1), trial("p2", 1.0), trial("p3", 1.0)]
    values = (("p1", 8.0, 0), ("p1", WRONG, 1), ("p2", 2.0, 0), ("p3", 1.0, 0))
    b = [trial(key, value, seed=seed, configuration="b") for key, value, seed in values]
    comparison = compare(a, b, ("A", "B"))
    # p1: sqrt(1 * 4) = 2 against 8, and all correct against half.
    assert comparison.pairs[0].ratio == pytest.approx(4.0)
    assert (comparison.pairs[0].a_correct, comparison.pairs[0].b_correct) == (1.0, 0.5)
    assert found(comparison, "correct").effect == pytest.approx(-0.5 / 3)
    assert found(comparison, "speedup vs eager").effect == pytest.approx(8 ** (1 / 3))


def test_the_same_program_is_a_tie_whatever_was_measured_of_it() -> None:
    a = [*side("a", [1.0, 1.2, 1.4]), trial("same", 1.15, program="one text")]
    b = [*side("b", [2.0, 2.2, 2.6]), trial("same", 2.51, configuration="b", program="one text")]
    comparison = compare(a, b, ("A", "B"))
    same = comparison.pairs[-1]
    assert (same.problem, same.a, same.b, same.ratio) == ("same", pytest.approx(1.15), pytest.approx(2.51), 1.0)
    assert [pair.same_program for pair in comparison.pairs] == [False, False, False, True]
    for question in ("speedup vs eager", "speedup vs best", "fall-back vs eager"):
        asked = found(comparison, question)
        assert (asked.wins, asked.losses, asked.ties, asked.same_program) == (3, 0, 1, 1)
    assert found(comparison, "speedup vs eager").effect == pytest.approx((2 * 2.2 / 1.2 * 2.6 / 1.4) ** (1 / 4))
    lines = comparison_sentences(comparison)
    assert "4 problems: 3 won, 0 lost, 1 tied (1 with the same program)" in lines[1]
    assert not any("wins most" in line and "same" in line for line in lines)
    assert (
        "Both sides have the same program on 1 problem (same): a tie, however its two measurements differ."
        in comparison.notes
    )


def test_where_all_programs_are_the_same_no_speed_is_compared() -> None:
    a = [trial(f"p{n}", 1.0 + n / 7, program="one text") for n in range(9)]
    b = [trial(f"p{n}", 3.0 - n / 9, configuration="b", program="one text") for n in range(9)]
    comparison = compare(a, b, ("A", "B"))
    assert {pair.ratio for pair in comparison.pairs} == {1.0}
    assert not any(item.shown for item in comparison.differences)
    assert (
        "no difference shown between A and B (the same programs on both sides)" in comparison_sentences(comparison)[1]
    )
    assert any("the same program wherever both were timed" in note for note in comparison.notes)
    assert not any("which measurements hardly are" in note for note in comparison.notes)


def test_repetitions_are_the_same_where_the_same_programs_won_as_often() -> None:
    def repeated(name: str, *programs: str) -> list[Trial]:
        factor = 2.0 if name == "b" else 1.0
        return [
            trial("p", factor * (1.0 + seed), seed=seed, configuration=name, program=text)
            for seed, text in enumerate(programs)
        ]

    def pair(a: list[Trial], b: list[Trial]) -> tuple[bool, float | None]:
        (only,) = compare(a, b, ("A", "B")).pairs
        return only.same_program, only.ratio

    assert pair(repeated("a", "x", "y"), repeated("b", "y", "x")) == (True, 1.0)
    assert pair(repeated("a", "x", "y"), repeated("b", "x", "z")) == (False, pytest.approx(2.0))
    assert pair(repeated("a", "x", "x", "y"), repeated("b", "x", "y", "y")) == (False, pytest.approx(2.0))


def test_a_program_that_failed_on_one_side_is_no_tie() -> None:
    a = [trial(f"p{n}", 2.0 + n, program="one text") for n in range(3)]
    failed = {"confirmation": verdict(outcome=WRONG)}
    b = [trial(f"p{n}", 2.0 + n, configuration="b", program="one text", **failed) for n in range(3)]
    comparison = compare(a, b, ("A", "B"))
    assert not any(pair.same_program for pair in comparison.pairs)
    assert found(comparison, "fall-back vs eager").losses == 3


def test_only_what_counts_on_both_sides_is_compared() -> None:
    a = [*side("a", [1.0, 1.1, 1.2]), trial("only a", 1.0), trial("late", 1.0)]
    b = [*side("b", [1.0, 1.1, 1.2]), trial("only b", 1.0, configuration="b")]
    b += [trial("late", 1.0, configuration="b", state="stopped")]
    comparison = compare(a, b, ("A", "B"))
    assert (comparison.alone_a, comparison.alone_b) == (("late", "only a"), ("only b",))
    assert len(comparison.pairs) == 3
    assert "Not compared, since they count for A only: late, only a." in comparison_sentences(comparison)


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_planted_effect_is_found() -> None:
    for seed in range(5):
        comparison = versus(*noisy(40, 1.1, 0.05, seed))
        speed = found(comparison, "speedup vs eager")
        assert speed.shown
        assert speed.effect == pytest.approx(1.1, abs=0.05)
        assert f"B is {speed.effect:.3f} times as fast as A" in comparison_sentences(comparison)[1]


def test_a_planted_null_effect_is_null() -> None:
    shown = [any(item.shown for item in versus(*noisy(40, 1.0, 0.05, seed)).differences) for seed in range(20)]
    assert sum(shown) <= 2
    assert "no difference shown between A and B" in comparison_sentences(versus(*noisy(40, 1.0, 0.05, 1)))[1]


def test_correctness_is_shown_where_enough_problems_change_sides() -> None:
    # 12 of 40 change, all one way: McNemar's exact p is 2 / 4096; one question, since nothing else can be asked.
    comparison = versus([WRONG] * 40, [None] * 12 + [WRONG] * 28)
    (correct,) = comparison.differences
    assert correct.sign_p == pytest.approx(2 / 4096)
    assert correct.shown
    assert comparison_sentences(comparison)[0].startswith("Correct programs: B has 30.0 points more than A (")
    # 5 of 40 are not enough: 2 / 32 is more than 0.05.
    assert not versus([WRONG] * 40, [None] * 5 + [WRONG] * 35).differences[0].shown


def test_a_sentence_says_effect_interval_tally_and_questions() -> None:
    # Ratios 2 for ten problems and 2.2 for ten: sqrt(2 * 2.2) = 2.098; 20 won: 4 * 2 / 2**20.
    line = comparison_sentences(versus([1.0] * 20, [2.0, 2.2] * 10))[1]
    assert line.startswith("Speed where both are correct, against eager: B is 2.098 times as fast as A (2.0")
    assert line.endswith(
        "), 2.098 against 1.000; 20 problems: 20 won, 0 lost, sign test p < 0.0001, 4 questions asked at once."
    )


def test_many_questions_make_it_harder() -> None:
    a, b = [1.0 + n / 100 for n in range(9)], [1.2 + n / 50 for n in range(9)]
    alone, among = (found(versus(a, b, questions), "speedup vs eager") for questions in (None, 100))
    # Nine won of nine: 2 / 512, times 4 and times 100.
    assert (alone.sign_p, among.sign_p) == pytest.approx((8 / 512, 200 / 512))
    assert (alone.shown, among.shown) == (True, False)
    assert (among.low, among.high, among.level) < (alone.low, math.inf, 1.0)
    assert among.high > alone.high
    assert "100 questions asked at once" in comparison_sentences(versus(a, b, 100))[1]


def test_interval_and_sign_test_must_agree() -> None:
    # Nearly all lose a little and two win a hundredfold: the mean says one thing, the problems another.
    b = [0.99 + n / 10000 for n in range(38)] + [100.0, 120.0]
    comparison = versus([1.0] * 40, b)
    speed = found(comparison, "speedup vs eager")
    assert speed.sign_p < 0.05
    assert not speed.shown
    assert "the number of problems won alone would show one" in comparison_sentences(comparison)[1]


def test_a_mean_against_most_problems_is_said() -> None:
    # 30 lose a thousandth, 10 win about twofold: the interval is above 1, and three of four problems are lost.
    comparison = versus([1.0] * 40, [0.999 - n / 1e5 for n in range(30)] + [2.0 + n / 50 for n in range(10)])
    speed = found(comparison, "speedup vs eager")
    assert speed.low > 1.0
    assert speed.sign_p < 0.05
    assert not speed.shown
    assert "; the mean leans one way and the number of problems won the other;" in comparison_sentences(comparison)[1]


# -- thin and odd cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_pairs_are_said(count: int) -> None:
    comparison = versus([1.0] * count, [2.0] * count)
    assert comparison.differences == ()
    assert comparison.questions == 1
    assert any("too few to compare" in line for line in comparison_sentences(comparison))
    assert len(comparison.pairs) == count


@pytest.mark.parametrize("count", [3, 4, 5])
def test_nothing_is_shown_by_fewer_problems_than_a_sign_test_takes(count: int) -> None:
    comparison = versus([1.0 + n / 10 for n in range(count)], [3.0 + n / 5 for n in range(count)])
    assert not any(item.shown for item in comparison.differences)
    assert any("The sign test of 4 questions at once takes 8 problems" in note for note in comparison.notes)
    assert any("an interval may be too short" in note for note in comparison.notes)


def test_all_ties() -> None:
    comparison = versus([1.5] * 10, [1.5] * 10)
    assert not any(item.shown for item in comparison.differences)
    assert [(item.wins, item.losses, item.ties) for item in comparison.differences] == [(0, 0, 10)] * 4
    assert any("exactly 1 on every problem" in note for note in comparison.notes)


def test_ratios_without_a_spread_show_nothing() -> None:
    comparison = versus([1.0 + n for n in range(20)], [1.3 * (1.0 + n) for n in range(20)])
    speed = found(comparison, "speedup vs eager")
    assert (speed.wins, speed.low, speed.high) == (20, pytest.approx(1.3), pytest.approx(1.3))
    assert not speed.shown
    assert any("exactly 1.3 on every problem" in note for note in comparison.notes)


def test_nothing_correct_anywhere() -> None:
    comparison = versus([WRONG] * 8, [WRONG] * 8)
    (correct,) = comparison.differences
    assert (correct.effect, correct.shown, correct.sign_p) == (0.0, False, 1.0)
    assert correct.low < 0.0 < correct.high
    assert any("Nothing was timed on either side" in note for note in comparison.notes)


def test_a_side_that_was_not_timed() -> None:
    comparison = versus([1.0] * 8, [None] * 8)
    assert [item.question for item in comparison.differences] == ["correct"]
    assert any("One side was not timed" in note for note in comparison.notes)


def test_few_problems_correct_on_both_sides_leave_the_question_with_fall_back() -> None:
    comparison = versus([1.5, 1.0, WRONG, WRONG], [1.2, WRONG, 1.0, 2.0])
    assert [item.question for item in comparison.differences] == ["correct", "fall-back vs eager"]
    # 1.5, 1, 1, 1 against 1.2, 1, 1, 2.
    assert found(comparison, "fall-back vs eager").effect == pytest.approx((2.4 / 1.5) ** 0.25)
    assert any("1 problem was correct and timed on both sides" in note for note in comparison.notes)
    # Correct on 2 of 50 against 40 of 50, one in common: the fair question is asked, and answered.
    comparison = versus([1.3, 1.4] + [WRONG] * 48, [WRONG] + [1.5 + n / 50 for n in range(40)] + [WRONG] * 9)
    assert found(comparison, "fall-back vs eager").shown


def test_a_side_without_a_correct_program_keeps_the_baseline() -> None:
    comparison = versus([WRONG] * 12, [1.5 + n / 50 for n in range(12)])
    kept = found(comparison, "fall-back vs eager")
    assert (kept.a, kept.wins, kept.shown) == (1.0, 12, True)
    assert any("No program of A is correct" in note for note in comparison.notes)
    emulated = [judged(f"p{n:02}", replace(verdict(outcome=WRONG), emulated=True)) for n in range(12)]
    there = side("b", [1.5 + n / 50 for n in range(12)])
    assert [item.question for item in compare(emulated, there, ("A", "B")).differences] == ["correct"]


def test_a_correct_program_without_a_time_is_said_to_be_taken_as_slow() -> None:
    comparison = versus([1.1, 1.2, 1.3, None], [1.2, 1.4, 1.5, 1.6])
    assert "1 problem is correct for A and not timed: with fall-back the baseline is kept there." in comparison.notes


def test_where_nobody_beats_the_baseline_there_is_nothing_to_compare_with_fall_back() -> None:
    comparison = versus([0.5 + n / 100 for n in range(10)], [0.6 + n / 90 for n in range(10)])
    assert any("No program of either side beats the baseline" in note for note in comparison.notes)
    assert not any("on every problem" in note for note in comparison.notes)


def test_without_torch_compile_nothing_is_said_of_the_best() -> None:
    a = [judged(f"p{n}", timed(1.0 + n, None)) for n in range(5)]
    comparison = compare(a, a, ("A", "B"))
    assert [item.question for item in comparison.differences] == [
        "correct",
        "speedup vs eager",
        "fall-back vs eager",
    ]
    assert any("Nothing is said of the best baseline" in note for note in comparison.notes)


def test_problems_of_another_text_are_not_compared() -> None:
    a, b = side("a", [1.0] * 4), side("b", [1.0] * 4)
    b[0] = replace(b[0], cell=replace(b[0].cell, problem_id="changed"))
    comparison = compare(a, b, ("A", "B"))
    assert len(comparison.pairs) == 3
    assert comparison.alone_a == comparison.alone_b == ()
    assert comparison.notes[0] == "p00: not the same text on both sides, so not compared."


def test_other_circumstances_are_said() -> None:
    def on(machine: str, version: str) -> list[Trial]:
        problem = Problem("p", "source")
        evidence = Evidence(
            problem,
            Candidate("x"),
            Settings(),
            {"processor": machine, "cores": "2"},
            {"torch": version},
            *((),) * 5,
            seconds={},
        )
        return [judged(f"p{n}", replace(verdict(1.0 + n), evidence=evidence)) for n in range(3)]

    same = compare(on("X", "2.1"), on("X", "2.1"), ("A", "B"))
    assert not any("Different" in note for note in same.notes)
    notes = compare(on("X", "2.1"), on("Y", "2.2"), ("A", "B")).notes
    assert "Different machines: A X, 2 cores; B Y, 2 cores." in notes
    assert "Different versions of torch: A 2.1; B 2.2." in notes


def test_winners_of_one_side_judged_once_more_are_said() -> None:
    def chosen(name: str, again: bool) -> list[Trial]:
        more = {"confirmation": verdict(1.5)} if again else {}
        return [trial(f"p{n}", 1.0 + n, 2.0 + n, configuration=name, **more) for n in range(3)]

    wanted = "Different measurements of winners: A judged once more; B as first measured."
    assert wanted in compare(chosen("a", True), chosen("b", False), ("A", "B")).notes
    assert not any("winners" in note for note in compare(chosen("a", True), chosen("b", True), ("A", "B")).notes)
    # A program that was the only one was not chosen by its time.
    alone = [trial(f"p{n}", 2.0, configuration="b") for n in range(3)]
    assert not any("winners" in note for note in compare(chosen("a", True), alone, ("A", "B")).notes)


def test_emulation_is_said() -> None:
    a = [judged(f"p{n}", replace(verdict(None), emulated=True)) for n in range(4)]
    assert "Programs were verified in emulation, where nothing is timed." in compare(a, a, ("A", "B")).notes


def test_wild_values_give_numbers_that_can_be_written() -> None:
    comparison = versus([1e-5, 1.0, 1e5], [1e5, 1.0, 1e-5])
    assert all(math.isfinite(item.low) and math.isfinite(item.high) for item in comparison.differences)


# -- what must hold for any trials -------------------------------------------------------------------------------------

values = st.lists(st.tuples(*[st.one_of(st.floats(0.1, 20.0), st.none(), st.just(WRONG))] * 2), min_size=0, max_size=12)


@settings(max_examples=40, deadline=None)
@given(values)
def test_the_other_way_round_everything_is_the_inverse(pairs: list[tuple[Result, Result]]) -> None:
    a, b = [item[0] for item in pairs], [item[1] for item in pairs]
    there, back = versus(a, b), versus(b, a)
    for one, other in itertools.zip_longest(there.differences, back.differences):
        assert (one.wins, one.losses, one.shown, one.sign_p) == (other.losses, other.wins, other.shown, other.sign_p)
        if one.question == "correct":
            assert (one.effect, one.low, one.high) == pytest.approx((-other.effect, -other.high, -other.low))
        else:
            assert (one.effect, one.low, one.high) == pytest.approx((1 / other.effect, 1 / other.high, 1 / other.low))
    assert jsonable.decode(Comparison, jsonable.encode(there)) == there


@settings(max_examples=25, deadline=None)
@given(values, st.randoms(use_true_random=False))
def test_the_order_of_trials_does_not_matter(pairs: list[tuple[Result, Result]], chance: random.Random) -> None:
    a, b = side("a", [item[0] for item in pairs]), side("b", [item[1] for item in pairs])
    mixed = list(a)
    chance.shuffle(mixed)
    assert compare(mixed, b, ("A", "B")) == compare(a, b, ("A", "B"))


@settings(max_examples=25, deadline=None)
@given(values)
def test_it_always_has_something_to_say(pairs: list[tuple[Result, Result]]) -> None:
    comparison = versus([item[0] for item in pairs], [item[1] for item in pairs])
    assert all(line.endswith(".") for line in comparison_sentences(comparison))
    assert comparison_sentences(comparison)
    for item in comparison.differences:
        assert item.low <= item.effect * (1 + 1e-9) + 1e-9
        assert item.effect <= item.high * (1 + 1e-9) + 1e-9
        assert item.wins + item.losses + item.ties == item.pairs
        if item.shown:
            assert item.sign_p < 0.05


def test_winners_that_were_timed_beside_others_work_are_named() -> None:
    busy = [judged(f"p{number:02}", contended(1.5), configuration="b") for number in range(4)]
    notes = " ".join(compare(side("a", [1.0, 1.1, 1.2, 1.3]), busy, ("A", "B")).notes)
    assert "(contended), so not sure: 4 of B (p00, p01, p02 and 1 more)." in notes
    assert "of A (" not in notes


def test_a_workload_that_was_timed_beside_others_work_is_named() -> None:
    made = by_workload({"N = 1": 0.5, "N = 8": 8.0})
    assert made.timing is not None
    first, second = made.workloads
    assert second.timing is not None
    busy = replace(
        made,
        workloads=(first, replace(second, timing=replace(second.timing, contended=0.2))),
        timing=replace(made.timing, contended=0.2),
    )
    trials = [judged(f"p{number:02}", busy if number == 0 else made, configuration="b") for number in range(4)]
    notes = " ".join(compare(side("a", [1.0, 1.1, 1.2, 1.3]), trials, ("A", "B")).notes)
    assert "(contended), so not sure: 1 of B (p00 on N = 8)." in notes
