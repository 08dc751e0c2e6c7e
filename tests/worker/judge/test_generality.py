"""What a verdict says of inputs that the problem does not have: other sizes, and another layout in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings
from kforge.worker.judge.generality import odd_sizes, other_batches, other_layouts

pytestmark = pytest.mark.cpu

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

def get_inputs():
    return [torch.randn(64, 48)]

def get_init_inputs():
    return []
"""
ANY_SIZE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
"""
SAYS_NO = ANY_SIZE.replace(
    "        return",
    "        if x.shape != (64, 48) or not x.is_contiguous():\n"
    "            raise ValueError('made for 64 x 48')\n        return",
)
BLIND = ANY_SIZE.replace(
    "return torch.relu(x) * 2",
    "y = torch.zeros_like(x, memory_format=torch.contiguous_format)\n"
    "        flat = torch.as_strided(x, (x.numel() // 4 * 4,), (1,))\n"
    "        y.view(-1)[: len(flat)] = torch.relu(flat) * 2\n"
    "        return y",
)
CRASHES = ANY_SIZE.replace(
    "        return",
    "        if x.shape[0] != 64:\n            import ctypes\n            ctypes.string_at(0)\n        return",
)
UNTIMED = Settings(compile_baseline=False, timing_seconds=0, policy="any", seeds=1)


def lines(judge: Any, source: str, problem: str = PROBLEM) -> tuple[tuple[str, ...], tuple[str, ...]]:
    verdict = judge.evaluate(Problem.from_source(problem, "relu"), Candidate(source, "cpu"), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    return verdict.generality, verdict.hazards


def test_a_program_for_any_size_is_said_to_be_one(judge: Any) -> None:
    tried, hazards = lines(judge, ANY_SIZE)
    assert tried == (
        "another batch size (33 for 64): right",
        "a size that is no multiple of 4 (47 for 48): right",
        "a non-contiguous input: right",
    )
    assert not hazards


def test_a_program_that_refuses_is_no_hazard(judge: Any) -> None:
    tried, hazards = lines(judge, SAYS_NO)
    assert all("raises ValueError: made for 64 x 48" in line for line in tried)
    assert len(tried) == 3
    assert not hazards


def test_a_program_that_is_wrong_without_a_word_is_one(judge: Any) -> None:
    tried, hazards = lines(judge, BLIND)
    assert tried[0] == "another batch size (33 for 64): right", "33 x 48 is still a multiple of 4"
    assert tried[2] == "a non-contiguous input: silently wrong"
    assert "it is given a non-contiguous input" in hazards


def test_a_program_that_crashes_is_still_correct_for_what_was_asked(judge: Any) -> None:
    tried, hazards = lines(judge, CRASHES)
    assert tried == ("another batch size (33 for 64): crashes or hangs",)
    assert hazards == ("it is given another batch size (33 for 64) (it crashes or hangs)",)


def test_what_the_reference_cannot_take_is_not_tried(judge: Any) -> None:
    fixed = PROBLEM.replace("torch.relu(x) * 2", "torch.relu(x.view(-1).view(64, 48)) * 2")
    tried, _ = lines(judge, ANY_SIZE, fixed)
    assert tried == ()


SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@given(st.lists(SHAPES, min_size=1, max_size=3))
@settings(deadline=None, max_examples=80)
def test_changes_keep_what_belongs_together(shapes: list[list[int]]) -> None:
    tensors = [torch.randn(shape) for shape in shapes]
    for changed, _ in other_batches(tensors):
        old, new = tensors[0].shape[0], changed[0].shape[0]
        assert old != new
        for before, after in zip(tensors, changed, strict=True):
            assert after.shape[0] == (new if before.shape[0] == old else before.shape[0])
            assert after.shape[1:] == before.shape[1:]
    for changed, how in odd_sizes(tensors):
        wanted, length = (int(word) for word in how.split(" for "))
        assert wanted % 4
        for before, after in zip(tensors, changed, strict=True):
            assert [wanted if side == length else side for side in before.shape] == list(after.shape)
    for changed, _ in other_layouts(tensors):
        assert all(map(torch.equal, tensors, changed))


def test_an_index_never_points_beyond_what_is_left() -> None:
    x, index = torch.randn(8, 4), torch.tensor([7, 1, 0, 2, 3, 4, 5, 6])
    assert list(other_batches([x, index])) == []
    assert list(odd_sizes([x, index])) == []
    assert [how for _, how in other_batches([x, index % 3])] == ["5 for 8"]
