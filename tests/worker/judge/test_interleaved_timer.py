"""The interleaved measurement: what is measured again, and who is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import program
from kforge import Candidate, Outcome, Settings
from kforge.worker.judge import claimed_timer, contention, interleaved_timer
from kforge.worker.judge.claimed_timer import ClaimedTimer
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.evidence import EvaluationFindings
from kforge.worker.judge.lane import TimedBlock
from kforge.worker.judge.measurement import Measurement
from kforge.worker.judge.own_processors import usable_processors
from kforge.worker.judge.scheduler_waits import MachineTimes, SchedulerTimes
from kforge.worker.protocol.records import SlotOutput

QUICK = Settings(compile_baseline=False, timing_seconds=0.05, seeds=1)


def samples_of(
    candidate: list[float],
    baseline: list[float],
    candidate_extra: list[float] | None = None,
    baseline_extra: list[float] | None = None,
    candidate_lost: list[float] | None = None,
) -> interleaved_timer.Samples:
    """What a duel of five calls a block gave; nothing beyond the claimed times unless it is said."""
    nothing = [0.0] * len(candidate)
    return interleaved_timer.Samples(
        candidate,
        baseline,
        candidate_extra or nothing,
        baseline_extra or nothing,
        5,
        1,
        candidate_lost=candidate_lost or nothing,
        baseline_lost=nothing,
    )


def measurement(apart: bool = False, found: EvaluationFindings | None = None) -> Measurement:
    cases = SimpleNamespace(device=SimpleNamespace(has_own_memory=apart), seed=1)
    session: Any = SimpleNamespace(cases=cases, baselines=None, timed_inputs=None)
    return Measurement(session, QUICK, Tolerance({}), found or EvaluationFindings(), lambda _: None)


@pytest.mark.toolchain
def test_a_wide_interval_is_measured_once_more_and_both_count(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = samples_of([100.0, 100.0, 300.0, 300.0] * 5, [300.0] * 20)
    tight = samples_of([100.0] * 20, [300.0] * 20)
    rounds = [wide, tight, tight]
    monkeypatch.setattr(Measurement, "_timer", lambda self, *lanes, every: rounds.pop(0))
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert len(rounds) == 1
    assert verdict.timing.candidate_ns == (*wide.candidate, *tight.candidate)
    assert "wide interval: measured again, both count" in verdict.timing.flags
    assert verdict.speedup == 3.0
    assert verdict.interval[0] < 3.0


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("apart", "extra_us", "charged"),
    [
        (False, 530.0, True),
        # As far as the processors of two honest processes differ beside a device.
        (True, 530.0, False),
        (True, 590.0, True),
    ],
)
def test_a_difference_of_the_judges_clock_counts_where_it_stands_out(
    apart: bool, extra_us: float, charged: bool
) -> None:
    found = EvaluationFindings()
    times = [240e3] * 20
    samples = samples_of(times, times, [extra_us * 1e3] * 20, [500e3] * 20)
    speedup, _, excess = measurement(apart, found)._result(samples, 0.0)
    assert excess > 0.05
    assert (speedup < 0.95) is charged
    assert bool(found.notes) is charged


@pytest.mark.toolchain
@pytest.mark.parametrize(("looks", "by_the_judges_clock"), [(1, False), (2, True)])
def test_calls_that_take_longer_than_claimed_are_looked_at_again_before_they_count(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch, looks: int, by_the_judges_clock: bool
) -> None:
    """One disturbed moment must not decide; time that is there both times must."""
    run, left = interleaved_timer.InterleavedTimer.run, [10e6] * looks

    def with_bare_calls(timer: interleaved_timer.InterleavedTimer) -> interleaved_timer.Samples:
        samples = run(timer)
        if timer.check is not None:
            # Measured once more for another reason, it is still there or still gone.
            extra = left.pop() if left else 10e6 * by_the_judges_clock
            samples.baseline_bare = [item + 1e4 for item in samples.baseline]
            samples.candidate_bare = [item + 1e4 + extra for item in samples.candidate]
        return samples

    monkeypatch.setattr(interleaved_timer.InterleavedTimer, "run", with_bare_calls)
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("again and again" in flag for flag in verdict.timing.flags)
    assert any("the speedup is by the judge's clock" in note for note in verdict.notes) is by_the_judges_clock


class Side:
    """A lane whose blocks take a millisecond; another side is busy in every `period`-th of them."""

    def __init__(self, other: Side | None = None, period: int = 0) -> None:
        self.slots = [[]]
        self.runner = self
        self.used = 0
        self.passed = 0.0
        self._other, self._period, self._blocks = other, period, 0

    def call(self, calls: Any, look_at: int = 0) -> TimedBlock:
        if self._other is not None and self._period and self._blocks % self._period == 0:
            self._other.used += 900_000
        self._blocks += 1
        self.passed += 0.001
        return TimedBlock([1_000_000], 1_000_000, [SlotOutput(None, ())], False, False, None)

    def stop(self) -> None:
        pass

    def cpu_ns(self) -> int:
        return self.used

    def keeper_ns(self) -> int:
        return 0

    def working_threads(self) -> int:
        return 1


def timer(monkeypatch: pytest.MonkeyPatch, period: int) -> interleaved_timer.Samples:
    """Two hundred blocks, by a clock that they alone move: other work on the machine makes them no fewer."""
    candidate: Any = Side()
    baseline: Any = Side(candidate, period)
    clock = SimpleNamespace(monotonic=lambda: candidate.passed + baseline.passed, process_time_ns=lambda: 0)
    monkeypatch.setattr(interleaved_timer, "time", clock)
    monkeypatch.setattr(interleaved_timer, "_ENOUGH_GROUPS", 10**6)
    monkeypatch.setattr(claimed_timer, "other_threads_running", lambda: 0)
    monkeypatch.setattr(contention, "throttled_ns", lambda: 0)
    monkeypatch.setattr(MachineTimes, "now", lambda processors=None: None)
    return ClaimedTimer(candidate, baseline, refresh=lambda: None, seconds=0.2, seeds=lambda: [None]).run()


@pytest.mark.pure
@pytest.mark.parametrize("period", [1, 2, 4, 8])
def test_who_works_in_an_eighth_of_the_other_sides_blocks_is_refused(
    monkeypatch: pytest.MonkeyPatch, period: int
) -> None:
    with pytest.raises(interleaved_timer.NotIdle, match="90% of a processor"):
        timer(monkeypatch, period)


@pytest.mark.pure
@pytest.mark.parametrize("period", [0, 12, 40])
def test_a_disturbance_now_and_then_is_not_taken_for_work(monkeypatch: pytest.MonkeyPatch, period: int) -> None:
    assert len(timer(monkeypatch, period).baseline) >= 10


# -- what noise can do, and what it cannot -----------------------------------------------------------------------------

NOISE = st.lists(st.floats(0.0, 1e9), min_size=10, max_size=40)
"""What others took, block by block, in nanoseconds a call."""
CALL = st.floats(1e4, 1e7)
DELIVERY = st.floats(1e3, 1e7)


@pytest.mark.cpu
@given(CALL, DELIVERY, NOISE, NOISE, st.lists(st.floats(0.0, 1.0), min_size=40, max_size=40))
def test_no_noise_makes_an_honest_program_a_liar(
    call: float, delivery: float, mine: list[float], theirs: list[float], inside: list[float]
) -> None:
    """Whatever others took from either side, and from whichever part of a block: it is known to be theirs."""
    claimed = [call + noise * part for noise, part in zip(mine, inside, strict=False)]
    extra = [delivery + noise * (1 - part) for noise, part in zip(mine, inside, strict=False)]
    baseline = [call + noise for noise in theirs]
    samples = samples_of(claimed, baseline, extra, [delivery] * len(theirs), mine)
    assert not measurement()._clocks_disagree(samples, usual_layout=True)


@pytest.mark.cpu
@given(CALL, DELIVERY, st.floats(1.6, 16.0), st.lists(st.floats(0.0, 0.02), min_size=20, max_size=20))
def test_a_constant_lie_is_seen_on_a_quiet_machine(
    call: float, delivery: float, factor: float, jitter: list[float]
) -> None:
    """Who claims a part of his time is seen, as soon as what he hides is more than a clock's own noise."""
    claimed = [call * (1 + share) / factor for share in jitter]
    extra = [delivery * (1 + share) + call * (1 - 1 / factor) for share in jitter]
    usual = [delivery * (1 + share) for share in reversed(jitter)]
    samples = samples_of(claimed, [call] * 20, extra, usual)
    stands_out = call * (1 - 1 / factor) - 0.02 * delivery > max(0.5 * max(claimed), 20_000.0)
    assert measurement()._clocks_disagree(samples, usual_layout=True) or not stands_out


