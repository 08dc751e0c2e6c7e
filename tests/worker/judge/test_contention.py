"""Work of others beside a measurement: it is seen, its blocks are measured again, and what rests on it says so."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings, jsonable
from kforge.types import Timing
from kforge.worker.judge import contention, interleaved_timer
from kforge.worker.judge.contention import ContentionMeter, choose_groups, free_processors, is_contended
from kforge.worker.judge.interleaved_timer import InterleavedTimer, Samples
from kforge.worker.judge.measurement import Measurement
from kforge.worker.judge.own_processors import usable_processors
from kforge.worker.judge.scheduler_waits import MachineTimes
from others_work import others_work


@pytest.mark.pure
@given(st.lists(st.booleans(), max_size=40))
def test_a_time_rests_on_quiet_groups_alone_or_on_all_of_them(contended: list[bool]) -> None:
    chosen = choose_groups(contended)
    quiet = [number for number, other in enumerate(contended) if not other]
    assert chosen == (quiet if len(quiet) >= contention.LEAST_GROUPS else list(range(len(contended))))
    assert chosen == sorted(set(chosen))


@pytest.mark.pure
@given(st.integers(1, 256), st.integers(1, 300), st.floats(0, 300), st.floats(0, 300))
def test_more_work_of_others_is_never_less_contended_and_who_uses_every_processor_has_none_to_spare(
    processors: int, threads: int, one: float, two: float
) -> None:
    free = free_processors(processors, threads)
    assert is_contended(max(one, two), free) >= is_contended(min(one, two), free)
    assert free_processors(processors, processors) == 0
    assert free + min(threads, processors) <= processors
    assert is_contended(1.0, free_processors(2, 1)), "two processors may be one core"


class Clock:
    """What a kernel tells, as a test wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.busy = self.stolen = self.own = self.throttled = 0
        monkeypatch.setattr(contention.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(MachineTimes, "now", lambda processors=None: MachineTimes(self.busy, self.stolen))
        monkeypatch.setattr(contention, "throttled_ns", lambda: self.throttled)


@pytest.mark.pure
@pytest.mark.parametrize("taken", ["busy", "stolen", "throttled"])
def test_work_between_two_looks_shows_in_the_processors_times(monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    clock = Clock(monkeypatch)
    meter = ContentionMeter(lambda: clock.own)
    meter.begin()
    for _ in range(3):
        meter.note([0, 0])
        clock.now += 50_000_000
        clock.busy += 40_000_000
        clock.own += 40_000_000
        meter.end_group()
    assert meter.others == [0.0, 0.0, 0.0], "the judge's and both sides' own work is nobody else's"
    setattr(clock, taken, getattr(clock, taken) + 60_000_000)
    clock.now += 50_000_000
    meter.end_group()
    meter.settle()
    assert not any(map(is_contended, meter.others[:3]))
    assert is_contended(meter.others[3])


@pytest.mark.pure
def test_a_step_of_the_processors_times_is_nobodys_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    meter = ContentionMeter(lambda: clock.own)
    meter.begin()
    clock.now, clock.busy = 30_000_000, 20_000_000
    meter.end_group()
    meter.settle()
    assert meter.others == [0.0]


@pytest.mark.pure
def test_where_nothing_is_told_other_work_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MachineTimes, "now", lambda processors=None: None)
    for text in (b"", b"0.00 0.00 0.00 0/0 0\n"):
        monkeypatch.setattr(contention, "content", lambda path, text=text: text)
        assert contention.other_threads_running() is None
    meter = ContentionMeter(lambda: 0)
    meter.begin()
    meter.note([contention.other_threads_running()])
    meter.end_group()
    meter.settle()
    assert (meter.others, meter.is_known) == ([0.0], False)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("group", "place", "text"),
    [
        (b"0::/mine\n", "/sys/fs/cgroup/mine/cpu.stat", b"usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n"),
        (b"4:memory:/x\n3:cpu,cpuacct:/mine\n", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat", b"throttled_time 1500000\n"),
    ],
)
def test_what_a_quota_took_is_read_of_either_kind_of_group(
    monkeypatch: pytest.MonkeyPatch, group: bytes, place: str, text: bytes
) -> None:
    files = {"/proc/self/cgroup": group, place: text}

    def content(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    monkeypatch.setattr(contention, "content", content)
    assert contention.throttled_ns() == 1_500_000
    del files[place]
    assert contention.throttled_ns() == 0


@dataclass
class FakeTimer(InterleavedTimer):
    """Groups of a baseline that is twice as slow beside others, which are there in those that `beside` names.

    By a clock that each pair of blocks moves by a millisecond.
    """

    beside: Any = ()
    now: float = 0.0
    groups: list[int] = field(default_factory=list)

    def _warm_up(self, samples: Samples) -> None:
        pass

    def _time_pair(self, order: str, samples: Samples) -> None:
        number = len(samples.candidate) // 2
        others = int(number in self.beside)
        self.now += 0.001
        self._meter.note([others])
        samples.candidate.append(100.0)
        samples.baseline.append(100.0 * (1 + others))
        for values in (samples.candidate_lost, samples.baseline_lost):
            values.append(0.0)
        for values in (samples.candidate_extra, samples.baseline_extra):
            values.append(0.0)

    def _own_ns(self) -> int:
        return 0


def fake_timer(monkeypatch: pytest.MonkeyPatch, beside: Any) -> tuple[Samples, float]:
    """The samples, and how many seconds they took."""
    monkeypatch.setattr(MachineTimes, "now", lambda processors=None: None)
    monkeypatch.setattr(contention, "throttled_ns", lambda: 0)
    lane: Any = SimpleNamespace(slots=[[]], runner=SimpleNamespace(working_threads=lambda: None))
    timer = FakeTimer(lane, lane, refresh=lambda: None, seconds=0.05, seeds=lambda: [None], beside=beside)
    monkeypatch.setattr(interleaved_timer, "time", SimpleNamespace(monotonic=lambda: timer.now))
    return timer.run(), timer.now


@pytest.mark.pure
def test_groups_beside_others_work_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _ = fake_timer(monkeypatch, range(12))
    assert set(samples.ratios()) == {1.0}
    assert len(samples.ratios()) >= contention.LEAST_GROUPS
    assert samples.contended == 0.0


@pytest.mark.pure
def test_whole_groups_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _ = fake_timer(monkeypatch, range(0, 1000, 2))
    assert set(samples.ratios()) == {1.0}
    assert len(samples.candidate) == len(samples.baseline) == len(samples.candidate_lost) == 2 * len(samples.ratios())


@pytest.mark.pure
def test_others_who_stay_are_waited_for_within_reason_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, seconds = fake_timer(monkeypatch, range(10**6))
    assert seconds < 0.3
    assert set(samples.ratios()) == {2.0}
    assert samples.contended == pytest.approx(1 / usable_processors())


@pytest.mark.pure
def test_both_of_two_measurements_count_with_what_others_took_of_each() -> None:
    quiet = Samples([1.0] * 6, [1.0] * 6)
    busy = Samples([1.0] * 2, [1.0] * 2, contended=0.4)
    assert quiet.merge(busy).contended == pytest.approx(0.1)
    assert quiet.merge(quiet).contended == 0.0


def contention_of(samples: Samples, busy: str = "", slowed: str = "") -> tuple[float, list[str], list[str]]:
    platform = SimpleNamespace(busy_because=lambda number: busy, slowed_because=lambda number: slowed)
    measurement: Any = SimpleNamespace(
        _device=SimpleNamespace(platform=platform, number=0), _findings=SimpleNamespace(notes=[])
    )
    flags: list[str] = []
    share = Measurement._contention(measurement, samples, "", flags)
    return share, flags, measurement._findings.notes


@pytest.mark.pure
def test_a_device_that_others_use_or_that_is_slowed_down_is_contended() -> None:
    assert contention_of(Samples()) == (0.0, [], [])
    assert contention_of(Samples(), busy="other work is on the GPU") == (
        1.0,
        ["contended: other work is on the GPU"],
        [],
    )
    assert contention_of(Samples(), slowed="the GPU is slowed down (power brake)")[0] == 1.0


@pytest.mark.pure
def test_a_verdict_says_how_much_others_took_or_that_it_does_not_know() -> None:
    share, flags, _ = contention_of(Samples(contended=0.25))
    assert share == 0.25
    assert "others used 25% of the processors' time" in flags[0]
    share, flags, notes = contention_of(Samples(others_known=False))
    assert (share, flags) == (0.0, [])
    assert "unknown" in notes[0]


@pytest.mark.pure
def test_a_record_of_an_older_version_is_not_contended() -> None:
    timing = Timing("eager", 1.5, (1.4, 1.6), None, (1.0,), (1.5,), 1, 1, contended=0.5)
    record = jsonable.encode(timing)
    assert jsonable.decode(Timing, record) == timing
    del record["contended"]
    assert jsonable.decode(Timing, record).contended == 0.0
    assert "contended" in str(timing)
    with pytest.raises(ValueError, match="contended"):
        Timing("eager", 1.5, (1.4, 1.6), None, (1.0,), (1.5,), 1, 1, contended=1.5)


REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.exp(torch.sin(x) + torch.cos(x))

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return []
"""
ONE_THREAD = '''
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write("""#include <cmath>
extern "C" void run(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) y[i] = std::exp(std::sin(x[i]) + std::cos(x[i]));
}""")
library = os.path.join(folder, "k.so")
subprocess.run(["g++", "-O3", "-shared", "-fPIC", os.path.join(folder, "k.cpp"), "-o", library], check=True)
kernel = ctypes.CDLL(library).run
kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), y.data_ptr(), x.numel())
        return y
'''


@contextlib.contextmanager
def spinner(seconds: float) -> Iterator[None]:
    """Somebody who has one processor for himself, for a while."""
    core = max(os.sched_getaffinity(0))
    work = f"import os, time\nos.sched_setaffinity(0, {{{core}}})\nend = time.monotonic() + {seconds}\n"
    process = subprocess.Popen([sys.executable, "-S", "-c", f"{work}while time.monotonic() < end: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def skip_if_busy() -> None:
    """Skip what only a quiet machine can show, where somebody else works on this one."""
    since, began = MachineTimes.now(), time.monotonic()
    time.sleep(1.0)
    now, passed = MachineTimes.now(), time.monotonic() - began
    assert since is not None
    assert now is not None
    used = (now.busy_ns - since.busy_ns + now.stolen_ns - since.stolen_ns) / 1e9 / passed
    if used > 0.05:
        pytest.skip(f"others use {used:.2f} processors of this machine")


@pytest.mark.toolchain
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_one_thread_beside_somebody_who_holds_the_other_processor_is_contended(judge: Any) -> None:
    settings = Settings(compile_baseline=False, timing_seconds=0.1, seeds=1)
    with spinner(600):
        verdict = judge.evaluate(Problem("waves", REFERENCE), Candidate(ONE_THREAD), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.contended
    assert any(flag.startswith("contended") for flag in verdict.timing.flags)
    assert "contended" in verdict.detail


@pytest.mark.quiet
@pytest.mark.toolchain
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_a_quiet_machine_is_not_contended(judge: Any) -> None:
    settings = Settings(compile_baseline=False, timing_seconds=0.3, seeds=1)
    with others_work() as others:
        verdict = judge.evaluate(Problem("waves", REFERENCE), Candidate(ONE_THREAD), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    if verdict.contended:
        others.skip_if_any()
        skip_if_busy()
    assert not verdict.contended, verdict.timing.flags


@pytest.mark.quiet
@pytest.mark.toolchain
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_somebody_who_leaves_in_time_leaves_no_trace(judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """He has one processor when each measurement begins, and is gone before it ends."""
    settings = Settings(compile_baseline=False, timing_seconds=0.5, seeds=1)
    begin = ContentionMeter.begin
    with others_work() as others, contextlib.ExitStack() as stack:
        quiet = judge.evaluate(Problem("waves", REFERENCE), Candidate(ONE_THREAD), settings)

        def begin_beside(meter: ContentionMeter) -> None:
            stack.enter_context(spinner(0.7))
            begin(meter)

        monkeypatch.setattr(ContentionMeter, "begin", begin_beside)
        verdict = judge.evaluate(Problem("waves", REFERENCE), Candidate(ONE_THREAD), settings)
    if verdict.contended or quiet.contended:
        others.skip_if_any()
        skip_if_busy()
    assert not verdict.contended, verdict.timing.flags
    (low, high), (other_low, other_high) = quiet.interval, verdict.interval
    assert low <= 1.1 * other_high
    assert other_low <= 1.1 * high
