"""Lifting: what PyTorch's compiler writes for a module becomes a program that the judge finds correct."""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge.agents.offline import variants
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.recipe import LoweringRequest, LoweringResult
from kforge.types import Candidate, Outcome, Problem, Settings

pytestmark = pytest.mark.toolchain

QUICK = Settings(timing_seconds=0, compile_baseline=False, seeds=2)

FUSED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.table = nn.Embedding(50, features)
        self.norm = nn.LayerNorm(features)

    def forward(self, index, x, scale):
        hidden = self.norm(self.table(index) + x) * scale
        return torch.softmax(hidden, dim=-1), hidden.argmax(dim=-1), x.transpose(0, 1)

def get_inputs():
    return [torch.randint(0, 50, (24, 10)), torch.randn(24, 10, 40), 3]

def get_init_inputs():
    return [40]
"""

MASKED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x, mask):
        return torch.softmax(self.norm(x).masked_fill(mask, -1e4), dim=-1)

def get_inputs():
    return [torch.randn(64, 64), torch.rand(64, 64) < 0.3]

def get_init_inputs():
    return [64]
"""

TRAINED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))

def get_inputs():
    return [torch.randn(4, 3, 12, 12)]

def get_init_inputs():
    return []
"""

LIBRARY_ONLY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(37, 41)
        self.conv = nn.Conv1d(24, 6, 5, stride=2, padding=1, groups=2)

    def forward(self, x):
        return self.conv(torch.cumsum(self.linear(x), dim=1))

def get_inputs():
    return [torch.randn(3, 24, 37)]

def get_init_inputs():
    return []
"""

OPAQUE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drawn = torch.randn(30, 20)
        self.register_buffer("mask", torch.full((20, 20), float("-inf")).triu(1), persistent=False)

    def forward(self, x):
        return torch.softmax(x @ self.drawn + self.mask[0], dim=-1) * torch.tensor([2.0])

def get_inputs():
    return [torch.randn(16, 30)]

def get_init_inputs():
    return []
"""

DATA_DEPENDENT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x[x > 0] * 2

def get_inputs():
    return [torch.randn(16)]

def get_init_inputs():
    return []
"""

CRASHING = """
import os
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        print("on standard output")
        os._exit(3)

def get_inputs():
    return [torch.randn(16)]

def get_init_inputs():
    return []
"""


