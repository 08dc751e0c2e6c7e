"""Who works in a run: models opened from their names, wrapped, and given to the agents of each chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kforge import registry
from kforge.agents.analyst import ModelAnalyst
from kforge.agents.base import Draft, Situation, Target, Writer
from kforge.agents.offline.factory import Offline, open_offline
from kforge.agents.prompt_maker import PromptMaker, check_style
from kforge.agents.writer import ModelWriter
from kforge.errors import UsageError
from kforge.models.base import Model
from kforge.models.budget_account import BudgetAccount, Budgeted
from kforge.models.cache import Caching
from kforge.models.factory import open_model
from kforge.models.rate_limit import Limited
from kforge.models.recordings import Recording
from kforge.models.reply_journal import Caught, Journal, Journaled
from kforge.models.retry import Retrying
from kforge.profilers import _names as naming
from kforge.run.loop import ChainAgents
from kforge.types import Completion, ModelSettings, Prompt, Request, Usage

BUILTIN = "builtin"
"""The name of the offline agents."""
NO_ANALYST = "none"


@dataclass(frozen=True)
class ModelAccess:
    """What a run may use to reach its models; none of it changes what is asked."""

    cache: str = ""
    """A folder of replies to share between runs; empty for none."""
    record: str = ""
    """A file to append every exchange to, prompts included; empty for none."""
    concurrency: int = 8
    """Requests at once."""
    per_minute: int | None = None
    """Requests a minute."""
    models: dict[str, Model] = field(default_factory=dict)
    """Models that are open already, by name; whoever opened them closes them."""
    opened: dict[tuple[str, ModelSettings], Model] = field(default_factory=dict)
    """The same, where one model is asked in several ways: by name and settings."""
    offline: dict[str, Offline] = field(default_factory=dict)
    """Offline agents that are open already, by platform; whoever opened them closes them."""
    account: BudgetAccount | None = None
    """What several runs together may spend."""
    notify: Callable[[str], None] = lambda _: None
    """Told when a request is tried again, and why."""


@dataclass
class RunAgents:
    """The agents of a run, and what has to be closed after it."""

    crews: tuple[ChainAgents, ...] = ()
    models: dict[str, Model] = field(default_factory=dict)
    """Those that were opened for this run."""
    offline: Offline | None = None
    """The same of the offline agents."""

    async def close(self) -> None:
        for model in self.models.values():
            await model.close()
        if self.offline is not None:
            await self.offline.close()


def open_models(request: Request, means: ModelAccess) -> dict[str, Limited]:
    """Every model the request names, within its limits. A missing key or program is an error here, before anything is
    spent.
    """
    _check_names(request)
    check_style(request.style, request.prompts)
    wanted = [*request.models, request.analyst]
    named = [name for name in dict.fromkeys(wanted) if name and name not in (BUILTIN, NO_ANALYST)]
    if request.model_settings.base_url and len({name.partition(":")[0] for name in named}) > 1:
        raise UsageError("--base-url is one server, and the models named are of several providers")
    opened = {name: _opened(name, request.model_settings, means) for name in named}
    for model in opened.values():
        # An unknown price under a budget in dollars, or a folder that cannot be written, is said here.
        _wrap(model, request, means, BudgetAccount(request.budget), _Nowhere())
    return opened


def open_staff(
    request: Request,
    target: Target,
    models: dict[str, Limited],
    means: ModelAccess,
    journal: Journal,
    spent: Usage,
    machine: asyncio.Lock,
) -> RunAgents:
    """The crews of a run, their models wrapped, from outside: journal, record, cache, budget, retries, limits, file."""
    account = BudgetAccount(request.budget, spent)
    wrapped = {name: _wrap(model, request, means, account, journal) for name, model in models.items()}
    offline = means.offline.get(request.platform)
    own_offline = open_offline(target) if offline is None and BUILTIN in request.models else None
    offline = offline or own_offline
    prompts = PromptMaker(request.style, request.prompts, request.prompt_tokens, request.plan.seed)
    crews = tuple(_crew(name, request, wrapped, offline, prompts, machine) for name in request.models)
    known = {*means.models, *(name for name, settings in means.opened if settings == request.model_settings)}
    own = {name: model for name, model in wrapped.items() if name not in known}
    return RunAgents(crews, own, own_offline)


def _check_names(request: Request) -> None:
    if not request.models:
        raise UsageError("no model is named")
    registry.load("search", request.search)
    for name in request.profilers or ():
        naming.find(name)
    if request.analyst == BUILTIN and set(request.models) != {BUILTIN}:
        raise UsageError("the offline analyst advises only the offline writer; name another --analyst-model, or none")
    if request.analyst not in ("", BUILTIN, NO_ANALYST) and BUILTIN in request.models:
        raise UsageError("the offline writer follows only the offline analyst; leave --analyst-model out")


def _crew(
    name: str,
    request: Request,
    models: dict[str, Model],
    offline: Offline | None,
    prompts: PromptMaker,
    machine: asyncio.Lock,
) -> ChainAgents:
    silent = request.analyst == NO_ANALYST
    if name == BUILTIN:
        assert offline is not None
        return ChainAgents(name, Exclusive(offline.writer, machine), None if silent else offline.analyst)
    advisor = models[request.analyst] if request.analyst and not silent else models[name]
    return ChainAgents(name, ModelWriter(models[name], prompts), None if silent else ModelAnalyst(advisor, prompts))


def _opened(name: str, settings: ModelSettings, means: ModelAccess) -> Limited:
    """A model that is open already, or a new one; the same model asked in another way shares its limits."""
    known = means.models.get(name) or means.opened.get((name, settings))
    if known is not None:
        return _limited(known, means)
    made = open_model(name, settings)
    for (other, _), model in means.opened.items():
        if other == name and isinstance(model, Limited):
            return model.around(made)
    return _limited(made, means)


def _limited(model: Model, means: ModelAccess) -> Limited:
    """Runs that share an open model share its limits."""
    return model if isinstance(model, Limited) else Limited(model, means.concurrency, means.per_minute)


def _wrap(model: Limited, request: Request, means: ModelAccess, account: BudgetAccount, journal: Journal) -> Model:
    # A reply is written down before anything else is done, even before its place is given to the next request.
    wrapped: Model = Retrying(model.around(Caught(model.model, journal)), notify=means.notify)
    wrapped = Budgeted(wrapped, account)
    if means.account is not None:
        wrapped = Budgeted(wrapped, means.account)
    if means.cache:
        wrapped = Caching(wrapped, Path(means.cache), request.model_settings)
    if means.record:
        wrapped = Recording(wrapped, Path(means.record))
    return Journaled(wrapped, journal)


class _Nowhere:
    """A journal for checks: nothing is asked."""

    def find(self, slot: str) -> Completion | None:
        return None

    def catch(self, slot: str, prompt_id: str, completion: Completion) -> None:
        pass

    def keep(self, slot: str, completion: Completion, prompt: Prompt) -> None:
        pass


@dataclass(frozen=True)
class Exclusive:
    """A writer that works on this machine's own processors: never while something is being timed on them."""

    writer: Writer
    machine: asyncio.Lock

    async def write(self, situation: Situation) -> Draft:
        async with self.machine:
            return await self.writer.write(situation)
