"""Controllers that are killed, and several at once: commands in processes, a model that counts, workers that wait."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra cluster is not installed: pip install 'kforge-kernels[cluster]'")

from cluster_jobs import RELU, judged
from cluster_processes import ClusterProcesses, Process

from conditions import wait_until
from kforge.cluster.address import parse_address
from kforge.cluster.inquiry import take_census
from kforge.store.store import Store

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("cluster")]

HERE = Path(__file__).parent
_RECORDING_SECONDS = 1.5
"""From the end of a model's program to its reply in the store, on a machine with much else to do."""
_EXPERIMENT = """name = "{name}"
suite = ["problems"]
only = [{only}]
platforms = ["cpu"]
confirm = false
executor = "{executor}"

[defaults]
profiling = "none"
compile_baseline = false
iterations = {iterations}

[configurations.one]
model = "{model}"
"""


class Bench:
    """Problems, a model that counts its calls, and commands that are processes."""

    def __init__(self, folder: Path, cluster: ClusterProcesses, store: str = "", calls: str = "calls") -> None:
        self._folder, self._cluster = folder, cluster
        self.store, self.calls = store or str(folder / "store"), folder / calls
        self.model = f"command:{sys.executable} {HERE / 'offline_model.py'} {self.calls}"
        self._processes: list[Process] = []
        (folder / "problems").mkdir(exist_ok=True)

    def add_problems(self, prefix: str, count: int) -> list[str]:
        names = [f"{prefix}{number}" for number in range(count)]
        for name in names:
            (self._folder / "problems" / f"{name}.py").write_text(f'{RELU}NAME = "{name}"\n')
        return names

    def experiment(self, name: str, problems: list[str], iterations: int = 2) -> Path:
        file = self._folder / f"{name}.toml"
        only = ", ".join(f'"{problem}"' for problem in problems)
        executor = f"dask:{self._cluster.url}"
        text = _EXPERIMENT.format(name=name, only=only, executor=executor, iterations=iterations, model=self.model)
        file.write_text(text)
        return file

    def start(self, *words: str) -> Process:
        process = Process(["-m", "kforge.cli.app", *words, "--store", self.store])
        self._processes.append(process)
        return process

    def start_forge(self, problem: str) -> Process:
        options = ("--executor", f"dask:{self._cluster.url}", "--model", self.model, "--iterations", "2")
        place = str(self._folder / "problems" / f"{problem}.py")
        return self.start("forge", place, *options, "--profiler", "none", "--no-compile-baseline")

    def asked(self) -> Counter[str]:
        """How often each prompt was asked."""
        return Counter(self.calls.read_text().splitlines() if self.calls.exists() else [])

    def end(self) -> None:
        for process in self._processes:
            process.end()

    def check_store(self, runs: int, attempts: int) -> None:
        """Every attempt is there once, in order, and every reply that was paid for is accounted for."""
        with Store.open(self.store) as store:
            summaries = [summary for summary in store.runs() if self.model in store.run(summary.id).spec.models]
            assert len(summaries) == runs
            for summary in summaries:
                history = store.history(summary.id)
                assert [attempt.move.step for attempt in history] == list(range(1, attempts + 1)), summary
                for attempt in history:
                    assert attempt.candidate is not None
                    assert attempt.verdict.evidence is not None
                    assert attempt.verdict.evidence.candidate == attempt.candidate, "a verdict on another program"
                    assert attempt.verdict.evidence.problem == store.run(summary.id).spec.problem
            spent = sum(store.spent(summary.id).requests for summary in summaries)
            assert sum(self.asked().values()) == spent, "what was paid for is what was asked"
        assert set(self.asked().values()) == {1}, "no question was asked twice"


@pytest.fixture
def bench(cluster: ClusterProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path, cluster)
    yield bench
    bench.end()


def hold(folder: Path, *words: str) -> Path:
    """A folder that keeps programs in hand whose first line ends with one of these words."""
    folder.mkdir()
    for word in words:
        (folder / word).touch()
    return folder


def wait_for_programs(log: Path, word: str, count: int, controller: Process) -> None:
    """Until so many programs that end with a word are in hand."""

    def there() -> bool:
        assert controller.process.poll() is None, controller.lines
        return sum(line.split()[-1] == word for line in set(judged(log))) == count

    wait_until(there, f"{count} programs {word} in hand: {controller.lines}")


def test_a_command_that_waits_for_a_worker_says_so(bench: Bench, cluster: ClusterProcesses) -> None:
    (problem,) = bench.add_problems("p", 1)
    forge, experiment = bench.start_forge(problem), bench.start("bench", str(bench.experiment("waits", [problem])))
    for process in (forge, experiment):
        process.wait_for_line(
            "waiting: no worker judges for cpu; there are: none. Start one: kforge worker --scheduler"
        )
    cluster.add_worker()
    assert forge.wait() == 0, forge.lines
    assert experiment.wait() == 0, experiment.lines


