"""Packages of all kinds of problems: several sizes, numbers and lists among the arguments, gradients, live modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kforge
from kforge.types import ProblemForm
from packages import shipped

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("packages"), pytest.mark.filterwarnings("ignore:forms_")]

HEAD = "import torch\nimport torch.nn as nn\n\n"


def problem_text(module: str, inputs: str, constants: str = "", init: str = "[]") -> str:
    return (
        f"{HEAD}{constants}\n{module}\n\ndef get_inputs():\n    return {inputs}\n\n"
        f"def get_init_inputs():\n    return {init}\n"
    )


Make = Callable[..., Any]


def as_program(module: str) -> str:
    return HEAD + module.replace("class Model(", "class ModelNew(")


RANGED = """class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns))

    def forward(self, x):
        return torch.relu(x) * self.weight
"""


def test_a_range_of_sizes(make: Make) -> None:
    constants = 'ROWS, COLUMNS = 16, 32\nROWS = 16\nKFORGE = {"dynamic": {"ROWS": (1, 64, 1)}}\n'
    text = problem_text(RANGED, "[torch.randn(ROWS, COLUMNS)]", constants, "[COLUMNS]")
    package = make(text, as_program(RANGED))
    weight = torch.rand(32)
    for rows in (1, 7, 16, 64, 65, 200):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(package.thing(x, weight), torch.relu(x) * weight)
    assert package.stats()["program"] == 4
    assert next(iter(package.stats()["reasons"])) == "x is float32 (65, 32), not float32 (1 to 64, 32)"
    torch.library.opcheck(package._package.op, (torch.randn(9, 32), weight))
    torch.compiler.reset()
    compiled = torch.compile(package.thing, fullgraph=True, dynamic=True)
    for rows in (3, 5, 100):
        x = torch.randn(rows, 32)
        torch.testing.assert_close(compiled(x, weight), torch.relu(x) * weight)


SCALED = """class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor
"""


def test_several_workloads_each_with_its_own_constructor(make: Make) -> None:
    constants = 'ROWS = 16\nFACTOR = 2.0\nKFORGE = {"workloads": [{"ROWS": 16}, {"ROWS": 48, "FACTOR": 3.0}]}\n'
    package = make(problem_text(SCALED, "[torch.randn(ROWS, 8)]", constants, "[FACTOR]"), as_program(SCALED))
    small, large, other = torch.randn(16, 8), torch.randn(48, 8), torch.randn(5, 8)
    torch.testing.assert_close(package.thing(small), small * 2)
    found = package.thing(large)
    # Which factor is meant nobody can say of a function that is given none: what is never given is a mixture.
    assert torch.equal(found, large * 2) or torch.equal(found, large * 3)
    torch.testing.assert_close(package.thing(other), other * 2)


ARGUMENTS = """class Model(nn.Module):
    def forward(self, xs, flags, power=2, mask=None):
        y = xs[0] + flags["scale"] * xs[1]
        return {"sum": y, "rest": (y ** power, (y > 0).long())}
"""


def test_lists_dicts_numbers_and_several_outputs(make: Make) -> None:
    inputs = "[[torch.randn(8, 4), torch.randn(8, 4)], {'scale': 0.5}, 3, None]"
    package = make(problem_text(ARGUMENTS, inputs), as_program(ARGUMENTS))
    a, b = torch.randn(8, 4), torch.randn(8, 4)

    def expected(scale: float, power: int) -> Any:
        y = a + scale * b
        return {"sum": y, "rest": (y**power, (y > 0).long())}

    found = package.thing([a, b], {"scale": 0.5}, 3, None)
    torch.testing.assert_close(found, expected(0.5, 3))
    assert isinstance(found["rest"], tuple)
    assert package.stats()["program"] == 1
    for scale, power in ((0.25, 3), (0.5, 2)):
        torch.testing.assert_close(package.thing([a, b], {"scale": scale}, power, None), expected(scale, power))
    assert package.stats()["reference"] == 2
    torch.compiler.reset()
    compiled = torch.compile(package.thing, fullgraph=True)
    torch.testing.assert_close(compiled([a, b], {"scale": 0.5}, 3, None), expected(0.5, 3))
    assert package.stats()["program"] == 2
    with pytest.raises(package.NotVerified, match="an argument is"):
        package.thing([a, b, b], {"scale": 0.5}, 3, None, strict=True)


ALIAS = """class Model(nn.Module):
    def forward(self, x):
        return x[:, :2], x.t()
