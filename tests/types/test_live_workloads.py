"""A live module's workloads and the sizes that vary: how example inputs are read, and what a problem then holds."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge import jsonable, live_module, registry
from kforge.errors import ProblemError
from kforge.types import AxisLength, DynamicSize, Problem, Workload
from kforge.types.live_workloads import live_workloads
from kforge.worker import live_problem
from kforge.worker.judge.device import Device
from kforge.worker.judge.reference import Reference
from kforge.worker.live_problem import resized

pytestmark = pytest.mark.cpu


class OneTensor(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class TwoTensors(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask


class Anything(torch.nn.Module):
    def forward(self, a: Any, b: Any) -> torch.Tensor:
        return torch.zeros(1)


class OneList(torch.nn.Module):
    def forward(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(list(tensors)).sum(0)


class TwoLists(torch.nn.Module):
    def forward(self, a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
        return a[0][0].add_(b[0][0]) if isinstance(a, list) and isinstance(b, list) else a.no_list


class Counter(torch.nn.Module):
    """Draws numbers, changes itself and its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.add_(torch.rand(())) + y


class AnyNumber(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return sum(tensors) if len(tensors) > 1 else tensors[0] * 1


def x(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("module", "given_inputs", "shapes"),
    [
        (OneTensor(), x(2, 3), [[(2, 3)]]),
        (OneTensor(), [x(2, 3)], [[(2, 3)]]),
        (TwoTensors(), [x(2, 3), x(2, 1)], [[(2, 3), (2, 1)]]),
        (TwoTensors(), (x(2, 3), x(2, 1)), [[(2, 3), (2, 1)]]),
        (OneTensor(), [[x(2, 3)], [x(4, 3)]], [[(2, 3)], [(4, 3)]]),
        (OneTensor(), ([x(2, 3)], (x(4, 3),)), [[(2, 3)], [(4, 3)]]),
        (TwoTensors(), [[x(2), x(2)], [x(4), x(4)], [x(5), x(5)]], [[(2,), (2,)], [(4,), (4,)], [(5,), (5,)]]),
        # Both ways bind: only one of them runs.
        (TwoTensors(), [[x(2), x(2)], [x(4), x(4)]], [[(2,), (2,)], [(4,), (4,)]]),
        (AnyNumber(), [[x(2), x(2)], [x(4), x(4)]], [[(2,), (2,)], [(4,), (4,)]]),
    ],
)
def test_what_example_inputs_mean(module: Any, given_inputs: Any, shapes: Any) -> None:
    found = live_workloads(module, given_inputs)
    assert [[tuple(value.shape) for value in items] for items in found.arguments] == shapes
    assert len(found.workloads) == (len(shapes) if len(shapes) > 1 else 0)


def test_lists_that_are_arguments_stay_arguments() -> None:
    assert len(live_workloads(OneList(), [[x(2), x(2)]]).arguments[0][0]) == 2
    # A call with two lists runs; calls with the tensors in them do not.
    found = live_workloads(TwoLists(), [[x(2), x(2)], [x(3), x(3)]])
    assert not found.workloads
    assert [type(value) for value in found.arguments[0]] == [list, list]
    # forward takes one argument: two lists can only be the arguments of two calls.
    assert len(live_workloads(OneList(), [[[x(2), x(2)]], [[x(3)]]]).workloads) == 2


def test_what_can_be_read_both_ways_is_asked_back() -> None:
    both = [[x(2), x(2)], [x(3), x(3)]]
    with pytest.raises(ProblemError, match=r"give weights=\[1, 1\] to mean a workload for each"):
        live_workloads(Anything(), both)
    assert len(live_workloads(Anything(), both, weights=[1, 1]).workloads) == 2
    once = live_workloads(Anything(), [both], weights=[1])
    assert not once.workloads
    assert once.arguments == [both]


def test_a_trial_call_leaves_everything_as_it_was() -> None:
    module, first = Counter(), x(2)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert len(live_workloads(module, [[first, x(2)], [x(3), x(3)]]).workloads) == 2
    assert torch.equal(torch.get_rng_state(), before)
    assert module.calls == 0
    assert torch.equal(first, x(2))


@pytest.mark.parametrize(
    ("given_inputs", "weights", "says"),
    [
        ([x(2), x(3)], [1, 1], "weights belong to workloads: give a list of argument lists"),
        ([], [], "weights belong to workloads"),
        ([[x(2)], [x(3)]], [1], "a number for each of the 2 argument lists"),
        ([[x(2)], [x(3)]], 2, "a number for each of the 2 argument lists"),
        ([[x(2)], [x(3)]], [1, 0], "a weight of 0 is none"),
        ([[x(2)], [x(3)]], [1, float("inf")], "a weight of inf is none"),
        ([[x(2)], [x(3)]], [1, True], "a weight of True is none"),
        ([[x(2)], [x(3), x(3)]], [1, 1], "workload 1 has 2 arguments, which forward"),
    ],
)
def test_weights_that_cannot_be_meant(given_inputs: Any, weights: Any, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        live_workloads(OneTensor(), given_inputs, weights=weights)


def test_names_say_in_what_workloads_differ() -> None:
    names = [str(item) for item in live_workloads(TwoTensors(), [[x(8, 128), x(1)], [x(64, 128), x(1)]]).workloads]
    assert names == ["x 8x128 float32", "x 64x128 float32"]
    same = [str(item) for item in live_workloads(OneTensor(), [[x(8)], [x(8)], [x(8)]]).workloads]
    assert same == ["x 8 float32", "x 8 float32 (2)", "x 8 float32 (3)"]


@given(st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=30), min_size=2, max_size=5))
def test_names_are_short_and_no_two_are_the_same(shapes: list[list[int]]) -> None:
    found = live_workloads(AnyNumber(), [[torch.ones(()).expand(shape)] for shape in shapes], weights=[1] * len(shapes))
    names = [str(item) for item in found.workloads]
    assert len(set(names)) == len(shapes)
    assert max(map(len, names)) <= 64


