"""`kforge bench`, `kforge report`, `kforge compare`: what a user types, and what comes of it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kforge.problems.selection import Selection
from kforge.spec.experiment_options import ExperimentOptions
from kforge.store.experiments import Experiments
from kforge.store.store import Store

HERE = Path(__file__).parents[1]
PROBLEM = HERE / "catalogue" / "problems" / "scale_relu.py"
HONEST = HERE / "catalogue" / "benign" / "example_style.py"

EXPERIMENT = """
name = "two ways"
suite = ["{problem}"]
[defaults]
profiling = "none"
compile_baseline = false
timing_seconds = 0.1
[configurations.right]
model = "command:cat {right}"
iterations = 1
[configurations.wrong]
model = "command:cat {wrong}"
iterations = 1
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """One model that knows the answer, and one that has none."""
    (tmp_path / "right.txt").write_text(f"```python\n{HONEST.read_text()}```\n")
    (tmp_path / "wrong.txt").write_text("I would rather not.\n")
    file = tmp_path / "two_ways.toml"
    words = {"problem": PROBLEM, "right": tmp_path / "right.txt", "wrong": tmp_path / "wrong.txt"}
    file.write_text(EXPERIMENT.format(**words))
    return file


@pytest.mark.toolchain
class TestCommands:
    def test_an_experiment_its_report_and_its_comparison(
        self, kforge_warm: Callable[..., Any], experiment: Path, tmp_path: Path
    ) -> None:
        store, page = tmp_path / "store", tmp_path / "report.html"
        done = kforge_warm("bench", experiment, "--store", store, "--html", page)
        assert done.returncode == 0, done.stderr
        assert "1 problem x 1 platform x 2 configurations = 2 cells" in done.stdout
        assert "generation_failure" in done.stdout
        assert page.read_text().startswith("<!DOCTYPE html>")

        again = kforge_warm("bench", experiment, "--store", store, "--json")
        assert again.returncode == 0
        assert "2 finished before" in again.stderr
        right, wrong = json.loads(again.stdout)["summaries"]
        assert (right["correct"]["value"], wrong["correct"]["value"]) == (1.0, 0.0)

        files = {kind: tmp_path / f"r.{kind}" for kind in ("html", "md", "csv")}
        options = ("--html", files["html"], "--markdown", files["md"], "--csv", files["csv"])
        assert kforge_warm("report", "two ways", "--store", store, *options).returncode == 0
        assert "| right |" in files["md"].read_text()
        rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
        assert [row["outcome"] for row in rows] == ["correct", "generation_failure"]

        printed = kforge_warm("report", "last", "--store", store)
        assert "## Problems" in printed.stdout

        compared = kforge_warm("compare", "two ways:right", "two ways:wrong", "--store", store)
        assert compared.returncode == 0
        assert "no difference shown" in compared.stdout.lower() or "too few" in compared.stdout.lower()
        assert kforge_warm("compare", "two ways", "--store", store, "--json").returncode == 0
        single = kforge_warm("compare", "two ways:right@1", "two ways:right", "--store", store)
        assert "right after 1 program" in single.stdout
        none = kforge_warm("compare", "two ways@0", "--store", store)
        assert none.returncode == 2
        assert "counted from 1, as in two ways@1" in none.stderr

    def test_a_run_of_the_loop_can_be_reported_too(
        self, kforge_warm: Callable[..., Any], experiment: Path, tmp_path: Path
    ) -> None:
        store = tmp_path / "store"
        model = f"command:cat {tmp_path / 'right.txt'}"
        options = ("--iterations", 1, "--profiler", "none", "--no-compile-baseline")
        assert kforge_warm("forge", PROBLEM, "--model", model, "--store", store, *options).returncode == 0
        assert "scale_relu" in kforge_warm("report", "last", "--store", store).stdout

    def test_interrupted_it_says_how_to_go_on_and_goes_on(self, experiment: Path, tmp_path: Path) -> None:
        """Ctrl-C while a model thinks."""
        slow = tmp_path / "slow.sh"
        slow.write_text(f"if [ -e {tmp_path}/awake ]; then cat {tmp_path}/wrong.txt; else sleep 60; fi\n")
        text = experiment.read_text().replace(f"command:cat {tmp_path / 'wrong.txt'}", f"command:sh {slow}")
        experiment.write_text(text.replace("right.txt", "wrong.txt"))
        command = [sys.executable, "-m", "kforge.cli.app", "bench", str(experiment), "--store", str(tmp_path / "store")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        seen = ""
        while "1/2" not in seen:
            line = process.stdout.readline()
            assert line, seen
            seen += line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 130, seen + rest
        assert f"Go on with: kforge bench {experiment}" in rest
        (tmp_path / "awake").touch()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 finished before" in done.stdout
        assert "2/2" in done.stdout

    def test_killed_it_loses_nothing(self, experiment: Path, tmp_path: Path) -> None:
        """kill -9 when the first run is there: what was in hand is resumed."""
        experiment.write_text(experiment.read_text().replace("right.txt", "wrong.txt"))
        command = [sys.executable, "-m", "kforge.cli.app", "bench", str(experiment), "--store", str(tmp_path / "store")]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not self.runs(tmp_path):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = self.runs(tmp_path)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        after = self.runs(tmp_path)
        assert set(before) <= set(after)
        # A run that was killed before its cell knew of it stays behind, empty.
        assert len([name for name, attempts in after.items() if attempts]) == 2

    @staticmethod
    def runs(folder: Path) -> dict[str, int]:
        """Run -> how many attempts it has."""
        store = Store.open_if_there(folder / "store")
        if store is None:
            return {}
        with store:
            return {item.id: item.attempts for item in store.runs()}


def bundled(**options: Any) -> ExperimentOptions:
    return ExperimentOptions(("bundled",), choice=Selection(limit=2), **options)


@pytest.mark.pure
class TestMistakes:
    def test_a_file_and_options_that_say_the_same(self, kforge_here: Callable[..., Any], experiment: Path) -> None:
        done = kforge_here("bench", experiment, "--levels", "1", "--model", "builtin", "--iterations", 3)
        assert done.returncode == 2
        assert "--levels, --model, --iterations would say it twice" in done.stderr

    def test_neither_a_file_nor_a_suite(self, kforge_here: Callable[..., Any]) -> None:
        assert "kforge bench --suite bundled" in kforge_here("bench").stderr

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("--levels", "one"), "--levels one: whole numbers"),
            (("--set", "temperature"), "--set temperature: write NAME=VALUE"),
            (("--set", "temprature=1"), "did you mean temperature?"),
            (("--platform", "cdua"), "no platform is called 'cdua'"),
            (("--preset", "itrative"), "did you mean iterative"),
        ],
    )
    def test_what_is_typed_wrong(self, kforge_here: Callable[..., Any], words: tuple[str, ...], said: str) -> None:
        done = kforge_here("bench", "--suite", "bundled", *words)
        assert done.returncode == 2
        assert said in done.stderr

    def test_a_small_try_of_a_file_is_an_experiment_of_its_own(
        self, kforge_here: Callable[..., Any], tmp_path: Path
    ) -> None:
        file = tmp_path / "mine.toml"
        file.write_text('suite = "bundled"\n')
        said = kforge_here("bench", file, "--limit", 2, "--dry-run", "--store", tmp_path / "store").stdout
        assert "mine, 2 problems" in said
        assert "a new experiment would begin" in said

    def test_what_would_go_on_is_said(self, kforge_here: Callable[..., Any], tmp_path: Path) -> None:
        from kforge.cli.bench_spec import experiment_of

        with Store.open(tmp_path / "store") as store:
            made = Experiments(store).create(experiment_of(bundled()))
        said = kforge_here("bench", "--suite", "bundled", "--limit", 2, "--dry-run", "--store", tmp_path / "store")
        assert f"{made} would go on: 0 cells finished before" in said.stdout
        listed = kforge_here("bench", "--list", "--store", tmp_path / "store").stdout
        assert made in listed
        assert "0/2" in listed

    def test_a_suite_in_place_of_a_file(self, kforge_here: Callable[..., Any]) -> None:
        assert "kforge bench --suite bundled" in kforge_here("bench", "bundled").stderr

    def test_a_configuration_alone_is_told_how_it_is_named(
        self, kforge_here: Callable[..., Any], tmp_path: Path
    ) -> None:
        from kforge.cli.bench_spec import experiment_of

        with Store.open(tmp_path / "store") as store:
            Experiments(store).create(experiment_of(bundled(name="mine")))
        done = kforge_here("compare", "iterative", "other", "--store", tmp_path / "store")
        assert "write mine:iterative, or last:iterative" in done.stderr
        done = kforge_here("compare", "mine:iterative", "--store", tmp_path / "store")
        assert "mine:iterative is one side: name the other one too" in done.stderr

    def test_nothing_of_that_name(self, kforge_here: Callable[..., Any], tmp_path: Path) -> None:
        for command in (("report", "nobody"), ("compare", "nobody", "somebody")):
            done = kforge_here(*command, "--store", tmp_path / "store")
            assert done.returncode == 2
            assert "no experiment and no run is called 'nobody'" in done.stderr

    def test_presets_and_what_would_be_done(self, kforge_here: Callable[..., Any], tmp_path: Path) -> None:
        assert "profiling-ablation" in kforge_here("bench", "--presets").stdout
        said = kforge_here("bench", "--suite", "bundled", "--limit", 3, "--dry-run", "--store", tmp_path / "s").stdout
        assert "3 problems x 1 platform x 1 configuration = 3 cells" in said
        assert not (tmp_path / "s").exists()

    def test_the_same_options_have_the_same_name_and_others_another(self) -> None:
        from kforge.cli.bench_spec import experiment_of

        one = experiment_of(bundled())
        assert experiment_of(bundled()) == one
        assert experiment_of(bundled(defaults={"iterations": 2})).name != one.name
        assert experiment_of(bundled(name="mine")).name == "mine"


