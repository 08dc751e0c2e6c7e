"""A forged program in the caller's own process: a drop-in with the caller's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kforge
import makers
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.spec.run_spec import ResumeOptions
from kforge.types import Domain, Outcome, TensorLayout, Verdict

pytestmark = pytest.mark.toolchain


class Affine(torch.nn.Module):
    """A live module with a parameter and a buffer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width))
        self.register_buffer("shift", torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.shift


LIVE = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x):
        return torch.addcmul(self.shift, x, self.weight)
"""


def forged(problem: Any, program: str, folder: Path, verdict: Verdict = makers.verdict(1.5)) -> kforge.ForgeResult:
    """A result whose program was never judged: what is tested here is what comes after."""
    model = Scripted([f"```python\n{program}```"])
    executor = NullExecutor(lambda job: verdict)
    place = RunEnvironment(str(folder / "store"), ModelAccess(models={"scripted": model}), executor=executor)
    return kforge.forge(problem, "cpu", "scripted", place, iterations=1)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KFORGE_BUILD_DIR", str(tmp_path / "build"))


def test_it_takes_over_the_weights_of_a_reference(scale_relu: Any, honest: Any, tmp_path: Path) -> None:
    result = forged(scale_relu, honest.source, tmp_path)
    namespace: dict[str, Any] = {}
    exec(scale_relu.sized_source("cpu"), namespace)
    trained = namespace["Model"](*namespace["get_init_inputs"]()).eval()
    with torch.no_grad():
        for value in trained.parameters():
            value.normal_()
    module = result.module(weights=trained)
    inputs = namespace["get_inputs"]()
    torch.testing.assert_close(module(*inputs), trained(*inputs))
    assert not module.training


def test_renamed_parameters_are_found_by_their_values(scale_relu: Any, honest: Any, tmp_path: Path) -> None:
    renamed = honest.source.replace("self.scale", "self.gain")
    assert renamed != honest.source
    namespace: dict[str, Any] = {}
    exec(scale_relu.sized_source("cpu"), namespace)
    trained = namespace["Model"](*namespace["get_init_inputs"]())
    with torch.no_grad():
        for value in trained.parameters():
            value.normal_()
    module = forged(scale_relu, renamed, tmp_path).module(weights=trained)
    inputs = namespace["get_inputs"]()
    torch.testing.assert_close(module(*inputs), trained(*inputs))


def test_a_live_module_gives_its_own_weights(tmp_path: Path) -> None:
    live = Affine(8).eval()
    problem = kforge.Problem.from_module(live, [torch.randn(3, 8)])
    module = forged(problem, LIVE, tmp_path).module()
    x = torch.randn(5, 8)
    torch.testing.assert_close(module(x), live(x))
    assert not module.training


def test_a_live_module_is_described_for_the_writer() -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    assert "forward is called with: Tensor [3, 8] float32" in problem.source
    assert "shift: Tensor [8] float32" in problem.source


def test_arguments_that_hold_tensors_are_described_by_their_shapes() -> None:
    inputs = [[torch.randn(2), torch.randn(3, 4)], {"mask": torch.ones(5, dtype=torch.bool)}, 2]
    problem = kforge.Problem.from_module(Affine(8), inputs)
    described = "list of Tensor [2] float32, Tensor [3, 4] float32, dict of 'mask': Tensor [5] bool, 2\n"
    assert f"# forward is called with: {described}" in problem.source


CONSTANT = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * self.weight + {shift}
"""


def test_a_buffer_the_program_took_for_a_constant_must_have_that_value(tmp_path: Path) -> None:
    live = Affine(8)
    live.shift.fill_(2.0)
    problem = kforge.Problem.from_module(live, [torch.randn(3, 8)])
    result = forged(problem, CONSTANT.format(shift=2.0), tmp_path)
    other = Affine(8)
    other.shift.fill_(2.0)
    x = torch.randn(5, 8)
    torch.testing.assert_close(result.module(weights=other)(x), other(x))
    other.shift.fill_(3.0)
    with pytest.raises(kforge.errors.UsageError, match="no place for the module's shift"):
        result.module(weights=other)


def test_a_parameter_without_a_place_is_refused(tmp_path: Path) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    program = LIVE.replace("self.weight = torch.nn.Parameter(torch.zeros(8))", "self.weight = 1.0")
    assert program != LIVE
    with pytest.raises(kforge.errors.UsageError, match="no place for the module's weight"):
        forged(problem, program, tmp_path).module()


