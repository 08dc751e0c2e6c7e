"""Timing on a device that processes share, without one: what a block costs whom, and what is read of its outputs."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.worker.judge import statistics
from kforge.worker.judge.device_outputs import CallOutputs, DeviceOutputs
from kforge.worker.judge.device_timer import DeviceTimer, Quiet
from kforge.worker.judge.held_lane import HeldBlock, NotOwned
from kforge.worker.judge.host_timer import HostTimer
from kforge.worker.judge.interleaved_timer import NotIdle, Samples
from kforge.worker.protocol.records import OutputLeaf, SlotOutput

CALLS, CALL_NS, IDLE_NS, BEFORE_NS, AFTER_NS = 10, 50_000, 300_000, 100_000, 4_000
QUIET = Quiet(CALL_NS, IDLE_NS, BEFORE_NS, AFTER_NS)


class Side:
    """A lane whose blocks take what it is told; a method of a test may change any part."""

    def __init__(self, call_ns: float = CALL_NS, most_ahead: int = CALLS) -> None:
        self.call_ns, self.before_ns, self.after_ns, self.idle = call_ns, BEFORE_NS, AFTER_NS, IDLE_NS
        self.most_ahead = self.at_a_time = most_ahead
        self.slots: list[Any] = [[] for _ in range(CALLS)]
        self.copies, self.copied_because, self.apart = False, "", True
        self.runner = SimpleNamespace(stop=lambda: None, cpu_ns=lambda: 0, keeper_ns=lambda: 0)
        self.asked_with: set[int] = set()
        self.blocks = 0

    def spent_ns(self) -> float:
        return CALLS * self.call_ns + IDLE_NS

    def time_calls(self, calls: Any, parts: Any) -> HeldBlock:
        self.blocks += 1
        self.asked_with.add(self.at_a_time)
        outputs = [SlotOutput(None, ())] * len(calls)
        return HeldBlock(round(self.spent_ns()), 0, outputs, [], [], round(self.before_ns), round(self.after_ns))

    def warm_up(self, seeds: Any) -> None: ...

    def idle_ns(self, calls: Any) -> float:
        return self.idle

    def launching_ns(self, rounds: int) -> float:
        return self.call_ns + 20_000

    def outputs_are_apart(self, block: HeldBlock) -> bool:
        return self.apart


def run(candidate: Any, baseline: Any, **more: Any) -> Samples:
    given_ = {"rest": lambda _: True, "quiet": lambda _: QUIET, "usual_ns": lambda _: float(CALL_NS), **more}
    timer = DeviceTimer(candidate, baseline, lambda: None, 0.005, lambda: [None] * CALLS, bare=True, **given_)
    return timer.run()


def speedup(samples: Samples) -> float:
    return statistics.median(samples.ratios())


@pytest.mark.pure
def test_an_honest_pair_is_what_its_calls_take() -> None:
    samples = run(Side(CALL_NS / 2), Side())
    assert speedup(samples) == pytest.approx(2.0, rel=1e-3)
    assert samples.charged == 0.0
    assert len(samples.candidate_bare) == len(samples.baseline_bare) > 0


@pytest.mark.pure
@given(st.floats(0.0, 1.0), st.booleans())
def test_work_before_or_after_the_turn_is_paid_all_the_same(hidden: float, early: bool) -> None:
    """Whatever part of the work is done while the judge writes inputs or reads outputs, nothing is gained by it."""
    side = Side(CALL_NS * (1 - hidden))
    stolen = CALLS * CALL_NS * hidden
    if early:
        side.before_ns += stolen
    else:
        side.after_ns += stolen
    assert 0.8 < speedup(run(side, Side())) < 1.01


@pytest.mark.pure
def test_what_is_saved_after_the_turn_does_not_pay_for_what_was_done_before_it() -> None:
    side = Side(CALL_NS / 2)
    side.before_ns, side.after_ns = BEFORE_NS + AFTER_NS, 0
    assert run(side, Side()).charged > 0


@pytest.mark.pure
def test_a_baseline_that_is_held_back_counts_as_it_is_alone() -> None:
    class HeldBack(Side):
        def spent_ns(self) -> float:
            return super().spent_ns() + (3e6 if self.blocks % 9 < 4 else 0)

    samples = run(Side(), HeldBack())
    assert speedup(samples) < 1.05
    assert max(samples.baseline_seen) > 5 * CALL_NS


@pytest.mark.pure
def test_an_empty_block_that_takes_longer_beside_a_candidate_takes_nothing_more_off() -> None:
    baseline = Side()
    baseline.idle = round(1.2 * IDLE_NS)
    assert speedup(run(Side(CALL_NS / 2), baseline)) < 2.1


@pytest.mark.pure
def test_as_many_calls_are_launched_at_a_time_for_either_side() -> None:
    candidate, baseline = Side(most_ahead=2), Side()
    run(candidate, baseline)
    assert candidate.asked_with == baseline.asked_with == {2}
    assert baseline.most_ahead == CALLS


@pytest.mark.pure
def test_calls_whose_launching_counts_are_held_against_the_faster_half_of_the_baseline() -> None:
    class Uneven(Side):
        def spent_ns(self) -> float:
            return super().spent_ns() * random.Random(self.blocks).choice((1, 1, 3))

    samples = run(Side(most_ahead=0), Uneven(), usual_ns=lambda _: 0.0)
    assert speedup(samples) < 1.2
    assert not samples.candidate_bare


@pytest.mark.pure
def test_a_device_that_never_rests_is_refused() -> None:
    with pytest.raises(NotIdle, match="the device worked all the same"):
        run(Side(), Side(), rest=lambda _: False)


@pytest.mark.pure
def test_outputs_that_share_memory_under_two_addresses_are_refused() -> None:
    candidate = Side()
    candidate.apart = False
    with pytest.raises(NotOwned, match="under two addresses"):
        run(candidate, Side())


# -- outputs -----------------------------------------------------------------------------------------------------------

PAGE = 2 << 20
BASE = 64 * PAGE


class Memory:
    """A runner's memory, with pages that may be there twice; in the place of what is mapped from a device."""

    def __init__(self, pages: int, same: bool = False) -> None:
        self._pages, self._same = pages, same
        self.data = torch.zeros((1 if same else pages) * PAGE, dtype=torch.uint8)

    def covers(self, start: int, stop: int) -> bool:
        return start >= BASE and stop <= BASE + self._pages * PAGE

    def bytes(self, start: int, stop: int) -> torch.Tensor:
        first, count = start - BASE, stop - start
        if self._same:
            assert first // PAGE == (first + count - 1) // PAGE
            first %= PAGE
        return self.data[first : first + count]

    def close(self) -> None: ...


