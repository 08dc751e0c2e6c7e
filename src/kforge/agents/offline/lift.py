"""From an order to a program, inside the lowering process."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kforge.agents.offline import constants
from kforge.agents.offline.call_translation import CallTranslation, translate
from kforge.agents.offline.cpp_text import cpp_kernels
from kforge.agents.offline.graph_export import export
from kforge.agents.offline.inductor import GeneratedCode, generate
from kforge.agents.offline.interface import Interface
from kforge.agents.offline.loaded_problem import LoadedReference, load
from kforge.agents.offline.program import Kernels, Parts, compose
from kforge.agents.offline.recipe import (
    OWN_FAMILIES,
    OWN_TEMPLATES,
    TRITON,
    LoweringRequest,
    Recipe,
    Unliftable,
    language_of,
)
from kforge.agents.offline.triton_launch import Tuning
from kforge.agents.offline.triton_text import triton_kernels
from kforge.agents.offline.wrapper import GeneratedModule, take_apart


def lift(order: LoweringRequest) -> str:
    """The program's text; Unliftable where there is none to be had."""
    try:
        return _lift(order)
    except Unliftable as error:
        if language_of(order.device_class) == TRITON and not torch.cuda.is_available():
            raise Unliftable(
                "Inductor asks the GPU for its properties, and PyTorch sees none on this machine"
            ) from error
        raise


def _lift(order: LoweringRequest) -> str:
    loaded = load(order.problem, order.device_class)
    language = language_of(order.device_class)
    lifted = _lower(loaded, order.recipe)
    if not lifted.own_work and any("scaled_dot_product" in name for name in lifted.translation.library):
        lifted = _lower(loaded, replace(order.recipe, apart=(*order.recipe.apart, "attention")))
    if not lifted.own_work:
        # A program of library calls alone would be torch's work under another name.
        own = OWN_TEMPLATES + order.recipe if language == TRITON else replace(order.recipe, own=OWN_FAMILIES)
        lifted = _lower(loaded, own)
    if not lifted.own_work:
        names = ", ".join(sorted(set(lifted.translation.library))) or "views"
        raise Unliftable(f"PyTorch's compiler has no kernel of its own for it: it is all library calls ({names})")
    return compose(
        Parts(
            title=order.problem.name,
            variant=order.variant,
            torch_version=str(torch.__version__),
            interface=lifted.interface,
            translation=lifted.translation,
            kernels=_triton(lifted, order.recipe) if language == TRITON else _cpp(lifted, order.recipe),
        )
    )


@dataclass(frozen=True)
class _LoweredModule:
    interface: Interface
    generated: GeneratedCode
    wrapper: GeneratedModule
    translation: CallTranslation

    @property
    def own_work(self) -> bool:
        """Whether anything but the library does something."""
        return bool(self.translation.kernel_calls or self.translation.called)


def _lower(loaded: LoadedReference, recipe: Recipe) -> _LoweredModule:
    exported = export(loaded, recipe.apart)
    generated = generate(exported.graph, recipe)
    maker = constants.Maker(loaded)
    for name, value in generated.constants.items():
        maker.add(name, "", value)
    interface = replace(
        exported.interface,
        constants={**exported.interface.constants, **maker.expressions},
        constant_layouts={**exported.interface.constant_layouts, **maker.layouts},
    )
    wrapper = take_apart(generated.code)
    translation = translate(wrapper, interface, recipe.own, Tuning(**recipe.tuning))
    return _LoweredModule(interface, generated, wrapper, translation)


def _cpp(lifted: _LoweredModule, recipe: Recipe) -> Kernels:
    kernels = lifted.wrapper.kernels
    written = tuple(replace(kernel, text=_rewrite(kernel.text, recipe.rewrites)) for kernel in kernels)
    prelude = recipe.prelude if written != kernels else ""
    return cpp_kernels(written, lifted.translation, (*lifted.generated.flags, *recipe.flags), prelude)


def _triton(lifted: _LoweredModule, recipe: Recipe) -> Kernels:
    kernels = lifted.wrapper.triton
    return triton_kernels(tuple(replace(kernel, text=_rewrite(kernel.text, recipe.rewrites)) for kernel in kernels))


def _rewrite(text: str, rewrites: dict[str, str]) -> str:
    for old, new in rewrites.items():
        text = text.replace(old, new)
    return text
