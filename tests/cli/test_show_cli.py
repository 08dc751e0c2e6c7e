"""What `kforge runs`, `show` and `export` say of runs that are in the store, and how it fits a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import makers
from kforge.cli import runs
from kforge.cli.live import LiveRuns
from kforge.cli.screen import Screen
from kforge.experiments.cells import cells_by_fingerprint
from kforge.run.context import RunEvent
from kforge.run.result import RunResult
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import Attempt, Configuration, Experiment, Outcome, Plan, Problem, RunSpec, Stop, Usage, Verdict

pytestmark = pytest.mark.pure
PROBLEM = Problem("14_conv_batch_norm_hardswish", "class Model: pass\n" * 300)


def measured(speedup: float, low: float, high: float) -> Verdict:
    found = makers.verdict(speedup, detail=f"9 checked calls agree; {speedup:.2f}x against eager ({low} to {high})")
    assert found.timing is not None
    return replace(found, timing=replace(found.timing, interval=(low, high)))


def attempts(*verdicts: Verdict) -> list[Attempt]:
    made = [replace(makers.attempt(step, 1.0), verdict=verdict) for step, verdict in enumerate(verdicts, 1)]
    return [replace(item, model="m", seconds={"model": 12.3, "judge": 74.5}) for item in made]


def put(place: Path, *verdicts: Verdict, samples: int = 1) -> str:
    """A finished run with these verdicts; its name."""
    with Store.open(str(place)) as store:
        run = store.create_run(RunSpec(PROBLEM, plan=Plan(samples=samples), models=("openai:gpt-5", "mailbox:mail")))
        for item in attempts(*verdicts):
            store.add_attempt(run, item)
        store.set_state(run, "finished", "5 of 5 programs were tried")
    return run


def confirm(place: Path, run: str, verdict: Verdict, name: str = "mine") -> None:
    """Make the run a cell of an experiment in which its winner was judged once more."""
    experiment = Experiment(name, {"p": PROBLEM}, (Configuration("c"),))
    (cell,) = cells_by_fingerprint(experiment)
    with Store.open(str(place)) as store:
        Experiments(store).create(experiment, (), {cell: CellState(run, "finished", confirmation=verdict)})


LUCKY, BEST, SLOW = measured(1.84, 0.95, 2.60), measured(1.66, 1.43, 1.90), measured(0.46, 0.44, 0.49)


def test_the_best_stands_with_its_interval_and_the_reason_why_it_is_the_best(
    kforge_here: Callable[..., Any], tmp_path: Path
) -> None:
    run = put(tmp_path, LUCKY, BEST)
    lines = kforge_here("show", run, "--store", tmp_path).stdout.splitlines()
    first, best = (next(line for line in lines if figure in line) for figure in ("1.84x (", "1.66x (1.43 to 1.90)"))
    assert "(0.95 to 2.60)" in first
    assert best.endswith("best")
    assert "best: step 2, since the lower end of its interval, 1.43x, is the highest" in "\n".join(lines)
    data = json.loads(kforge_here("show", run, "--store", tmp_path, "--json").stdout)
    assert [item["interval"] for item in data["attempts"]] == [[0.95, 2.60], [1.43, 1.90]]
    # One program was not chosen among others.
    assert "best: step" not in kforge_here("show", put(tmp_path, BEST), "--store", tmp_path).stdout


def test_a_run_of_an_experiment_shows_its_confirmation(kforge_here: Callable[..., Any], tmp_path: Path) -> None:
    run = put(tmp_path, LUCKY, BEST)
    assert "confirmation" not in kforge_here("show", run, "--store", tmp_path).stdout
    confirm(tmp_path, run, measured(1.21, 1.15, 1.27))
    shown = kforge_here("show", run, "--store", tmp_path).stdout
    assert "confirmation: 9 checked calls agree; 1.21x against eager (1.15 to 1.27)" in shown
    assert "the figure that reports and comparisons of mine use" in shown
    assert "judged once more, the two do not agree" in shown
    confirmation = json.loads(kforge_here("show", run, "--store", tmp_path, "--json").stdout)["confirmation"]
    assert (confirmation["experiment"], confirmation["speedup"], confirmation["against_eager"]) == (
        "mine",
        1.21,
        "faster",
    )
    confirm(tmp_path, run, makers.verdict(outcome=Outcome.MISMATCH, detail="3 elements are wrong"), "later")
    shown = kforge_here("show", run, "--store", tmp_path).stdout
    assert "confirmation: mismatch: 3 elements are wrong" in shown


@pytest.mark.parametrize(
    ("verdict", "said", "field"),
    [
        (SLOW, "slower than eager (0.46x, 0.44 to 0.49): keep yours", "slower"),
        (LUCKY, "not surely faster than eager (1.84x, 0.95 to 2.60)", "not surely faster"),
        (BEST, "", "faster"),
        (makers.verdict(None), "", None),
        (replace(makers.verdict(None), emulated=True), "", None),
    ],
)
def test_a_program_that_is_not_surely_faster_is_never_handed_over_without_a_word(
    kforge_here: Callable[..., Any], tmp_path: Path, verdict: Verdict, said: str, field: str | None
) -> None:
    run = put(tmp_path, verdict)
    shown = kforge_here("show", run, "--store", tmp_path)
    exported = kforge_here("export", run, "--store", tmp_path, "--to", tmp_path / "kernel.py")
    head = (tmp_path / "kernel.py").read_text().split("import torch", 1)[0]
    assert (shown.returncode, exported.returncode) == (0, 0)
    for text in (shown.stdout, exported.stdout, head):
        assert said in text
        assert bool(said) == ("than eager" in text)
    assert json.loads(kforge_here("show", run, "--store", tmp_path, "--json").stdout)["against_eager"] == field


# -- at 80 columns -----------------------------------------------------------------------------------------------------


def terminal(width: int = 80) -> Screen:
    return Screen(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)


def text_of(console: Screen) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_a_run_came_to_is_broken_between_words() -> None:
    console = terminal()
    request = RunSpec(PROBLEM)
    result = RunResult("run", request, tuple(attempts(SLOW)), (Stop("iterations", "2 of 2 programs were tried"),))
    runs.print_summary(console, result)
    lines = text_of(console).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "slower than eager (0.46x, 0.44 to 0.49): keep yours" in lines
    assert "2 of 2 programs were tried" in " ".join(line.strip() for line in lines)


@pytest.mark.parametrize(("width", "names"), [(80, ["run", "platform", "state", "tried"]), (200, ["cost", "models"])])
def test_a_table_of_runs_has_whole_cells_at_any_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, names: list[str]
) -> None:
    run = put(tmp_path, BEST)
    console = terminal(width)
    monkeypatch.setattr(runs, "Screen", lambda: console)
    assert runs.list_runs(str(tmp_path), 20, as_json=False) == 0
    head, line = text_of(console).splitlines()
    assert run in line
    assert "…" not in line + head
    assert set(names) <= set(head.split())
    assert len(line.rstrip()) <= width


def test_a_pipe_gets_every_column_of_the_table_of_runs(kforge_here: Callable[..., Any], tmp_path: Path) -> None:
    run = put(tmp_path, BEST)
    head, line = kforge_here("runs", "--store", tmp_path).stdout.splitlines()
    assert run in line
    assert head.split() == ["run", "platform", "state", "tried", "speedup", "cost", "models"]


def test_runs_as_they_happen_keep_their_figures_and_chains_at_80_columns() -> None:
    console = terminal()
    live = LiveRuns(console)
    rows = live.add(PROBLEM.name, 5, samples=2)
    for chain in (0, 1):
        made = replace(makers.attempt(1, 12.345, chain=chain), usage=Usage(3, 100, 100, 0.1234, 1))
        live.take(rows, RunEvent(chain, 1, "correct", made))
        live.take(rows, RunEvent(chain, 2, "waiting for a reply", awaits=f"/far/{'away/' * 20}{chain}.reply.md"))
    console.print(live)
    lines = text_of(console).splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines)
    for chain, line in enumerate(lines[1:3]):
        assert f"#{chain + 1} waiting for a reply" in line
        assert line.split()[-6:] == ["2/5", "12.35x", "9.88x", "0", "s", "$0.1234+?"]
    assert [line.rstrip()[-14:] for line in lines[3:]] == ["away/0.reply.md"[-14:], "away/1.reply.md"[-14:]]


def test_where_nobody_watches_the_whole_path_is_printed() -> None:
    console = Screen(file=io.StringIO(), width=80)
    live = LiveRuns(console)
    path = f"/far/{'away/' * 20}0.reply.md"
    live.take(live.add("p", 5), RunEvent(0, 2, "waiting for a reply", awaits=path))
    assert text_of(console) == f"p: waiting for {path}\n"
