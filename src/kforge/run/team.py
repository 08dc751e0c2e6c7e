"""The agents of a run: its models wrapped, and given to the writer and the analyst of each chain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from kforge.agents.analyst import ModelAnalyst
from kforge.agents.base import Analyst, Draft, Situation, Target, Writer
from kforge.agents.prompt_maker import PromptMaker
from kforge.agents.writer import ModelWriter
from kforge.models.base import Model
from kforge.models.budget_account import BudgetAccount, Budgeted
from kforge.models.cache import Caching
from kforge.models.rate_limit import Limited
from kforge.models.recordings import Recording
from kforge.models.reply_journal import Caught, Journal, Journaled
from kforge.models.retry import Retrying
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.types import Completion, Prompt, RunSpec
from kforge.types.run import BUILTIN, NO_ANALYST


@dataclass(frozen=True)
class ChainAgents:
    """The two agents of a chain."""

    model: str
    """What the user calls the writer."""
    writer: Writer
    analyst: Analyst | None
    """None: programs are optimised without advice."""


def open_models(spec: RunSpec, access: ModelAccess, pool: ModelPool) -> dict[str, Limited]:
    """Every model of a specification. A missing key or program, an unknown price under a budget in dollars, or a folder
    that cannot be written is an error here, before anything is spent.
    """
    named = dict.fromkeys((*spec.models, spec.analyst_model))
    names = [name for name in named if name not in ("", BUILTIN, NO_ANALYST)]
    models = {name: pool.model(name, spec.model_settings) for name in names}
    for model in models.values():
        _wrap(model, spec, access, BudgetAccount(spec.budget), _NoJournal())
    return models


def make_team(
    spec: RunSpec,
    target: Target,
    access: ModelAccess,
    pool: ModelPool,
    opened: dict[str, Limited],
    journal: Journal,
    account: BudgetAccount,
    machine: asyncio.Lock,
) -> tuple[ChainAgents, ...]:
    """The agents of each chain, round and round, their models wrapped, from outside: journal, record, cache, budget,
    retries, limits, file.
    """
    models = {name: _wrap(model, spec, access, account, journal) for name, model in opened.items()}
    prompts = PromptMaker(spec.style, spec.prompts, spec.prompt_tokens, spec.plan.seed, spec.settings)
    return tuple(
        _offline_agents(spec, target, pool, machine) if name == BUILTIN else _model_agents(name, spec, models, prompts)
        for name in spec.models
    )


def _offline_agents(spec: RunSpec, target: Target, pool: ModelPool, machine: asyncio.Lock) -> ChainAgents:
    offline = pool.offline(target)
    analyst = None if spec.analyst_model == NO_ANALYST else offline.analyst
    return ChainAgents(BUILTIN, ExclusiveWriter(offline.writer, machine), analyst)


def _model_agents(name: str, spec: RunSpec, models: dict[str, Model], prompts: PromptMaker) -> ChainAgents:
    writer = ModelWriter(models[name], prompts)
    if spec.analyst_model == NO_ANALYST:
        return ChainAgents(name, writer, None)
    return ChainAgents(name, writer, ModelAnalyst(models[spec.analyst_model or name], prompts))


def _wrap(model: Limited, spec: RunSpec, access: ModelAccess, account: BudgetAccount, journal: Journal) -> Model:
    # A reply is written down before anything else is done, even before its place is given to the next request.
    wrapped: Model = Retrying(model.around(Caught(model.model, journal)), notify=access.notify)
    wrapped = Budgeted(wrapped, account, spec.model_settings)
    if access.account is not None:
        wrapped = Budgeted(wrapped, access.account, spec.model_settings)
    if access.cache:
        wrapped = Caching(wrapped, Path(access.cache), spec.model_settings)
    if access.record:
        wrapped = Recording(wrapped, Path(access.record))
    return Journaled(wrapped, journal)


class _NoJournal:
    """A journal for checks: nothing is asked."""

    def find(self, slot: str) -> Completion | None:
        return None

    def catch(self, slot: str, prompt_id: str, completion: Completion) -> None:
        pass

    def keep(self, slot: str, completion: Completion, prompt: Prompt) -> None:
        pass


@dataclass(frozen=True)
class ExclusiveWriter:
    """A writer that works on this machine's own processors: never while something is being timed on them."""

    writer: Writer
    machine: asyncio.Lock

    async def write(self, situation: Situation) -> Draft:
        async with self.machine:
            return await self.writer.write(situation)
