"""Working on experiments: the whole matrix, going on after every kind of stop, and what is left on record."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bundle_maker
import makers
from kforge.api import resume_async
from kforge.errors import HarnessError, ModelRejected, ProblemError, RunBusy, StoreError, UsageError
from kforge.execution.null import NullExecutor
from kforge.experiments import scheduler
from kforge.experiments.model_health import DEAD_AFTER, ModelHealth
from kforge.experiments.progress import News, Progress
from kforge.experiments.resume_plan import begin, open_experiment
from kforge.experiments.scheduler import ExperimentEnvironment, conduct
from kforge.experiments.study_reader import merge_studies, read_studies, study_of
from kforge.models.prices import Rate
from kforge.models.scripted import Scripted
from kforge.run.context import RunEnvironment
from kforge.run.lifecycle import drive_run
from kforge.run.model_pool import ModelAccess
from kforge.run.result import RunResult
from kforge.spec.run_spec import ResumeOptions
from kforge.store.experiments import Experiments
from kforge.store.store import Store
from kforge.types import (
    Budget,
    Completion,
    Configuration,
    Experiment,
    Job,
    Outcome,
    Plan,
    Problem,
    Prompt,
    RunSpec,
    Stop,
    Usage,
    Verdict,
)
from kforge.worker.bundle_folder import BundleFolder

pytestmark = pytest.mark.cpu

SOURCE = """import torch
import torch.nn as nn
N = {n}
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * N
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return []
"""
ADVICE = '{"recommendation": "Fuse the loops.", "evidence": "two passes"}'


def problem(number: int) -> Problem:
    return Problem.from_source(SOURCE.format(n=number + 2), f"p{number}", level=1, number=number)


def experiment(count: int = 3, **changes: Any) -> Experiment:
    problems = {f"level1/p{number}": problem(number) for number in range(count)}
    configurations = (
        Configuration("short", ("scripted:a",), {"iterations": 1, "profiling": "none"}),
        Configuration("long", ("scripted:a",), {"iterations": 3, "profiling": "none"}),
    )
    return replace(Experiment("e", problems, configurations, suite="made here"), **changes)


def reply(prompt: Prompt) -> str:
    return ADVICE if prompt.purpose == "analyse" else makers.reply(f"x + {len(prompt.text)} # {prompt.sample}")


def judge(job: Job) -> Verdict:
    if job.id == "confirm":
        return makers.verdict(1.4)
    return makers.verdict(1.0 + 0.5 * int(job.id.rpartition(".")[2]))


def with_evidence(job: Job, verdict: Verdict) -> Verdict:
    return replace(verdict, evidence=bundle_maker.report_on(job, 1.0).verdict.evidence)


class Model(Scripted):
    def __init__(self, replies: Any = reply, **options: Any) -> None:
        super().__init__(replies, name="scripted:a", **options)


def work(
    store: Store, wanted: Experiment, model: Model | None = None, judge: Callable[[Job], Verdict] = judge, **more: Any
) -> tuple[str, list[News]]:
    """Conduct an experiment; its id, and the news."""
    heard: list[News] = []
    access = ModelAccess(models={"scripted:a": model or Model()})
    pool = open_experiment(wanted, access)
    name = begin(wanted, store, more.pop("fresh", False))
    executor = more.pop("executor", NullExecutor(judge))
    asyncio.run(
        conduct(name, ExperimentEnvironment(store, access, pool=pool, tell=heard.append, executor=executor, **more))
    )
    return name, heard


def ends(heard: list[News]) -> list[str]:
    return [news.end for news in heard if news.end is not None]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "store") as store:
        yield store


class TestMatrix:
    def test_every_cell_becomes_a_run(self, store: Store) -> None:
        name, heard = work(store, experiment(seeds=(0, 1)))
        assert ends(heard) == ["finished"] * 12
        study = study_of(store, Experiments(store).find(name))
        assert {key: len(trials) for key, trials in study.groups().items()} == {("cpu", "short"): 6, ("cpu", "long"): 6}
        assert all(trial.state == "finished" for trial in study.trials)
        assert {len(trial.history) for trial in study.groups()["cpu", "long"]} == {3}
        assert {store.run(trial.run).spec.plan.seed for trial in study.trials} == {0, 1}

    def test_a_winner_among_several_is_judged_once_more_and_that_counts(self, store: Store) -> None:
        name, _ = work(store, experiment(1))
        short, long = study_of(store, Experiments(store).find(name)).trials
        assert short.confirmation is None
        assert long.best is not None
        assert long.best.speedup == 2.5
        assert long.verdict is long.confirmation
        assert long.verdict is not None
        assert long.verdict.speedup == 1.4

    def test_without_confirmation_nothing_is_judged_twice(self, store: Store) -> None:
        jobs: list[str] = []

        def noting(job: Job) -> Verdict:
            jobs.append(job.id)
            return judge(job)

        work(store, experiment(1, confirm=False), judge=noting)
        assert "confirm" not in jobs

    @pytest.mark.parametrize("asked", [True, False])
    def test_winners_are_compared_with_torch_compile_though_the_loop_left_it_out(
        self, store: Store, asked: bool
    ) -> None:
        compiled: list[tuple[str, bool]] = []

        def noting(job: Job) -> Verdict:
            compiled.append((job.id, job.settings.compile_baseline))
            return with_evidence(job, judge(job))

        short = Configuration(
            "short", ("scripted:a",), {"iterations": 1, "profiling": "none", "compile_baseline": False}
        )
        wanted = experiment(1, configurations=(short,), compile_winners=asked)
        name, _ = work(store, wanted, judge=noting)
        assert compiled == [("0.1", False), *([("confirm", True)] if asked else [])]
        assert (read_studies(store, [name])[0].trials[0].confirmation is not None) is asked

    def test_platforms_follow_one_another(self) -> None:
        cells = list(experiment(2, platforms=("cuda", "metal")).cells())
        assert [cell.platform for cell in cells] == ["cuda"] * 4 + ["metal"] * 4

    def test_what_cannot_work_is_said_before_anything_is_recorded(self, store: Store) -> None:
        bad = Configuration("bad", ("nosuch:model",), {})
        with pytest.raises(UsageError):
            work(store, experiment(configurations=(bad,)))
        assert Experiments(store).newest() == []


class TestGoingOn:
    def test_the_second_time_nothing_is_asked(self, store: Store) -> None:
        first, _ = work(store, experiment())
        model = Model()
        second, heard = work(store, experiment(), model)
        assert first == second
        assert ends(heard) == ["earlier"] * 6
        assert not model.asked

    def test_fresh_begins_anew_and_the_old_one_stays(self, store: Store) -> None:
        first, _ = work(store, experiment())
        second, heard = work(store, experiment(), fresh=True)
        assert first != second
        assert ends(heard) == ["finished"] * 6
        assert read_studies(store, [first])[0].trials[0].history

    def test_a_larger_experiment_keeps_what_was_done(self, store: Store) -> None:
        first, _ = work(store, experiment(2))
        second, heard = work(store, experiment(3))
        assert first == second
        assert sorted(ends(heard)) == ["earlier"] * 4 + ["finished"] * 2

    def test_a_changed_configuration_is_a_new_experiment_that_takes_over_the_rest(self, store: Store) -> None:
        first, _ = work(store, experiment(2))
        changed = (experiment().configurations[0], Configuration("long", ("scripted:a",), {"iterations": 2}))
        second, heard = work(store, experiment(2, configurations=changed))
        assert first != second
        assert sorted(ends(heard)) == ["earlier"] * 2 + ["finished"] * 2
        assert [len(trial.history) for trial in read_studies(store, [first])[0].trials] == [1, 3, 1, 3]
        assert [len(trial.history) for trial in read_studies(store, [second])[0].trials] == [1, 2, 1, 2]

    def test_an_interrupted_sitting_is_continued_within_its_runs(self, store: Store) -> None:
        def interrupted(prompt: Prompt) -> Any:
            if len(model.asked) == 7:
                session.cancel()
            return reply(prompt)

        model = Model(interrupted)
        access = ModelAccess(models={"scripted:a": model})
        pool = open_experiment(experiment(), access)
        bench = ExperimentEnvironment(store, access, pool=pool, parallel=1, executor=NullExecutor(judge))

        async def work_until_told() -> None:
            nonlocal session
            session = asyncio.current_task()
            await conduct(begin(experiment(), store), bench)

        session: Any = None
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(work_until_told())
        (name,) = Experiments(store).ids_of_name("e")
        states = [trial.state for trial in read_studies(store, [name])[0].trials]
        assert states.count("finished") == 2
        assert states.count("stopped") == 1
        again = Model()
        _, heard = work(store, experiment(), again)
        assert sorted(ends(heard)) == ["earlier"] * 2 + ["finished"] * 4
        trials = read_studies(store, [name])[0].trials
        assert all(trial.state == "finished" for trial in trials)
        assert len(store.runs(100)) == 6

    def test_a_dead_provider_is_noticed_and_the_rest_is_put_off(self, store: Store) -> None:
        model = Model(lambda prompt: ModelRejected("the key is wrong"))
        name, heard = work(store, experiment(5), model, parallel=1)
        assert DEAD_AFTER == 3
        assert ends(heard) == ["stopped"] * 5 + ["put off"] * 5, "until the third problem: two cells each"
        assert "the key is wrong" in heard[-1].reason
        assert len(model.asked) == 5
        _, heard = work(store, experiment(5))
        assert ends(heard) == ["finished"] * 10
        assert all(trial.state == "finished" for trial in read_studies(store, [name])[0].trials)

    def test_a_spent_budget_ends_the_sitting_and_a_higher_one_goes_on(self, store: Store) -> None:
        def priced(prompt: Prompt) -> Completion:
            return Completion(reply(prompt), "scripted:a", Usage(1, 100, 100, 0.01))

        wanted = experiment(5, budget=Budget(dollars=0.045))
        name, heard = work(store, wanted, Model(priced, rate=Rate(0.0, 0.0)), parallel=1)
        assert "put off" in ends(heard)
        spent = scheduler.spent_on(store, Experiments(store).cell_states(name))
        assert 0.03 <= spent.dollars <= 0.06
        more = replace(wanted, budget=Budget(dollars=10.0))
        again, heard = work(store, more, Model(priced, rate=Rate(0.0, 0.0)))
        assert again == name
        assert "finished" in ends(heard)
        assert all(trial.state == "finished" for trial in read_studies(store, [name])[0].trials)

    @pytest.mark.parametrize("budget", [Budget(tokens=1_000_000), Budget(dollars=10.0)])
    def test_cells_ask_at_once_under_a_budget(self, store: Store, budget: Budget) -> None:
        class Together(Model):
            """Answers nobody before five have asked."""

            async def complete(self, prompt: Prompt) -> Completion:
                answer = await super().complete(prompt)
                if len(self.asked) == 5:
                    everybody.set()
                await asyncio.wait_for(everybody.wait(), 20)
                return replace(answer, usage=Usage(1, 100, 100, 0.01))

        everybody = asyncio.Event()
        only = experiment().configurations[:1]
        wanted = experiment(5, budget=budget, configurations=only)
        _, heard = work(store, wanted, Together(rate=Rate(1e-6, 1e-5)), parallel=5)
        assert ends(heard) == ["finished"] * 5

    def test_reverted_it_finds_what_was_done_at_first(self, store: Store) -> None:
        first, _ = work(store, experiment(1))
        other = (Configuration("other", ("scripted:a",), {"iterations": 2, "profiling": "none"}),)
        work(store, experiment(1, configurations=other))
        again, heard = work(store, experiment(1))
        assert again == first
        assert ends(heard) == ["earlier"] * 2

    def test_what_a_configuration_is_called_does_not_matter(self, store: Store) -> None:
        first, _ = work(store, experiment(2))
        renamed = tuple(replace(item, name=f"{item.name} · scripted:a") for item in experiment().configurations)
        second, heard = work(store, experiment(2, configurations=renamed))
        assert first == second
        assert ends(heard) == ["earlier"] * 4

    def test_two_configurations_that_mean_the_same_are_two(self, store: Store) -> None:
        same = tuple(replace(experiment().configurations[0], name=name) for name in ("a", "a again"))
        _, heard = work(store, experiment(1, configurations=same))
        assert ends(heard) == ["finished"] * 2

    def test_a_run_that_goes_on_beyond_the_experiment_is_confirmed_anew(self, store: Store) -> None:
        name, _ = work(store, experiment(1), judge=lambda job: with_evidence(job, judge(job)))
        trial = read_studies(store, [name])[0].trials[1]
        better = NullExecutor(lambda job: with_evidence(job, makers.verdict(9.0)))
        place = RunEnvironment(store, ModelAccess(models={"scripted:a": Model()}), executor=better)
        asyncio.run(resume_async(trial.run, place, ResumeOptions(iterations=4)))
        changed = read_studies(store, [name])[0].trials[1]
        assert (changed.state, changed.confirmation) == ("stopped", None)
        _, heard = work(store, experiment(1), judge=lambda job: with_evidence(job, makers.verdict(8.0)))
        assert ends(heard) == ["earlier", "finished"]
        confirmed = read_studies(store, [name])[0].trials[1].verdict
        assert confirmed is not None
        assert confirmed.speedup == 8.0


class TestWhoAnswers:
    def result(self, *reasons: Any) -> Any:
        return RunResult("r", RunSpec(problem(0)), (), tuple(Stop(reason, f"words of {reason}") for reason in reasons))

    def test_one_hopeless_problem_does_not_make_a_model_dead(self) -> None:
        model_health = ModelHealth()
        for _ in range(9):
            model_health.take("p0", ("a",), self.result("model"))
        assert model_health.put_off(("a",)) == ""

    def test_an_answer_makes_up_for_all(self) -> None:
        model_health = ModelHealth()
        for name in ("p0", "p1"):
            model_health.take(name, ("a",), self.result("model"))
        model_health.take("p2", ("a",), self.result("iterations"))
        model_health.take("p3", ("a",), self.result("model"))
        assert model_health.put_off(("a",)) == ""

    def test_of_a_crew_only_the_silent_one_is_put_off(self) -> None:
        model_health = ModelHealth()
        for number in range(DEAD_AFTER):
            model_health.take(f"p{number}", ("a", "b"), self.result("model", "iterations"))
        assert "a gave no reply" in model_health.put_off(("a",))
        assert model_health.put_off(("b",)) == ""

    def test_a_spent_budget_puts_everybody_off(self) -> None:
        model_health = ModelHealth()
        model_health.take("p0", ("a",), self.result("budget"))
        assert model_health.put_off(("b",)) == "words of budget"

    def test_one_model_asked_in_two_ways_is_open_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        def opening(name: str, settings: Any) -> Model:
            asked.append(settings.temperature)
            return Model()

        monkeypatch.setattr("kforge.run.model_pool.open_model", opening)
        ways = tuple(
            Configuration(f"at {value}", ("scripted:a",), {"iterations": 1, "temperature": value})
            for value in (0.0, 1.0)
        )
        access = ModelAccess()
        open_experiment(experiment(1, configurations=ways), access)
        assert asked == [0.0, 1.0]


class TestFaults:
    def test_one_hopeless_problem_never_blocks_the_rest(self, store: Store) -> None:
        def broken(job: Job) -> Verdict:
            if job.problem.name == "p1":
                raise ProblemError("get_inputs() failed", path="p1.py")
            return judge(job)

        name, heard = work(store, experiment(), judge=broken)
        assert sorted(ends(heard)) == ["failed"] * 2 + ["finished"] * 4
        failed = [trial for trial in read_studies(store, [name])[0].trials if trial.state == "failed"]
        assert {trial.cell.problem for trial in failed} == {"level1/p1"}
        assert "get_inputs() failed" in failed[0].reason
        _, heard = work(store, experiment())
        assert sorted(ends(heard)) == ["earlier"] * 4 + ["finished"] * 2
        assert all(trial.state == "finished" for trial in read_studies(store, [name])[0].trials)

    def test_neither_does_a_fault_of_our_own(self, store: Store) -> None:
        def broken(job: Job) -> Verdict:
            if job.problem.name == "p0":
                raise ZeroDivisionError("division by zero")
            return judge(job)

        _, heard = work(store, experiment(), judge=broken)
        failed = [news for news in heard if news.end == "failed"]
        assert len(failed) == 2
        assert "internal error: ZeroDivisionError" in failed[0].reason

    def test_a_store_that_cannot_record_ends_the_sitting(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        real, count = Store.add_attempt, 0

        def full(self: Store, run: str, attempt: Any) -> None:
            nonlocal count
            count += 1
            if count > 3:
                raise StoreError("the disk is full: free some space")
            real(self, run, attempt)

        monkeypatch.setattr(Store, "add_attempt", full)
        with pytest.raises(StoreError, match="the disk is full"):
            work(store, experiment())
        monkeypatch.undo()
        model = Model()
        name, heard = work(store, experiment(), model)
        assert "failed" not in ends(heard)
        trials = read_studies(store, [name])[0].trials
        assert all(trial.state == "finished" for trial in trials)
        assert [len(trial.history) for trial in trials] == [1, 3] * 3

    def test_a_really_full_disk_loses_nothing(self, small_disk: Path) -> None:
        long = Configuration("long", ("scripted:a",), {"iterations": 40, "plateau": 40, "profiling": "none"})
        wanted = experiment(8, configurations=(long,))
        with Store.open(small_disk / "store") as store:
            with pytest.raises(StoreError, match="the disk is full"):
                work(store, wanted)
            before = read_studies(store, ["e"])[0].trials
            assert any(trial.history for trial in before)
            assert any(trial.state != "finished" for trial in before)
            subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
            work(store, wanted)
            after = read_studies(store, ["e"])[0].trials
        for earlier, later in zip(before, after, strict=True):
            assert (later.state, len(later.history)) == ("finished", 40)
            assert later.history[: len(earlier.history)] == earlier.history

    def test_two_sittings_at_once_are_refused(self, store: Store) -> None:
        name = begin(experiment(), store)
        with Experiments(store).hold(name), pytest.raises(RunBusy, match="experiment"):
            work(store, experiment())

    def test_the_harness_failing_to_confirm_keeps_the_run(self, store: Store) -> None:
        def broken(job: Job) -> Verdict:
            if job.id == "confirm":
                raise HarnessError("the device is gone")
            return judge(job)

        name, heard = work(store, experiment(1), judge=broken)
        assert sorted(ends(heard)) == ["failed", "finished"]
        model = Model()
        _, heard = work(store, experiment(1), model)
        assert sorted(ends(heard)) == ["earlier", "finished"]
        assert not model.asked
        assert read_studies(store, [name])[0].trials[1].confirmation is not None


class TestBundle:
    def test_cells_wait_for_reports_and_nothing_is_asked_meanwhile(self, store: Store, tmp_path: Path) -> None:
        folder = BundleFolder(tmp_path / "bundle")
        wanted = experiment(1, executor=f"bundle:{folder.path}")
        model = Model()

        def sit() -> list[str]:
            access = ModelAccess(models={"scripted:a": model})
            pool = open_experiment(wanted, access)
            heard: list[News] = []
            asyncio.run(
                conduct(begin(wanted, store), ExperimentEnvironment(store, access, pool=pool, tell=heard.append))
            )
            return ends(heard)

        assert sit() == ["waiting", "waiting"]
        asked = len(model.asked)
        assert sit() == ["waiting", "waiting"]
        assert len(model.asked) == asked
        assert bundle_maker.work(folder, [1.5, 1.5]) == 1, "both ask the same of the model: one job"
        assert sit() == ["finished", "waiting"]
        bundle_maker.work(folder, [2.0])
        sit()
        bundle_maker.work(folder, [2.5])
        assert sit() == ["earlier", "waiting"], "its winner is judged once more"
        trials = read_studies(store, ["e"])[0].trials
        assert [(trial.state, len(trial.history)) for trial in trials] == [("finished", 1), ("waiting", 3)]
        bundle_maker.work(folder, [2.2])
        assert sit() == ["earlier", "finished"]
        confirmed = read_studies(store, ["e"])[0].trials[1].verdict
        assert confirmed is not None
        assert confirmed.speedup == 2.2


class TestRecord:
    def test_each_sitting_says_where_and_with_what(self, store: Store) -> None:
        name, _ = work(store, experiment(), command="kforge bench e.toml")
        work(store, experiment(4), command="kforge bench e.toml")
        study = read_studies(store, [name])[0]
        assert [session.command for session in study.sessions] == ["kforge bench e.toml"] * 2
        assert study.sessions[0].versions["python"]
        assert study.sessions[0].machine["device of cpu"]
        assert {trial.session for trial in study.trials} == {0, 1}


class TestReading:
    def test_runs_of_the_loop_make_a_study_too(self, store: Store) -> None:
        for number in (0, 1):
            request = RunSpec(problem(number), models=("scripted:a",), plan=Plan(iterations=2), profilers=())
            place = RunEnvironment(store, ModelAccess(models={"scripted:a": Model()}), executor=NullExecutor(judge))
            asyncio.run(drive_run(request, place))
        names = [item.id for item in store.runs()]
        (study,) = read_studies(store, names)
        assert len(study.trials) == 2
        assert len(study.groups()) == 1
        with pytest.raises(UsageError, match="no experiment and no run is called 'nobody'"):
            read_studies(store, ["nobody"])

    def test_runs_that_were_asked_otherwise_are_other_configurations(self, store: Store) -> None:
        for profilers in ((), None):
            request = RunSpec(problem(0), models=("scripted:a",), plan=Plan(iterations=1), profilers=profilers)
            place = RunEnvironment(store, ModelAccess(models={"scripted:a": Model()}), executor=NullExecutor(judge))
            asyncio.run(drive_run(request, place))
        (study,) = read_studies(store, [item.id for item in store.runs()])
        assert len(study.groups()) == 2

    def test_an_experiment_whose_name_has_an_odd_word_hides_no_run(self, store: Store) -> None:
        work(store, experiment(1, name="several models"))
        run = store.runs()[0].id
        assert read_studies(store, [run])[0].trials[0].run == run

    def test_what_one_verdict_knows_of_a_problem_holds_for_all(self, store: Store) -> None:
        def odd(job: Job) -> Verdict:
            return replace(judge(job), degenerate=("near-constant",) if job.id == "0.2" else ())

        name, _ = work(store, experiment(1), judge=odd)
        assert [trial.degenerate for trial in read_studies(store, [name])[0].trials] == [("near-constant",)] * 2

    def test_merged_studies_keep_configurations_of_the_same_name_apart(self, store: Store) -> None:
        one, _ = work(store, experiment(1, name="one"))
        two, _ = work(store, experiment(1, name="two"))
        study = merge_studies(read_studies(store, [one, two]))
        assert [name for _, name in study.groups()] == ["one: short", "one: long", "two: short", "two: long"]
        assert {trial.session for trial in study.trials} == {0, 1}


class TestProgress:
    def test_the_rest_is_estimated_at_the_pace_of_this_sitting(self) -> None:
        now = 0.0
        progress = Progress(experiment(4), clock=lambda: now)
        cells = list(experiment(4).cells())
        progress.take(News(cells[0], end="earlier", verdict=makers.verdict(1.2)))
        for cell in cells[1:3]:
            progress.take(News(cell, end="finished"))
            assert progress.seconds_left is None, "two cells say little"
        now = 30.0
        progress.take(News(cells[3], end="finished", verdict=makers.verdict(1.5)))
        assert progress.seconds_left == 40.0
        assert progress.correct == 2
        progress.take(News(cells[4], end="put off"))
        assert progress.seconds_left == 30.0
        assert progress.done == 4, "what was put off is not done"

    def test_what_it_cost_is_as_it_was_last_heard(self) -> None:
        from kforge.run.context import RunEvent

        progress = Progress(experiment(), Usage(dollars=1.0))
        cell = next(experiment().cells())
        progress.take(
            News(cell, RunEvent(0, 1, "mismatch", makers.attempt(1, Outcome.MISMATCH)), spent=Usage(dollars=1.5))
        )
        assert progress.usage.dollars == 1.5
        assert list(progress.at_work) == [cell]

    def test_only_what_is_correct_is_called_so(self) -> None:
        progress = Progress(experiment())
        cells = list(experiment().cells())
        progress.take(News(cells[0], end="finished", verdict=makers.verdict(outcome=Outcome.MISMATCH)))
        progress.take(News(cells[1], end="stopped", verdict=makers.verdict(2.0)))
        assert progress.correct == 0
