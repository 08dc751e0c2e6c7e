"""From what a user asks for to one RunSpec: the door for the command line, Python and experiments alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge import problems
from kforge.agents.offline.recipe import NO_GRADIENTS
from kforge.errors import KForgeError, UsageError
from kforge.execution.executor_names import LOCAL, judges_here, whole_name
from kforge.spec.judging_platform import judging_platform
from kforge.spec.mistakes import Mistake, raise_if_any
from kforge.spec.profiling_modes import profilers_for
from kforge.spec.run_options import problem_form, spec_fields
from kforge.spec.validation import model_mistakes, option_mistakes, place_mistakes
from kforge.types import Problem, RunSpec
from kforge.types.run import BUILTIN


def make_spec(
    problem: Problem | str | Path,
    platform: str = "cpu",
    models: str | Sequence[str] = BUILTIN,
    options: Mapping[str, Any] = {},
) -> RunSpec:
    """The specification of a run; every mistake in it is reported at once, as a UsageError or ProblemError.

    `options` are those of RunOptions. Whether what is named can be had on this machine (a device, a key, a donor in
    the store) is for `kforge.run.context.prepare` to find out; but PluginAbsent where profiling is to take pictures and
    nothing can.
    """
    problems.check_place(problem)
    names = (models,) if isinstance(models, str) else tuple(models)
    executor = str(options.get("executor", LOCAL))
    mistakes = [*place_mistakes(platform, executor), *model_mistakes(names, options), *option_mistakes(options)]
    try:
        problem = problem if isinstance(problem, Problem) else one_problem(problem)
        if not mistakes:
            problem = problem.in_form(problem_form(options))
            if problem.form.backward and BUILTIN in names:
                mistakes.append(Mistake(("model",), NO_GRADIENTS))
    except KForgeError as error:
        mistakes.insert(0, Mistake(("problem",), str(error), error))
    raise_if_any(mistakes)
    assert isinstance(problem, Problem)
    values = spec_fields(options)
    if options.get("profiling") is not None:
        where = judging_platform(platform, executor)
        values["profilers"] = profilers_for(options["profiling"], where, here=judges_here(executor))
    # Every model writes at least one chain.
    values["plan"] = replace(values["plan"], samples=max(values["plan"].samples, len(names)))
    values["executor"] = whole_name(executor)
    return RunSpec(problem=problem, platform=platform, models=names, **values)


def make_specs(
    places: Sequence[str], platform: str, models: Sequence[str], options: Mapping[str, Any]
) -> tuple[RunSpec, ...]:
    """One specification for each problem at some places, all asked for in the same way."""
    every = [problem for place in places for problem in problems.find(place)]
    if len(every) > 1 and any(name.startswith("replay:") for name in models):
        raise UsageError(f"a recording holds one problem, and there are {len(every)}")
    return tuple(make_spec(problem, platform, models, options) for problem in every)


def one_problem(place: str | Path) -> Problem:
    """The problem a place names, if it names one."""
    at_place = problems.find(place)
    if len(at_place) != 1:
        raise UsageError(f"{place} holds {len(at_place)} problems; name one")
    return at_place[0]


@dataclass(frozen=True)
class ResumeOptions:
    """What a resumed run may do beyond what it was asked for at first; None leaves it as it was."""

    iterations: int | None = None
    plateau: int | None = None
    target_speedup: float | None = None
    prompt_tokens: int | None = None
    budget: float | None = None
    """Dollars in all, what was spent before included."""
    budget_tokens: int | None = None
    executor: str | None = None
    """Who judges from now on: local, or bundle:DIR."""

    def apply_to(self, spec: RunSpec) -> RunSpec:
        """A stored specification with these changes."""
        plan = _without_none(iterations=self.iterations, plateau=self.plateau, target_speedup=self.target_speedup)
        budget = _without_none(dollars=self.budget, tokens=self.budget_tokens)
        try:
            return replace(
                spec,
                plan=replace(spec.plan, **plan),
                budget=replace(spec.budget, **budget),
                prompt_tokens=self.prompt_tokens or spec.prompt_tokens,
                executor=whole_name(self.executor or spec.executor),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