@pytest.mark.pure
@given(st.lists(st.floats(1e3, 1e9), min_size=2, max_size=20), st.floats(0.0, 1e9))
def test_what_delivery_costs_is_taken_off_and_never_more_than_a_quarter(times: list[float], cost: float) -> None:
    samples = samples_of(list(times), list(times))
    samples.subtract_delivery(cost, 0.25)
    assert samples.baseline == samples.candidate
    for before, after in zip(times, samples.candidate, strict=True):
        assert after == pytest.approx(max(before - cost, 0.75 * before))


@pytest.mark.cpu
def test_the_clocks_must_disagree_three_times_before_anybody_is_refused(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = samples_of([100e3] * 20, [300e3] * 20, [250e3] * 20, [50e3] * 20)
    honest = samples_of([300e3] * 20, [300e3] * 20, [50e3] * 20, [50e3] * 20)
    for rounds, outcome in (([lying, lying, honest], Outcome.CORRECT), ([lying] * 3, Outcome.REJECTED)):
        left = list(rounds)
        monkeypatch.setattr(Measurement, "_timer", lambda self, *lanes, every, left=left: left.pop(0))
        verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
        assert verdict.outcome is outcome, verdict.detail
        assert not left


@pytest.mark.pure
def test_who_keeps_all_processors_busy_waits_for_himself() -> None:
    cores = usable_processors()
    began = SchedulerTimes({1: 100, 2: 100}, 0)
    assert began.lost_ns(SchedulerTimes({1: 600, 3: 200}, 0), 1000) == 700
    assert began.lost_ns(SchedulerTimes({1: 600, 3: 200}, cores * 1000 - 50), 1000) == 50
    assert began.lost_ns(SchedulerTimes({1: 90000}, 0), 1000) == 1000
    assert began.lost_ns(SchedulerTimes(None, 0), 1000) is None


@pytest.mark.pure
@given(st.lists(st.floats(0.0, 1e6), min_size=4, max_size=20), st.floats(0.0, 1e9), st.floats(0.0, 0.5))
def test_nobody_lost_more_than_others_took(waited: list[float], others: float, stolen: float) -> None:
    """Threads of one program that wait for each other on one processor have lost nothing to others."""
    call = [1e6] * len(waited)
    samples = samples_of(call, call, [0.0] * len(waited), [0.0] * len(waited), waited)
    samples.calls_per_block = 5
    samples.settle(others, 0.0)
    assert 5 * sum(samples.candidate_lost) <= others * (1 + 1e-9) + 1e-9
    assert all(now <= before for now, before in zip(samples.candidate_lost, waited, strict=True))
    samples.settle(-1.0, stolen)
    assert samples.candidate_lost == pytest.approx([stolen * 1e6] * len(waited))


# -- how much is measured ----------------------------------------------------------------------------------------------


@given(st.floats(1e-7, 1.0), st.integers(1, 1 << 34), st.integers(0, 1 << 34), st.booleans())
def test_a_further_workload_has_at_most_as_many_sets_and_at_least_the_fewest(
    call_seconds: float, set_bytes: int, room: int, apart: bool
) -> None:
    first = interleaved_timer.count_sets(call_seconds, set_bytes, room, apart)
    further = interleaved_timer.count_sets(call_seconds, set_bytes, room, apart, is_further=True)
    assert (1 if apart else 2) <= further <= first


@pytest.mark.parametrize(("is_warm", "spent", "expected"), [(False, 0.0, 3), (False, 0.06, 1), (True, 0.0, 1)])
def test_long_blocks_warm_up_by_one(
    monkeypatch: pytest.MonkeyPatch, is_warm: bool, spent: float, expected: int
) -> None:
    now = [0.0]
    monkeypatch.setattr(interleaved_timer.time, "monotonic", lambda: now[0])
    side: Any = Side()
    timer = interleaved_timer.InterleavedTimer(side, side, lambda: None, 0.1, lambda: [None])
    timer.is_warm = is_warm
    blocks = 0
    for _ in timer.warm_blocks():
        blocks += 1
        now[0] += spent
    assert blocks == expected
