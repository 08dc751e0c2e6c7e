"""The offline agents: which variant comes next is a function of the chain's past, and nothing else."""

from __future__ import annotations

import ast
import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents.base import Draft, Situation, Target
from kforge.agents.offline import readable_cpp, rules, variants
from kforge.agents.offline import variant_history as past
from kforge.agents.offline.call_translation import translate
from kforge.agents.offline.cpp_text import cpp_kernels
from kforge.agents.offline.factory import open_offline
from kforge.agents.offline.interface import DenseLayout, Input, Interface, StateTensor, row_major
from kforge.agents.offline.program import Parts, compose
from kforge.agents.offline.recipe import LoweringRequest, LoweringResult
from kforge.agents.offline.variants import VARIANTS
from kforge.agents.offline.wrapper import take_apart
from kforge.agents.offline.writer import OfflineWriter
from kforge.errors import PluginAbsent
from kforge.types import (
    Attempt,
    Candidate,
    Digest,
    ErrorNorm,
    Intent,
    Move,
    Outcome,
    Problem,
    Signal,
    Timing,
    Verdict,
)

pytestmark = pytest.mark.pure

TARGET = Target("cpu", "", ("", ""))
PROBLEM = Problem("sample", "class Model: ...")
TEXT = "tmp1.exp() norm for (;;) #pragma omp parallel torch.addmm("


class Scripted:
    """A lowering that knows each variant's text, or has a reason."""

    def __init__(self, idle: tuple[str, ...] = (), reason: str = "", failing: str = "") -> None:
        self.asked: list[str] = []
        self._idle = idle
        self._failing = failing
        self._reason = reason

    async def make(self, order: LoweringRequest) -> LoweringResult:
        self.asked.append(order.variant)
        if self._reason or order.variant == self._failing:
            return LoweringResult(None, self._reason or "it took too long")
        return LoweringResult(
            program(order.variant, "" if set(order.variant.split("+")) & set(self._idle) else order.variant)
        )

    async def close(self) -> None: ...


def program(variant: str, body: str) -> str:
    kept = [move for move in variants.moves_in(variant) if move in body.split("+")] if body else []
    return f'"""A program.\n\nvariant: {variant}\n"""\n{TEXT}\n# {kept}\n'


def attempt(step: int, variant: str, speedup: float | None, parent: int | None = None, **more: Any) -> Attempt:
    intent = Intent.FRESH if parent is None else Intent.OPTIMISE
    if speedup is None:
        verdict = Verdict(Outcome.MISMATCH, "the output is wrong")
    else:
        timing = Timing("eager", speedup, (speedup, speedup), None, (1e6,), (1e6 * speedup,), 5, 1)
        verdict = Verdict(
            Outcome.CORRECT, "correct", errors=(ErrorNorm("natural", 0.0, 1.0, 0.0),), timing=timing, custom_share=0.9
        )
    return Attempt(Move(0, step, intent, parent), Candidate(program(variant, variant)), verdict, **more)


def situation(*attempts: Attempt, intent: Intent = Intent.OPTIMISE, parent: int | None = None) -> Situation:
    return Situation(PROBLEM, TARGET, Move(0, len(attempts) + 1, intent, parent), attempts)


def write(lowering: Scripted, asked: Situation) -> Draft:
    return asyncio.run(OfflineWriter(lowering).write(asked))  # type: ignore[arg-type]


def advised(asked: Situation) -> Situation:
    advice = asyncio.run(rules.RulesAnalyst().advise(asked))
    return replace(asked, recommendation=advice.recommendation)


# -- variants ----------------------------------------------------------------------------------------------------------


@given(st.sets(st.sampled_from(sorted(VARIANTS))), st.sampled_from(sorted(VARIANTS)))
def test_a_combination_holds_the_action_and_nothing_it_excludes(moves: set[str], action: str) -> None:
    name = variants.combine("+".join(moves), action)
    held = variants.moves_in(name)
    assert action in held
    assert not set(held) & set(VARIANTS[action].excludes)
    assert variants.combine(name, action) == name
    assert variants.variant_of(program(name, name)) == name


