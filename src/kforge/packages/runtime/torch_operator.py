"""The program as an operator of torch: one node of a graph, with shapes, gradients and an implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from .forged_program import ForgedProgram

_new_library: Any = torch.library.Library
_TYPES = {"T": "Tensor", "n": "Tensor?", "b": "bool", "i": "int", "f": "float", "c": "Scalar", "s": "str"}
"""What a leaf is in a schema."""
_MOST_ARGUMENTS = 64
"""Of an operator, as torch has it. The backward pass has two besides those of the forward pass."""


def schema(name: str, leaves: list[list[Any]], state: list[dict[str, Any]], outputs: int) -> str:
    """The operator's schema: leaves of the arguments, the module's tensors, and whether a fall-back is an error."""
    kinds = ["ScalarType" if leaf[0] == "D" else _TYPES[leaf[1] if leaf[0] == "*" else leaf[0]] for leaf in leaves]
    parts = [f"{kind} a{number}" for number, kind in enumerate(kinds)]
    parts += ["Tensor[] state"] if is_listed(leaves, state) else [f"Tensor s{number}" for number in range(len(state))]
    result = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    return f"{name}({', '.join([*parts, '*', 'bool strict=False'])}) -> {result}"


def is_listed(leaves: list[list[Any]], state: list[dict[str, Any]]) -> bool:
    """Whether the module's tensors are one argument, a list, as those of a whole network are too many for torch."""
    return len(leaves) + len(state) + 2 > _MOST_ARGUMENTS


