"""Results by workload in a terminal and as JSON: every workload with its weight, speedup, interval and share."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import makers
from kforge.cli import render
from kforge.cli.screen import Screen
from kforge.run.eager_comparison import advice
from kforge.run.result import RunResult
from kforge.store.store import Store
from kforge.types import Candidate, ErrorNorm, Evidence, Problem, Report, RunSpec, Settings, Verdict

pytestmark = pytest.mark.pure

BOTH = {"ROWS = 1": 0.5, "ROWS = 4096": 8.0}


def with_contended(verdict: Verdict, name: str) -> Verdict:
    """The same verdict, one of its workloads timed while others used the machine."""
    assert verdict.timing is not None
    results = tuple(
        replace(item, timing=replace(item.timing, contended=0.5)) if item.workload == name and item.timing else item
        for item in verdict.workloads
    )
    return replace(verdict, workloads=results, timing=replace(verdict.timing, contended=0.5))


def printed(verdict: Verdict, width: int = 80) -> list[str]:
    out = io.StringIO()
    render.print_verdict(Screen(file=out, width=width), Report("j", "p", "c", "cpu", verdict))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_verdict_lists_every_workload_at_80_columns() -> None:
    lines = printed(with_contended(makers.by_workload(BOTH), "ROWS = 1"))
    assert [line.split() for line in lines[-4:]] == [
        ["workload", "weight", "speedup", "95", "%", "vs", "best", "own", "code"],
        ["ROWS", "=", "1", "0.5", "0.50", "0.49", "to", "0.51", "0.40", "90%"],
        ["contended"],
        ["ROWS", "=", "4096", "0.5", "8.00", "7.84", "to", "8.16", "6.40", "80%"],
    ]
    assert any(line.startswith("mean over") and "2 workloads" in line for line in lines)
    assert "workload" not in " ".join(printed(makers.verdict(2.0)))


@given(st.lists(st.text(alphabet="abc [x]0=,\u202e\x1b", min_size=1, max_size=70), min_size=2, max_size=4, unique=True))
def test_no_name_makes_a_line_wider_than_the_terminal(names: list[str]) -> None:
    lines = printed(makers.by_workload(dict.fromkeys(names, 123.456)))
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    for part in ("123.46", "120.99 to 125.93", "98.76", "90%"):
        assert any(part in line for line in lines), "no figure is cut"


def test_what_was_held_out_and_where_the_worst_error_was_are_said() -> None:
    verdict = makers.by_workload(BOTH)
    problem = Problem("p", "source")
    evidence = Evidence(problem, Candidate("x"), Settings(), {}, {}, (), (), (), (), (), {}, held_out=("ROWS = 97",))
    found = replace(verdict, evidence=evidence, errors=(ErrorNorm("natural", 1e-7, 1e-5, 0.1, "ROWS = 1"),))
    text = "\n".join(printed(found))
    assert "held-out sizes" in text
    assert "ROWS = 97" in text
    assert "(natural, ROWS = 1)" in text
    flat = render.flat(Report("j", "p", "c", "cpu", found))
    assert flat["held_out"] == ["ROWS = 97"]
    assert flat["errors"][0]["workload"] == "ROWS = 1"


def test_json_has_each_workload() -> None:
    flat = render.flat(Report("j", "p", "c", "cpu", makers.by_workload(BOTH)))
    assert flat["speedup"] == pytest.approx(2.0)
    assert [(item["workload"], item["weight"], item["speedup"]) for item in flat["workloads"]] == [
        ("ROWS = 1", 0.5, 0.5),
        ("ROWS = 4096", 0.5, 8.0),
    ]
    assert set(flat["workloads"][0]) == {
        "workload", "weight", "speedup", "interval", "speedup_vs_best", "score", "contended", "custom_share",
        "checked_calls",
    }  # fmt: skip
    assert render.flat(Report("j", "p", "c", "cpu", makers.verdict(2.0)))["workloads"] == []


def test_a_run_shows_them_for_each_attempt_and_for_the_best(kforge_here: Callable[..., Any], tmp_path: Path) -> None:
    attempt = replace(makers.attempt(1, 2.0), verdict=makers.by_workload(BOTH))
    with Store.open(tmp_path / "store") as opened:
        run = opened.create_run(RunSpec(Problem("p", "class Model: ...")))
        opened.add_attempt(run, attempt)
    show = ("show", "--store", tmp_path / "store")
    whole = kforge_here(*show).stdout
    assert "ROWS = 1: 0.50x; ROWS = 4096: 8.00x" in whole
    assert "7.84 to 8.16" in whole
    assert "7.84 to 8.16" in kforge_here(*show, "--step", "1").stdout
    found = json.loads(kforge_here(*show, "--json").stdout)
    assert [item["speedup"] for item in found["workloads"]] == [0.5, 8.0]
    assert found["attempts"][0]["workloads"] == found["workloads"]


def test_a_program_that_is_handed_over_says_how_fast_it_is_on_each() -> None:
    attempt = replace(makers.attempt(1, 2.0), verdict=makers.by_workload(BOTH))
    source = RunResult("r", RunSpec(Problem("p", "class Model: ...")), (attempt,)).annotated_source()
    assert "# On ROWS = 4096: 8.00x, 7.84 to 8.16 against eager." in source


def test_a_contended_workload_is_named() -> None:
    verdict = with_contended(makers.by_workload(BOTH), "ROWS = 4096")
    assert verdict.contended_workloads == ("ROWS = 4096",)
    assert "contended on ROWS = 4096, others used the machine" in advice(verdict)
    assert "contended, others" in advice(makers.contended(2.0))
