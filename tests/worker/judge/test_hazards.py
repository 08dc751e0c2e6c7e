"""The judge tries a correct program where it was not verified: raising is fine, a silently wrong result is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kforge import Candidate, Outcome, Problem, Settings, jsonable
from kforge.errors import WireError
from kforge.run import guarded_program
from kforge.types import Domain, TensorLayout, Verdict
from kforge.worker.judge.domain import read_layouts
from kforge.worker.protocol.base import answer_from_wire
from kforge.worker.protocol.calls import ChangedStateResult
from kforge.worker.protocol.records import ModuleTensor

pytestmark = pytest.mark.toolchain

UNTIMED = Settings(compile_baseline=False, timing_seconds=0)
DTYPE, STRIDE = "a parameter or buffer has another dtype", "a parameter or buffer is not contiguous"
GRADIENT, LAYOUT = "a gradient is asked for", "it is given a non-contiguous input"

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(rows, columns) + 0.5)
        self.register_buffer("shift", torch.rand(columns))

    def forward(self, x, count):
        return (x * self.weight + self.shift).relu() * count

def get_inputs():
    return [torch.randn(16, 64), 2]

def get_init_inputs():
    return [16, 64]
"""

PROGRAM = '''
import ctypes, os, subprocess, tempfile
import torch

SOURCE = r"""
extern "C" void fused(const float* x, const float* weight, const float* shift, float* y,
                      long rows, long columns, float f) {
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            float v = x[r * columns + c] * weight[r * columns + c] + shift[c];
            y[r * columns + c] = (v < 0 ? 0 : v) * f;
        }
}
"""
folder = tempfile.mkdtemp()
with open(folder + "/k.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O1", "-shared", "-fPIC", file.name, "-o", folder + "/k.so"], check=True)
kernel = ctypes.CDLL(folder + "/k.so").fused
kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_float]


class ModelNew(torch.nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(rows, columns) + 0.5)
        self.register_buffer("shift", torch.rand(columns))

    def forward(self, x, count):
        BODY
'''

CARELESS = """y = torch.empty(16, 64)
        kernel(x.data_ptr(), self.weight.data_ptr(), self.shift.data_ptr(), y.data_ptr(), 16, 64, count)
        return y"""
CONVERTING = """weight, shift = (t.detach().to(torch.float32).contiguous() for t in (self.weight, self.shift))
        y = torch.empty(16, 64)
        kernel(x.data_ptr(), weight.data_ptr(), shift.data_ptr(), y.data_ptr(), 16, 64, count)
        return y"""
RAISING = (
    """for tensor in (x, self.weight, self.shift):
            if tensor.dtype != torch.float32 or not tensor.is_contiguous():
                raise ValueError("contiguous float32 only")
            if torch.is_grad_enabled() and tensor.requires_grad:
                raise RuntimeError("no backward")
        """
    + CARELESS
)
WRONG_GRADIENT = """y = torch.empty(16, 64)
        weight, shift = (t.detach().to(torch.float32).contiguous() for t in (self.weight, self.shift))
        kernel(x.data_ptr(), weight.data_ptr(), shift.data_ptr(), y.data_ptr(), 16, 64, count)
        return y + 0.0 * x.nan_to_num(0, 0, 0) + 0.0 * self.weight.float()"""
RIGHT_GRADIENT = """weight, shift = (t.to(torch.float32).contiguous() for t in (self.weight, self.shift))
        return Fused.apply(x, weight, shift, count)


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, shift, count):
        y = torch.empty(16, 64)
        kernel(x.data_ptr(), weight.data_ptr(), shift.data_ptr(), y.data_ptr(), 16, 64, count)
        ctx.save_for_backward(x, weight, y)
        ctx.count = count
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, weight, y = ctx.saved_tensors
        inner = gradient * (y > 0) * ctx.count
        return inner * weight, inner * x, inner.sum(0), None"""
CRASHING = (
    """if self.weight.dtype != torch.float32:
            ctypes.string_at(0)
        """
    + CARELESS
)


def judged(judge: Any, body: str) -> Verdict:
    verdict: Verdict = judge.evaluate(
        Problem.from_source(PROBLEM, "gated"), Candidate(PROGRAM.replace("BODY", body)), UNTIMED
    )
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    return verdict