def outputs_in(memory: Memory, shape: tuple[int, ...]) -> DeviceOutputs:
    outputs = DeviceOutputs.__new__(DeviceOutputs)
    outputs.__dict__.update(
        _device=SimpleNamespace(torch_device=torch.device("cpu"), number=0),
        _expected=[torch.empty(shape, device="meta")],
        _mirror=memory,
        delivered=[],
    )
    return outputs


def at(address: int, shape: tuple[int, ...], usual: bool = True) -> CallOutputs:
    leaf = OutputLeaf("Tensor", "float32", shape, "cuda:0", usual, True)
    strides = torch.empty(shape, device="meta").stride() if usual else (1, shape[0])
    return CallOutputs(SlotOutput(None, (leaf,)), [address], [strides])


@pytest.mark.cpu
@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_an_output_that_changes_after_it_was_done_is_noticed(usual: bool, whole: bool) -> None:
    shape = (1024, 512)
    memory = Memory(2)
    outputs, given_ = outputs_in(memory, shape), {0: at(BASE + 4096, shape, usual)}
    wanted = [(0, 1024 * 512)] if whole else [(row * 512, 512) for row in (3, 700, 1023)]
    taken = outputs.plan(given_, {(0, 0): wanted})
    taken.copy()
    assert taken.is_settled()
    memory.data.random_(1, 255)
    assert not taken.is_settled()


@pytest.mark.cpu
def test_rows_are_what_was_there_when_they_were_read() -> None:
    shape, wanted = (1024, 512), [(0, 512), (99 * 512, 512)]
    memory = Memory(2)
    outputs, given_ = outputs_in(memory, shape), {0: at(BASE + 512, shape)}
    values = torch.randn(shape)
    outputs.tensor(0, 0, given_[0]).copy_(values)
    taken = outputs.plan(given_, {(0, 0): wanted})
    taken.copy()
    memory.data.zero_()
    rows = taken.rows((0, 0), wanted, torch.float32)
    assert rows is not None
    assert torch.equal(rows, values[[0, 99]])
    assert taken.rows((0, 0), [(0, 512)], torch.float32) is None


@pytest.mark.cpu
@pytest.mark.parametrize("same", [True, False])
def test_pages_that_are_there_twice_are_told(same: bool) -> None:
    shape = (PAGE // 4,)
    memory = Memory(3, same)
    memory.data.random_()
    before = memory.data.clone()
    outputs = outputs_in(memory, shape)
    given_ = [at(BASE + page * PAGE, shape) for page in range(3)]
    assert outputs.are_apart(given_) is not same
    if not same:
        assert torch.equal(memory.data, before), "they have their values back"


@pytest.mark.cpu
def test_small_outputs_of_one_page_are_apart() -> None:
    memory = Memory(1)
    outputs = outputs_in(memory, (16,))
    for _ in range(20):
        assert outputs.are_apart([at(BASE + 64 * number, (16,)) for number in range(8)])


@pytest.mark.cpu
def test_what_is_not_mapped_or_not_aligned_cannot_be_read() -> None:
    outputs = outputs_in(Memory(1), (16,))
    assert outputs.can_read(at(BASE, (16,)))
    assert not outputs.can_read(at(BASE + 2, (16,)))
    assert not outputs.can_read(at(BASE + PAGE - 8, (16,)))


@pytest.mark.cpu
def test_what_a_runner_copied_is_still_read_when_its_own_memory_is_given_back() -> None:
    outputs = outputs_in(Memory(1), (16,))
    outputs.delivered = [[torch.arange(16.0)]]
    outputs.forget_memory()
    assert torch.equal(outputs.tensor(0, 0, at(BASE, (16,))), torch.arange(16.0))


@pytest.mark.cpu
def test_a_baseline_whose_helpers_work_on_is_nobodys_fault() -> None:
    """torch.compile's own processes go on while its runner is stopped: no candidate is refused for that."""
    trusted = HostTimer(None, None, lambda: None, 0.1, list, suspected=False)  # type: ignore[arg-type]
    suspect = HostTimer(None, None, lambda: None, 0.1, list)  # type: ignore[arg-type]
    for _ in range(3):
        trusted._check_idle(50_000_000)
    suspect._check_idle(50_000_000)
    with pytest.raises(NotIdle, match="used a processor all the same"):
        suspect._check_idle(50_000_000)
