"""The least time that a machine allows: found from counted work and kept ceilings, or left out with a reason."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from conditions import PATIENCE
from kforge import Outcome, Settings
from kforge.profilers._ceilings import Ceilings, CeilingsFile
from kforge.types import BaselineTime, ProblemForm, Timing
from kforge.worker.judge import time_limit
from kforge.worker.judge.background import Background
from kforge.worker.judge.runner_handle import RunnerLost
from kforge.worker.judge.time_limit import NoLimit, TimeLimits
from kforge.worker.protocol.program import ProbeAnswer

FACTS = {"processor": "one"}
STREAMING = {
    "exact": 0,
    "estimated": 10**6,
    "read_bytes": 8 * 10**6,
    "output_bytes": 2 * 10**6,
    "dtype": "torch.float32",
}
PRODUCT = {"exact": 10**9, "estimated": 0, "read_bytes": 10**6, "output_bytes": 10**6, "dtype": "torch.float32"}
RATES = {"bandwidth": [[1 << 30, 1e10]], "flops": 1e11, "overhead_ns": 1000}
"""Ten bytes and a hundred operations a nanosecond."""
TIMING = Timing("eager", 2.0, (1.9, 2.1), None, (1.5e6,) * 3, (3e6,) * 3, 5, 3)


class Machine:
    """What the probes answer, and how often they were asked."""

    def __init__(self, work=STREAMING, rates=RATES):
        self.work, self.rates = work, rates
        self.counted = self.measured = 0

    def ask_reference(self, baselines, message, seconds):
        self.counted += 1
        if isinstance(self.work, Exception):
            raise self.work
        return ProbeAnswer(self.work)

    def ask_machine(self, trusted, message):
        self.measured += 1
        return ProbeAnswer(self.rates)


@pytest.fixture
def limits(tmp_path, monkeypatch):
    """Makes the limits of a problem on a machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(machine, device="cpu", form=ProblemForm()):
        monkeypatch.setattr(time_limit, "ask_reference", machine.ask_reference)
        monkeypatch.setattr(time_limit, "ask_machine", machine.ask_machine)
        platform = SimpleNamespace(device=device, facts=lambda number: FACTS)
        cases = SimpleNamespace(
            device=SimpleNamespace(platform=platform, number=0, background=Background()),
            problem=SimpleNamespace(form=form),
        )
        timed_inputs = SimpleNamespace(working_bytes=1 << 28, seeds=lambda: [None])
        baselines = SimpleNamespace(deadline=lambda: 1.0, lane=lambda name: None, release_memory=lambda lane: None)
        return TimeLimits(cases, timed_inputs, baselines, None)

    return make


def reason(found, timing=TIMING, precision=""):
    with pytest.raises(NoLimit) as error:
        found.find(timing, precision)
    return str(error.value)


@pytest.mark.cpu
def test_traffic_sets_the_limit_of_streaming(limits):
    limit = limits(Machine()).find(TIMING, "")
    assert limit.ns == pytest.approx(1e6 + 1000)
    assert limit.how == "traffic: 9.54 MiB at 10 GB/s, measured here"
    assert str(limit) == f"1 ms: {limit.how}"


@pytest.mark.cpu
def test_arithmetic_sets_the_limit_of_a_product(limits):
    limit = limits(Machine(PRODUCT, {**RATES, "overhead_ns": 1e6})).find(replace(TIMING, baseline_ns=(3e7,)), "")
    assert limit.ns == pytest.approx(1e7 + 1e6)
    assert (
        limit.how
        == "arithmetic: 1e+09 operations at 100 GFLOP/s in float32 and 1 ms that any call takes, measured here"
    )


@pytest.mark.cpu
def test_work_is_counted_once_and_the_machine_measured_once(limits):
    machine = Machine()
    found = limits(machine)
    assert found.find(TIMING, "") == found.find(TIMING, "")
    assert limits(machine).find(TIMING, "") == found.find(TIMING, "")
    assert (machine.counted, machine.measured) == (2, 1)


@pytest.mark.cpu
def test_a_busy_machine_is_not_measured_but_its_known_ceilings_serve(limits):
    machine = Machine()
    contended = replace(TIMING, contended=0.5)
    assert "others use the machine" in reason(limits(machine), contended)
    assert machine.measured == 0
    known = limits(machine).find(TIMING, "")
    assert limits(machine).find(contended, "") == known


@pytest.mark.cpu
def test_ceilings_that_eager_is_above_are_measured_again_once(limits):
    machine = Machine()
    found = limits(machine)
    quick = replace(TIMING, baseline_ns=(8e5,) * 3)
    assert found.find(quick, "").ns == pytest.approx(8e5 + 1000)
    assert machine.measured == 2
    assert "eager takes less" in found.find(replace(TIMING, baseline_ns=(6e5,) * 3), "").how
    assert machine.measured == 2


