"""From an order to a program, inside the lowering process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kforge.agents.offline import constants
from kforge.agents.offline.exporting import export
from kforge.agents.offline.inductor import generate
from kforge.agents.offline.interface import Interface
from kforge.agents.offline.loading import Loaded, load
from kforge.agents.offline.program import Parts, compose
from kforge.agents.offline.recipe import OWN_FAMILIES, Order, Recipe, Unliftable
from kforge.agents.offline.translating import Translation, translate
from kforge.agents.offline.wrapper import Kernel, take_apart


def lift(order: Order) -> str:
    """The program's text; Unliftable where there is none to be had."""
    loaded = load(order.problem, order.device_class)
    lifted = _lower(loaded, order.recipe)
    if not lifted.own_work and any("scaled_dot_product" in name for name in lifted.translation.library):
        lifted = _lower(loaded, replace(order.recipe, apart=(*order.recipe.apart, "attention")))
    if not lifted.own_work:
        # A program of library calls alone would be torch's work under another name.
        lifted = _lower(loaded, replace(order.recipe, own=OWN_FAMILIES))
    if not lifted.own_work:
        names = ", ".join(sorted(set(lifted.translation.library))) or "views"
        raise Unliftable(f"PyTorch's compiler has no kernel of its own for it: it is all library calls ({names})")
    kernels = tuple(_rewritten(kernel, order.recipe.rewrites) for kernel in lifted.kernels)
    return compose(
        Parts(
            title=order.problem.name,
            variant=order.variant,
            torch_version=str(torch.__version__),
            interface=lifted.interface,
            kernels=kernels,
            translation=lifted.translation,
            flags=(*lifted.flags, *order.recipe.flags),
            prelude=order.recipe.prelude if kernels != lifted.kernels else "",
        )
    )


@dataclass(frozen=True)
class _Lifted:
    interface: Interface
    kernels: tuple[Kernel, ...]
    translation: Translation
    flags: tuple[str, ...]

    @property
    def own_work(self) -> bool:
        """Whether anything but the library does something."""
        return bool(self.translation.kernel_calls or self.translation.called)


def _lower(loaded: Loaded, recipe: Recipe) -> _Lifted:
    exported = export(loaded, recipe.apart)
    generated = generate(exported.graph, recipe.options)
    maker = constants.Maker(loaded)
    for name, value in generated.constants.items():
        maker.add(name, "", value)
    interface = replace(exported.interface, constants={**exported.interface.constants, **maker.expressions})
    wrapper = take_apart(generated.code)
    return _Lifted(interface, wrapper.kernels, translate(wrapper, interface, recipe.own), generated.flags)


def _rewritten(kernel: Kernel, rewrites: dict[str, str]) -> Kernel:
    text = kernel.text
    for old, new in rewrites.items():
        text = text.replace(old, new)
    return replace(kernel, text=text)