# -- sizes that vary ---------------------------------------------------------------------------------------------------


def test_axes_of_one_length_and_one_range_vary_together() -> None:
    examples = [[x(8, 128), x(8, 1)], [x(64, 128), x(64, 1)]]
    spans = {"x": {0: (1, 8192), 1: (1, 512)}, "mask": {-2: (1, 8192)}}
    found = live_workloads(TwoTensors(), examples, spans).dynamic
    both = DynamicSize("x[0] = mask[0]", 1, 8192, axes=((0, 0), (1, 0)))
    assert found == (both, DynamicSize("x[1]", 1, 512, axes=((0, 1),)))
    apart = live_workloads(TwoTensors(), examples, {"x": {0: (1, 8192)}, 1: {0: (1, 4096)}}).dynamic
    assert [str(item) for item in apart] == ["x[0] from 1 to 8192", "mask[0] from 1 to 4096"]
    uneven = [[x(8, 8), x(8, 1)], [x(64, 8), x(1, 1)]]
    assert len(live_workloads(TwoTensors(), uneven, {"x": {0: (1, 64)}, "mask": {0: (1, 64)}}).dynamic) == 2
    assert live_workloads(TwoTensors(), examples, {}).dynamic == ()


@pytest.mark.parametrize(
    ("dynamic", "says"),
    [
        ([("x", 0)], "dynamic must be a dict"),
        ({"y": {0: (1, 9)}}, "dynamic names 'y', which is no argument of forward: it has x, mask"),
        ({2: {0: (1, 9)}}, "dynamic names 2"),
        ({"x": (1, 9)}, r"give its axes, as in \{0: \(1, 8192\)\}"),
        ({"x": {2: (1, 9)}}, "is no axis of a tensor with 2 dimensions"),
        ({"x": {"rows": (1, 9)}}, "is no axis of a tensor"),
        ({"x": {0: 9}}, r"it must be \(lowest, highest\), both from 1 on"),
        ({"x": {0: (0, 9)}}, "both from 1 on"),
        ({"x": {0: (9, 2)}}, "both from 1 on"),
        ({"x": {0: (1, 2.5)}}, "both from 1 on"),
        ({"x": {0: (1, 7)}}, "has length 8 along axis 0, outside of .*: widen the range"),
        ({"x": {0: (1, 9), -2: (1, 9)}}, "is there twice"),
        ({"mask": {0: (1, 9)}}, "is an axis of a float: only tensors"),
    ],
)
def test_ranges_that_cannot_be_meant(dynamic: Any, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        live_workloads(TwoTensors(), [x(8, 4), 2.0], dynamic)


def test_an_axis_must_be_one_axis_of_every_example() -> None:
    with pytest.raises(ProblemError, match=r"the examples have \[1, 2\] dimensions"):
        live_workloads(OneTensor(), [[x(8)], [x(8, 8)]], {"x": {-1: (1, 9)}})


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2))
def test_another_length_is_cut_or_begins_again(length: int, wanted: int, axis: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = length
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    found = resized(tensor, axis, wanted)
    assert found.shape[axis] == wanted
    for number in range(wanted):
        assert torch.equal(found.select(axis, number), tensor.select(axis, number % length))


# -- the problem -------------------------------------------------------------------------------------------------------

EXAMPLES = [[x(8, 16), x(8, 1)], [x(64, 16), x(64, 1)]]


def test_a_problem_holds_them_and_comes_back_from_json() -> None:
    problem = Problem.from_module(TwoTensors(), EXAMPLES, dynamic={"x": {0: (1, 99)}}, weights=[0.5, 1])
    assert [item.weight for item in problem.workloads] == [0.5, 1.0]
    assert [item.inputs for item in problem.workloads] == [0, 1]
    assert repr(problem).endswith(", 2 workloads>")
    assert [str(item) for item in problem.dynamic] == ["x[0] from 1 to 99"]
    assert jsonable.decode(Problem, jsonable.encode(problem)) == problem


def test_weights_and_ranges_are_part_of_what_a_problem_is() -> None:
    made = [
        Problem.from_module(TwoTensors(), EXAMPLES[0]),
        Problem.from_module(TwoTensors(), EXAMPLES[0], dynamic={"x": {0: (1, 99)}}),
        Problem.from_module(TwoTensors(), EXAMPLES[0], dynamic={"x": {0: (1, 98)}}),
        Problem.from_module(TwoTensors(), EXAMPLES[0], dynamic={"x": {1: (1, 99)}}),
        Problem.from_module(TwoTensors(), EXAMPLES),
        Problem.from_module(TwoTensors(), EXAMPLES, weights=[0.1, 1]),
        Problem.from_module(TwoTensors(), EXAMPLES, weights=[0.1 + 1e-16, 1]),
    ]
    assert len({problem.id for problem in made}) == len(made)
    assert Problem.from_module(TwoTensors(), EXAMPLES, weights=[1, 1]).id == made[4].id


def test_one_workload_is_kept_as_it_always_was() -> None:
    for problem in (
        Problem.from_module(OneTensor(), [x(8, 16)]),
        Problem.from_module(OneTensor(), [[x(8, 16)]], weights=[3]),
    ):
        module, inputs = pickle.loads(Path(problem.payload).read_bytes())
        assert [tuple(value.shape) for value in inputs] == [(8, 16)]
        assert type(module).__name__ == "OneTensor"
        assert problem.workloads == ()
        assert problem.source.endswith(
            "# Captured from a live module.\n# forward is called with: Tensor [8, 16] float32\n"
        )


def test_each_workload_has_its_own_inputs() -> None:
    problem = Problem.from_module(TwoTensors(), EXAMPLES)
    for number, rows in enumerate((8, 64)):
        module, inputs = live_module.restore(problem.payload, problem.payload_hash, number)
        assert [tuple(value.shape) for value in inputs] == [(rows, 16), (rows, 1)]
        assert type(module).__name__ == "TwoTensors"
        assert live_problem.restore(problem.at(problem.workloads[number]))[1][0].shape[0] == rows
    assert live_problem.restore(problem)[1][0].shape[0] == 8
    with pytest.raises(ProblemError, match="has 2 example inputs, and no number 2"):
        live_module.restore(problem.payload, problem.payload_hash, 2)


def test_the_reference_runs_in_other_lengths() -> None:
    problem = Problem.from_module(TwoTensors(), EXAMPLES, dynamic={"x": {0: (1, 99)}, "mask": {0: (1, 99)}})
    asked = Workload(inputs=1, lengths=(AxisLength(0, 0, 97), AxisLength(1, 0, 97)))
    reference = Reference(problem.at(asked), Device(registry.load("platforms", "cpu")))
    assert [tuple(value.shape) for value in reference.inputs(5)] == [(97, 16), (97, 1)]
    small = replace(asked, lengths=(AxisLength(0, 0, 1), AxisLength(1, 0, 1)))
    assert [
        tuple(value.shape)
        for value in Reference(problem.at(small), Device(registry.load("platforms", "cpu"))).inputs(5)
    ] == [
        (1, 16),
        (1, 1),
    ]
