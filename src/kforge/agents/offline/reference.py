"""What PyTorch's compiler makes of a problem, as a text that a model can read."""

from __future__ import annotations

from kforge.agents.face import Target
from kforge.agents.offline import variants
from kforge.agents.offline.lowering_process import Lowering
from kforge.agents.offline.recipe import Order
from kforge.errors import UsageError
from kforge.types import Problem


async def inductor_reference(problem: Problem, target: Target) -> str:
    """The lifted default program; UsageError with the reason where there is none."""
    lowering = Lowering()
    try:
        name = variants.DEFAULT
        product = await lowering.make(Order(problem, target.device_class, name, variants.recipe(name)))
    finally:
        await lowering.close()
    if product.source is None:
        raise UsageError(f"PyTorch's compiler gives no reference for {problem.name}: {product.reason}")
    return product.source
