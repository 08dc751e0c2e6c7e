"""The loop: two agents, a judge and a store, with scripted models and no device."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kforge
import makers
from kforge.errors import BudgetSpent, HarnessError, ModelUnavailable, ProblemError, RunBusy, UsageError
from kforge.execution.null import NullExecutor
from kforge.models.rate_limit import Limited
from kforge.models.scripted import Scripted
from kforge.run.context import RunEnvironment, RunEvent
from kforge.run.model_pool import ModelAccess, ModelPool
from kforge.run.team import open_models
from kforge.spec.run_spec import ResumeOptions
from kforge.store.store import Store
from kforge.types import (
    Budget,
    Completion,
    Intent,
    Job,
    ModelSettings,
    Outcome,
    Plan,
    Profile,
    Prompt,
    Report,
    RunSpec,
    Settings,
    Usage,
    Verdict,
)

pytestmark = pytest.mark.cpu

ADVICE = json.dumps({"recommendation": "Fuse the loops.", "evidence": "two passes over memory"})


def judging(*results: float | Outcome | Verdict) -> tuple[NullExecutor, list[Job]]:
    """An executor that gives these verdicts in turn, and the jobs it saw."""
    left = list(results)
    seen: list[Job] = []

    def judge(job: Job) -> Verdict:
        seen.append(job)
        result = left.pop(0)
        if isinstance(result, Verdict):
            return result
        return makers.verdict(outcome=result) if isinstance(result, Outcome) else makers.verdict(result)

    return NullExecutor(judge), seen


def always(prompt: Prompt) -> str:
    """A new program each time, and advice when asked for it."""
    return ADVICE if prompt.purpose == "analyse" else makers.reply(f"x + {prompt.sample.replace('.', '')}")


def place(folder: Path, executor: Any, *models: Scripted, **means: Any) -> RunEnvironment:
    opened = {model.name: model for model in models}
    return RunEnvironment(str(folder / "store"), ModelAccess(models=opened, **means), executor=executor)  # type: ignore[arg-type]


def forge(
    problem: Any, where: RunEnvironment, model: str | list[str] = "scripted", **options: Any
) -> kforge.ForgeResult:
    return kforge.forge(problem, "cpu", model, where, **options)


def test_repair_then_optimise_with_advice(tmp_path: Path, scale_relu: Any) -> None:
    executor, jobs = judging(Outcome.COMPILATION_FAILURE, 1.5, 2.0, 1.8)
    model = Scripted(always)
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=4)
    moves = [(item.move.intent, item.move.parent, item.verdict.outcome) for item in result.history]
    assert moves == [
        (Intent.FRESH, None, Outcome.COMPILATION_FAILURE),
        (Intent.REPAIR, 1, Outcome.CORRECT),
        (Intent.OPTIMISE, 2, Outcome.CORRECT),
        (Intent.OPTIMISE, 3, Outcome.CORRECT),
    ]
    assert result.best is result.history[2]
    assert result.verdict == result.history[2].verdict
    assert "x + 031" in result.source
    assert result.history[2].recommendation is not None
    assert result.history[2].recommendation.text == "Fuse the loops."
    assert [prompt.purpose for prompt in model.asked] == ["generate"] * 2 + ["analyse", "generate"] * 2
    assert "Fuse the loops." in model.asked[3].text
    assert "compilation_failure" in model.asked[1].text
    assert jobs[0].settings.profilers, "the platform's profilers are asked for"
    assert result.stops[0].reason == "iterations"


def test_a_chain_tells_which_file_its_mailbox_waits_for(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    waits: list[RunEvent] = []

    def answer(event: RunEvent) -> None:
        if event.awaits:
            waits.append(event)
            Path(event.awaits).write_text(makers.reply())

    where = replace(place(tmp_path, executor), tell=answer)
    result = forge(scale_relu, where, f"mailbox:{tmp_path / 'mail'}", iterations=1, samples=1)
    assert result.best is not None
    assert [(event.chain, event.step, event.words) for event in waits] == [(0, 1, "waiting for a reply")]
    assert Path(waits[0].awaits).parent == tmp_path / "mail"


def test_a_reply_without_a_program_is_an_attempt_and_is_repaired(tmp_path: Path, scale_relu: Any) -> None:
    executor, jobs = judging(1.5)
    model = Scripted(["I would rather not.", makers.reply()])
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=2)
    assert result.history[0].verdict.outcome is Outcome.GENERATION_FAILURE
    assert result.history[0].candidate is None
    assert "no code" in model.asked[1].text
    assert len(jobs) == 1


def test_a_program_judged_before_is_not_judged_again(tmp_path: Path, scale_relu: Any) -> None:
    executor, jobs = judging(1.5)
    model = Scripted(lambda prompt: ADVICE if prompt.purpose == "analyse" else makers.reply("same"))
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=3)
    assert len(jobs) == 1
    assert len(result.history) == 3
    assert "not judged again" in result.history[1].notes[-1]


def test_the_best_of_all_chains_and_models_wins(tmp_path: Path, scale_relu: Any) -> None:
    def judge(job: Job) -> Verdict:
        return makers.verdict(3.0 if "from b" in job.candidate.source else 1.2)

    models = [Scripted([makers.reply(f"'from {name} {n}'") for n in range(9)], name=name) for name in "ab"]
    where = place(tmp_path, NullExecutor(judge), *models)
    result = forge(scale_relu, where, model=["a", "b"], samples=4, iterations=1, analyst_model="none")
    assert sorted((item.move.chain, item.model) for item in result.history) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
    assert result.best is not None
    assert result.best.model == "b"


def test_a_model_that_was_given_open_stays_open(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    model = Scripted(always)
    forge(scale_relu, place(tmp_path, executor, model), iterations=1)
    assert not model.closed


def test_the_target_ends_every_chain(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.1, 2.5)
    result = forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=9, target_speedup=2.0)
    assert len(result.history) == 2
    assert result.stops[0].reason == "target"


def test_a_malformed_analysis_is_asked_again_once(tmp_path: Path, scale_relu: Any) -> None:
    answers = iter(["First fuse, then unroll, then tile.", ADVICE])
    model = Scripted(lambda prompt: next(answers) if prompt.purpose == "analyse" else always(prompt))
    executor, _ = judging(1.5, 1.6)
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=2)
    assert result.history[1].recommendation is not None
    assert "asked twice" in result.history[1].notes[0]
    again = [prompt for prompt in model.asked if prompt.purpose == "analyse"][1]
    assert [message.role for message in again.messages] == ["system", "user", "assistant", "user"]


def test_an_analyst_that_stays_malformed_does_not_end_the_run(tmp_path: Path, scale_relu: Any) -> None:
    model = Scripted(lambda prompt: "no idea" if prompt.purpose == "analyse" else always(prompt))
    executor, _ = judging(1.5, 1.6)
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=2)
    assert result.history[1].recommendation is None
    assert "no usable recommendation" in result.history[1].notes[0]
    assert sum(prompt.purpose == "analyse" for prompt in model.asked) == 2


def test_profiles_reach_the_analyst_as_a_digest(tmp_path: Path, scale_relu: Any) -> None:
    class Profiling:
        machine = asyncio.Lock()

        async def run(self, job: Job, tell: Callable[[str], None]) -> Report:
            profile = Profile("roofline", {"roofline_share": 0.25}, "RAW TEXT OF THE TOOL")
            return Report(job.id, "p", job.candidate.id, "cpu", makers.verdict(1.5), (profile,))

        async def close(self) -> None:
            pass

    model = Scripted(always)
    result = forge(scale_relu, place(tmp_path, Profiling(), model), iterations=2)
    assert result.history[0].digest is not None
    assert result.history[0].digest.signals
    asked = next(prompt for prompt in model.asked if prompt.purpose == "analyse")
    assert "RAW TEXT OF THE TOOL" in asked.text
    assert result.history[0].digest.signals[0].words in asked.text


# -- breaking off and going on


def test_a_dead_provider_stops_the_run_and_resuming_asks_nothing_twice(tmp_path: Path, scale_relu: Any) -> None:
    first = Scripted([makers.reply("one"), ADVICE, ModelUnavailable("overloaded", retry_after=1e6)])
    executor, _ = judging(1.5)
    result = forge(scale_relu, place(tmp_path, executor, first), iterations=3)
    assert result.stops[0].reason == "model"
    assert len(result.history) == 1
    with Store.open(tmp_path / "store") as store:
        assert store.run("last").state == "stopped"
    second = Scripted(always)
    executor, _ = judging(1.7, 1.9)
    resumed = kforge.resume("last", place(tmp_path, executor, second))
    assert [prompt.purpose for prompt in second.asked] == ["generate", "analyse", "generate"]
    assert len(resumed.history) == 3
    assert resumed.history[1].recommendation is not None
    with Store.open(tmp_path / "store") as store:
        assert store.run("last").state == "finished"
        assert store.history(resumed.run) == resumed.history


def test_a_reply_that_was_paid_for_survives_the_judge_breaking(tmp_path: Path, scale_relu: Any) -> None:
    def broken(job: Job) -> Verdict:
        raise HarnessError("the machine is on fire")

    first = Scripted(always)
    with pytest.raises(HarnessError):
        forge(scale_relu, place(tmp_path, NullExecutor(broken), first), iterations=1)
    with Store.open(tmp_path / "store") as store:
        assert (store.run("last").state, store.run("last").reason) == ("failed", "the machine is on fire")
    second = Scripted([])
    executor, _ = judging(1.5)
    resumed = kforge.resume("last", place(tmp_path, executor, second))
    assert second.asked == []
    assert resumed.best is not None


def test_a_finished_run_may_do_more(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    executor, _ = judging(1.6, 1.7)
    resumed = kforge.resume("last", place(tmp_path, executor, Scripted(always)), ResumeOptions(iterations=3))
    assert [item.speedup for item in resumed.history] == [1.5, 1.6, 1.7]


def test_what_was_raised_is_remembered(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    dying = Scripted([ADVICE, ModelUnavailable("away", retry_after=1e6)])
    kforge.resume("last", place(tmp_path, executor, dying), ResumeOptions(iterations=3))
    executor, _ = judging(1.6, 1.7)
    resumed = kforge.resume("last", place(tmp_path, executor, Scripted(always)))
    assert len(resumed.history) == 3


def test_a_raised_limit_that_makes_no_sense_is_refused(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    with pytest.raises(UsageError, match="positive"):
        kforge.resume("last", place(tmp_path, executor, Scripted(always)), ResumeOptions(target_speedup=-1))


def test_a_program_too_long_to_show_is_a_step_and_not_the_end(tmp_path: Path, scale_relu: Any) -> None:
    def answer(prompt: Prompt) -> str:
        if prompt.purpose == "generate" and prompt.sample == "0.2.1":
            return makers.reply("x  # " + "long " * 40_000)
        return str(always(prompt))

    executor, _ = judging(1.5, Outcome.MISMATCH, 1.9)
    result = forge(scale_relu, place(tmp_path, executor, Scripted(answer)), iterations=5, repairs=2)
    assert [item.correct for item in result.history] == [True, False, False, False, True]
    assert "--prompt-tokens" in result.history[2].verdict.detail
    assert result.stops[0].reason == "iterations"


def test_profiling_can_be_left_out(tmp_path: Path, scale_relu: Any) -> None:
    executor, jobs = judging(1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1, profilers=())
    assert jobs[0].settings.profilers == ()


def test_the_cost_is_all_that_was_paid(tmp_path: Path, scale_relu: Any) -> None:
    usage = Usage(requests=1, dollars=0.5)
    replies = [Completion(makers.reply(), "scripted", usage), Completion(ADVICE, "scripted", usage)]
    executor, _ = judging(1.5)
    model = Scripted([*replies, ModelUnavailable("away", retry_after=1e6)])
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=2)
    assert len(result.history) == 1
    assert result.usage.dollars == 1.0


def test_a_spent_budget_is_a_hard_stop(tmp_path: Path, scale_relu: Any) -> None:
    usage = Usage(requests=1, input_tokens=600, output_tokens=500)
    model = Scripted(lambda prompt: Completion(str(always(prompt)), "scripted", usage))
    executor, _ = judging(1.5, 1.6, 1.7)
    result = forge(scale_relu, place(tmp_path, executor, model), iterations=3, budget_tokens=5_000)
    assert result.stops[0].reason == "budget"
    assert result.usage.tokens <= 5_000
    assert len(model.asked) < 5
    asked = len(model.asked)
    again = kforge.resume("last", place(tmp_path, executor, model))
    assert again.stops[0].reason == "budget"
    assert len(model.asked) == asked, "nothing more is asked"
    more = kforge.resume("last", place(tmp_path, executor, model), ResumeOptions(budget_tokens=50_000))
    assert more.stops[0].reason == "iterations"


def test_two_processes_do_not_work_on_one_run(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    with Store.open(tmp_path / "store") as store, store.hold(store.run("last").id), pytest.raises(RunBusy):
        kforge.resume("last", place(tmp_path, executor, Scripted(always)), ResumeOptions(iterations=2))


def test_prompts_are_kept_only_when_asked_for(tmp_path: Path, scale_relu: Any) -> None:
    marker = "# Task"
    executor, _ = judging(1.5, 1.5)
    forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert marker.encode() not in kept
    result = forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1, keep_prompts=True)
    with Store.open(tmp_path / "store") as store:
        prompt = store.prompt(result.run, "generate:0.1.1")
    assert prompt is not None
    assert marker in prompt.text


def test_a_recording_replays_the_run(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(Outcome.MISMATCH, 1.5, 1.8)
    traffic = tmp_path / "traffic.jsonl"
    first = forge(scale_relu, place(tmp_path, executor, Scripted(always), record=str(traffic)), iterations=3)
    executor, _ = judging(Outcome.MISMATCH, 1.4, 1.9)
    again = forge(scale_relu, place(tmp_path, executor), model=f"replay:{traffic}", iterations=3)
    assert [item.candidate for item in again.history] == [item.candidate for item in first.history]
    assert again.usage.dollars == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"iteratoins": 3}, "iteratoins"),
        ({"iterations": 0}, "at least 1"),
        ({"style": "poetic"}, "structured"),
        ({"reference": "no/such/file.cu"}, "no/such/file.cu"),
        ({"model": "builtin", "samples": 3}, "offline"),
        ({"model": "openai:gpt-5", "analyst_model": "builtin"}, "offline analyst"),
        ({"search": "wander"}, "refine"),
        ({"baseline": "bogus"}, "eager, tf32, compile"),
        ({"sandbox": "sandpit"}, "bubblewrap"),
        ({"profilers": ("stethoscope",)}, "stethoscope"),
        ({"analyst_model": "openai:x", "base_url": "http://localhost:1"}, "several providers"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_once(
    options: dict[str, Any], words: str, tmp_path: Path, scale_relu: Any
) -> None:
    model = Scripted(always)
    with pytest.raises(UsageError, match=words):
        forge(scale_relu, place(tmp_path, judging()[0], model), **options)
    assert model.asked == []
    assert not (tmp_path / "store").exists(), "no run is made"


def test_whole_records_are_options_too(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5)
    records = {
        "plan": Plan(iterations=1),
        "settings": Settings(seeds=3),
        "model_settings": ModelSettings(temperature=0.5),
        "budget": Budget(tokens=70_000),
    }
    request = forge(scale_relu, place(tmp_path, executor, Scripted(always)), **records).spec
    assert {name: getattr(request, name) for name in records} == records


def test_problems_of_one_command_share_a_limit_per_minute(tmp_path: Path, scale_relu: Any) -> None:
    request = RunSpec(scale_relu, models=("scripted",), plan=Plan(iterations=1), analyst_model="none")
    means = ModelAccess(models={"scripted": Scripted(always)}, per_minute=1)
    pool = ModelPool(means)
    shared = open_models(request, means, pool)
    assert open_models(request, means, pool) == shared
    assert isinstance(shared["scripted"], Limited)


def test_a_budget_is_what_is_left_of_it() -> None:
    spent = Usage(requests=1, input_tokens=30, output_tokens=20, dollars=0.5)
    assert Budget(2.0, 100).after(spent) == Budget(1.5, 50)
    assert Budget(0.4, 10).after(spent) == Budget(0.0, 0)
    assert Budget().after(spent) == Budget()


def test_events_tell_what_happens(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(1.5, 1.6)
    events: list[Any] = []
    where = replace(place(tmp_path, executor, Scripted(always)), tell=events.append)
    forge(scale_relu, where, iterations=2)
    words = [event.words for event in events]
    for expected in ("writing", "judging", "analysing", "correct"):
        assert expected in words
    assert events[-1].stop is not None


def test_budget_errors_are_model_errors() -> None:
    assert issubclass(BudgetSpent, kforge.errors.ModelError)


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import a_module_that_is_nowhere\n", "a_module_that_is_nowhere"),
        ("", "forward"),
    ],
    ids=["a missing import", "a bad forward"],
)
def test_a_problem_that_cannot_be_judged_costs_nothing(source: str, sentence: str, tmp_path: Path) -> None:
    broken = source + (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x @ torch.ones(3)\n\n\ndef get_inputs():\n    return [torch.rand(4, 4)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    model, problem = Scripted(always), kforge.Problem.from_source(broken, "broken")
    with pytest.raises(ProblemError, match=sentence):
        kforge.forge(problem, "cpu", "scripted", place(tmp_path, None, model), iterations=1)
    assert model.asked == [], "nobody was paid for a program that nothing could judge"


def test_a_winner_timed_beside_others_work_is_judged_again_until_it_is_quiet(tmp_path: Path, scale_relu: Any) -> None:
    executor, jobs = judging(1.2, makers.contended(1.66), 0.88)
    result = forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=2)
    assert [attempt.speedup for attempt in result.history] == [1.2, 0.88]
    assert result.best is result.history[0]
    assert [job.id for job in jobs] == ["0.1", "0.2", "0.2-again1"]
    assert any("judged again" in note and "1.66x" in note for note in result.history[1].notes)


def test_a_program_that_never_gets_a_quiet_machine_does_not_win_over_a_sure_one(
    tmp_path: Path, scale_relu: Any
) -> None:
    executor, jobs = judging(0.9, *[makers.contended(1.66)] * 3, makers.contended(0.5))
    where = place(tmp_path, executor, Scripted(always))
    result = forge(scale_relu, where, iterations=3)
    assert result.best is result.history[0]
    assert len(jobs) == 5, "what would not win is not judged again"
    assert result.history[1].sure_speedup == 0.0
    assert any("contended" in note for note in result.history[1].notes)
    with Store.open(where.store) as store:
        assert store.runs()[0].best_speedup == 0.9


def test_where_every_time_is_contended_the_best_is_the_one_that_seems_so_and_says_it(
    tmp_path: Path, scale_relu: Any
) -> None:
    executor, _ = judging(*[makers.contended(speedup) for speedup in (0.5, 0.5, 0.5, 1.66, 1.66, 1.66)])
    where = place(tmp_path, executor, Scripted(always))
    result = forge(scale_relu, where, iterations=2)
    assert result.best is result.history[1]
    with Store.open(where.store) as store:
        assert store.runs()[0].best_speedup == 1.66
    assert "contended" in result.annotated_source()
    with pytest.warns(kforge.NotFasterWarning, match="contended"):
        result.warn_unless_faster()


def test_a_fault_that_another_judging_finds_counts(tmp_path: Path, scale_relu: Any) -> None:
    executor, _ = judging(makers.contended(1.66), Outcome.MISMATCH)
    result = forge(scale_relu, place(tmp_path, executor, Scripted(always)), iterations=1)
    assert result.history[0].verdict.outcome is Outcome.MISMATCH
