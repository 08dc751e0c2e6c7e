"""Prompts: what is in them, that they fit, and that nothing inside a block can leave it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import makers
from kforge.agents.prompt_maker import PromptMaker, styles
from kforge.agents.text_limits import cut_log, fence, tokens
from kforge.errors import PromptTooLong, UsageError
from kforge.types import (
    Attempt,
    Candidate,
    Digest,
    Donor,
    Evidence,
    Image,
    Intent,
    Move,
    Outcome,
    Problem,
    ProblemForm,
    Profile,
    Recommendation,
    Settings,
    Signal,
    Verdict,
)

pytestmark = pytest.mark.pure

PROBLEM = Problem.from_source(
    """import torch
import torch.nn as nn
N = 64
KFORGE = {"sizes": {"cpu": {"N": 32}}}
class Model(nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(N)]
def get_init_inputs():
    return []
""",
    "double",
)
SIZED = Problem.from_source(
    PROBLEM.source.replace(
        '{"sizes"',
        '{"workloads": [{"N": 1, "weight": 0.5}, {"N": 4096}], "dynamic": {"N": (1, 8192)}, "sizes"',
    ),
    "sized",
)
DATA = st.text(alphabet=st.sampled_from("`~#\n abcE:{}%\\\"'<>"), max_size=300)


def failed(detail: str, outcome: Outcome = Outcome.COMPILATION_FAILURE, source: str = "broken") -> Attempt:
    return Attempt(Move(0, 1, Intent.FRESH), Candidate(source), makers.verdict(outcome=outcome, detail=detail))


def repair(attempt: Attempt):  # type: ignore[no-untyped-def]
    return makers.situation(PROBLEM, Move(0, 2, Intent.REPAIR, 1), (attempt,))


def optimise(**changes):  # type: ignore[no-untyped-def]
    best = replace(makers.attempt(1, 1.5), **changes)
    return makers.situation(PROBLEM, Move(0, 2, Intent.OPTIMISE, 1), (best,))


def text_of(situation, **settings) -> str:  # type: ignore[no-untyped-def]
    return PromptMaker(**settings).generate(situation).prompt.text


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_a_writer_is_told_what_the_judge_allows(style: str) -> None:
    asked = makers.situation(PROBLEM)
    usual, strict = (text_of(asked, style=style, settings=Settings(policy=name)) for name in ("hybrid", "strict"))
    assert "operator of PyTorch" in strict
    assert "operator of PyTorch" not in usual
    assert "Library calls" not in strict
    advice = PromptMaker(style, settings=Settings(policy="strict")).analyse(optimise()).prompt.text
    assert "operator of PyTorch" in advice
    assert "operator of PyTorch" not in PromptMaker(style).analyse(optimise()).prompt.text
    coarse = text_of(asked, style=style, settings=Settings(precision="bfloat16"))
    assert "as coarse as `bfloat16`" in coarse
    assert "Keep the precision" not in coarse
    assert "as coarse as" not in usual


def test_a_first_prompt_has_every_block_of_the_paper() -> None:
    text = text_of(makers.situation(PROBLEM))
    for part in (
        "# Task",
        "# Platform",
        "# Example",
        "# Problem",
        "# Instruction",
        "Write C++.",
        "class Model(nn.Module)",
    ):
        assert part in text
    for part in ("# Reference implementation", "# The previous program", "# Recommendation"):
        assert part not in text
    assert "N = 32" in text, "the sizes of the platform's device class are in place"
    assert "KFORGE" not in text, "what speaks to the judge is left out"


def test_optional_blocks_appear_when_there_is_something_to_say() -> None:
    situation = replace(
        optimise(),
        donor=Donor("__global__ void k() {}", "from the file k.cu"),
        recommendation=Recommendation("Fuse the two loops.", "two passes over memory"),
    )
    text = text_of(situation)
    for part in (
        "__global__ void k() {}",
        "from the file k.cu",
        "Fuse the two loops.",
        "two passes",
        "best program so far",
    ):
        assert part in text


def history_line(last: Attempt) -> str:
    """What a prompt says of the last of two attempts."""
    first = makers.attempt(1, 1.5)
    text = text_of(makers.situation(PROBLEM, Move(0, 3, Intent.OPTIMISE, 1), (first, last)))
    return next(line for line in text.splitlines() if line.startswith("2. "))


def test_advice_that_was_not_applied_is_not_told_as_advice_that_failed() -> None:
    first = makers.attempt(1, 1.5).candidate
    assert first is not None
    tried = makers.attempt(2, 1.5, Intent.OPTIMISE, 1, advice="Fuse the loops.")
    same = replace(tried, candidate=Candidate(first.source, parent=first.id))
    assert history_line(same) == (
        "2. optimise, advised: Fuse the loops. -> came back unchanged: the advice was not applied, so nothing is known "
        "of its effect"
    )
    assert history_line(tried) == "2. optimise, following: Fuse the loops. -> correct, 1.50x against eager"


def test_a_repair_that_changed_nothing_and_a_program_of_an_earlier_step_are_told_as_that() -> None:
    first = makers.attempt(1, 1.5).candidate
    assert first is not None
    repaired = makers.attempt(2, Outcome.MISMATCH, Intent.REPAIR, 1)
    same = replace(repaired, candidate=Candidate(first.source, parent=first.id))
    assert history_line(same) == "2. repair -> came back unchanged"
    again = replace(makers.attempt(2, 1.5, Intent.OPTIMISE, 1), candidate=Candidate(first.source, parent="another"))
    assert "the same program as 1: correct" in history_line(again)


def test_a_program_that_is_silently_wrong_somewhere_is_to_be_mended() -> None:
    text = text_of(optimise(verdict=replace(makers.verdict(1.5), hazards=("a gradient is asked for",))))
    assert "It gives a wrong result without an error when a gradient is asked for: raise an error there" in text


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_workloads_and_ranges_are_said_where_a_problem_has_them(style: str) -> None:
    text = text_of(makers.situation(SIZED), style=style)
    assert "- N = 1 (weight 0.33)\n- N = 4096 (weight 0.67)\n" in text
    assert "One program must be right on all of them. Its speedup is the weighted geometric mean" in text
    assert "Sizes vary: N from 1 to 8192." in text
    assert "sizes inside them that are not shown here: 1, primes" in text
    assert "N = 1\n" in text, "the text has the sizes of the first workload, and not those of the device class"
    assert "KFORGE" not in text
    plain = text_of(makers.situation(PROBLEM), style=style)
    assert "weight" not in plain.replace("weights", "")
    assert "Sizes vary" not in plain


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_a_writer_and_an_analyst_see_on_which_workload_a_program_is_slow(style: str) -> None:
    best = replace(makers.attempt(1, 1.5), verdict=makers.by_workload({"N = 1": 0.5, "N = 4096": 4.0}))
    situation = makers.situation(SIZED, Move(0, 2, Intent.OPTIMISE, 1), (best,))
    for prompt in (PromptMaker(style).generate(situation).prompt, PromptMaker(style).analyse(situation).prompt):
        assert "| N = 1 | 0.5 | 0.50x | 0.40x | 90% |\n| N = 4096 | 0.5 | 4.00x | 3.20x | 80% |\n" in prompt.text
    assert "By workload" not in text_of(optimise(), style=style)


def held_out(verdict: Verdict, sizes: tuple[str, ...]) -> Verdict:
    evidence = Evidence(SIZED, Candidate("x"), Settings(), {}, {}, (), (), (), (), (), {}, held_out=sizes)
    return replace(verdict, evidence=evidence)


@pytest.mark.parametrize("style", ["structured", "plain"])
@given(st.integers(2, 4095))
def test_no_prompt_shows_a_size_that_was_held_out(style: str, size: int) -> None:
    secret = f"N = {size}"
    wrong = makers.verdict(outcome=Outcome.MISMATCH, detail=f"wrong with {secret}: differs at [0]")
    right = makers.by_workload({"N = 1": 0.5, "N = 4096": 4.0}, detail=f"right, with {secret} too")
    told = {
        "notes": (f"slow with {secret}",),
        "hazards": (f"{secret} comes twice",),
        "generality": (f"{secret}: right",),
    }
    past = (
        Attempt(Move(0, 1, Intent.FRESH), Candidate("first"), held_out(replace(wrong, **told), (secret,))),
        Attempt(Move(0, 2, Intent.REPAIR, 1), Candidate("second"), held_out(replace(right, **told), (secret, "N = 1"))),
    )
    for move in (Move(0, 3, Intent.FRESH), Move(0, 3, Intent.REPAIR, 1), Move(0, 3, Intent.OPTIMISE, 2)):
        situation = makers.situation(SIZED, move, past)
        prompts = [PromptMaker(style).generate(situation), PromptMaker(style).analyse(situation)]
        for fitted in prompts:
            # What was declared is shown, and no more.
            assert set(re.findall(r"\bN = \d+\b", fitted.prompt.text)) <= {"N = 1", "N = 4096"}


def test_a_repair_shows_the_program_and_the_verdict() -> None:
    text = text_of(repair(failed("line 3: expected ';' before '}' token", source="PROGRAM TEXT")))
    assert "PROGRAM TEXT" in text
    assert "expected ';'" in text
    assert "compilation_failure" in text


def test_a_reply_without_a_program_is_repaired_from_the_one_before() -> None:
    first = makers.attempt(1, Outcome.MISMATCH)
    empty = makers.attempt(2, Outcome.GENERATION_FAILURE, Intent.REPAIR, 1)
    text = text_of(makers.situation(PROBLEM, Move(0, 3, Intent.REPAIR, 2), (first, empty)))
    assert "no usable program" in text
    assert "x + 0.1" in text


def test_the_analyst_gets_program_digest_text_and_pictures() -> None:
    picture = Image("image/png", b"\x89PNG")
    situation = optimise(
        profiles=(Profile("trace", text="RAW PROFILE", images=(picture,)),),
        digest=Digest((Signal("bound", "memory bound", change="was compute"),)),
    )
    prompt = PromptMaker().analyse(situation).prompt
    assert prompt.purpose == "analyse"
    assert prompt.messages[-1].images == (picture,)
    for part in ("RAW PROFILE", "memory bound [was compute]", "x + 0.1", "exactly one change", "1 picture"):
        assert part in prompt.text


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_gradients_and_another_dtype_are_asked_for_where_they_are_wanted(style: str) -> None:
    situation = makers.situation(PROBLEM.in_form(ProblemForm("bfloat16", backward=True)))
    text, without = text_of(situation, style=style), text_of(makers.situation(PROBLEM), style=style)
    for word in ("torch.autograd.Function", "bfloat16", "timed together"):
        assert word in text
        assert word not in without


def test_the_example_with_gradients_is_shown_with_gradients_only() -> None:
    pair = ('KFORGE = {"backward": True}\nclass Model:\n    pass\n', "class ModelNew:\n    own = 1\n")
    target = replace(makers.TARGET, backward_example=pair)
    wanted = text_of(replace(makers.situation(PROBLEM.in_form(ProblemForm(backward=True))), target=target))
    assert "own = 1" in wanted
    assert "KFORGE" not in wanted
    assert "own = 1" not in text_of(replace(makers.situation(PROBLEM), target=target))


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_a_program_verified_with_smaller_sizes_is_written_for_the_real_ones(style: str) -> None:
    target = replace(makers.TARGET, device_class="gpu", verified_as="cpu")
    text = text_of(replace(makers.situation(PROBLEM), target=target), style=style)
    assert "N = 64" in text
    assert "smaller sizes (N = 32)" in text
    here = text_of(replace(makers.situation(PROBLEM), target=replace(target, verified_as="")), style=style)
    assert "N = 64" in here
    assert "smaller sizes" not in here


@pytest.mark.parametrize("style", ["structured", "plain"])
def test_both_styles_ask_for_the_same_thing(style: str) -> None:
    text = text_of(makers.situation(PROBLEM), style=style)
    assert "ModelNew" in text
    assert "class Model(nn.Module)" in text
    assert ("# Example" in text) == (style == "structured")


def test_equal_situations_give_equal_prompts_and_draws_differ() -> None:
    first = PromptMaker().generate(makers.situation(PROBLEM)).prompt
    assert first == PromptMaker().generate(makers.situation(PROBLEM)).prompt
    other = PromptMaker().generate(makers.situation(PROBLEM, Move(1, 1, Intent.FRESH))).prompt
    assert other.text == first.text
    assert other.id != first.id


def test_one_file_in_a_folder_replaces_one_block(tmp_path: Path) -> None:
    (tmp_path / "task.j2").write_text("MY TASK for {{ platform }}")
    text = text_of(makers.situation(PROBLEM), folder=str(tmp_path))
    assert "MY TASK for cpu" in text
    assert "# Example" in text


def test_a_style_says_what_it_has_to_and_the_structured_one_the_rest(tmp_path: Path) -> None:
    (tmp_path / "terse").mkdir()
    (tmp_path / "terse" / "generate.j2").write_text("GO {{ problem_source }}")
    asked = makers.situation(PROBLEM)
    maker = PromptMaker("terse", str(tmp_path))
    own, usual = maker.generate(asked).prompt, PromptMaker().generate(asked).prompt
    assert own.messages[0] == usual.messages[0]
    assert own.messages[1].text.startswith("GO import torch")
    assert maker.analyse(asked).prompt == PromptMaker().analyse(asked).prompt
    with pytest.raises(UsageError, match="no prompt style is called 'prose'; there are: plain, structured, terse"):
        PromptMaker("prose", str(tmp_path)).generate(asked)


def test_a_folder_may_hold_a_style_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "terse").mkdir()
    for name in ("generate", "generate_system"):
        (tmp_path / "terse" / f"{name}.j2").write_text("GO {{ problem_source }}")
    assert "terse" in styles(str(tmp_path))
    assert text_of(makers.situation(PROBLEM), style="terse", folder=str(tmp_path)).startswith("GO import torch")


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"style": "poetic"}, "structured"), ({"folder": "/nowhere/at/all"}, "no such folder")],
)
def test_what_is_not_there_is_said(settings: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        text_of(makers.situation(PROBLEM), **settings)


def test_a_broken_template_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "task.j2").write_text("one\n{{ no_such_thing }}")
    with pytest.raises(UsageError, match=r"task\.j2:2: .*no_such_thing"):
        text_of(makers.situation(PROBLEM), folder=str(tmp_path))


def test_long_logs_are_cut_around_the_first_error() -> None:
    log = "\n".join([f"note {n}" for n in range(20_000)] + ["kernel.cpp:7: error: no such name"] + ["later"] * 20_000)
    written = PromptMaker(ceiling=8_000).generate(repair(failed(log)))
    assert "kernel.cpp:7: error" in written.prompt.text
    assert "lines left out" in written.prompt.text
    assert written.tokens <= 8_000


def test_a_reference_that_does_not_fit_is_left_out_aloud() -> None:
    situation = replace(makers.situation(PROBLEM), donor=Donor("x = 1\n" * 20_000, "from a file"))
    written = PromptMaker(ceiling=8_000).generate(situation)
    assert "reference" in written.omitted
    assert "was left out" in written.prompt.text


def test_sources_are_never_cut() -> None:
    with pytest.raises(PromptTooLong, match="--prompt-tokens"):
        PromptMaker(ceiling=2_000).generate(repair(failed("wrong", source="y = 2\n" * 20_000)))


@given(st.text(max_size=3000), st.integers(200, 2000))
def test_a_cut_log_is_short(text: str, limit: int) -> None:
    assert len(cut_log(text, limit)) <= max(limit, 450) + 120


@given(DATA)
def test_nothing_closes_its_own_fence(text: str) -> None:
    block = fence(text, "text").split("\n")
    marks = re.match(r"`+", block[0])
    assert marks is not None
    assert block[-1] == marks[0]
    assert not any(re.fullmatch(rf"\s*`{{{len(marks[0])},}}\s*", line) for line in block[1:-1])


@given(DATA, DATA)
def test_untrusted_text_stays_inside_its_block(source: str, log: str) -> None:
    """Whatever program and log say, the headings outside fences are ours and no others."""
    text = text_of(repair(failed(log or "wrong", source=source)))
    outside, marks = [], ""
    for line in text.split("\n"):
        match = re.match(r"`{3,}", line)
        if marks:
            marks = "" if line == marks else marks
        elif match:
            marks = match[0]
        else:
            outside.append(line)
    assert not marks, "every fence is closed"
    headings = [line for line in outside if line.startswith("#")]
    assert headings == [
        "# Task",
        "# Platform",
        "## The platform",
        "# Example",
        "# Problem",
        "# The previous program",
        "# Instruction",
    ]


def test_every_bundled_problem_fits_the_default_ceiling() -> None:
    from kforge import problems
    from kforge.platforms.cpu.platform import PLUGIN

    for problem in problems.find("bundled"):
        situation = replace(
            makers.situation(problem), target=replace(makers.TARGET, guide=PLUGIN.guide(), example=PLUGIN.example())
        )
        written = PromptMaker().generate(situation)
        assert tokens(written.prompt.text) < 8_000
        assert not written.omitted