def test_a_captured_module_that_was_exchanged_is_not_loaded(tmp_path: Path) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    result = forged(problem, LIVE, tmp_path)
    other = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    Path(result.spec.problem.payload).write_bytes(Path(other.payload).read_bytes())
    with pytest.raises(kforge.errors.ProblemError, match="has changed"):
        result.module()


def test_without_a_correct_program_there_is_no_module(scale_relu: Any, tmp_path: Path) -> None:
    place = RunEnvironment(str(tmp_path / "store"), ModelAccess(models={"scripted": Scripted(["nothing"])}))
    result = kforge.forge(scale_relu, "cpu", "scripted", place, iterations=1)
    assert result.verdict is None
    with pytest.raises(kforge.errors.UsageError, match="no correct program"):
        result.module()


@pytest.mark.parametrize(
    ("speedup", "said"),
    [
        (0.46, r"the program for Affine is slower than eager \(0.46x, 0.45 to 0.47\): keep yours"),
        (1.01, r"the program for Affine is not surely faster than eager \(1.01x, 0.99 to 1.03\)"),
    ],
)
def test_a_module_that_is_not_surely_faster_comes_with_a_warning(tmp_path: Path, speedup: float, said: str) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    result = forged(problem, LIVE, tmp_path, makers.verdict(speedup))
    with pytest.warns(kforge.NotFasterWarning, match=said) as caught:
        module = result.module()
    assert caught[0].filename == __file__, "the warning is at the caller's line"
    assert module(torch.randn(3, 8)).shape == (3, 8)
    assert "than eager" in result.annotated_source()


def test_a_module_that_was_not_timed_comes_without_a_warning(tmp_path: Path) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    forged(problem, LIVE, tmp_path, makers.verdict(None)).module()


def test_a_result_is_shown_in_a_line_or_two(scale_relu: Any, honest: Any, tmp_path: Path) -> None:
    result = forged(scale_relu, honest.source, tmp_path)
    assert repr(result) == (
        f"<ForgeResult scale_relu on cpu: best 1.50x, 1.47 to 1.53 against eager, 1 attempt, run {result.run}>"
    )


def test_the_saved_program_says_where_it_comes_from(scale_relu: Any, honest: Any, tmp_path: Path) -> None:
    result = forged(scale_relu, honest.source, tmp_path)
    text = result.save(tmp_path / "out" / "kernel.py").read_text()
    assert honest.source.rstrip() in text
    assert result.run in text
    assert "scale_relu" in text


DOMAIN = Domain(
    arguments=["l", [["T", 0]]],
    tensors=(TensorLayout("", "float32", (3, 8), (8, 1)),),
    state=(TensorLayout("weight", "float32", (8,), (1,)), TensorLayout("shift", "float32", (8,), (1,))),
    device="cpu",
)


def test_a_module_put_back_into_a_model_refuses_what_was_not_verified(tmp_path: Path) -> None:
    live = Affine(8)
    problem = kforge.Problem.from_module(live, [torch.randn(3, 8)])
    module = forged(problem, LIVE, tmp_path, replace(makers.verdict(1.5), domain=DOMAIN)).module()
    x = torch.randn(3, 8)
    torch.testing.assert_close(module(x), live(x))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), module)
    with pytest.raises(RuntimeError, match="Affine is a forged program, verified for inference only"):
        model(x).sum().backward()
    with pytest.raises(ValueError, match=r"argument 1 must be float32 \(3, 8\)"):
        module(torch.randn(5, 8))
    with pytest.raises(ValueError, match="the module's weight must be float32"):
        model.to(torch.bfloat16)[1](x)


def test_the_saved_file_says_and_keeps_to_what_was_verified(tmp_path: Path) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    result = forged(problem, LIVE, tmp_path, replace(makers.verdict(1.5), domain=DOMAIN))
    text = result.save(tmp_path / "kernel.py").read_text()
    assert "# Verified on cpu for inference with float32 (3, 8); any other call raises an error." in text
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(text, namespace)
    with torch.no_grad(), pytest.raises(ValueError, match="was verified for nothing else"):
        namespace["ModelNew"]()(torch.randn(3, 8).half())