"""


def test_an_operator_owns_what_it_returns(make: Make) -> None:
    package = make(problem_text(ALIAS, "[torch.randn(8, 4)]"), as_program(ALIAS))
    x = torch.randn(8, 4)
    torch.testing.assert_close(package.thing(x), (x[:, :2], x.t()))
    torch.library.opcheck(package._package.op, (x,))
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(package.thing, fullgraph=True)(x), (x[:, :2], x.t()))


TRAINED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16))

    def forward(self, x):
        return torch.tanh(x) * self.weight
"""


def test_gradients_that_were_verified_are_the_programs(make: Make) -> None:
    package = make(problem_text(TRAINED, "[torch.randn(8, 16)]"), as_program(TRAINED), backward=True)
    x, weight = torch.randn(8, 16, requires_grad=True), torch.rand(16, requires_grad=True)
    package.thing(x, weight).sum().backward()
    again = [item.detach().clone().requires_grad_() for item in (x, weight)]
    (torch.tanh(again[0]) * again[1]).sum().backward()
    torch.testing.assert_close((x.grad, weight.grad), (again[0].grad, again[1].grad))
    x.grad = weight.grad = None
    torch.compiler.reset()
    torch.compile(package.thing, fullgraph=True)(x, weight).sum().backward()
    torch.testing.assert_close((x.grad, weight.grad), (again[0].grad, again[1].grad))
    with pytest.raises(RuntimeError, match="first derivatives"):
        torch.autograd.grad(package.thing(x, weight).sum(), x, create_graph=True)
    assert package.stats()["reference"] == 0


DEEP = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(40))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x
"""


@pytest.mark.parametrize("backward", [False, True])
def test_a_network_of_more_tensors_than_an_operator_has_arguments(make: Make, backward: bool) -> None:
    package = make(problem_text(DEEP, "[torch.randn(4, 8)]"), as_program(DEEP), backward=backward)
    model = package._package.program.references["reference.py"].construct()
    state = [item.detach().requires_grad_() for item in model.state_dict().values()]
    assert len(state) == 80
    x = torch.randn(4, 8, requires_grad=True)
    want = model(x)
    torch.testing.assert_close(package.thing(x, *state), want)
    sources = [x, *state]
    gradients = torch.autograd.grad(want.square().sum(), [x, *model.parameters()])
    torch.testing.assert_close(torch.autograd.grad(package.thing(x, *state).square().sum(), sources), gradients)
    package.thing(x, *state[:-1], state[-1].detach()).sum().backward()
    assert state[-1].grad is None
    assert state[-2].grad is not None
    torch.library.opcheck(package._package.op, (x, state))
    changed = torch.nn.Sequential(model)
    assert package.apply(changed) == ["0"]
    torch.compiler.reset()
    compiled = torch.compile(changed, fullgraph=True)
    torch.testing.assert_close(compiled(x), want)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).square().sum(), [x, *changed.parameters()]), gradients)


def test_a_problem_in_half_precision(make: Make) -> None:
    problem = kforge.Problem.from_source(problem_text(TRAINED, "[torch.randn(8, 16)]"), "1_Thing")
    package = make(problem.in_form(ProblemForm("bfloat16")), as_program(TRAINED), dtype="bfloat16")
    x, weight = torch.randn(8, 16).bfloat16(), torch.rand(16).bfloat16()
    torch.testing.assert_close(package.thing(x, weight), torch.tanh(x) * weight)
    assert package.stats()["program"] == 1
    assert package.thing(x.float(), weight.float()).dtype is torch.float32
    assert package.stats()["reference"] == 1


BUFFERS = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("kept", torch.rand(4))
        self.register_buffer("passing", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.kept + self.passing
"""
TRANSPOSED = """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        linear = nn.Linear(8, 4)
        self.turned = nn.Parameter(linear.weight.detach().t().contiguous())
        self.bias = nn.Parameter(linear.bias.detach().clone())
        self.register_buffer("kept", torch.rand(4))
        self.register_buffer("passing", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return (x @ self.turned + self.bias) * self.kept + self.passing
"""