@pytest.mark.parametrize(
    ("body", "hazards"),
    [
        pytest.param(CARELESS, (STRIDE, DTYPE, GRADIENT, LAYOUT), id="careless"),
        pytest.param(CONVERTING, (GRADIENT, LAYOUT), id="converting"),
        pytest.param(RAISING, (), id="raising"),
        pytest.param(WRONG_GRADIENT, (GRADIENT, LAYOUT), id="wrong gradient"),
        pytest.param(RIGHT_GRADIENT, (LAYOUT,), id="right gradient"),
        pytest.param(CRASHING, (STRIDE, f"{DTYPE} (it crashes or hangs)"), id="crashing"),
    ],
)
def test_what_is_silently_wrong_is_told(judge: Any, body: str, hazards: tuple[str, ...]) -> None:
    verdict = judged(judge, body)
    assert verdict.hazards == hazards
    assert not [note for note in verdict.notes if "could not be tried" in note]


def test_what_a_program_was_verified_for_is_on_record(judge: Any) -> None:
    verdict = judged(judge, CARELESS)
    assert verdict.domain == Domain(
        arguments=["l", [["T", 0], ["i", 2]]],
        tensors=(TensorLayout("", "float32", (16, 64), (64, 1)),),
        state=(
            TensorLayout("weight", "float32", (16, 64), (64, 1)),
            TensorLayout("shift", "float32", (64,), (1,)),
        ),
        device="cpu",
    )
    assert jsonable.decode(Verdict, jsonable.encode(verdict)) == verdict


def test_a_program_with_its_guard_is_as_correct_and_without_hazards(judge: Any) -> None:
    problem, source = Problem.from_source(PROBLEM, "gated"), PROGRAM.replace("BODY", CARELESS)
    text = guarded_program.add_guard(source, "gated", judged(judge, CARELESS).domain)
    verdict = judge.evaluate(problem, Candidate(text), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.hazards == ()


DROPOUT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
        self.eval()

    def forward(self, x):
        return self.drop(x) * 2

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""


def test_the_mode_is_part_of_it_where_the_result_depends_on_it(judge: Any) -> None:
    body = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x\n"
    loose = Settings(compile_baseline=False, timing_seconds=0, policy="any")
    dropped = judge.evaluate(Problem.from_source(DROPOUT), Candidate("import torch\n\n" + body), loose)
    assert dropped.outcome is Outcome.CORRECT, dropped.detail
    assert dropped.domain.training is False
    plain = judge.evaluate(
        Problem.from_source(DROPOUT.replace("self.drop(x)", "x")), Candidate("import torch\n\n" + body), loose
    )
    assert plain.domain.training is None


def test_numbers_that_are_drawn_anew_may_have_any_value(judge: Any) -> None:
    drawn = PROBLEM.replace("return [torch.randn(16, 64), 2]", "return [torch.randn(16, 64), float(torch.rand(()))]")
    source = PROGRAM.replace("BODY", CARELESS)
    verdict = judge.evaluate(Problem.from_source(drawn, "drawn"), Candidate(source), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.domain.arguments == ["l", [["T", 0], ["*", "f"]]]
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(guarded_program.add_guard(source, "drawn", verdict.domain), namespace)
    module, x = namespace["ModelNew"](16, 64), torch.randn(16, 64)
    with torch.no_grad():
        torch.testing.assert_close(module(x, 0.5) * 2, module(x, 1.0))
        with pytest.raises(ValueError, match="argument 2 must be a float, and is 2"):
            module(x, 2)


def test_what_a_runner_says_of_its_tensors_is_read_with_care() -> None:
    fine, odd = ModuleTensor("weight", "float32", (2, 3), (3, 1)), ModuleTensor("b", "nodtype", (1,), (1,))
    assert read_layouts([fine, odd]) == [TensorLayout("weight", "float32", (2, 3), (3, 1))]
    for layouts in ([None], [3], [["a"]], [["c", "float32", ["x"], [1]]], [["d", "float32", 5, [1]]], "nothing"):
        with pytest.raises(WireError, match=r"ChangedStateResult\.layouts"):
            answer_from_wire(ChangedStateResult, {"succeeded": True, "raised": "", "layouts": layouts})


def test_the_command_line_tells_hazards(kforge_warm: Any, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(PROGRAM.replace("BODY", CARELESS))
    files = (tmp_path / "problem.py", tmp_path / "kernel.py")
    done = kforge_warm("evaluate", *files, "--no-compile-baseline", "--timing-seconds", "0")
    assert "silently wrong when" in done.stdout
    assert GRADIENT in done.stdout
