"""Problems with their gradients: what a call is then, what is granted at kinks, and what the judge says of programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge import Candidate, Evidence, Outcome, Problem, ProblemForm, Settings, jsonable, registry
from kforge.errors import ProblemError
from kforge.problems import find
from kforge.worker import trees
from kforge.worker.judge import rounding_grants
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.device import Device
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.training_step import TrainingStep, saved_bytes

QUICK = Settings(compile_baseline=False, timing_seconds=0.0, seeds=2)
EXAMPLES = Path(__file__).parents[3] / "src" / "kforge" / "platforms"

LINEAR_RELU = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 64)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs(): return [torch.randn(512, 96)]
def get_init_inputs(): return []
"""


def cases_of(source: str, seed: int = 1, dtype: str = "") -> ProblemCases:
    problem = Problem.from_source(source).in_form(ProblemForm(dtype, backward=True))
    return ProblemCases(problem, Device(registry.load("platforms", "cpu"), 0), seed)


# -- a call ------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_a_step_gives_what_autograd_gives() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(5, 3)
    x, gradient = torch.randn(4, 5), torch.randn(4, 3)
    with torch.no_grad():
        output, of_inputs, of_parameters = TrainingStep(module, module, ("weight", "bias"))(x, [gradient])
    leaf = x.clone().requires_grad_()
    expected = module(leaf)
    wanted = torch.autograd.grad(expected, [leaf, module.weight, module.bias], gradient)
    torch.testing.assert_close([output, *of_inputs, *of_parameters], [expected.detach(), *wanted])
    assert not output.requires_grad
    assert not x.requires_grad


@pytest.mark.cpu
def test_gradients_that_are_one_tensor_get_memory_of_their_own() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    x, y, gradient = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)
    _, (one, two), _ = TrainingStep(Sum(), Sum(), ())(x, y, [gradient])
    assert len({tensor.data_ptr() for tensor in (one, two, gradient)}) == 3
    torch.testing.assert_close(one, gradient)