@pytest.mark.cpu
def test_a_program_below_the_limit_raises_no_ceiling_and_is_said_to_do_less(limits):
    machine = Machine()
    limit = limits(machine).find(replace(TIMING, speedup=4.0, interval=(3.9, 4.1)), "")
    assert limit.ns == pytest.approx(1e6 + 1000)
    assert limit.how.endswith("the program takes less: it does less than was counted")
    assert machine.measured == 1


@pytest.mark.cpu
def test_another_baseline_than_eager_is_brought_back_to_eager(limits):
    compiled = replace(
        TIMING, baseline="compile", speedup=1.0, interval=(0.9, 1.1), baselines=(BaselineTime("compile", 2.0),)
    )
    assert compiled.eager_ns == pytest.approx(6e6)
    compiled = replace(compiled, limit=limits(Machine()).find(compiled, ""))
    assert compiled.score == pytest.approx((6e6 - 1.001e6) / (6e6 - 1.001e6 + 3e6 - 1.001e6))


@pytest.mark.cpu
def test_on_a_gpu_the_arithmetic_that_is_allowed_decides(limits):
    rates = {**RATES, "rates": [["bfloat16", 1e13], ["float32", 1e11], ["tf32", 5e11]]}
    found = limits(Machine(PRODUCT, rates), "cuda")
    slow = replace(TIMING, baseline_ns=(3e7,) * 3)
    assert found.find(slow, "").ns == pytest.approx(1e7 + 1000)
    assert found.find(slow, "tf32").ns == pytest.approx(2e6 + 1000)
    halves = limits(Machine({**PRODUCT, "dtype": "torch.bfloat16"}, rates), "cuda", ProblemForm("bfloat16"))
    assert halves.find(slow, "").ns == pytest.approx(2e5 + 1000)
    assert "in float16 are on this machine was not measured" in reason(found, slow, "float16")


@pytest.mark.cpu
def test_no_limit_rather_than_a_wrong_one(limits):
    assert "backward" in reason(limits(Machine(), form=ProblemForm(backward=True)))
    assert reason(limits(Machine(), device="mps")) == ""
    halves = Machine({**PRODUCT, "dtype": "torch.bfloat16"})
    assert "bfloat16" in reason(limits(halves), replace(TIMING, baseline_ns=(3e7,) * 3))
    assert "traffic" in limits(Machine({**STREAMING, "dtype": "torch.bfloat16"})).find(TIMING, "").how
    assert "eager was not timed" in reason(limits(Machine()), replace(TIMING, baseline_ns=()))


@pytest.mark.cpu
@pytest.mark.parametrize("answer", [None, {}, {**STREAMING, "exact": -1}, RunnerLost("died", "it is gone")])
def test_work_that_cannot_be_counted_is_asked_for_once(limits, answer):
    machine = Machine(answer)
    found = limits(machine)
    assert "could not be counted" in reason(found)
    assert "could not be counted" in reason(found)
    assert (machine.counted, machine.measured) == (1, 0)


@pytest.mark.cpu
@pytest.mark.parametrize("answer", [None, {}, {**RATES, "flops": 0.0}])
def test_a_machine_that_cannot_be_measured_is_no_fault(limits, answer):
    machine = Machine(rates=answer)
    found = limits(machine)
    assert "could not be measured" in reason(found)
    assert "could not be measured" in reason(found)
    assert machine.measured == 1


@pytest.mark.toolchain
def test_a_verdict_has_a_score_against_ceilings_that_were_kept(judge, scale_relu, honest, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    facts = judge.session(scale_relu, Settings()).cases.device.platform.facts(0)
    CeilingsFile(facts, dict).keep(Ceilings(((1 << 40, 1e15),), 1e18, 2.0))
    verdict = judge.evaluate(scale_relu, honest, Settings(compile_baseline=False, timing_seconds=0.1))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    limit = verdict.timing.limit
    # Input and output of 512 x 1024 floats, and 1024 scales, at a byte in a millionth of a nanosecond.
    assert limit.ns == pytest.approx((2 * 512 * 1024 + 1024) * 4 * 1e-6 + 2.0)
    assert limit.how.startswith("traffic: 4 MiB at 1e+06 GB/s")
    # A limit of next to nothing leaves the speedup alone to decide.
    assert verdict.score == pytest.approx(verdict.speedup / (1 + verdict.speedup), rel=0.01)
    assert verdict.evidence.seconds["limit"] < PATIENCE
