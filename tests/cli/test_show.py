"""`kforge show`: what it says of advice, and how it counts chains."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import makers
import trial_makers
from kforge.cli import render
from kforge.cli.screen import Screen
from kforge.store.store import Store
from kforge.types import Candidate, Intent, Plan, Problem, Report, RunSpec, best_attempt, contended_rivals

pytestmark = pytest.mark.pure


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A run of two chains; in the second one the program came back as it was."""
    first = makers.attempt(1, 1.5, chain=1)
    assert first.candidate is not None
    again = makers.attempt(2, 1.5, Intent.OPTIMISE, 1, chain=1, advice="Fuse the loops.")
    same = replace(again, candidate=Candidate(first.candidate.source, parent=first.candidate.id))
    with Store.open(tmp_path / "store") as opened:
        run = opened.create_run(RunSpec(Problem("p", "class Model: ..."), plan=Plan(samples=2)))
        for attempt in (makers.attempt(1, 1.2), first, same):
            opened.add_attempt(run, attempt)
    return tmp_path / "store"


def test_json_counts_chains_from_1_as_the_option_does(kforge_here: Callable[..., Any], store: Path) -> None:
    attempts = json.loads(kforge_here("show", "--store", store, "--json").stdout)["attempts"]
    assert [(item["chain"], item["step"]) for item in attempts] == [(1, 1), (2, 1), (2, 2)]
    for item in attempts:
        place = f"{item['chain']}.{item['step']}"
        shown = json.loads(kforge_here("show", "--store", store, "--step", place, "--json").stdout)
        assert (shown["move"]["chain"], shown["move"]["step"]) == (item["chain"], item["step"])


def test_advice_that_was_not_applied_is_shown_as_that(kforge_here: Callable[..., Any], store: Path) -> None:
    for words in ([], ["--step", "2.2"]):
        shown = " ".join(kforge_here("show", "--store", store, *words).stdout.split())
        assert "came back unchanged: the advice was not applied: Fuse the loops." in shown
    attempts = json.loads(kforge_here("show", "--store", store, "--json").stdout)["attempts"]
    assert [item["unchanged"] for item in attempts] == [False, False, True]


SCORE = "0.73 (1 = the machine's limit, 0.5 = eager; limit 20 ns: traffic: a made-up amount)"


def test_a_score_is_shown_with_what_it_means(kforge_here: Callable[..., Any], tmp_path: Path) -> None:
    attempt = replace(makers.attempt(1, 2.0), verdict=trial_makers.scored(2.0, 20.0))
    with Store.open(tmp_path / "store") as opened:
        run = opened.create_run(RunSpec(Problem("p", "class Model: ...")))
        opened.add_attempt(run, attempt)
    show = ("show", "--store", tmp_path / "store")
    assert "(1.96 to 2.04), score 0.73" in kforge_here(*show).stdout
    assert f"score: {SCORE}" in kforge_here(*show, "--step", "1").stdout
    found = json.loads(kforge_here(*show, "--json").stdout)
    assert found["score"] == found["attempts"][0]["score"] == pytest.approx(8 / 11)


def test_a_verdict_is_printed_with_its_score_where_it_has_one() -> None:
    for verdict, lines in ((trial_makers.scored(2.0, 20.0), [SCORE]), (makers.verdict(2.0), [])):
        report, out = Report("j", "p", "c", "cpu", verdict), io.StringIO()
        render.print_verdict(Screen(file=out, width=200), report)
        shown = [line.split(maxsplit=1)[1] for line in out.getvalue().splitlines() if line.startswith("score ")]
        assert [line.rstrip() for line in shown] == lines
    scored = render.flat(Report("j", "p", "c", "cpu", trial_makers.scored(2.0, 20.0)))
    assert (scored["score"], scored["limit"]) == (
        pytest.approx(8 / 11),
        {"ns": 20.0, "how": "traffic: a made-up amount"},
    )
    without = render.flat(Report("j", "p", "c", "cpu", makers.verdict(2.0)))
    assert (without["score"], without["limit"]) == (None, None)


def test_a_program_that_seems_faster_and_was_timed_beside_others_work_is_named(
    kforge_here: Callable[..., Any], tmp_path: Path
) -> None:
    hurried = replace(makers.attempt(2, 1.9, Intent.OPTIMISE, 1), verdict=makers.contended(1.9))
    slower = replace(makers.attempt(3, 1.1, Intent.OPTIMISE, 1), verdict=makers.contended(1.1))
    with Store.open(tmp_path / "store") as opened:
        run = opened.create_run(RunSpec(Problem("p", "class Model: ...")))
        for attempt in (makers.attempt(1, 1.5), hurried, slower):
            opened.add_attempt(run, attempt)
    shown = " ".join(kforge_here("show", "--store", tmp_path / "store").stdout.split())
    assert "step 2 seems faster (1.90x) but was timed while others used the machine (contended)" in shown
    assert shown.count("seems faster (") == 1
    assert "best: step 1" in shown


def test_where_every_program_was_timed_beside_others_work_none_is_passed_over() -> None:
    attempts = tuple(replace(makers.attempt(step, 1.0), verdict=makers.contended(step)) for step in (1, 2))
    assert best_attempt(attempts) is attempts[1]
    assert contended_rivals(attempts) == ()
