"""The problem with workloads that docs/problems.md shows, and which size wins where several are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kforge.errors import ProblemError
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


@pytest.mark.pure
@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ('"workloads": {"ROWS": 1}', "must be a list of dicts"),
        ('"workloads": [{"LINES": 1}]', r"workloads\[0\] names 'LINES', which is no module-level constant"),
        ('"workloads": [{"ROWS": 1, "weight": 0}]', "must be a positive number"),
        ('"workloads": [{"ROWS": 1, "weight": True}]', "must be a positive number"),
        ('"workloads": [{"ROWS": 1}, {"ROWS": 1, "weight": 2}]', r"workloads\[1\] is there twice"),
        ('"dynamic": [1]', "must be a dict"),
        ('"dynamic": {"LINES": (1, 2)}', "names 'LINES', which is no module-level constant"),
        ('"dynamic": {"ROWS": (0, 2)}', r"must be \(lowest, highest\), both from 1 on"),
        ('"dynamic": {"ROWS": (3, 2)}', "both from 1 on"),
        ('"workloads": [{"ROWS": 9}], "dynamic": {"ROWS": (1, 8)}', "ROWS = 9, outside of its range"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_line(declared: str, says: str) -> None:
    source = documented().source.partition("KFORGE = {")[0]
    with pytest.raises(ProblemError, match=says) as caught:
        Problem.from_source(f"{source}KFORGE = {{{declared}}}\n", path="rows.py")
    assert str(caught.value).startswith(f"rows.py:{len(source.splitlines()) + 1}")
