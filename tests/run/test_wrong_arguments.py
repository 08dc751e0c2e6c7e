"""Arguments that cannot be meant: each is answered with a sentence that says what to give instead."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import kforge
from kforge.errors import KForgeError, ProblemError, UsageError

pytestmark = pytest.mark.cpu

CURE = re.escape("kforge.Problem.from_module(module, [its arguments])")


def test_a_module_in_the_place_of_a_problem() -> None:
    module = torch.nn.Linear(4, 4)
    with pytest.raises(UsageError, match=f"a Linear is no problem.*{CURE}"):
        kforge.forge(module)  # type: ignore[arg-type]
    with pytest.raises(KForgeError, match=f"a Linear is no problem.*{CURE}"):
        kforge.forge(module, [torch.randn(2, 4)])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"a Linear is no problem.*{CURE}"):
        kforge.evaluate(module, "x = 1\n")  # type: ignore[arg-type]


def test_a_platform_that_is_no_name() -> None:
    with pytest.raises(UsageError, match="a platform is called by its name, not by a list"):
        kforge.forge("bundled:level1/1", [torch.randn(2, 4)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (torch.relu, "is no torch.nn.Module: put what it does into the forward of one"),
        (torch.nn.ReLU, r"ReLU is a class: give a module of it, ReLU\(...\)"),
        (None, "a NoneType is no torch.nn.Module"),
    ],
)
def test_what_is_no_module_is_no_problem(module: Any, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        kforge.Problem.from_module(module, [torch.randn(2, 4)])


def test_a_module_without_example_inputs() -> None:
    with pytest.raises(ProblemError, match="ReLU comes without example inputs: give the arguments of a call"):
        kforge.Problem.from_module(torch.nn.ReLU())
