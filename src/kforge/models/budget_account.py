"""A hard stop before a request that the budget does not allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kforge.errors import BudgetSpent, UsageError
from kforge.models.base import Model
from kforge.models.prices import input_tokens, rate_of
from kforge.models.wrapper import ModelWrapper
from kforge.types import Budget, Completion, Prompt, Usage


class BudgetAccount:
    """What may be spent and what has been, shared by the models of a run.

    A request is refused once the budget is used up, or if its input alone would exceed what is left. While requests
    are under way, each one holds its input or the average of what was paid so far, whichever is more; a request that
    does not fit beside them waits for one to end. Before anything was paid nobody knows what a reply costs, so the
    first one goes alone. Replies that were under way when the budget ran out may
    thus exceed it, each by what it cost beyond the average.
    """

    def __init__(self, budget: Budget, spent: Usage = Usage()) -> None:
        """`spent` is what a resumed run has paid already."""
        self.budget = budget
        self.spent = spent
        self._held: list[Usage] = []
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, least: Usage) -> AsyncIterator[Callable[[Usage], None]]:
        """Hold at least that much until the block ends; call what it yields with what was paid."""
        hold = await self._hold(least)
        try:
            yield self._pay
        finally:
            self._held.remove(hold)
            async with self._changed:
                self._changed.notify_all()

    def _pay(self, usage: Usage) -> None:
        self.spent += usage

    async def _hold(self, least: Usage) -> Usage:
        async with self._changed:
            while True:
                self._refuse(least)
                hold = _larger(least, _average(self.spent))
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
        limited = [account for account in self._accounts(sum(self._held, hold)) if account[0] is not None]
        if limited and not self.spent.requests:
            return False
        return all(limit is None or spent + more <= limit for limit, spent, more, _ in limited)

    def _accounts(self, more: Usage) -> tuple[tuple[float | None, float, float, str], ...]:
        """Limit, spent and what comes on top, for each kind of limit."""
        return (
            (self.budget.dollars, self.spent.dollars, more.dollars, "dollars"),
            (self.budget.tokens, self.spent.tokens, more.tokens, "tokens"),
        )


class Budgeted(ModelWrapper):
    """Pays for every reply from an account; raises BudgetSpent before a request that it does not allow."""

    def __init__(self, model: Model, account: BudgetAccount) -> None:
        """Raises UsageError if the budget is in dollars and the model's price is not known."""
        super().__init__(model)
        self._account = account
        self._rate = rate_of(model)
        if account.budget.dollars is not None and self._rate is None:
            raise UsageError(
                f"a budget in dollars cannot be kept: the price of {model.name} is not known. "
                f"Use a budget in tokens instead: --budget-tokens"
            )

    async def complete(self, prompt: Prompt) -> Completion:
        tokens = input_tokens(prompt)
        least = Usage(input_tokens=tokens, dollars=tokens * self._rate.input if self._rate else 0.0)
        async with self._account.reserve(least) as pay:
            completion = await self.model.complete(prompt)
            pay(completion.usage)
        return completion


def _average(spent: Usage) -> Usage:
    if not spent.requests:
        return Usage()
    return Usage(input_tokens=spent.tokens // spent.requests, dollars=spent.dollars / spent.requests)


def _larger(one: Usage, other: Usage) -> Usage:
    return Usage(input_tokens=max(one.tokens, other.tokens), dollars=max(one.dollars, other.dollars))