def test_a_recipe_is_the_sum_of_its_moves() -> None:
    made = variants.recipe("one_pass+fast_exp+one_thread")
    assert made.options == {"cpp.use_two_step_variance_threshold": 0, "cpp.threads": 1}
    assert made.rewrites == {".exp()": ".exp_u20()"}
    assert variants.recipe("default").options == {}


def test_only_lifted_programs_have_a_variant() -> None:
    assert variants.variant_of("class ModelNew: ...") is None


# -- the writer --------------------------------------------------------------------------------------------------------


def test_the_first_program_is_the_default() -> None:
    draft = write(Scripted(), situation(intent=Intent.FRESH))
    assert draft.source is not None
    assert variants.variant_of(draft.source) == "default"


def test_a_module_that_cannot_be_lifted_is_a_failed_attempt_and_then_the_end() -> None:
    lowering = Scripted(reason="the size of a result depends on the data")
    first = write(lowering, situation(intent=Intent.FRESH))
    assert (first.source, first.exhausted) == (None, False)
    assert "depends on the data" in first.reason
    failed = Attempt(Move(0, 1, Intent.FRESH), None, Verdict(Outcome.GENERATION_FAILURE, first.reason))
    second = write(lowering, situation(failed, intent=Intent.REPAIR, parent=1))
    assert second.exhausted
    assert "depends on the data" in second.reason


def test_advice_is_followed_on_top_of_the_parents_variant() -> None:
    asked = situation(attempt(1, "default", 1.0), attempt(2, "fast_exp", 1.5, parent=1), parent=2)
    asked = replace(asked, recommendation=rules.Recommendation("", action="unroll"))
    draft = write(Scripted(), asked)
    assert draft.source is not None
    assert variants.variant_of(draft.source) == "fast_exp+unroll"
    assert draft.recommendation is None, "the advice as it was given"


def test_a_move_that_changes_nothing_is_noted_and_passed_over() -> None:
    asked = situation(attempt(1, "default", 1.0), parent=1)
    asked = replace(asked, recommendation=rules.Recommendation("", action="one_pass"))
    draft = write(Scripted(idle=("one_pass",)), asked)
    assert draft.source is not None
    assert past.idle_note("one_pass") in draft.notes
    assert "one_pass" not in variants.moves_in(variants.variant_of(draft.source) or "")
    made = draft.recommendation
    assert made is not None, "the attempt says which move was made"
    assert variants.variant_of(draft.source) == made.action
    assert made.text == variants.VARIANTS[made.action].advice
    assert made.evidence.endswith("the advice, one_pass, was not followed: one_pass changes nothing here")


def test_without_an_analyst_the_attempt_says_which_move_was_made() -> None:
    draft = write(Scripted(), situation(attempt(1, "default", 1.0), parent=1))
    assert draft.source is not None
    assert draft.recommendation is not None
    assert draft.recommendation.action == variants.variant_of(draft.source)
    assert "not followed" not in draft.recommendation.evidence


def test_repair_goes_to_safer_variants_each_once_and_ends() -> None:
    lowering = Scripted()
    attempts = [attempt(1, "default", None)]
    seen = ["default"]
    for step in range(2, 10):
        draft = write(lowering, situation(*attempts, intent=Intent.REPAIR, parent=step - 1))
        if draft.source is None:
            assert draft.exhausted
            break
        seen.append(variants.variant_of(draft.source) or "")
        attempts.append(attempt(step, seen[-1], None, parent=step - 1))
    assert seen == list(dict.fromkeys(seen))
    assert seen[1] == "careful"
    assert any("own_kernels" in name for name in seen)


