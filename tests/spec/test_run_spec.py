"""What a run is asked to do: one specification from options, and every mistake in it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kforge.errors import ProblemError, UnknownPlugin, UsageError
from kforge.spec.mistakes import Mistaken
from kforge.spec.run_spec import ResumeOptions, make_spec, make_specs
from kforge.types import Budget, Limits, ModelSettings, Plan, Problem, ProblemForm, RunSpec, Settings

pytestmark = pytest.mark.pure
PROBLEM = Problem("p", "class Model: ...")


def test_options_land_in_the_records_they_belong_to() -> None:
    options = {
        "iterations": 7,
        "temperature": 0.2,
        "policy": "strict",
        "budget": 2.0,
        "budget_tokens": 10,
        "profilers": ["roofline"],
        "limits": Limits(build_seconds=9.0),
        "analyst_model": "none",
    }
    assert make_spec(PROBLEM, "cpu", "openai:x", options) == RunSpec(
        PROBLEM,
        models=("openai:x",),
        analyst_model="none",
        plan=Plan(iterations=7),
        model_settings=ModelSettings(temperature=0.2),
        settings=Settings(policy="strict", limits=Limits(build_seconds=9.0)),
        budget=Budget(2.0, 10),
        profilers=("roofline",),
    )
    whole = {"plan": Plan(iterations=7), "budget": Budget(2.0)}
    assert make_spec(PROBLEM, options=whole) == RunSpec(PROBLEM, plan=Plan(iterations=7), budget=Budget(2.0))


def test_the_offline_agents_say_before_a_run_that_they_write_no_gradients() -> None:
    for problem, options in ((PROBLEM, {"backward": True}), (PROBLEM.in_form(ProblemForm(backward=True)), {})):
        with pytest.raises(UsageError, match="the offline agents write no gradients"):
            make_spec(problem, "cpu", "builtin", options)
        assert make_spec(problem, "cpu", "openai:x", options).problem.form.backward


def test_every_mistake_is_said_at_once() -> None:
    options = {"iterations": "five", "stile": "plain", "search": "nobody", "policy": "any way", "samples": 2}
    with pytest.raises(Mistaken) as caught:
        make_spec(PROBLEM, "abacus", "builtin", options | {"executor": "carrier-pigeon"})
    told = str(caught.value)
    for part in (
        "there are 7 mistakes",
        "no platform is called 'abacus'",
        "no executor is called 'carrier-pigeon'",
        "iterations must be a whole number, and is 'five'",
        "there is no option 'stile'; did you mean style?",
        "no search is called 'nobody'",
        "policy must be one of strict, hybrid, any",
        "the offline agents always write the same",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("nowhere.py",), ProblemError),
        ((PROBLEM, "abacus"), UnknownPlugin),
        ((PROBLEM, "cpu", []), UsageError),
        ((PROBLEM, "cpu", [3]), UsageError),
    ],
)
def test_a_single_mistake_is_the_error_it_is(arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make_spec(*arguments)


@pytest.mark.parametrize(
    ("models", "options", "sentence"),
    [
        ("builtin", {"samples": "4"}, "samples must be a whole number"),
        ("builtin", {"samples": None}, "samples must be a whole number"),
        ("builtin", {"plan": Plan(samples=4)}, "the offline agents always write the same"),
        (["builtin", "openai:x"], {"samples": 3}, "the offline agents always write the same"),
        (["openai:x", "anthropic:y"], {"model_settings": ModelSettings(base_url="http://a")}, "is one server"),
        ("openai:x", {"budget": Budget(1.0), "budget_tokens": 10}, "budget_tokens and a whole Budget"),
        ("openai:x", {"plan": Plan(), "iterations": 3}, "iterations and plan both say it"),
        ("openai:x", {"analyst_model": "builtin"}, "advises only the offline writer"),
    ],
)
def test_mistakes_that_hide_in_records(models: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make_spec(PROBLEM, "cpu", models, options)


def test_each_model_writes_a_chain() -> None:
    assert make_spec(PROBLEM, "cpu", ["builtin", "openai:x"]).plan.samples == 2
    assert make_spec(PROBLEM, "cpu", ["builtin", "openai:x"], {"samples": 2}).plan.samples == 2


def test_several_problems_are_asked_for_alike(tmp_path: Path) -> None:
    specs = make_specs(["bundled:level1/1", "bundled:level1/2"], "cpu", ["builtin"], {"iterations": 3})
    assert [spec.problem.name for spec in specs] == ["1_gelu", "2_softmax"]
    assert {spec.plan.iterations for spec in specs} == {3}
    with pytest.raises(UsageError, match="a recording holds one problem, and there are 2"):
        make_specs(["bundled:level1/1", "bundled:level1/2"], "cpu", ["replay:r.jsonl"], {})


def test_a_resumed_run_is_the_stored_specification_with_changes() -> None:
    spec = make_spec(PROBLEM, "cpu", "openai:x", {"iterations": 2, "budget": 1.0, "style": "plain"})
    changed = ResumeOptions(iterations=9, budget_tokens=50).apply_to(spec)
    assert changed.plan.iterations == 9
    assert changed.budget == Budget(1.0, 50)
    assert changed.style == "plain"
    assert ResumeOptions().apply_to(spec) == spec
