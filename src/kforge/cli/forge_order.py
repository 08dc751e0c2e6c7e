"""What was asked of `kforge forge`, checked before torch is loaded: a mistake is said at once."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from kforge import problems
from kforge.errors import UsageError
from kforge.run.team import BUILTIN, ModelAccess, open_models
from kforge.spec.run_spec import Options, check_platform, request_without_inductor
from kforge.types import Problem, Request


@dataclass(frozen=True)
class ForgeCommand:
    """What was asked for on the command line."""

    places: list[str]
    platform: str
    models: list[str]
    options: Options
    store: str
    means: ModelAccess
    as_json: bool
    to: Path | None = None
    """Where to write the best program."""
    problems: tuple[Problem, ...] = ()
    """What the places name."""
    offline_by_default: bool = False
    """No model was named."""


def checked(order: ForgeCommand) -> ForgeCommand:
    """The order with its problems read and its models open; whatever cannot work is an error here."""
    found = tuple(problem for place in order.places for problem in problems.find(place))
    if len(found) > 1 and (order.means.record or any(name.startswith("replay:") for name in order.models)):
        raise UsageError(f"a recording holds one problem, and there are {len(found)}")
    if order.to is not None and order.to.is_dir():
        raise UsageError(f"--to {order.to}: a folder; name a file")
    if order.to is not None and len(found) > 1:
        raise UsageError(f"--to names one file, and there are {len(found)} problems; use `kforge export` afterwards")
    check_platform(order.platform, order.options.executor)
    models = tuple(order.models) or (BUILTIN,)
    opened = open_models(_first_request(found, models, order), order.means)
    return replace(
        order,
        problems=found,
        models=list(models),
        means=replace(order.means, models=dict(opened)),
        offline_by_default=not order.models,
    )


def _first_request(found: tuple[Problem, ...], models: tuple[str, ...], order: ForgeCommand) -> Request:
    """The request for the first problem that has one; of several, some may lack the reference that was asked for."""
    for problem in found[:-1]:
        with contextlib.suppress(UsageError):
            return request_without_inductor(problem, order.platform, models, order.options, order.store)
    return request_without_inductor(found[-1], order.platform, models, order.options, order.store)