def test_work_that_is_torchs_is_mended_with_kernels_of_our_own() -> None:
    refused = Verdict(Outcome.REJECTED, "torch did the work", rule="decorative_kernel")
    first = replace(attempt(1, "default", None), verdict=refused)
    draft = write(Scripted(), situation(first, intent=Intent.REPAIR, parent=1))
    assert draft.source is not None
    assert variants.variant_of(draft.source) == "own_kernels"


@given(st.lists(st.sampled_from([0.5, 1.0, 1.5, None]), min_size=1, max_size=12))
def test_a_chain_never_writes_the_same_program_twice_and_ends(outcomes: list[float | None]) -> None:
    lowering = Scripted(idle=("one_thread",))
    attempts = [attempt(1, "default", 1.0)]
    sources = [attempts[0].candidate.source if attempts[0].candidate else ""]
    for step, speedup in enumerate([*outcomes, *[1.0] * len(VARIANTS)], start=2):
        correct = [item for item in attempts if item.correct]
        best = max(correct, key=lambda item: item.speedup or 0.0)
        draft = write(lowering, advised(situation(*attempts, parent=best.move.step)))
        if draft.source is None:
            assert draft.exhausted
            break
        assert past.body(draft.source) not in map(past.body, sources)
        sources.append(draft.source)
        name = variants.variant_of(draft.source) or ""
        made = attempt(step, name, speedup, parent=best.move.step, notes=draft.notes)
        attempts.append(replace(made, candidate=Candidate(draft.source)))


# -- the analyst -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signals", "action"),
    [
        ((Signal("bound", "memory bound: moving the data"), Signal("roofline_share", "", 0.3)), "row_at_once"),
        ((Signal("bound", "compute bound: arithmetic"),), "fast_exp"),
        ((Signal("bound", "overhead bound: the fixed cost"),), "one_thread"),
        ((Signal("call_overhead_share", "", 0.6), Signal("bound", "memory bound: moving the data")), "one_thread"),
        ((Signal("unvectorised_loops", "", 3.0),), "fast_exp"),
    ],
)
def test_the_bound_in_the_digest_decides_the_move(signals: tuple[Signal, ...], action: str) -> None:
    asked = advised(situation(attempt(1, "default", 1.0, digest=Digest(signals)), parent=1))
    assert asked.recommendation is not None
    assert asked.recommendation.action == action
    assert asked.recommendation.evidence
    assert asked.recommendation.text == VARIANTS[action].advice


def test_without_a_digest_the_verdict_alone_is_enough() -> None:
    made = attempt(1, "default", 1.0)
    timing = replace(made.verdict.timing, candidate_ns=(30_000.0,))
    short = replace(made, verdict=replace(made.verdict, timing=timing))
    asked = advised(situation(short, parent=1))
    assert asked.recommendation is not None
    assert asked.recommendation.action == "one_thread"


def test_a_variant_that_cannot_be_lifted_is_asked_for_once() -> None:
    lowering = Scripted(failing="row_at_once")
    past = [attempt(1, "default", 1.0)]
    for step in range(2, 5):
        draft = write(lowering, advised(situation(*past, parent=1)))
        assert draft.source is not None
        past.append(replace(attempt(step, variants.variant_of(draft.source) or "", 0.9, parent=1), notes=draft.notes))
    assert lowering.asked.count("row_at_once") == 1


def test_a_move_that_made_it_slower_is_not_named_again() -> None:
    asked = situation(attempt(1, "default", 1.0), attempt(2, "one_pass", 0.7, parent=1), parent=1)
    assert "one_pass" not in {choice.action for choice in rules.ranked_moves(asked)}


def test_when_nothing_is_left_there_is_no_advice() -> None:
    names = [name for name, variant in VARIANTS.items() if not variant.repair]
    tried = [attempt(step, name, 0.5, parent=1) for step, name in enumerate(names, start=2)]
    asked = advised(situation(attempt(1, "default", 1.0), *tried, parent=1))
    assert asked.recommendation is None
    assert write(Scripted(), asked).exhausted