class Workshop:
    """One lowering process for all tests of the file."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._lowering = Lowering(timeout_seconds=600)

    def make(self, problem: Problem | str, variant: str = variants.DEFAULT) -> LoweringResult:
        wanted = Problem.from_source(problem) if isinstance(problem, str) else problem
        order = LoweringRequest(wanted, "cpu", variant, variants.recipe(variant))
        return self._runner.run(self._lowering.make(order))

    def lift(self, problem: Problem | str, variant: str = variants.DEFAULT) -> str:
        product = self.make(problem, variant)
        assert product.source, product.reason
        return product.source

    def close(self) -> None:
        self._runner.run(self._lowering.close())
        self._runner.close()


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.close()


def judged(judge: Any, problem: Problem | str, source: str) -> Any:
    wanted = Problem.from_source(problem) if isinstance(problem, str) else problem
    return judge.evaluate(wanted, Candidate(source), QUICK)


def loaded(source: str) -> types.ModuleType:
    module = types.ModuleType("lifted")
    exec(compile(source, "<lifted>", "exec"), module.__dict__)
    return module


def test_a_fused_module_with_integer_and_scalar_inputs_and_several_outputs(judge: Any, workshop: Workshop) -> None:
    source = workshop.lift(FUSED)
    verdict = judged(judge, FUSED, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.custom_share is not None
    assert verdict.custom_share > 0.5
    assert "variant: default" in source


def test_training_mode_updates_the_running_statistics(judge: Any, workshop: Workshop) -> None:
    import torch

    source = workshop.lift(TRAINED)
    assert judged(judge, TRAINED, source).outcome is Outcome.CORRECT
    namespace = loaded(TRAINED)
    reference, lifted = namespace.Model(), loaded(source).ModelNew()
    lifted.load_state_dict(reference.state_dict())
    (x,) = namespace.get_inputs()
    with torch.no_grad():
        reference(x), lifted(x)
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(lifted.state_dict()[name], value, msg=name)
    assert int(lifted.norm.num_batches_tracked) == 1
    with pytest.raises(ValueError, match="x must be"):
        lifted(x[:2])


def test_a_module_of_library_calls_gets_kernels_of_our_own(judge: Any, workshop: Workshop) -> None:
    source = workshop.lift(LIBRARY_ONLY)
    verdict = judged(judge, LIBRARY_ONLY, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert "Still done by torch" not in source
    assert all(f"{family}_" in source for family in ("gemm", "scan", "convolution"))


def test_every_move_for_speed_builds_and_is_right(judge: Any, workshop: Workshop) -> None:
    """All that are offered on this machine: vectors of half the width only where they have 512 bits."""
    plain = workshop.lift(MASKED)
    moves = variants.moves_in("fast_masks+row_at_once+fast_exp+half_width+unroll+one_thread")
    fitting = [move for move in moves if re.search(variants.VARIANTS[move].needs, plain)]
    assert {*moves} - {*fitting} <= {"half_width", "one_thread"}
    source = workshop.lift(MASKED, "+".join(fitting))
    assert "load_mask(in_ptr" in source
    assert "exp_u20()" in source
    assert "-funroll-loops" in source
    assert "omp parallel" not in source
    verdict = judged(judge, MASKED, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


def test_constants_that_are_in_no_state_come_along(judge: Any, workshop: Workshop) -> None:
    source = workshop.lift(OPAQUE)
    assert "reference.drawn" in source, "what the constructor draws must be drawn again"
    assert "triu(1)" in source
    assert judged(judge, OPAQUE, source).outcome is Outcome.CORRECT


def test_a_live_module_with_shared_weights_and_nested_names(judge: Any, workshop: Workshop) -> None:
    import torch
    from torch import nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)])
            self.table = nn.Embedding(30, 16)
            self.out = nn.Linear(16, 30, bias=False)
            self.out.weight = self.table.weight

        def forward(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
            hidden = self.table(index)
            for layer in self.layers:
                hidden = torch.relu(layer(hidden))
            return {"scores": self.out(hidden), "hidden": hidden}

    problem = Problem.from_module(Tied(), [torch.randint(0, 30, (20, 6))])
    source = workshop.lift(problem)
    verdict = judged(judge, problem, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    model = loaded(source).ModelNew()
    assert model.out.weight is model.table.weight


def rotary_attention(length: int, width: int) -> Any:
    """An ordinary attention with a rotary embedding; its tables are in no state."""
    import torch
    import torch.nn as nn

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
            angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, two = x.chunk(2, dim=-1)
            count = x.shape[-2]
            return x * self.cos[:count] + torch.cat((-two, one), dim=-1) * self.sin[:count]

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.projection = nn.Linear(2 * width, 6 * width, bias=False)
            self.rotary = Rotary()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.projection(x).view(*x.shape[:2], 3, 2, width).permute(2, 0, 3, 1, 4)
            query, key, value = self.rotary(parts[0]), self.rotary(parts[1]), parts[2]
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    return Attention()


def test_a_live_module_s_large_buffers_need_not_be_persistent(
    workshop: Workshop, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from kforge.packages import drop_in

    live, x = rotary_attention(1024, 64), torch.randn(2, 48, 128)
    problem = Problem.from_module(live, [x])
    assert "rotary.cos: Tensor [1024, 64] float32, a buffer that is not persistent" in problem.source
    source = workshop.lift(problem)
    verdict = judged(judge, problem, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert {"rotary.cos", "rotary.sin"} <= set(verdict.evidence.parameters)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KFORGE_BUILD_DIR", str(tmp_path / "build"))
    module = drop_in.load(problem, source, "cpu")
    with torch.no_grad():
        torch.testing.assert_close(module(x), live(x))
        assert list(module.state_dict()) == list(live.state_dict())
        alone = loaded(source).ModelNew()
        alone.load_state_dict(live.state_dict())
        assert alone(x).isnan().any(), "a table that nobody gave is not taken for zeros"


def test_what_depends_on_the_data_is_refused_with_the_reason(workshop: Workshop) -> None:
    product = workshop.make(DATA_DEPENDENT)
    assert product.source is None
    assert "depends on the data" in product.reason


def test_the_same_order_gives_the_same_text(workshop: Workshop) -> None:
    assert workshop.lift(TRAINED, "one_pass+unroll") == workshop.lift(TRAINED, "one_pass+unroll")


def test_a_crash_is_a_reason_and_the_next_order_is_answered(workshop: Workshop) -> None:
    product = workshop.make(CRASHING)
    assert product.source is None
    assert "status 3" in product.reason
    assert workshop.make(DATA_DEPENDENT).reason


POOLED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(torch.relu(x), 2)

def get_inputs():
    return [torch.randn(2, 3, 8, 8)]

def get_init_inputs():
    return []
"""


def test_pooling_may_be_the_first_thing_a_process_lifts() -> None:
    """Its decomposition needs a module that other graphs happen to load."""

    async def lift() -> LoweringResult:
        lowering = Lowering()
        try:
            problem = Problem.from_source(POOLED, "pooled")
            return await lowering.make(
                LoweringRequest(problem, "cpu", variants.DEFAULT, variants.recipe(variants.DEFAULT))
            )
        finally:
            await lowering.close()

    product = asyncio.run(lift())
    assert product.source is not None, product.reason
