"""From an order to a program, inside the lowering process."""

from __future__ import annotations

from dataclasses import replace

import torch

from kforge.agents.offline import constants
from kforge.agents.offline.exporting import export
from kforge.agents.offline.inductor import generate
from kforge.agents.offline.loading import load
from kforge.agents.offline.program import Parts, compose
from kforge.agents.offline.recipe import OWN_FAMILIES, Order, Unliftable
from kforge.agents.offline.translating import translate
from kforge.agents.offline.wrapper import Kernel, take_apart


def lift(order: Order) -> str:
    """The program's text; Unliftable where there is none to be had."""
    loaded = load(order.problem, order.device_class)
    exported = export(loaded)
    generated = generate(exported.graph, order.recipe.options)
    maker = constants.Maker(loaded)
    for name, value in generated.constants.items():
        maker.add(name, name, value)
    exported.interface.constants.update(maker.expressions)
    wrapper = take_apart(generated.code)
    made = translate(wrapper, exported.interface, order.recipe.own)
    if not made.kernel_calls and not made.called:
        # A program of library calls alone would be torch's work under another name.
        made = translate(wrapper, exported.interface, OWN_FAMILIES)
    if not made.kernel_calls and not made.called:
        names = ", ".join(sorted(set(made.library))) or "views"
        raise Unliftable(f"PyTorch's compiler has no kernel of its own for it: it is all library calls ({names})")
    return compose(
        Parts(
            title=order.problem.name,
            variant=order.variant,
            torch_version=str(torch.__version__),
            interface=exported.interface,
            kernels=tuple(_rewritten(kernel, order.recipe.rewrites) for kernel in wrapper.kernels),
            translation=made,
            flags=(*generated.flags, *order.recipe.flags),
        )
    )


def _rewritten(kernel: Kernel, rewrites: dict[str, str]) -> Kernel:
    text = kernel.text
    for old, new in rewrites.items():
        text = text.replace(old, new)
    return replace(kernel, text=text)
