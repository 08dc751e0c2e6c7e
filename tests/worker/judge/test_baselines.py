"""The processes of baselines: started side by side, once each, and ended with what they were started for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kforge.worker.judge import baselines as module
from kforge.worker.judge.baselines import Baselines
from kforge.worker.judge.runner_handle import RunnerLost

pytestmark = pytest.mark.pure

WANTED = ("eager", "tf32", "compile")


class Runner:
    """A process that nothing is asked of."""

    def __init__(self) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True


class Pool:
    """Hands out runners; `lost` of the first ones cannot be had."""

    def __init__(self, lost: int = 0) -> None:
        self.runners: list[Runner] = []
        self._lost = lost
        self._turn = threading.Lock()

    def spawn(self, limits: Any) -> Runner:
        with self._turn:
            if self._lost:
                self._lost -= 1
                raise RunnerLost("ended", "no memory")
            self.runners.append(Runner())
            return self.runners[-1]


def make_baselines(
    monkeypatch: pytest.MonkeyPatch, pool: Pool, free_bytes: int = 1 << 40, tf32: bool | None = True
) -> Baselines:
    device = SimpleNamespace(give_back_all=lambda size: None, free_bytes=lambda: free_bytes)
    reference = SimpleNamespace(state_bytes=1 << 20)
    cases: Any = SimpleNamespace(
        device=device,
        reference=reference,
        set_bytes=1 << 20,
        call_bytes=1 << 21,
        timed_state={},
        accepts_tf32=tf32,
    )
    monkeypatch.setattr(Baselines, "_load", lambda self, runner, name: None)
    made: Any = Baselines(cases, SimpleNamespace(), pool, 0.3)  # type: ignore[arg-type]
    return made


def test_each_process_is_started_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    baselines = make_baselines(monkeypatch, pool)
    threads = [threading.Thread(target=baselines.start, args=(WANTED,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pool.runners) == 4
    baselines.close()
    assert all(runner.killed for runner in pool.runners)


def test_a_baseline_without_a_time_of_its_own_has_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    make_baselines(monkeypatch, pool, tf32=None).start(WANTED)
    assert len(pool.runners) == 3


def test_one_that_fails_leaves_the_others_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(lost=1)
    baselines = make_baselines(monkeypatch, pool)
    baselines.start(WANTED)
    assert len(pool.runners) == 3
    baselines.start(WANTED)
    assert len(pool.runners) == 4


def test_nothing_is_started_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    baselines = make_baselines(monkeypatch, pool)
    baselines._ratios["tf32"] = module.BaselineTime("tf32", 1.1)
    baselines.start(WANTED)
    assert len(pool.runners) == 3
    baselines._self_deviation = 0.01
    baselines.start((*WANTED, "autotune"))
    assert len(pool.runners) == 3


def test_nothing_is_started_where_calls_would_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()
    make_baselines(monkeypatch, pool, free_bytes=1 << 30).start(WANTED)
    assert not pool.runners
