"""What goes around a model: retries, cache, budget, limits; and the prices they rest on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.errors import BudgetSpent, ModelRejected, ModelUnavailable, UsageError
from kforge.models import prices
from kforge.models.base import Model
from kforge.models.budget_account import ENOUGH_REPLIES, LONG_REPLY, BudgetAccount, Budgeted
from kforge.models.cache import Caching
from kforge.models.plugins.command import Command
from kforge.models.prices import Rate, rate_of
from kforge.models.rate_limit import Limited
from kforge.models.retry import Backoff, Retrying
from kforge.models.scripted import Scripted
from kforge.types import Budget, Completion, Finish, Message, ModelSettings, Prompt, Usage

pytestmark = pytest.mark.pure


def asking(text: str, sample: str = "") -> Prompt:
    return Prompt((Message("user", text),), sample=sample)


def reply_of(model: Model, prompt: Prompt) -> Completion:
    return asyncio.run(model.complete(prompt))


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Slow:
    """A model that takes a moment, and knows how many requests it had at once."""

    name = "slow"

    def __init__(self, usage: Usage = Usage(requests=1), rate: Rate | None = None) -> None:
        self.usage = usage
        self.rate = rate
        self.running = self.most = self.asked = 0

    async def complete(self, prompt: Prompt) -> Completion:
        self.asked += 1
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5):
            await asyncio.sleep(0)
        self.running -= 1
        return Completion(prompt.text, self.name, self.usage)

    async def close(self) -> None:
        pass


class Uneven:
    """A model whose replies differ in what they cost and how long they take; it notes how each request began."""

    name = "uneven"

    def __init__(self, account: BudgetAccount, replies: list[tuple[int, int]]) -> None:
        self._account, self._left = account, iter(replies)
        self._running: list[int] = []
        self.began: list[tuple[int, tuple[int, ...]]] = []
        """The tokens spent when a request began, and what those under way cost in the end, itself included."""

    async def complete(self, prompt: Prompt) -> Completion:
        tokens, turns = next(self._left)
        self._running.append(tokens)
        self.began.append((self._account.spent.tokens, tuple(self._running)))
        for _ in range(turns):
            await asyncio.sleep(0)
        self._running.remove(tokens)
        return Completion("", self.name, Usage(1, 0, tokens))

    async def close(self) -> None:
        pass


async def all_at_once(model: Model, count: int) -> list[Any]:
    return await asyncio.gather(*(model.complete(asking("q", str(i))) for i in range(count)), return_exceptions=True)


class TestRetrying:
    def retrying(self, replies: Any, backoff: Backoff = Backoff(), chance: float = 1.0) -> tuple[Retrying, Clock]:
        clock = Clock()
        return Retrying(Scripted(replies), backoff, sleep=clock.sleep, chance=lambda: chance), clock

    def test_waits_double_up_to_the_longest(self) -> None:
        model, clock = self.retrying([*[ModelUnavailable("busy")] * 5, "ok"], Backoff(longest_delay=5))
        assert reply_of(model, asking("q")).text == "ok"
        assert clock.slept == [1, 2, 4, 5, 5]

    def test_it_gives_up_and_says_so(self) -> None:
        model, clock = self.retrying([ModelUnavailable("busy", retry_after=2)] * 9, Backoff(attempts=3))
        with pytest.raises(ModelUnavailable, match="busy; gave up after 3 tries") as caught:
            reply_of(model, asking("q"))
        assert caught.value.retry_after == 2
        assert clock.slept == [3, 3], "what was asked for, and jitter on top"

    def test_a_wait_beyond_patience_ends_it_at_once(self) -> None:
        model, clock = self.retrying([ModelUnavailable("busy", retry_after=3600)], Backoff(patience=60))
        with pytest.raises(ModelUnavailable, match="asks to wait 3600 s"):
            reply_of(model, asking("q"))
        assert clock.slept == []

    def test_other_errors_pass_through(self) -> None:
        model, clock = self.retrying([ModelRejected("no")])
        with pytest.raises(ModelRejected, match="no"):
            reply_of(model, asking("q"))
        assert clock.slept == []

    def test_somebody_is_told(self) -> None:
        told: list[str] = []
        clock = Clock()
        inner = Scripted([ModelUnavailable("x: busy"), "ok"])
        reply_of(Retrying(inner, notify=told.append, sleep=clock.sleep, chance=lambda: 0.5), asking("q"))
        assert told == ["x: busy; asking again in 0.5 s (1 of 6 tries)"]

    @settings(deadline=None)
    @given(st.integers(1, 60), st.none() | st.floats(0, 1000), st.floats(0, 1, exclude_max=True))
    def test_waits_stay_within_bounds(self, failures: int, retry_after: float | None, chance: float) -> None:
        backoff = Backoff()
        delay = backoff.delay(failures, retry_after, chance)
        floor = retry_after or 0.0
        assert floor <= delay <= floor + backoff.longest_delay


class TestCaching:
    def test_a_question_is_paid_for_once(self, tmp_path: Path) -> None:
        inner = Scripted([Completion("a", "m", Usage(1, 2, 3, 0.1), seconds=9.0), "b", "c", "d"])
        assert reply_of(Caching(inner, tmp_path / "c"), asking("q")).usage.dollars == 0.1
        assert reply_of(Caching(inner, tmp_path / "c"), asking("q")) == Completion("a", "m"), "in a new process, too"
        others: list[tuple[Model, Prompt]] = [
            (Caching(inner, tmp_path / "c"), asking("q", "another draw")),
            (Caching(inner, tmp_path / "c", ModelSettings(temperature=1.0)), asking("q")),
            (Caching(Scripted(["e"], name="other"), tmp_path / "c"), asking("q")),
        ]
        assert [reply_of(model, prompt).text for model, prompt in others] == ["b", "c", "e"]

    @pytest.mark.parametrize("finish", [finish for finish in Finish if finish is not Finish.STOP])
    def test_only_whole_replies_are_kept(self, tmp_path: Path, finish: Finish) -> None:
        model = Caching(Scripted([Completion("half", "m", finish=finish), "whole"]), tmp_path)
        assert [reply_of(model, asking("q")).text for _ in range(3)] == ["half", "whole", "whole"]

    @pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"model": "m"}', b"\xff\xfe"])
    def test_a_damaged_entry_is_replaced(self, tmp_path: Path, damage: bytes) -> None:
        model = Caching(Scripted(["a", "b"]), tmp_path)
        reply_of(model, asking("q"))
        (entry,) = tmp_path.iterdir()
        entry.write_bytes(damage)
        assert [reply_of(model, asking("q")).text for _ in range(2)] == ["b", "b"]
        assert list(tmp_path.iterdir()) == [entry]

    def test_a_reply_that_cannot_be_kept_is_still_given(self, tmp_path: Path) -> None:
        model = Caching(Scripted(["a"]), tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert reply_of(model, asking("q")).text == "a"

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cache folder"):
            Caching(Scripted([]), tmp_path / "file")


class TestBudget:
    RATE = Rate(input=0.001, output=0.01)

    def spending(self, dollars: float, tokens: int = 0) -> Callable[[Prompt], Completion]:
        return lambda prompt: Completion("", "m", Usage(1, tokens, 0, dollars))

    def test_it_stops_before_the_request_once_spent(self) -> None:
        inner = Scripted(self.spending(0.4), rate=self.RATE)
        account = BudgetAccount(Budget(dollars=1.0))
        model = Budgeted(inner, account)
        for _ in range(3):
            reply_of(model, asking("q"))
        with pytest.raises(BudgetSpent, match=r"1\.2 of 1 dollars"):
            reply_of(model, asking("q"))
        assert len(inner.asked) == 3
        assert account.spent.dollars == pytest.approx(1.2)

    def test_it_stops_before_a_request_whose_input_alone_is_too_much(self) -> None:
        inner = Scripted(self.spending(0.0), rate=self.RATE)
        model = Budgeted(inner, BudgetAccount(Budget(dollars=1.0)))
        reply_of(model, asking("x" * 4000))
        with pytest.raises(BudgetSpent, match="at least"):
            reply_of(model, asking("x" * 4001))
        assert len(inner.asked) == 1

    def test_tokens_and_earlier_spending_count(self) -> None:
        account = BudgetAccount(Budget(tokens=100), Usage(requests=1, input_tokens=50))
        model = Budgeted(Scripted(self.spending(0.0, tokens=49), rate=None), account)
        reply_of(model, asking("q"))
        with pytest.raises(BudgetSpent, match="99 of 100 tokens"):
            reply_of(model, asking("12345"))
        reply_of(model, asking("1234"))
        with pytest.raises(BudgetSpent):
            reply_of(model, asking(""))

    def test_a_budget_of_nothing_allows_nothing(self) -> None:
        inner = Scripted(["x"])
        with pytest.raises(BudgetSpent):
            reply_of(Budgeted(inner, BudgetAccount(Budget(dollars=0.0))), asking(""))
        assert not inner.asked

    def test_no_budget_is_no_limit(self) -> None:
        slow = Slow(Usage(1, 10, 10, 5.0))
        account = BudgetAccount(Budget())
        asyncio.run(all_at_once(Budgeted(slow, account), 8))
        assert slow.most == 8, "and nobody waits"
        assert account.spent == Usage(8, 80, 80, 40.0)

    def test_many_at_once_do_not_slip_through(self) -> None:
        slow = Slow(Usage(1, 1, 1, 0.3), self.RATE)
        account = BudgetAccount(Budget(dollars=1.0))
        models = [Budgeted(slow, account), Budgeted(slow, account)]

        async def both() -> list[Any]:
            first, second = await asyncio.gather(*(all_at_once(model, 10) for model in models))
            return [*first, *second]

        outcomes = asyncio.run(both())
        paid = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
        assert 3 <= len(paid) <= 4
        assert slow.asked == len(paid)
        assert all(isinstance(outcome, (Completion, BudgetSpent)) for outcome in outcomes)
        assert account.spent.dollars <= 1.0 + 0.3

    @pytest.mark.parametrize(
        "budget", [Budget(tokens=20 * (LONG_REPLY + 1)), Budget(dollars=20 * 0.161), Budget(9.0, 10**6)]
    )
    def test_many_go_at_once_before_anything_was_paid(self, budget: Budget) -> None:
        slow = Slow(Usage(1, 100, 400, 0.005), Rate(input=1e-6, output=1e-5))
        asyncio.run(all_at_once(Budgeted(slow, BudgetAccount(budget)), 20))
        assert slow.most == 20

    @pytest.mark.parametrize(("fitting", "at_once"), [(0.5, 1), (1, 1), (1.9, 1), (2, 2), (5, 5)])
    def test_no_more_go_at_first_than_fit_with_a_long_reply(self, fitting: float, at_once: int) -> None:
        slow = Slow(Usage(1, 1, LONG_REPLY))
        account = BudgetAccount(Budget(tokens=int(fitting * (LONG_REPLY + 1))))
        asyncio.run(all_at_once(Budgeted(slow, account), 20))
        assert slow.most == at_once

    def test_a_small_budget_lets_them_go_one_at_a_time_and_stops(self) -> None:
        slow = Slow(Usage(1, 300, 700))
        outcomes = asyncio.run(all_at_once(Budgeted(slow, BudgetAccount(Budget(tokens=5_000))), 20))
        assert (slow.most, slow.asked) == (1, 5)
        assert sum(isinstance(outcome, BudgetSpent) for outcome in outcomes) == 15

    @pytest.mark.parametrize("longest", [99, LONG_REPLY * 10])
    def test_the_longest_reply_that_is_set_counts(self, longest: int) -> None:
        slow = Slow(Usage(1, 1, 50))
        account = BudgetAccount(Budget(tokens=5 * (longest + 1)))
        asyncio.run(all_at_once(Budgeted(slow, account, ModelSettings(max_output_tokens=longest)), ENOUGH_REPLIES))
        assert slow.most == 5

    @pytest.mark.parametrize(("paid", "at_once"), [(1, 1), (ENOUGH_REPLIES - 1, 1), (ENOUGH_REPLIES, 2)])
    def test_the_average_alone_counts_once_enough_replies_were_paid(self, paid: int, at_once: int) -> None:
        slow = Slow(Usage(1, 100))
        account = BudgetAccount(Budget(tokens=LONG_REPLY), Usage(paid, 100 * paid))
        asyncio.run(all_at_once(Budgeted(slow, account), 2))
        assert slow.most == at_once

    def test_an_average_above_the_estimate_counts_from_the_first_reply(self) -> None:
        slow = Slow(Usage(1, 0, 4 * LONG_REPLY))
        account = BudgetAccount(Budget(tokens=11 * LONG_REPLY), Usage(1, 0, 4 * LONG_REPLY))
        asyncio.run(all_at_once(Budgeted(slow, account), 8))
        assert slow.most == 1

    def test_replies_that_cost_nothing_are_in_no_average(self) -> None:
        free, slow = Slow(Usage()), Slow(Usage(1, 1, LONG_REPLY))
        account = BudgetAccount(Budget(tokens=2 * (LONG_REPLY + 1)))
        asyncio.run(all_at_once(Budgeted(free, account), 2 * ENOUGH_REPLIES))
        asyncio.run(all_at_once(Budgeted(slow, account), 8))
        assert slow.most == 2

    @settings(deadline=None)
    @given(
        st.integers(1, 1000),
        st.integers(1, 300),
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 4)), min_size=1, max_size=ENOUGH_REPLIES),
    )
    def test_no_more_is_spent_than_what_was_under_way_cost_beyond_what_it_held(
        self, tokens: int, longest: int, replies: list[tuple[int, int]]
    ) -> None:
        account = BudgetAccount(Budget(tokens=tokens))
        uneven = Uneven(account, replies)
        model = Budgeted(uneven, account, ModelSettings(max_output_tokens=longest))
        asyncio.run(all_at_once(model, len(replies)))
        held = longest + 1
        for spent, running in uneven.began:
            assert spent < tokens
            assert len(running) == 1 or spent + held * len(running) <= tokens
        spent, running = uneven.began[-1]
        beyond = sum(max(0, cost - held) for cost in running)
        allowed = max(tokens, spent + running[0]) if len(running) == 1 else tokens + beyond
        assert account.spent.tokens <= allowed

    def test_a_failed_request_gives_back_what_it_held(self) -> None:
        model = Budgeted(Scripted([ModelUnavailable("x"), "ok"], rate=self.RATE), BudgetAccount(Budget(dollars=0.0015)))
        with pytest.raises(ModelUnavailable):
            reply_of(model, asking("1234"))
        assert reply_of(model, asking("1234")).text == "ok"

    def test_cancelled_requests_give_back_what_they_held(self) -> None:
        async def talk() -> None:
            model = Budgeted(Slow(Usage(1, 0, 0, 0.1), self.RATE), BudgetAccount(Budget(dollars=1.0)))
            tasks = [asyncio.create_task(model.complete(asking("q", str(i)))) for i in range(3)]
            await asyncio.sleep(0)
            for task in tasks[:2]:
                task.cancel()
            assert (await asyncio.wait_for(tasks[2], 5)).text == "q"

        asyncio.run(talk())

    @settings(deadline=None)
    @given(st.floats(0.1, 5), st.lists(st.floats(0.01, 2), min_size=1, max_size=20), st.integers(1, 6))
    def test_nothing_is_asked_once_it_is_spent(self, dollars: float, costs: list[float], width: int) -> None:
        account = BudgetAccount(Budget(dollars=dollars))
        spent_before: list[float] = []
        left = iter(costs * 50)

        def paid(prompt: Prompt) -> Completion:
            spent_before.append(account.spent.dollars)
            return Completion("", "m", Usage(1, 0, 0, next(left)))

        model = Limited(Budgeted(Scripted(paid, rate=self.RATE), account), concurrency=width)
        outcomes = asyncio.run(all_at_once(model, 30))
        assert all(spent < dollars for spent in spent_before)
        assert account.spent.dollars <= dollars + width * max(costs)
        assert len(spent_before) == sum(isinstance(outcome, Completion) for outcome in outcomes)

    def test_dollars_need_a_price(self) -> None:
        for model in (Command("cat"), Scripted([], rate=None), Retrying(Scripted([], rate=None))):
            with pytest.raises(UsageError, match="--budget-tokens"):
                Budgeted(model, BudgetAccount(Budget(dollars=1.0)))
            Budgeted(model, BudgetAccount(Budget(tokens=1)))


class TestLimits:
    def test_no_more_at_once_than_allowed(self) -> None:
        slow = Slow()
        asyncio.run(all_at_once(Limited(slow, concurrency=3), 10))
        assert (slow.most, slow.asked) == (3, 10)

    def test_no_more_in_any_minute_than_allowed(self) -> None:
        clock = Clock()
        starts: list[float] = []

        def note(prompt: Prompt) -> str:
            starts.append(clock.now)
            clock.now += 7
            return ""

        asyncio.run(all_at_once(Limited(Scripted(note), per_minute=4, sleep=clock.sleep, clock=clock), 14))
        assert len(starts) == 14
        for first, fifth in zip(starts, starts[4:], strict=False):
            assert fifth - first >= 60
        assert sum(clock.slept) < 200, "and no more waiting than that takes"

    def test_models_under_the_same_limits_count_together(self) -> None:
        clock = Clock()
        first = Limited(Scripted(lambda _: ""), per_minute=1, sleep=clock.sleep, clock=clock)
        second = first.around(Scripted(lambda _: ""))

        async def both() -> None:
            await first.complete(asking("x"))
            await second.complete(asking("x"))

        asyncio.run(both())
        assert sum(clock.slept) == pytest.approx(60)

    def test_a_limit_of_nothing_makes_no_sense(self) -> None:
        for limits in ({"concurrency": 0}, {"per_minute": -1}):
            with pytest.raises(UsageError, match="at least 1"):
                Limited(Scripted([]), **limits)


class TestPrices:
    def test_the_list_knows_the_address(self) -> None:
        assert prices.listed_rate("gpt-5", "https://api.openai.com/v1/") == Rate(1.25e-6, 1e-5)
        assert prices.listed_rate("gpt-5", "http://127.0.0.1:8000/v1") is None, "a local server is not the provider"
        assert prices.listed_rate("gpt-5", "") is None
        assert prices.listed_rate("a-model-nobody-sells", "https://api.openai.com/v1/") is None

    def test_wrappers_show_the_price_inside(self, tmp_path: Path) -> None:
        rate = Rate(1.0, 2.0)
        inner = Scripted([], name="x", rate=rate)
        model = Caching(Budgeted(Retrying(Limited(inner)), BudgetAccount(Budget())), tmp_path)
        assert rate_of(model) == rate
        assert model.name == "x"
        asyncio.run(model.close())
        assert inner.closed

    @settings(deadline=None)
    @given(st.text(max_size=100))
    def test_tokens_are_never_counted_as_less_than_none(self, text: str) -> None:
        assert prices.tokens_in(text) * 4 >= len(text)
        assert prices.tokens_in(text) * 4 < len(text) + 4
