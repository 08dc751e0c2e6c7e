"""A float64 reference made a few rows at a time is the whole one, or is not made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.worker import trees
from kforge.worker.judge.in_pieces import Inseparable, run_in_pieces

pytestmark = pytest.mark.cpu


class Calls:
    """A module in either precision, and how many rows it was given at a time."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._single = module
        self.rows: list[int] = []

    def single(self, arguments: list[Any]) -> Any:
        with torch.no_grad():
            return self._single(*arguments)

    def double(self, arguments: list[Any]) -> Any:
        tree, tensors = trees.pack(arguments)
        self.rows.append(max(len(tensor) for tensor in tensors if tensor.dim()))
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]
        self._single.double()
        try:
            with torch.no_grad():
                return self._single(*trees.unpack(tree, wide))
        finally:
            self._single.float()


def made(module: torch.nn.Module, arguments: list[Any], piece_bytes: int) -> tuple[list[torch.Tensor], Calls]:
    calls = Calls(module)
    eager = trees.pack(calls.single(arguments))[1]
    return run_in_pieces(calls.double, calls.single, arguments, eager, piece_bytes), calls


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *arguments: Any) -> Any:
        return self._function(*arguments)


ROW_WISE = {
    "relu": lambda columns: torch.nn.ReLU(),
    "softmax": lambda columns: torch.nn.Softmax(dim=-1),
    "linear": lambda columns: torch.nn.Linear(columns, 3),
    "two outputs": lambda columns: Of(lambda x: (x * 3, [x.argmax(dim=-1)])),
}


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(ROW_WISE)),
    rows=st.integers(2, 40),
    columns=st.integers(1, 5),
    piece_bytes=st.integers(0, 1200),
    seed=st.integers(0, 1000),
)
def test_rows_that_stand_alone_give_the_whole_float64_result(
    kind: str, rows: int, columns: int, piece_bytes: int, seed: int
) -> None:
    torch.manual_seed(seed)
    module = ROW_WISE[kind](columns)
    x = torch.randn(rows, columns)
    exact, calls = made(module, [x], piece_bytes)
    whole = trees.pack(Calls(module).double([x]))[1]
    assert [one.shape for one in exact] == [one.shape for one in whole]
    for one, other in zip(exact, whole, strict=True):
        torch.testing.assert_close(one.to(other.dtype), other, rtol=1e-13, atol=1e-14)
    assert sum(calls.rows) == rows
    assert max(calls.rows) <= max(1, piece_bytes // (4 * columns)), "a piece is larger than it may be"


def test_the_result_is_better_than_the_modules_own_precision() -> None:
    x = torch.full((64, 1), 1 / 3)
    (exact,), _ = made(Of(lambda x: x * x), [x], 64)
    assert exact.dtype == torch.float64
    assert not torch.equal(exact, (x * x).double())
    assert torch.equal(exact, x.double() ** 2)


def test_what_has_no_rows_of_its_own_goes_whole_to_every_piece() -> None:
    torch.manual_seed(0)
    x, weight, factor = torch.randn(30, 4), torch.randn(4, 2), torch.tensor(3.0)
    (exact,), calls = made(Of(lambda x, w, f, n: x @ w * f + n), [x, weight, factor, 2], 64)
    torch.testing.assert_close(exact, x.double() @ weight.double() * 3 + 2)
    assert max(calls.rows) == 4


ROWS_MIXED = {
    "batch norm in training": torch.nn.BatchNorm1d(4).train(),
    "cumulative sum": Of(lambda x: x.cumsum(0)),
    "mean taken away": Of(lambda x: x - x.mean(0, keepdim=True)),
    "the row before": Of(lambda x: x + torch.cat([torch.zeros(1, 4, dtype=x.dtype), x[:-1]])),
    "the row after": Of(lambda x: x + torch.cat([x[1:], torch.zeros(1, 4, dtype=x.dtype)])),
    "seven rows on": Of(lambda x: x + torch.cat([x[7:], torch.zeros(min(7, len(x)), 4, dtype=x.dtype)])),
    "turned round": Of(lambda x: x.flip(0)),
    "softmax over rows": torch.nn.Softmax(dim=0),
    "rank of a row": Of(lambda x: x.argsort(0)),
}


@pytest.mark.parametrize("module", ROWS_MIXED.values(), ids=ROWS_MIXED)
@pytest.mark.parametrize("piece_bytes", [0, 16, 400, 1 << 20])
def test_rows_that_depend_on_others_are_seen(module: torch.nn.Module, piece_bytes: int) -> None:
    torch.manual_seed(0)
    with pytest.raises((Inseparable, ValueError), match=r"same part of the output|more than 1 value per channel"):
        made(module, [torch.randn(64, 4)], piece_bytes)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.mean(0, keepdim=True), (64, 4)),
        (lambda x: x.sum(), (64, 4)),
        (lambda x: x.t(), (64, 4)),
        (lambda x: (x, x.sum(0)), (64, 4)),
        (lambda x: x * 2, (1, 4)),
        (lambda x: x * 2, ()),
    ],
    ids=["mean kept", "sum", "transposed", "one of two", "a single row", "a number"],
)
def test_without_a_first_axis_in_common_there_are_no_pieces(function: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(Inseparable, match="no first axis in common"):
        made(Of(function), [torch.randn(shape)], 64)


def test_infinities_and_nan_are_kept_where_they_are() -> None:
    x = torch.randn(32, 4)
    x[3, 1], x[30, 2] = float("inf"), float("nan")
    (exact,), _ = made(Of(lambda x: x * 2), [x], 64)
    torch.testing.assert_close(exact.double(), x.double() * 2, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("last", [None, 1 / 3])
def test_what_eager_has_exactly_is_not_made_again(last: float | None) -> None:
    x = torch.arange(32.0).reshape(32, 1)
    x[3], x[5] = float("nan"), float("inf")
    if last is not None:
        x[31] = last
    calls = Calls(Of(lambda x: x * x))
    eager = trees.pack(calls.single([x]))[1]
    (exact,) = run_in_pieces(calls.double, calls.single, [x], eager, 16)
    assert sum(calls.rows) == 32, "every row is computed in float64 all the same"
    assert (exact is eager[0]) is (last is None)
    torch.testing.assert_close(exact.double(), x.double() ** 2, equal_nan=True, rtol=0, atol=0)