def register(program: ForgedProgram, namespace: str, gradients: str) -> Any:
    """Register `namespace::name`; `gradients` is what backward does: "reference" recomputes them, "error" refuses.

    RuntimeError where another package has registered that name.
    """
    verified, name = program.verified, program.verified["op"]
    leaves, state = program.guard.calls[0].leaves, verified["state"]
    count, whole = len(leaves), len(leaves) + len(state)
    outputs = len(program.guard.calls[0].outputs)
    library: Any = _new_library(namespace, "FRAGMENT")
    try:
        library.define(schema(name, leaves, state, outputs), tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as error:
        if "multiple times" not in str(error) and "duplicate" not in str(error).lower():
            raise
        raise RuntimeError(
            f"the operator {namespace}::{name} is registered already, by another package or another copy of this one: "
            "import one of them, or export this one under another name"
        ) from None

    listed = is_listed(leaves, state)

    def result(tensors: list[torch.Tensor]) -> Any:
        return tensors[0] if outputs == 1 else tuple(tensors)

    def run(*given: Any, strict: bool = False) -> Any:
        flat = _spread(given, count, listed)
        inputs = [item for item in flat[:whole] if isinstance(item, torch.Tensor)]
        if forward_ad._current_level >= 0 and any(_is_dual(item) for item in inputs):
            # Nobody else would notice: the result would have no derivative, which counts as nought.
            raise RuntimeError(f"{program.name} has no forward-mode derivative: use the original module for that")
        tensors = program.run_node(list(flat[:count]), list(flat[count:whole]), strict)
        # An operator returns memory of its own: neither an argument's nor another output's.
        seen = {item.untyped_storage().data_ptr() for item in inputs}
        own = []
        for tensor in tensors:
            place = tensor.untyped_storage().data_ptr()
            own.append(_copied(tensor) if place in seen and place else tensor)
            seen.add(place)
        return result(own)

    def fake(*given: Any, strict: bool = False) -> Any:
        flat = _spread(given, count, listed)
        tensors = program.run_fake(list(flat[:count]), list(flat[count:whole]))
        return result([torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in tensors])

    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    _register_gradients(program, library, namespace, gradients)
    program.operator, program.takes_list = getattr(getattr(torch.ops, namespace), name).default, listed
    _libraries.append(library)
    return program.operator


_libraries: list[Any] = []
"""What is registered lasts as long as its library."""


def _register_gradients(program: ForgedProgram, library: Any, namespace: str, how: str) -> None:
    """Register the backward pass: an operator of its own, so that a graph has one node for it too."""
    name, state = program.verified["op"], program.verified["state"]
    leaves = program.guard.calls[0].leaves
    count, whole, listed = len(leaves), len(leaves) + len(state), is_listed(leaves, state)
    backward = f"{name}_backward"
    given = schema(name, leaves, state, 1).split("(", 1)[1].rsplit(", *,", 1)[0].rsplit("*, bool strict", 1)[0]
    given = given.rstrip(", ")
    start = f"{backward}(Tensor[] gradients, int[] wanted"
    library.define(f"{start}{', ' if given else ''}{given}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    sentence = (
        f"{program.name} was verified for inference only: it has no gradient. Train with the original module, call it "
        "under torch.no_grad(), or export it with --gradients reference"
    )

    def run(gradients: list[torch.Tensor], wanted: list[int], *given: Any) -> list[torch.Tensor]:
        flat = _spread(given, count, listed)
        if how == "error" and not program.verified["backward"]:
            raise RuntimeError(sentence)
        return program.run_gradients(list(flat[:count]), list(flat[count:whole]), list(gradients), list(wanted))

    def fake(gradients: list[torch.Tensor], wanted: list[int], *given: Any) -> list[torch.Tensor]:
        flat = _spread(given, count, listed)
        return [torch.empty_like(flat[index]) for index in wanted]

    library.impl(backward, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{namespace}::{backward}", fake, lib=library)
    operator = getattr(getattr(torch.ops, namespace), backward).default

    def remember(context: Any, inputs: tuple[Any, ...], output: Any, **named: Any) -> None:
        flat = _spread(inputs, count, listed)[:whole]
        context.save_for_backward(*(item if isinstance(item, torch.Tensor) else None for item in flat))
        context.others = [None if isinstance(item, torch.Tensor) else item for item in flat]
        context.shapes = [output] if isinstance(output, torch.Tensor) else list(output)
        context.shapes = [(item.shape, item.dtype, item.device) for item in context.shapes]

    def differentiate(context: Any, *gradients: Any) -> tuple[Any, ...]:
        # Autograd takes note of a backward pass only where somebody wants to derive it once more.
        if torch.is_grad_enabled():
            raise RuntimeError(f"{program.name} has first derivatives at most: leave out create_graph")
        flat = [
            other if saved is None else saved
            for saved, other in zip(context.saved_tensors, context.others)  # noqa: B905
        ]
        asked = _spread(context.needs_input_grad, count, listed)
        wanted = [index for index, item in enumerate(flat) if asked[index] and isinstance(item, torch.Tensor)]
        whole_gradients = [
            torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
            for gradient, (shape, dtype, device) in zip(gradients, context.shapes)  # noqa: B905
        ]
        found = operator(whole_gradients, wanted, *_gathered(flat, count, listed))
        answer: list[Any] = [None] * len(flat)
        for index, gradient in zip(wanted, found):  # noqa: B905
            answer[index] = gradient
        return tuple(_gathered(answer, count, listed))

    torch.library.register_autograd(
        f"{namespace}::{name}", differentiate, setup_context=_keyword(remember), lib=library
    )


def _spread(given: Sequence[Any], count: int, listed: bool) -> list[Any]:
    """Arguments one by one, where the module's tensors may be a list behind the others."""
    return [*given[:count], *given[count], *given[count + 1 :]] if listed else list(given)


def _gathered(flat: list[Any], count: int, listed: bool) -> list[Any]:
    """The same back again."""
    return [*flat[:count], flat[count:]] if listed else flat


def _keyword(remember: Any) -> Any:
    """setup_context as torch calls it: `keyword_only_inputs` where the schema has such arguments."""

    def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any = None, output: Any = None) -> None:
        remember(ctx, inputs, output)

    return setup_context


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own, with the same strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    made.copy_(tensor)
    return made


def _is_dual(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a derivative along with it."""
    unpack: Any = forward_ad.unpack_dual
    return unpack(tensor).tangent is not None
