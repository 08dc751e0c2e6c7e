"""What PyTorch's compiler makes of a problem, as a text that a model can read."""

from __future__ import annotations

from kforge.agents.face import Target
from kforge.agents.offline import variants
from kforge.agents.offline.lowering_process import Lowering
from kforge.agents.offline.recipe import Order, language_of
from kforge.errors import UsageError
from kforge.types import Problem


async def inductor_reference(problem: Problem, target: Target) -> str:
    """The lifted default program; UsageError with the reason where there is none."""
    lowering = Lowering()
    try:
        name, language = variants.DEFAULT, language_of(target.device_class)
        if not language:
            raise UsageError(f"PyTorch's compiler writes no kernels for {target.name}: leave --reference inductor out")
        product = await lowering.make(Order(problem, target.device_class, name, variants.recipe(name, language)))
    finally:
        await lowering.close()
    if product.source is None:
        raise UsageError(f"PyTorch's compiler gives no reference for {problem.name}: {product.reason}")
    return product.source
