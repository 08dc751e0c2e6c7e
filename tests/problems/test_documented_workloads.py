"""The problem with workloads that docs/problems.md shows, and which size wins where several are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kforge.types import Problem, Settings

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def documented() -> Problem:
    """The first block of Python under the heading."""
    block = re.search(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8").partition("## Several sizes")[2], re.DOTALL
    )
    assert block is not None
    return Problem.from_source(block[1], "row_softmax_workloads")


@pytest.mark.pure
def test_it_has_four_workloads_and_a_range() -> None:
    problem = documented()
    assert [str(item) for item in problem.workloads] == [
        "ROWS = 1024",
        "ROWS = 256",
        "ROWS = 4096, COLUMNS = 512",
        "ROWS = 512, COLUMNS = 1000",
    ]
    assert [item.weight for item in problem.workloads] == [1.0, 2.0, 0.5, 0.5]
    assert [str(item) for item in problem.dynamic] == ["ROWS from 1 to 8192"]


@pytest.mark.cpu
def test_it_is_sound_on_each_of_them(judge: Any) -> None:
    problem = documented()
    for workload in problem.workloads:
        cases = judge.session(problem.at(workload), Settings(compile_baseline=False)).cases
        assert cases.degenerate == (), str(workload)


@pytest.mark.pure
def test_a_workloads_constants_come_before_those_of_the_device_class() -> None:
    source = documented().source.replace("KFORGE = {", 'KFORGE = {\n    "sizes": {"cpu": {"ROWS": 7, "COLUMNS": 9}},')
    problem = Problem.from_source(source)
    assert problem.sizes_for("cpu") == {"ROWS": 1024, "COLUMNS": 9}, "the first workload is the main one"
    assert problem.at(problem.workloads[3]).sizes_for("cpu") == {"ROWS": 512, "COLUMNS": 1000}
    assert problem.at(problem.workloads[3]).sizes_for("gpu") == {"ROWS": 512, "COLUMNS": 1000}
    assert "COLUMNS = 9\n" in problem.sized_source("cpu")