@pytest.mark.parametrize("program", [as_program(BUFFERS), HEAD + TRANSPOSED], ids=["same", "turned"])
def test_buffers_and_tensors_that_the_program_holds_otherwise(make: Make, program: str) -> None:
    package = make(problem_text(BUFFERS, "[torch.randn(3, 8)]"), program)
    names = [item["name"] for item in package._package.verified["state"]]
    assert names == ["kept", "linear.weight", "linear.bias", "passing"]
    for _ in range(2):
        x, kept, weight, bias = torch.randn(3, 8), *(torch.rand(*s) for s in ((4,), (4, 8), (4,)))
        passing = torch.arange(4.0)
        found = package.thing(x, kept, weight, bias, passing)
        torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, bias) * kept + passing)
        weight.mul_(2)
        found = package.thing(x, kept, weight, bias, passing)
        torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, bias) * kept + passing)
    assert package.stats()["program"] == 4
    # Values that the program has no place for are a part of what it was written for.
    passing = torch.rand(4)
    found = package.thing(x, kept, weight, bias, passing)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, bias) * kept + passing)
    passing.copy_(torch.arange(4.0))
    package.thing(x, kept, weight, bias, passing)
    assert package.stats()["program"] == 5


class Live(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


LIVE = """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return x * self.gain
"""


def test_a_live_module(make: Make) -> None:
    live = Live().eval()
    package = make(kforge.Problem.from_module(live, [torch.randn(3, 8)]), HEAD + LIVE)
    x, gain = torch.randn(3, 8), torch.rand(8)
    torch.testing.assert_close(package.thing(x, gain), x * gain)
    assert package.stats()["program"] == 1
    model = torch.nn.Sequential(Live(), torch.nn.ReLU())
    assert package.apply(model) == ["0"]
    with torch.no_grad():
        torch.testing.assert_close(model(x), torch.relu(x * model[0].gain))
    assert package.stats()["program"] == 2
    assert (Path(package.__file__).parent / "reference_module.pkl").exists()


NORMED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x)
"""


def test_a_module_that_changes_itself_is_not_exported(make: Make) -> None:
    with pytest.raises(kforge.errors.UsageError, match=r"changes its own norm\.running_mean.* evaluation mode"):
        make(problem_text(NORMED, "[torch.randn(16, 8)]"), as_program(NORMED))
    steady = NORMED.replace("nn.BatchNorm1d(8)\n", "nn.BatchNorm1d(8)\n        self.eval()\n")
    package = make(problem_text(steady, "[torch.randn(16, 8)]"), as_program(steady))
    model, x = torch.nn.Sequential(torch.nn.BatchNorm1d(8)).eval(), torch.randn(16, 8)
    model[0].running_mean.normal_()
    wanted = model(x).detach()
    assert package.apply(model) == ["0"]
    with torch.no_grad():
        torch.testing.assert_close(model(x), wanted)
    assert package.stats()["program"] == 1
    model.train()
    before = model[0].running_mean.clone()
    model(x)
    assert not torch.equal(model[0].running_mean, before)
    assert list(package.stats()["reasons"]) == ["the module is in training mode, not in evaluation mode"]


FUNCTIONAL = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, self.mean, self.variance, training=True)
"""
VALUES = """class Model(nn.Module):
    def forward(self, x):
        return x * x.max().item()
"""


def test_statistics_that_change_are_seen_without_their_module(make: Make) -> None:
    with pytest.raises(kforge.errors.UsageError, match="changes its own mean, variance in a call"):
        make(problem_text(FUNCTIONAL, "[torch.randn(16, 8)]"), as_program(FUNCTIONAL))


def test_a_reference_that_looks_at_values_is_no_operator(make: Make) -> None:
    with pytest.raises(kforge.errors.UsageError, match="an operator's shapes must follow from its inputs'"):
        make(problem_text(VALUES, "[torch.rand(16, 8) + 0.1]"), as_program(VALUES))


def test_a_missing_package_is_a_sentence(make: Make, tmp_path: Path) -> None:
    package = make(problem_text(SCALED, "[torch.randn(4, 8)]", "", "[2.0]"), as_program(SCALED))
    package._package.program._file._source = "import no_such_module\n"
    x = torch.randn(4, 8)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.testing.assert_close(package.thing(x), x * 2)
    assert "needs the Python package no_such_module, which is not installed" in str(said[0].message)


READS_ITSELF = """class ModelNew(nn.Module):
    def forward(self, x):
        return x * FACTOR


def _half():
    return 0.5


import inspect

FACTOR = 0.5 if "return 0.5" in inspect.getsource(_half) else 0.0
"""


def test_a_program_in_use_at_once_can_read_its_own_text(judge: Any, tmp_path: Path) -> None:
    # As Triton does with the functions it compiles.
    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0.5

    x = torch.randn(16, 8)
    problem = kforge.Problem.from_module(Half(), [x])
    result = shipped.forged(judge, problem, HEAD + READS_ITSELF, tmp_path, shipped.ANY)
    with torch.no_grad():
        torch.testing.assert_close(result.module(fallback=Half(), strict=True)(x), x * 0.5)
