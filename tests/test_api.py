"""The Python face at work: progress, experiments and rows, problems by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kforge
import makers
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted

pytestmark = pytest.mark.cpu

PROGRAM = (
    "```python\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n```"
)


def model() -> Scripted:
    return Scripted(lambda _: PROGRAM, name="scripted:a")


@pytest.fixture
def environment(tmp_path: Path) -> kforge.RunEnvironment:
    access = kforge.ModelAccess(models={"scripted:a": model()})
    executor = NullExecutor(lambda _: makers.verdict(1.5))
    return kforge.RunEnvironment(str(tmp_path / "store"), access, executor=executor)


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_where_it_is_wanted(
    progress: bool, environment: kforge.RunEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    kforge.forge("bundled:level1/1", "cpu", "scripted:a", environment, progress=progress, iterations=1)
    shown = capsys.readouterr()
    assert ("1_gelu" in shown.err) == progress
    assert shown.out == ""


def test_events_still_reach_the_caller_who_has_progress_shown(tmp_path: Path) -> None:
    events: list[kforge.RunEvent] = []
    access = kforge.ModelAccess(models={"scripted:a": model()})
    executor = NullExecutor(lambda _: makers.verdict(1.5))
    where = kforge.RunEnvironment(str(tmp_path / "store"), access, events.append, executor=executor)
    kforge.forge("bundled:level1/1", "cpu", "scripted:a", where, progress=True, iterations=1)
    assert any(event.attempt is not None for event in events)


def test_an_experiment_from_a_file_becomes_rows(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'suite = "bundled"\nlevels = [1]\nlimit = 2\nmodels = ["scripted:a"]\n'
        '[defaults]\niterations = 1\nprofiling = "none"\n'
    )
    asked = model()
    options: dict[str, Any] = {
        "access": kforge.ModelAccess(models={"scripted:a": asked}),
        "executor": NullExecutor(lambda _: makers.verdict(1.5)),
    }
    study = kforge.bench(file, str(tmp_path / "store"), **options)
    rows = kforge.rows(study)
    assert [row["problem"] for row in rows] == ["level1/1_gelu", "level1/2_softmax"]
    assert {(row["state"], row["outcome"], row["speedup"]) for row in rows} == {("finished", "correct", 1.5)}
    count = len(asked.asked)
    assert kforge.rows(kforge.bench(file, str(tmp_path / "store"), **options)) == rows
    assert len(asked.asked) == count, "the same call goes on, and nothing is left to do"


@pytest.mark.toolchain
def test_a_bundled_problem_is_judged_by_its_name() -> None:
    kernel = Path(__file__).parents[1] / "examples/kernels/cpu/level2_3_rms_norm_silu_gate.py"
    settings: dict[str, Any] = {"timing_seconds": 0.0, "seeds": 1, "compile_baseline": False}
    verdict = kforge.evaluate("bundled:level2/3", kernel, **settings)
    assert verdict.outcome is kforge.Outcome.CORRECT
    with pytest.raises(kforge.errors.UsageError, match="no bundled problem is called 'level9/9'"):
        kforge.evaluate("bundled:level9/9", kernel)
