"""From what a user asks for to a Request that says it all."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from kforge import problems, registry
from kforge.agents.base import Target
from kforge.errors import UsageError
from kforge.execution.executor_names import LOCAL, check_executor, parse_executor, whole_name
from kforge.platforms.base import Platform
from kforge.spec.donor_source import find_reference, known_reference
from kforge.store.store import Store
from kforge.types import Budget, ModelSettings, Plan, Problem, Request, Settings
from kforge.worker.bundle_folder import EMULATED

T = TypeVar("T")
_UNKNOWN = (
    "\nThe machine that will run the program has not been described: where this text says unknown, let the program ask "
    "the device.\n"
)


@dataclass(frozen=True)
class Options:
    """How to forge; every field has a sensible default."""

    analyst_model: str = ""
    """Who reads profiles; empty: the writer's own model; "none": nobody."""
    reference: str | Path = ""
    """A reference implementation: a file's path, a program's text, a platform's name (its best correct program for the
    problem in the store), or "inductor".
    """
    plan: Plan = Plan()
    """Iterations, samples, target, when to give up."""
    settings: Settings = Settings()
    """How each program is judged."""
    model_settings: ModelSettings = ModelSettings()
    """How models are asked."""
    budget: Budget = Budget()
    """What models may cost."""
    style: str = "structured"
    """The prompt style: structured, plain, or a folder in `prompts`."""
    prompts: str = ""
    """A folder of templates that come before the built-in ones."""
    prompt_tokens: int = 24_000
    """No prompt is longer."""
    profilers: tuple[str, ...] | None = None
    """None: the platform's own; empty: none."""
    search: str = "refine"
    """How the next move is chosen."""
    keep_prompts: bool = False
    """Whether prompts are kept in the store."""
    executor: str = LOCAL
    """Who judges: local, or bundle:DIR."""


def named_options(words: dict[str, Any]) -> Options:
    """Options from flat names, as the command line has them: iterations, samples, temperature, baseline, ...

    The fields of Plan, ModelSettings and Settings stand for themselves; `budget` is in dollars, `budget_tokens` in
    tokens. Whole records do as well: plan=Plan(...), budget=Budget(...). A name that means nothing is a UsageError.
    """
    left = dict(words)
    try:
        plan = left.pop("plan", None) or _taken(Plan, left)
        model_settings = left.pop("model_settings", None) or _taken(ModelSettings, left)
        # Both Settings and Options have profilers; here the word means which to use, None being the platform's own.
        profilers = left.pop("profilers", None)
        settings = left.pop("settings", None) or _taken(Settings, left)
        budget = left.pop("budget", None)
        if not isinstance(budget, Budget):
            budget = Budget(budget, left.pop("budget_tokens", None))
        return Options(
            plan=plan, model_settings=model_settings, settings=settings, budget=budget, profilers=profilers, **left
        )
    except (TypeError, ValueError) as error:
        raise UsageError(str(error).replace("Options.__init__()", "forge")) from None


def _taken(kind: type[T], words: dict[str, Any]) -> T:
    """A record from those of the words that are its fields; they are taken out."""
    names = {field.name for field in fields(kind)} & set(words)  # type: ignore[arg-type]
    return kind(**{name: words.pop(name) for name in names})


async def make_request(
    problem: Problem | str | Path,
    platform: str,
    model: str | list[str],
    options: Options,
    target: Target,
    store: str | Store = "",
) -> Request:
    """A Request; UsageError or ProblemError says what cannot be done about it. `store` is where references lie."""
    if not isinstance(problem, Problem):
        problem = one_problem(problem)
    models = (model,) if isinstance(model, str) else tuple(model)
    request = request_without_reference(problem, platform, models, options)
    found = await find_reference(str(options.reference), problem, target, store)
    return replace(request, reference=found.source, reference_origin=found.origin)


def request_without_inductor(
    problem: Problem, platform: str, models: tuple[str, ...], options: Options, store: str | Store = ""
) -> Request:
    """The Request, but for a reference that Inductor has yet to write: all that can be checked at once."""
    request = request_without_reference(problem, platform, models, options)
    found = known_reference(str(options.reference), problem, store)
    return replace(request, reference=found.source, reference_origin=found.origin)


def request_without_reference(problem: Problem, platform: str, models: tuple[str, ...], options: Options) -> Request:
    """Everything but the reference."""
    plan = options.plan
    if set(models) == {"builtin"} and plan.samples > 1:
        raise UsageError("the offline agents always write the same: --samples needs a language model")
    if plan.samples < len(models):
        plan = replace(plan, samples=len(models))
    return Request(
        problem=problem,
        platform=platform,
        models=models,
        analyst=options.analyst_model,
        style=options.style,
        prompts=options.prompts,
        prompt_tokens=options.prompt_tokens,
        profilers=options.profilers,
        search=options.search,
        plan=plan,
        settings=options.settings,
        model_settings=options.model_settings,
        budget=options.budget,
        keep_prompts=options.keep_prompts,
        executor=whole_name(options.executor),
    )


def target_of(platform: str, executor: str = LOCAL) -> Target:
    """What agents are told of a platform, with the facts of the machine that judges."""
    found, (plugin, argument) = judging_platform(platform, executor), parse_executor(executor)
    known = plugin.judges_here or plugin.facts(argument, platform)
    guide = found.guide() if known else found.guide() + _UNKNOWN
    verified_as = found.device_class if found.emulated else ""
    return Target(found.name, guide, found.example(), found.hardware().device_class, verified_as)


def judging_platform(platform: str, executor: str = LOCAL) -> Platform:
    """A platform as it is where programs are judged: its hardware may be there and not here."""
    found, (plugin, argument) = registry.load("platforms", platform), parse_executor(executor)
    if plugin.judges_here:
        return found
    facts = plugin.facts(argument, platform)
    return _elsewhere(found if EMULATED in facts else found.hardware(), facts)


def check_platform(platform: str, executor: str = LOCAL) -> None:
    """PluginAbsent, with what to do, where it cannot be used on the machine that judges, as far as that can be told
    here; UsageError for an executor, or a folder of one, that cannot be used.
    """
    registry.load("platforms", platform)
    check_executor(executor, platform)


class _Facts(dict[str, str]):
    """Facts of a machine that may not be known."""

    def __missing__(self, name: str) -> str:
        return "unknown"


def _elsewhere(platform: Platform, facts: dict[str, str]) -> Platform:
    """The platform as it is on another machine: its guide says nothing of this one."""
    other = copy.copy(platform)
    other.facts = lambda number=0: _Facts(facts)  # type: ignore[method-assign]
    return other


def one_problem(place: str | Path) -> Problem:
    """The problem a place names, if it names one."""
    found = problems.find(place)
    if len(found) != 1:
        raise UsageError(f"{place} holds {len(found)} problems; name one")
    return found[0]
