"""Every way a program can go wrong: the right outcome, a sentence that says so, and the judge unharmed."""

from __future__ import annotations

import gc
import os
import time
import warnings

import pytest

from conditions import PATIENCE
from faults import FAULTS, LEFT_ASLEEP, program
from kforge import Candidate, Outcome, Settings
from kforge.types import Limits
from kforge.worker.sandbox import levels
from kforge.worker.wire import Channel

pytestmark = [pytest.mark.toolchain, pytest.mark.sandbox]

LIMITS = Limits(build_seconds=60, call_seconds=30)
"""Patient with a busy machine: these faults end by themselves."""
SHORT = Limits(build_seconds=3, call_seconds=1)


@pytest.fixture(autouse=True)
def key_in_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-kforge-secret-0123")


def others():
    """Processes of runners that are still there."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    text = file.read()
                with open(f"/proc/{entry}/stat", "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if state != b"Z" and b"sleep\x00" + LEFT_ASLEEP.encode() in text:
                found.append(int(entry))
    return found


def run(judge, scale_relu, fault, level):
    limits = SHORT if fault.endless else LIMITS
    settings = Settings(compile_baseline=False, timing_seconds=0.02, sandbox=level, limits=limits)
    verdict = judge.evaluate(scale_relu, Candidate(fault.source), settings)
    if fault.outcome != "any":
        assert verdict.outcome.value == fault.outcome, verdict.detail
    assert fault.says in verdict.detail
    assert verdict.detail.strip()
    assert "sk-kforge-secret" not in verdict.detail
    check = Settings(compile_baseline=False, timing_seconds=0, seeds=1, sandbox=level)
    began = time.monotonic()
    after = judge.evaluate(scale_relu, Candidate(program()), check)
    assert after.outcome is Outcome.CORRECT, f"the next evaluation: {after.detail}"
    assert time.monotonic() - began < PATIENCE
    assert others() == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(judge, scale_relu, fault):
    if levels.choose("auto") == "process" and not fault.everywhere:
        pytest.skip("needs a sandbox: only the plain process level exists here")
    run(judge, scale_relu, fault, "auto")


WEAKER = ("nothing_wrong", "segfault", "endless_loop_in_c", "leaves_a_daemon", "exits_at_import", "closes_descriptors")


@pytest.mark.parametrize("level", ["unshare", "process"])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in WEAKER], ids=lambda fault: fault.name)
def test_fault_at_a_weaker_level(judge, scale_relu, fault, level):
    if levels.unavailable_reason(level):
        pytest.skip(levels.unavailable_reason(level))
    run(judge, scale_relu, fault, level)


def test_a_dead_zygote_is_replaced(judge, scale_relu):
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
    good = Candidate(program())
    assert judge.evaluate(scale_relu, good, settings).outcome is Outcome.CORRECT
    runner_pool = judge._runner_pools[levels.choose("auto")]
    runner_pool._process.kill()
    runner_pool._process.wait()
    assert judge.evaluate(scale_relu, good, settings).outcome is Outcome.CORRECT


def test_a_zygote_that_no_longer_listens_is_replaced_and_nothing_stays_open(judge, scale_relu):
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
    assert judge.evaluate(scale_relu, Candidate(program()), settings).outcome is Outcome.CORRECT
    runner_pool = judge._runner_pools[levels.choose("auto")]
    deaf, other = Channel.pair()
    other.close()
    runner_pool._channel.close()
    runner_pool._channel = deaf
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert judge.evaluate(scale_relu, Candidate(program()), settings).outcome is Outcome.CORRECT
        gc.collect()
    assert [item for item in caught if "socket" in str(item.message)] == []


def test_memory_limit_is_for_all_processes_together(judge, scale_relu):
    hungry = program(init="kept = bytearray(300 << 20)\nfor i in range(0, len(kept), 4096): kept[i] = 1\ntime.sleep(1)")
    settings = Settings(
        compile_baseline=False,
        timing_seconds=0,
        seeds=1,
        limits=Limits(build_seconds=20, memory_bytes=200 << 20),
    )
    verdict = judge.evaluate(scale_relu, Candidate(hungry), settings)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "memory" in verdict.detail.lower()


def test_what_a_runner_sees(judge, scale_relu, tmp_path):
    """No home, no other process, no staged code but its own part, nothing writable but its own folder."""
    if levels.choose("auto") == "process":
        pytest.skip("needs a sandbox: only the plain process level exists here")
    secret = tmp_path / "secret.txt"
    secret.write_text("for nobody")
    look = f"""
import importlib.util, pathlib
seen = []
if pathlib.Path({str(secret)!r}).exists(): seen.append("a file of the user")
if importlib.util.find_spec(".".join(["kforge", "worker", "judge"])): seen.append("the judge's code")
if importlib.util.find_spec("kforge.cli"): seen.append("the command line")
if len([p for p in os.listdir("/proc") if p.isdigit()]) > 3: seen.append("other processes")
if os.access(torch.__file__, os.W_OK): seen.append("torch, writable")
if any("KEY" in name or "SSH" in name for name in os.environ): seen.append("the environment")
if seen: raise RuntimeError("sees " + ", ".join(seen))
"""
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
    verdict = judge.evaluate(scale_relu, Candidate(program(init=look)), settings)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


def test_nothing_is_left_for_the_next_candidate(judge, scale_relu):
    settings = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
    marks = "for place in ('/tmp/mark', '/dev/shm/mark', os.path.expanduser('~/mark')):\n    {}"
    leave = program(init=marks.format("open(place, 'w').write('x')"))
    find = program(init=marks.format("if os.path.exists(place): raise RuntimeError('found ' + place)"))
    judge.evaluate(scale_relu, Candidate(leave), settings)
    verdict = judge.evaluate(scale_relu, Candidate(find), settings)
    if levels.choose("auto") != "process":
        assert verdict.outcome is Outcome.CORRECT, verdict.detail
