"""The interleaved measurement: what is measured again, and who is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faults import program
from kforge import Candidate, Outcome, Settings
from kforge.worker.judge import timing
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.evidence import Findings
from kforge.worker.judge.lane import Block, Output
from kforge.worker.judge.measuring import Measurement

QUICK = Settings(compile_baseline=False, timing_seconds=0.05, seeds=1)


@pytest.mark.toolchain
def test_a_wide_interval_is_measured_once_more_and_both_count(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = timing.Samples([100.0, 100.0, 300.0, 300.0] * 5, [300.0] * 20, [0.0] * 20, [0.0] * 20, 5, 1)
    tight = timing.Samples([100.0] * 20, [300.0] * 20, [0.0] * 20, [0.0] * 20, 5, 1)
    rounds = [wide, tight, tight]
    monkeypatch.setattr(Measurement, "_duel", lambda self, *lanes, every: rounds.pop(0))
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert len(rounds) == 1
    assert verdict.timing.candidate_ns == (*wide.candidate, *tight.candidate)
    assert "wide interval: measured again, both count" in verdict.timing.flags
    assert verdict.speedup == 3.0
    assert verdict.interval[0] < 3.0


@pytest.mark.toolchain
def test_a_program_that_seemed_busy_once_is_measured_again(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, failures = timing.Duel.run, [timing.NotIdle("busy")]

    def sometimes(duel: timing.Duel) -> timing.Samples:
        if duel.check is not None and failures:
            raise failures.pop()
        return run(duel)

    monkeypatch.setattr(timing.Duel, "run", sometimes)
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("seemed busy" in note for note in verdict.notes)
    failures += [timing.NotIdle("busy"), timing.NotIdle("still busy")]
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.rule == "not_idle"


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
    book = SimpleNamespace(site=SimpleNamespace(apart=apart), seed=1)
    found = Findings()
    session: Any = SimpleNamespace(book=book, baselines=None, rotation=None)
    measurement = Measurement(session, QUICK, Tolerance({}), found, lambda _: None)
    times = [240e3] * 20
    samples = timing.Samples(times, times, [extra_us * 1e3] * 20, [500e3] * 20, 5, 1)
    speedup, _, excess = measurement._result(samples, 0.0, True)
    assert excess > 0.05
    assert (speedup < 0.95) is charged
    assert bool(found.notes) is charged


@pytest.mark.toolchain
@pytest.mark.parametrize(("looks", "by_the_judges_clock"), [(1, False), (2, True)])
def test_calls_that_take_longer_than_claimed_are_looked_at_again_before_they_count(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch, looks: int, by_the_judges_clock: bool
) -> None:
    """One disturbed moment must not decide; time that is there both times must."""
    run, left = timing.Duel.run, [10e6] * looks

    def with_bare_calls(duel: timing.Duel) -> timing.Samples:
        samples = run(duel)
        if duel.check is not None:
            extra = left.pop() if left else 0.0
            samples.baseline_bare = [item + 1e4 for item in samples.baseline]
            samples.candidate_bare = [item + 1e4 + extra for item in samples.candidate]
        return samples

    monkeypatch.setattr(timing.Duel, "run", with_bare_calls)
    verdict = judge.evaluate(scale_relu, Candidate(program()), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("again and again" in flag for flag in verdict.timing.flags)
    assert any("the speedup is by the judge's clock" in note for note in verdict.notes) is by_the_judges_clock


class Side:
    """A lane whose blocks take a millisecond; as a candidate it is busy in every `period`-th block of the other."""

    def __init__(self, period: int = 0) -> None:
        self.slots = [[]]
        self.runner = self
        self._period = period
        self._readings = 0
        self._used = 0

    def call(self, calls: Any, look_at: int = 0, bare: bool = False) -> Block:
        return Block([1_000_000], 1_000_000, [Output(None, ())], False, None)

    def cpu_ns(self) -> int:
        self._readings += 1
        block, after = divmod(self._readings - 1, 2)
        if after and self._period and block % self._period == 0:
            self._used += 900_000
        return self._used


def duel(period: int) -> timing.Samples:
    lanes: Any = Side(period), Side()
    return timing.Duel(*lanes, refresh=lambda: None, seconds=0.02, seeds=[None]).run()


@pytest.mark.pure
@pytest.mark.parametrize("period", [1, 2, 4, 8])
def test_who_works_in_an_eighth_of_the_other_sides_blocks_is_refused(period: int) -> None:
    with pytest.raises(timing.NotIdle, match="90% of a processor"):
        duel(period)


@pytest.mark.pure
@pytest.mark.parametrize("period", [0, 12, 40])
def test_a_disturbance_now_and_then_is_not_taken_for_work(period: int) -> None:
    assert len(duel(period).baseline) >= 10
