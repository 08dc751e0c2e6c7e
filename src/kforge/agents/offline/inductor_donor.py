"""What PyTorch's compiler makes of a problem, as a text that a model can read."""

from __future__ import annotations

from kforge.agents.base import Target
from kforge.agents.offline import variants
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.recipe import LoweringRequest, language_of
from kforge.errors import UsageError
from kforge.types import Problem

_ON_THE_GPU = ("cuda", "triton")
"""Platforms whose hardware the compiler writes Triton for."""


def lifted_class(target: Target) -> str:
    """The device class whose kernels are lifted: the target's own, or the processor's where there are none for it."""
    return "gpu" if target.name in _ON_THE_GPU and not target.verified_as else "cpu"


async def inductor_program(problem: Problem, target: Target) -> str:
    """The lifted default program; UsageError with the reason where there is none."""
    lowering = Lowering()
    try:
        name, device_class = variants.DEFAULT, lifted_class(target)
        recipe = variants.recipe(name, language_of(device_class))
        product = await lowering.make(LoweringRequest(problem, device_class, name, recipe))
    finally:
        await lowering.close()
    if product.source is None:
        raise UsageError(f"PyTorch's compiler gives no reference for {problem.name}: {product.reason}")
    return product.source