def test_builtin_says_what_it_is_for() -> None:
    assert open_offline(replace(TARGET, name="cuda", device_class="gpu"))
    with pytest.raises(PluginAbsent, match="CPUs and NVIDIA GPUs"):
        open_offline(replace(TARGET, name="metal", device_class="emulator"))


# -- from generated code to a program ----------------------------------------------------------------------------------

GENERATED = '''
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*', 'const int64_t*'], r"""
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0,
                       const int64_t* in_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
    {
        in_out_ptr0[static_cast<int64_t>(x0 + 2L)] = static_cast<int64_t>(tmp0);
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
""")

class Runner:
    def call(self, args):
        p_weight, x = args
        args.clear()
        assert_size_stride(x, (2, 3), (3, 1), 'input')
        buf0 = empty_strided_cpu((2, 4), (4, 1), torch.float32)
        extern_kernels.mm(x, reinterpret_tensor(p_weight, (3, 4), (1, 3), 0), out=buf0)
        del p_weight
        buf1 = buf0; del buf0  # reuse
        cpp_fused_relu_0(reinterpret_tensor(buf1, (4, ), (1, ), 4), buf1)
        return (buf1, reinterpret_tensor(x, (6, ), (1, ), 0), )
'''

INTERFACE = Interface(
    parameters=("x",),
    inputs=(Input("x", "x", DenseLayout((2, 3), (3, 1), "float32")),),
    state=(StateTensor("layers.0.weight", DenseLayout((4, 3), (3, 1), "float32"), True),),
    reads={"p_weight": "layers.0.weight"},
    constants={},
    result="({0}, {1})",
    copied=(1,),
)


def lines_of(own: tuple[str, ...]) -> list[str]:
    return translate(take_apart(GENERATED), INTERFACE, own).lines


def test_the_wrapper_becomes_plain_lines() -> None:
    assert lines_of(()) == [
        "buf0 = torch.empty((2, 4), dtype=torch.float32)",
        "torch.mm(x, p_weight.t(), out=buf0)",
        "fused_relu_0(buf0.data_ptr() + 16, buf0.data_ptr())",
    ]


def test_a_library_call_becomes_our_own_where_asked() -> None:
    assert lines_of(("gemm",))[1] == "gemm_0(x.data_ptr(), p_weight.data_ptr(), buf0.data_ptr())"


def test_generated_text_is_cleaned_of_what_says_nothing() -> None:
    text = readable_cpp.unit(take_apart(GENERATED).kernels)
    assert "inductor_cpu" not in text
    assert "in_out_ptr0[(x0 + 2L)] = static_cast<int64_t>(tmp0);" in text, "a cast of a value must stay"


def test_the_composed_program_is_python_and_copies_what_eager_would_not_share() -> None:
    wrapper = take_apart(GENERATED)
    made = translate(wrapper, INTERFACE, ())
    text = compose(Parts("sample", "default", "2.x", INTERFACE, made, cpp_kernels(wrapper.kernels, made, ("-DX",))))
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"ModelNew", "forward", "build", "hold", "expect"} <= names
    assert 'module_tensor(getattr(self.layers, "0").weight, "layers.0.weight", ' in text
    assert "refuse_gradients(" in text
    assert "return (buf0, x.view(6).clone())" in text
    assert past.body(text) == past.body(text.replace("variant: default", "variant: careful"))


@given(st.lists(st.integers(1, 9), max_size=5))
def test_contiguous_is_what_row_major_says(shape: list[int]) -> None:
    strides = row_major(tuple(shape))
    assert strides == tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    assert DenseLayout(tuple(shape), strides, "float32").contiguous
    padded = tuple(step * 2 for step in strides)
    assert DenseLayout(tuple(shape), padded, "float32").contiguous == (not shape)
