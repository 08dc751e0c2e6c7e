"""Experiments while a cluster comes and goes: their cells wait, and take what is there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import RELU, drive
from cluster_processes import ClusterProcesses

from conditions import wait_until
from kforge.experiments.progress import News
from kforge.experiments.resume_plan import begin
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.models.scripted import Scripted
from kforge.run.model_pool import ModelAccess
from kforge.store.experiments import CellState
from kforge.store.store import Store
from kforge.types import Cell, Configuration, Experiment, Problem, Prompt

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for so because it was a moment ago."""
    monkeypatch.setattr("kforge.cluster.inquiry._KEPT_SECONDS", 0.0)
    monkeypatch.setattr("kforge.experiments.scheduler._LOOK_SECONDS", 0.2)


def experiment_of(count: int, cluster: ClusterProcesses) -> Experiment:
    problems = {
        f"level1/p{number}": Problem(f"p{number}", f'{RELU}NAME = "p{number}"\n', level=1, number=number)
        for number in range(count)
    }
    way = Configuration("scripted", ("scripted:a",), {"iterations": 1, "profiling": "none"})
    return Experiment("e", problems, (way,), executor=f"dask:{cluster.url}", confirm=False)


async def worked_on(
    experiment: Experiment, store: Store, model: Scripted, parallel: int = 0, in_hand: set[Cell] | None = None
) -> dict[str, CellState]:
    """The cells' states at the end; meanwhile the set has those that are in hand."""
    cells = set() if in_hand is None else in_hand

    def tell(news: News) -> None:
        (cells.discard if news.end else cells.add)(news.cell)

    access = ModelAccess(models={"scripted:a": model})
    return await conduct(begin(experiment, store), ExperimentEnvironment(store, access, parallel, tell))


def program(number: int = 0) -> str:
    return f"```python\n# program {number} held\nclass ModelNew: ...\n```"


def test_cells_that_begin_while_the_scheduler_is_gone_wait_for_it(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cluster.add_worker()
    numbers = itertools.count()
    restart = threading.Timer(3, cluster.start_scheduler)

    def reply(_: Prompt) -> str:
        number = next(numbers)
        if number == 1:
            cluster.kill_scheduler()
            restart.start()
            # Its cell ends without the device, and the next one begins at once.
            return "no program"
        return program(number)

    with Store.open(str(tmp_path / "store")) as store:
        states = drive(worked_on(experiment_of(4, cluster), store, Scripted(reply, name="scripted:a"), parallel=1))
    restart.join()
    assert [(state.state, state.failure) for state in states.values()] == [("finished", "")] * 4


def test_an_experiment_that_is_there_before_its_workers_waits_for_them_and_takes_all_of_them(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    held, in_hand = tmp_path / "hold", set[Cell]()
    held.mkdir()
    (held / "held").touch()
    model = Scripted(lambda _: program(), name="scripted:a")

    async def work(store: Store) -> dict[str, CellState]:
        working = asyncio.create_task(worked_on(experiment_of(20, cluster), store, model, in_hand=in_hand))
        await asyncio.to_thread(wait_until, lambda: len(in_hand) == 8, "as many as usual")
        assert not model.asked, "nothing is known of the machine that a prompt speaks of"
        await asyncio.to_thread(cluster.add_worker, "--slots", "10", "--hold", str(held))
        await asyncio.to_thread(wait_until, lambda: len(in_hand) == 20, "two for each place")
        (held / "held").unlink()
        return await working

    with Store.open(str(tmp_path / "store")) as store:
        states = drive(work(store))
    assert all(state.finished for state in states.values())
    assert len(model.asked) == 20
    assert not any("has not been described" in str(prompt) for prompt in model.asked)