@pytest.mark.cpu
def test_an_expanded_gradient_is_written_out() -> None:
    class Total(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    _, (gradient,), _ = TrainingStep(Total(), Total(), ())(torch.randn(3, 4), [torch.tensor(2.0)])
    assert gradient.is_contiguous()
    assert gradient.untyped_storage().nbytes() == 48


@pytest.mark.cpu
def test_memory_between_the_two_is_what_autograd_saved() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp().tanh()

    # The results of exp and of tanh; the input is not among them.
    assert saved_bytes(TrainingStep(Twice(), Twice(), ()), [torch.randn(256), [torch.randn(256)]]) == 2 * 1024


@pytest.mark.cpu
def test_an_output_without_a_gradient_is_told() -> None:
    class Detached(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.detach() * 2

    with pytest.raises(RuntimeError, match=r"does not require grad.*torch\.autograd\.Function"):
        TrainingStep(Detached(), Detached(), ())(torch.randn(3), [torch.randn(3)])


# -- the problem -------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_output_gradients_are_one_more_argument_and_differ_by_seed() -> None:
    cases = cases_of(LINEAR_RELU)
    one, two = cases.reference.inputs(1), cases.reference.inputs(2)
    assert len(one) == 2
    assert one[1][0].shape == (512, 64)
    assert not torch.equal(one[1][0], two[1][0])
    assert torch.equal(one[1][0], cases.reference.inputs(1)[1][0])
    assert cases.reference.gradient_names == ("linear.weight", "linear.bias")
    assert cases.output_names[1:] == (
        "the gradient of input 0",
        "the gradient of parameter linear.weight",
        "the gradient of parameter linear.bias",
    )


@pytest.mark.cpu
def test_frozen_parameters_have_no_gradient() -> None:
    source = LINEAR_RELU.replace("96, 64)", "96, 64)\n        self.linear.bias.requires_grad_(False)")
    assert cases_of(source).reference.gradient_names == ("linear.weight",)


@pytest.mark.cpu
def test_a_reference_without_gradients_is_an_error_that_says_so() -> None:
    source = LINEAR_RELU.replace("torch.relu(self.linear(x))", "self.linear(x).argmax(-1)")
    with pytest.raises(ProblemError, match="no output of the reference has a gradient"):
        cases_of(source)


@pytest.mark.cpu
def test_integers_beside_floating_outputs_have_none() -> None:
    source = LINEAR_RELU.replace("torch.relu(self.linear(x))", "self.linear(x).max(dim=-1)")
    gradients = cases_of(source).reference.inputs(1)[-1]
    assert gradients[0] is not None
    assert gradients[1] is None


def test_the_training_suite_asks_for_gradients() -> None:
    problems = find("training")
    assert len(problems) >= 8
    assert all(problem.form.backward for problem in problems)
    assert [problem.name for problem in find("training:level1/1")] == ["1_gelu"]
    assert not any(problem.form.backward for problem in find("bundled"))


def test_backward_is_a_truth_value() -> None:
    with pytest.raises(ProblemError, match="backward must be True or False"):
        Problem.from_source(LINEAR_RELU + '\nKFORGE = {"backward": 1}\n')


# -- kinks -------------------------------------------------------------------------------------------------------------


def honest_outputs(cases: ProblemCases, arguments: list, state: dict, flip: float = 0.0) -> list[torch.Tensor]:
    """A linear layer with ReLU as another program computes it: sums in another order, in float32, rounded at the end.

    With `flip`, the mask is on the wrong side for that share of the elements.
    """
    x, (gradient,) = arguments
    dtype = x.dtype
    x, gradient = x.float(), gradient.float()
    weight, bias = state["linear.weight"].float(), state["linear.bias"].float()
    z = bias.expand(len(x), -1).clone()
    for start in range(0, x.shape[1], 7):
        z += x[:, start : start + 7] @ weight[:, start : start + 7].t()
    mask = z > 0
    if flip:
        mask = mask ^ (torch.rand(z.shape, generator=torch.Generator().manual_seed(3)) < flip)
    held = torch.where(mask, gradient, 0.0)
    results = [z.clamp(min=0), held @ weight, held.t() @ x, held.sum(0)]
    return [result.to(dtype) for result in results]


def near_kinks(cases: ProblemCases, arguments: list, state: dict) -> list:
    """The arguments with a few rows moved to where an element before the ReLU is as near to zero as float32 goes."""
    x, gradients = arguments
    x, weight, bias = x.clone(), state["linear.weight"].double(), state["linear.bias"].double()
    for row in range(0, len(x), 16):
        unit = row % weight.shape[0]
        z = weight[unit] @ x[row].double() + bias[unit]
        x[row] = (x[row].double() - z * weight[unit] / weight[unit].square().sum()).to(x.dtype)
    return [x, gradients]


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_honest_gradients_at_kinks_pass_and_wrong_masks_do_not(dtype: str) -> None:
    for seed in range(20):
        cases = cases_of(LINEAR_RELU, seed, dtype)
        number = cases.derive("case", 0)
        state = cases.timed_state
        arguments = near_kinks(cases, cases.reference.inputs(number), state)
        expected = cases._expect(arguments, state, number, False)

        def wrong(outputs, expected=expected, arguments=arguments, state=state, number=number, cases=cases):
            return [
                item.message
                for item in rounding_grants.compare_outputs(
                    cases, expected, arguments, state, number, outputs, Tolerance(cases.problem.tolerances)
                )
                if item.message
            ]

        assert wrong(honest_outputs(cases, arguments, state)) == [], seed
        assert wrong(honest_outputs(cases, arguments, state, flip=0.01)), seed


@pytest.mark.cpu
def test_without_the_grant_a_kink_would_refuse_an_honest_program() -> None:
    cases = cases_of(LINEAR_RELU, 1, "float32")
    number, state = cases.derive("case", 0), cases.timed_state
    arguments = near_kinks(cases, cases.reference.inputs(number), state)
    expected = cases._expect(arguments, state, number, False)
    outputs = honest_outputs(cases, arguments, state)
    tolerance = Tolerance(cases.problem.tolerances)
    plain = [
        rounding_grants.compare(leaf, got, tolerance, "it").message
        for leaf, got in zip(expected.leaves, outputs, strict=True)
    ]
    assert any(plain)


@pytest.mark.cpu
def test_a_smooth_gradient_is_granted_nothing() -> None:
    source = LINEAR_RELU.replace("torch.relu", "torch.tanh")
    for dtype, most in (("float32", 1e-9), ("bfloat16", 5e-3)):
        cases = cases_of(source, 1, dtype)
        number = cases.derive("case", 0)
        arguments = cases.reference.inputs(number)
        jumps = rounding_grants._jumps(cases, arguments, cases.timed_state, number, "")
        assert jumps is not None
        exact = trees.pack(cases.reference.run_double(arguments, cases.timed_state, number))[1]
        for (jump, _), value in list(zip(jumps, exact, strict=True))[1:]:
            assert float(jump.norm() / value.norm()) < most


# -- verdicts ----------------------------------------------------------------------------------------------------------


def example(name: str) -> tuple[Problem, Candidate]:
    folder = EXAMPLES / name / "example"
    return Problem.from_file(folder / "backward_reference.py"), Candidate(
        (folder / "backward_candidate.py").read_text(), name
    )


@pytest.mark.toolchain
def test_the_example_with_gradients_is_right(judge) -> None:
    problem, program = example("cpu")
    verdict = judge.evaluate(problem, program, QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.hazards == ()
    assert verdict.domain is not None
    assert verdict.domain.backward
    assert len(verdict.domain.tensors) == 1
    notes = " ".join(verdict.notes)
    assert "backward: 100%" in notes or "its own code" in notes
    assert "held between forward and backward" in notes


@pytest.mark.toolchain
def test_a_record_with_gradients_is_judged_again_as_it_was(judge) -> None:
    problem, program = example("cpu")
    verdict = judge.evaluate(problem, program, QUICK)
    record = jsonable.decode(Evidence, json.loads(json.dumps(jsonable.encode(verdict.evidence))))
    assert record.problem == problem
    assert record.problem.form.backward
    again = judge.evaluate(record.problem, record.candidate, record.settings)
    assert again.outcome is Outcome.CORRECT, again.detail
    assert [error.distribution for error in again.errors][:1] == [error.distribution for error in verdict.errors][:1]
    assert again.domain == verdict.domain


@pytest.mark.toolchain
def test_a_program_without_a_backward_gets_a_sentence(judge) -> None:
    problem, _ = example("cpu")
    source = (EXAMPLES / "cpu" / "example" / "candidate.py").read_text()
    careless = source.replace("if torch.is_grad_enabled() and tensor.requires_grad:", "if False:")
    verdict = judge.evaluate(problem, Candidate(careless), QUICK)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "torch.autograd.Function" in verdict.detail


@pytest.mark.toolchain
def test_a_parameter_of_another_name_is_refused_with_gradients_only(judge) -> None:
    problem, program = example("cpu")
    renamed = replace(program, source=program.source.replace("self.scale", "self.factor"))
    verdict = judge.evaluate(problem, renamed, QUICK)
    assert verdict.outcome is Outcome.MISMATCH
    assert "no parameter `scale`" in verdict.detail
    forward_only = replace(problem, form=ProblemForm())
    assert judge.evaluate(forward_only, renamed, QUICK).outcome is Outcome.CORRECT


@pytest.mark.toolchain
def test_a_forward_of_its_own_beside_torchs_backward_is_reported(judge) -> None:
    catalogue = Path(__file__).parents[2] / "catalogue"
    problem = Problem.from_file(catalogue / "problems" / "scale_relu.py").in_form(ProblemForm(backward=True))
    program = Candidate((catalogue / "benign" / "gradient_recomputed.py").read_text())
    verdict = judge.evaluate(problem, program, QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("backward: torch's operators" in note for note in verdict.notes), verdict.notes


@pytest.mark.toolchain
@pytest.mark.slow
def test_in_bfloat16_with_gradients(judge) -> None:
    """The kernel reads float32: its program widens and rounds, as an honest one may."""
    problem, program = example("cpu")
    widened = program.source.replace(
        "return LeakyReluScale.apply(x, self.scale, self.slope)",
        "return LeakyReluScale.apply(x.float(), self.scale.float(), self.slope).to(x.dtype)",
    )
    problem = problem.in_form(ProblemForm("bfloat16"))
    verdict = judge.evaluate(problem, replace(program, source=widened), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


@pytest.mark.toolchain
@pytest.mark.slow
def test_gradients_on_an_emulated_platform(judges) -> None:
    if "cuda" not in judges:
        pytest.skip("cuda is not emulated here")
    problem, program = example("cuda")
    verdict = judges["cuda"].evaluate(problem, program, QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
