"""Modes that see every operator: torch's compiler is not imported for them, and does not compile what they do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from kforge.dispatch_mode import DispatchMode

pytestmark = pytest.mark.cpu

_SCRIPT = """
import sys
from pathlib import Path

import torch

from kforge.worker.runner.modes import Effects, Poison

with Poison(), Effects():
    layer = torch.nn.Linear(3, 3)
    print(bool(torch.isnan(torch.empty(3)).all()), layer(torch.zeros(1, 3)).shape == (1, 3))
print("torch._dynamo" in sys.modules)
"""


class Counted(DispatchMode):
    """Counts operators, and whether the compiler was told to keep out."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.kept_out: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        self.kept_out.append(torch.compiler.is_dynamo_compiling())
        return func(*args, **(kwargs or {}))


class Derived(Counted):
    """One that has no dispatch of its own."""


def test_no_compiler_is_imported_for_them() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "True", "False"], done.stderr


@pytest.mark.parametrize("kind", [Counted, Derived])
def test_a_compiled_function_is_right_under_one_and_each_operator_is_seen(kind: type[Counted]) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.sin()

    x = torch.linspace(0, 1, 7)
    compiled = torch.compile(twice, backend="aot_eager")
    with kind() as before:
        torch.testing.assert_close(twice(x), 2 * x.sin())
    with kind() as mode:
        torch.testing.assert_close(compiled(x), 2 * x.sin())
    torch.testing.assert_close(compiled(x), 2 * x.sin())
    with kind() as after:
        torch.testing.assert_close(compiled(x), 2 * x.sin())
    for one in (before, mode, after):
        assert "aten.sin.default" in one.seen
        assert not any(one.kept_out), "the mode's own code was compiled"
