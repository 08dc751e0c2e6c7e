"""The options of a run by their flat names: the same on the command line, in Python and in an experiment's file."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from kforge.spec.profiling_modes import ProfilingMode
from kforge.types import BaselineName, Budget, Limits, ModelSettings, Plan, Policy, ProblemForm, SandboxChoice, Settings

T = TypeVar("T")


class RunOptions(TypedDict, total=False):
    """What may be said of a run beside its problem, platform and models. What is left out has a sensible default.

    The fields of Plan, Settings and ModelSettings stand for themselves; whole records do as well.
    """

    iterations: int
    samples: int
    target_speedup: float | None
    repairs: int
    plateau: int
    minimum_gain: float
    seed: int
    plan: Plan
    budget: float | Budget | None
    """Dollars, or a whole Budget."""
    budget_tokens: int | None
    analyst_model: str
    reference: str | Path
    style: str
    prompts: str
    prompt_tokens: int
    profilers: tuple[str, ...] | None
    profiling: ProfilingMode
    """Instead of `profilers`: none, text or image."""
    search: str
    keep_prompts: bool
    executor: str
    temperature: float | None
    max_output_tokens: int | None
    timeout_seconds: float
    base_url: str
    model_settings: ModelSettings
    dtype: str
    """The problem in this dtype: float16, bfloat16, float32 or float64."""
    backward: bool
    """The problem with its gradients: a call is forward and backward."""
    baseline: BaselineName
    compile_baseline: bool
    autotune_baseline: bool
    policy: Policy
    precision: str
    seeds: int
    timing_seconds: float
    sandbox: SandboxChoice
    sanitize: bool
    limits: Limits
    settings: Settings


OPTIONS: dict[str, Any] = typing.get_type_hints(RunOptions)
"""Every option's name and type."""
_OF_THE_PROBLEM = tuple(field.name for field in fields(ProblemForm))
_RECORDS: dict[str, type] = {"plan": Plan, "settings": Settings, "model_settings": ModelSettings}


def spec_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a RunSpec that known options stand for; ValueError for values that no record takes.

    `profiling` is left out, since what it means depends on the platform, and so is what is said of the problem.
    """
    # A list is what a file or a store has for a tuple.
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    left = {name: value for name, value in plain.items() if name not in ("profiling", *_OF_THE_PROBLEM)}
    # Both Settings and RunSpec have profilers; the option is the run's, None being the platform's own.
    values: dict[str, Any] = {"profilers": left.pop("profilers", None)}
    problem_form(options)
    for name, kind in _RECORDS.items():
        whole = left.pop(name, None)
        doubled = {field.name for field in fields(kind)} & set(left) if whole is not None else set()
        if doubled:
            raise ValueError(f"{min(doubled)} and {name} both say it: one must go")
        values[name] = whole or _record(kind, left)
    budget, tokens = left.pop("budget", None), left.pop("budget_tokens", None)
    if isinstance(budget, Budget) and tokens is not None:
        raise ValueError("budget_tokens and a whole Budget both say it: one must go")
    values["budget"] = budget if isinstance(budget, Budget) else Budget(budget, tokens)
    if "reference" in left:
        values["reference"] = str(left.pop("reference"))
    return values | left


def problem_form(options: Mapping[str, Any]) -> ProblemForm:
    """The form in which the options want the problem; ValueError if there is none such."""
    return ProblemForm(options.get("dtype") or "", options.get("backward") is True)


def _record(kind: type[T], options: dict[str, Any]) -> T:
    """A record of the options that are its fields, which are used up."""
    names = {field.name for field in fields(kind)} & set(options)  # type: ignore[arg-type]
    return kind(**{name: options.pop(name) for name in names})