def test_a_program_that_is_not_correct_is_saved_as_what_it_is(tmp_path: Path) -> None:
    problem = kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)])
    result = forged(problem, LIVE, tmp_path, makers.verdict(outcome=Outcome.MISMATCH, detail="wrong\nraise SystemExit"))
    text = result.annotated_source(result.history[0])
    assert "# NOT CORRECT (mismatch): to be read, not to be used." in text
    assert text.endswith(LIVE)


# -- what is given in the place of weights


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"weight": torch.zeros(8)}, "weights is a dict: give a module of the reference's class"),
        (torch.nn.Linear(8, 8), "no module like the reference of Affine: it has no shift"),
        (Affine(4), r"its weight is \(4,\), and the program was made for \(8,\)"),
    ],
)
def test_weights_of_another_module_are_refused_with_a_sentence(weights: Any, says: str, tmp_path: Path) -> None:
    result = forged(kforge.Problem.from_module(Affine(8), [torch.randn(3, 8)]), LIVE, tmp_path)
    with pytest.raises(kforge.errors.UsageError, match=says):
        result.module(weights=weights)


# -- buffers that are not persistent


class Rotated(torch.nn.Module):
    """A parameter, and a table that its constructor computes."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))
        self.register_buffer("table", torch.cos(torch.arange(8) / base), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.table


ROTATED = LIVE.replace('"shift", torch.zeros(8)', '"table", torch.full((8,), float("nan")), persistent=False')
ROTATED = ROTATED.replace("self.shift", "self.table")


def test_a_live_module_gives_its_buffers_that_are_not_persistent(tmp_path: Path) -> None:
    live, x = Rotated(3.0), torch.randn(3, 8)
    result = forged(kforge.Problem.from_module(live, [x]), ROTATED, tmp_path)
    torch.testing.assert_close(result.module()(x), live(x))
    other = Rotated(5.0)
    torch.testing.assert_close(result.module(weights=other)(x), other(x))
    assert list(result.module().state_dict()) == list(live.state_dict())


def test_a_table_the_program_has_no_place_for_must_be_the_one_it_was_written_for(tmp_path: Path) -> None:
    live = Rotated(3.0)
    result = forged(
        kforge.Problem.from_module(live, [torch.randn(3, 8)]), ROTATED.replace('"table"', '"other"'), tmp_path
    )
    assert result.module() is not None
    with pytest.raises(kforge.errors.UsageError, match="no place for the module's table"):
        result.module(weights=Rotated(5.0))


FROM_FILE = """import torch


class Model(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))
        self.register_buffer("table", torch.cos(torch.arange(8) / base), persistent=False)

    def forward(self, x):
        return x * self.weight + self.table


def get_inputs():
    return [torch.randn(3, 8)]


def get_init_inputs():
    return [3.0]
"""
NEGATED = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))
        self.register_buffer("table", -torch.cos(torch.arange(8) / base), persistent=False)

    def forward(self, x):
        return x * self.weight - self.table
"""


def test_what_a_program_computed_itself_in_its_constructor_is_left_alone(tmp_path: Path) -> None:
    problem = kforge.Problem.from_source(FROM_FILE, "rotated")
    x, trained = torch.randn(3, 8), Rotated(3.0)
    torch.testing.assert_close(forged(problem, NEGATED, tmp_path).module(weights=trained)(x), trained(x))


# -- a live module outlives its file


def test_a_live_module_is_kept_in_the_store(tmp_path: Path) -> None:
    live, x = Affine(8), torch.randn(3, 8)
    problem = kforge.Problem.from_module(live, [x])
    result = forged(problem, LIVE, tmp_path)
    Path(problem.payload).unlink()
    torch.testing.assert_close(result.module()(x), live(x))
    moved = (tmp_path / "store").rename(tmp_path / "moved")
    model = Scripted(['{"recommendation": "Say more.", "evidence": "a fact"}', f"```python\n{LIVE}# another\n```"])
    place = RunEnvironment(
        str(moved), ModelAccess(models={"scripted": model}), executor=NullExecutor(lambda job: makers.verdict(1.7))
    )
    resumed = kforge.resume("last", place, ResumeOptions(iterations=2))
    assert len(resumed.history) == 2
    assert resumed.spec.problem == problem
    torch.testing.assert_close(resumed.module()(x), live(x))