def test_a_bench_that_is_killed_goes_on_with_the_same_command(
    bench: Bench, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    log, held = tmp_path / "log", hold(tmp_path / "hold", "first", "later")
    cluster.add_worker("--slots", "4", "--model", "elsewhere", "--log", str(log), "--hold", str(held))
    file = bench.experiment("killed", bench.add_problems("p", 4))
    for word in ("first", "later"):
        controller = bench.start("bench", str(file), "--parallel", "4")
        if word == "later":
            (held / "first").unlink()
        wait_for_programs(log, word, 4, controller)
        controller.signal(signal.SIGKILL)
        controller.wait()
    (held / "later").unlink()
    last = bench.start("bench", str(file), "--parallel", "4")
    assert last.wait() == 0, last.lines
    bench.check_store(runs=4, attempts=2)


@pytest.mark.slow
def test_a_bench_may_be_killed_at_any_moment(bench: Bench, cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Only what a model was being asked just then is asked once more."""
    log, chance = tmp_path / "log", random.Random(1)
    cluster.add_worker("--slots", "4", "--seconds", "0.3", "--model", "elsewhere", "--log", str(log))
    file = bench.experiment("killed", bench.add_problems("p", 8), iterations=3)
    killed: list[float] = []
    for _ in range(3):
        begun = len(judged(log))
        controller = bench.start("bench", str(file), "--parallel", "4")
        wait_until(lambda begun=begun: len(judged(log)) > begun, "a program is in hand")
        time.sleep(chance.uniform(0, 1.0))
        controller.signal(signal.SIGKILL)
        killed.append(time.time())
        controller.wait()
    last = bench.start("bench", str(file), "--parallel", "4")
    assert last.wait() == 0, last.lines
    with Store.open(bench.store) as store:
        histories = [store.history(summary.id) for summary in store.runs()]
    assert [[attempt.move.step for attempt in history] for history in histories] == [[1, 2, 3]] * 8
    answers = [line.rsplit(" ", 1) for line in bench.calls.with_suffix(".answered").read_text().splitlines()]
    for prompt, count in bench.asked().items():
        if count > 1:
            first = next((float(when) for each, when in answers if each == prompt), 0.0)
            assert any(abs(first - when) < _RECORDING_SECONDS for when in killed), f"asked {count} times: {prompt}"


def test_a_forge_that_is_killed_is_resumed(bench: Bench, cluster: ClusterProcesses, tmp_path: Path) -> None:
    log, held = tmp_path / "log", hold(tmp_path / "hold", "later")
    cluster.add_worker("--model", "elsewhere", "--log", str(log), "--hold", str(held))
    bench.add_problems("p", 1)
    forge = bench.start_forge("p0")
    wait_for_programs(log, "later", 1, forge)
    forge.signal(signal.SIGKILL)
    forge.wait()
    (held / "later").unlink()
    resumed = bench.start("resume", "last")
    assert resumed.wait() == 0, resumed.lines
    bench.check_store(runs=1, attempts=2)


def test_three_controllers_share_one_postgresql_store_and_one_cluster(
    cluster: ClusterProcesses, tmp_path: Path, database: str
) -> None:
    log, held = tmp_path / "log", hold(tmp_path / "hold", "first")
    options = ("--slots", "4", "--seconds", "0.4", "--model", "elsewhere")
    cluster.add_worker(*options, "--log", str(log), "--hold", str(held))
    mine, yours, third = (Bench(tmp_path, cluster, database, name) for name in ("mine", "yours", "third"))
    problems = mine.add_problems("p", 16)
    third.add_problems("solo", 1)
    address = parse_address(cluster.url)

    def asking() -> int:
        """How many controllers' jobs are with the scheduler."""
        return len(take_census(address, fresh=True).controllers)

    try:
        benches = [
            each.start("bench", str(each.experiment(name, problems)), "--parallel", "16")
            for each, name in ((mine, "mine"), (yours, "yours"))
        ]
        wait_until(lambda: asking() == 2, "both experiments ask")
        forge = third.start_forge("solo0")
        wait_until(lambda: asking() == 3, "the forge asks")
        (held / "first").unlink()
        for process in (forge, *benches):
            assert process.wait() == 0, process.lines
    finally:
        for each in (mine, yours, third):
            each.end()
    mine.check_store(runs=16, attempts=2)
    yours.check_store(runs=16, attempts=2)
    third.check_store(runs=1, attempts=2)
    programs = judged(log)
    waited = programs.index("# solo0 later") / len(programs)
    assert waited < 0.7, f"a single forge had its reports after {waited:.0%} of everything: {programs}"
    assert len(programs) <= 66, (
        "equal jobs that are with the scheduler at once are judged once, none more than asked for"
    )
