"""A hard stop before a request that the budget does not allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kforge.errors import BudgetSpent, UsageError
from kforge.models.base import Model
from kforge.models.prices import FREE, input_tokens, rate_of
from kforge.models.wrapper import ModelWrapper
from kforge.types import Budget, Completion, ModelSettings, Prompt, Usage

LONG_REPLY = 16_000
"""Tokens of a long reply, thoughts included: what one is taken for where nobody has set its longest."""
ENOUGH_REPLIES = 8
"""An average of fewer replies says little: one short reply would let far too many requests go."""


class BudgetAccount:
    """What may be spent and what has been, shared by the models of a run.

    A request is refused once the budget is used up, or if its input alone would exceed what is left. While it is under
    way it holds the average of what was paid so far, or its input if that is more; until `ENOUGH_REPLIES` were paid, at
    least an estimate of what it costs. As many go at once as fit by what they hold, and the others wait for one to end;
    a request goes alone where no second one fits. Replies from a cache or a recording are not in the average.

    What a reply costs is known only when it is there. Replies that were under way when the budget ran out may thus
    exceed it, together by no more than what each cost beyond what it held; one that went alone, by what it cost beyond
    what was left.
    """

    def __init__(self, budget: Budget, spent: Usage = Usage()) -> None:
        """`spent` is what a resumed run has paid already."""
        self.budget = budget
        self.spent = spent
        self._held: list[Usage] = []
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, least: Usage, estimate: Usage) -> AsyncIterator[Callable[[Usage], None]]:
        """Hold a request's cost until the block ends; call what it yields with what was paid.

        `least` is what its input costs, `estimate` what it costs with a long reply.
        """
        hold = await self._hold(least, estimate)
        try:
            yield self._pay
        finally:
            self._held.remove(hold)
            async with self._changed:
                self._changed.notify_all()

    def _pay(self, usage: Usage) -> None:
        self.spent += usage

    async def _hold(self, least: Usage, estimate: Usage) -> Usage:
        async with self._changed:
            while True:
                self._refuse(least)
                floor = least if self.spent.requests >= ENOUGH_REPLIES else estimate
                hold = _larger(floor, _average(self.spent))
                if not self._held or self._fits(hold):
                    self._held.append(hold)
                    return hold
                await self._changed.wait()

    def _refuse(self, least: Usage) -> None:
        for limit, spent, more, unit in self._accounts(least):
            if limit == 0:
                raise BudgetSpent(f"nothing is left of the budget in {unit}")
            if limit is not None and (spent >= limit or spent + more > limit):
                shown = [f"{amount:.4g}" if unit == "dollars" else f"{amount:,}" for amount in (spent, limit, more)]
                raise BudgetSpent(
                    f"the budget does not allow another request: {shown[0]} of {shown[1]} {unit} are spent, and the "
                    f"next request takes at least {shown[2]}"
                )

    def _fits(self, hold: Usage) -> bool:
        accounts = self._accounts(sum(self._held, hold))
        return all(limit is None or spent + more <= limit for limit, spent, more, _ in accounts)

    def _accounts(self, more: Usage) -> tuple[tuple[float | None, float, float, str], ...]:
        """Limit, spent and what comes on top, for each kind of limit."""
        return (
            (self.budget.dollars, self.spent.dollars, more.dollars, "dollars"),
            (self.budget.tokens, self.spent.tokens, more.tokens, "tokens"),
        )


class Budgeted(ModelWrapper):
    """Pays for every reply from an account; raises BudgetSpent before a request that it does not allow."""

    def __init__(self, model: Model, account: BudgetAccount, settings: ModelSettings = ModelSettings()) -> None:
        """Raises UsageError if the budget is in dollars and the model's price is not known.

        `settings` are those the model was opened with: they may say how long a reply can be.
        """
        super().__init__(model)
        self._account = account
        self._longest = LONG_REPLY if settings.max_output_tokens is None else settings.max_output_tokens
        self._rate = rate_of(model)
        if account.budget.dollars is not None and self._rate is None:
            raise UsageError(
                f"a budget in dollars cannot be kept: the price of {model.name} is not known. "
                f"Use a budget in tokens instead: --budget-tokens"
            )

    async def complete(self, prompt: Prompt) -> Completion:
        tokens = input_tokens(prompt)
        least, estimate = self._cost(tokens, 0), self._cost(tokens, self._longest)
        async with self._account.reserve(least, estimate) as pay:
            completion = await self.model.complete(prompt)
            pay(completion.usage)
        return completion

    def _cost(self, asked: int, answered: int) -> Usage:
        """Of so many tokens each way. An unknown price counts as nothing: no budget in dollars is kept with it."""
        rate = self._rate or FREE
        dollars = asked * rate.input + answered * rate.output
        return Usage(input_tokens=asked, output_tokens=answered, dollars=dollars)


def _average(spent: Usage) -> Usage:
    if not spent.requests:
        return Usage()
    return Usage(input_tokens=spent.tokens // spent.requests, dollars=spent.dollars / spent.requests)


def _larger(one: Usage, other: Usage) -> Usage:
    return Usage(input_tokens=max(one.tokens, other.tokens), dollars=max(one.dollars, other.dollars))