@pytest.mark.pure
def test_the_record_of_a_command_says_nothing_of_where_things_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    from kforge.cli import bench

    words = ["bench", "e.toml", "--store", "postgresql://me:secret@host/db", "--fresh", "--html=r.html", "--limit", "3"]
    monkeypatch.setattr(sys, "argv", ["kforge", *words])
    assert bench._typed_command() == "kforge bench e.toml --fresh --limit 3"
    assert bench._resume_command() == "kforge bench e.toml --store URL --html=r.html --limit 3"


@pytest.mark.pure
def test_a_configuration_whose_name_has_a_colon_is_found(tmp_path: Path) -> None:
    from kforge.cli import compare
    from kforge.types import Configuration, Experiment, Problem

    problem = Problem("p", PROBLEM.read_text())
    configurations = tuple(Configuration(f"text · openai:{name}", (f"openai:{name}",)) for name in ("a", "b"))
    with Store.open(tmp_path / "store") as store:
        Experiments(store).create(Experiment("mine: first", {"p": problem}, configurations))
        side = compare._side(store, "mine: first:text · openai:b", "")
        assert list(side.groups) == [("cpu", "text · openai:b")]
        side = compare._side(store, "mine: first:text · openai:b@3", "")
        assert list(side.groups) == [("cpu", "text · openai:b after 3 programs")]
