"""What a program was verified for: the record that its guard is made from."""

from __future__ import annotations

import torch

from kforge.types import Domain, TensorLayout
from kforge.worker import trees
from kforge.worker.arena import ArenaLayout
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.protocol.records import ModuleTensor


def make_domain(cases: ProblemCases, at_first: list[TensorLayout], at_last: list[TensorLayout]) -> Domain:
    """What a program was verified for. Tensors of its module that its own calls change are left out."""
    platform = cases.device.platform
    (tree, tensors), (other_tree, others) = (_argument_layouts(cases, number) for number in (0, 1))
    return Domain(
        arguments=_common_tree(tree, other_tree, tensors == others),
        tensors=tensors,
        state=tuple(item for item in at_first if item in at_last),
        device=platform.hardware().device,
        training=cases.reference.training if cases.mode_matters else None,
        exact_shapes=not platform.emulated,
        backward=cases.reference.backward,
    )


def _argument_layouts(cases: ProblemCases, number: int) -> tuple[trees.Tree, tuple[TensorLayout, ...]]:
    """forward's arguments in one draw: their tree, and how its tensors lie in memory."""
    tree, tensors = trees.pack(
        cases.reference.forward_arguments(cases.reference.inputs(cases.derive("misuse", number)))
    )
    layout = ArenaLayout()
    specs = [layout.place(tensor) for tensor in tensors]
    return tree, tuple(TensorLayout("", spec.dtype, spec.shape, spec.stride) for spec in specs)


def _common_tree(one: trees.Tree, two: trees.Tree, same_tensors: bool) -> trees.Tree:
    """What two draws have in common; what is drawn anew each time was verified for any value of its kind (tag `*`)."""
    if one[0] != two[0]:
        return ["*", "?"]
    if one[0] == "T":
        return one if same_tensors else ["*", "T"]
    if one[0] in ("l", "u", "d"):
        if len(one[1]) != len(two[1]):
            return ["*", one[0]]
        if one[0] == "d":
            pairs = zip(one[1], two[1], strict=True)
            same_keys = [key for key, _ in one[1]] == [key for key, _ in two[1]]
            return (
                ["d", [[a[0], _common_tree(a[1], b[1], same_tensors)] for a, b in pairs]] if same_keys else ["*", "d"]
            )
        return [one[0], [_common_tree(a, b, same_tensors) for a, b in zip(one[1], two[1], strict=True)]]
    return one if one == two else ["*", one[0]]


def read_layouts(described: list[ModuleTensor]) -> list[TensorLayout]:
    """A runner's list of its module's tensors; those of an unknown dtype are left out."""
    return [
        TensorLayout(tensor.name[:500], tensor.dtype, tensor.shape, tensor.stride)
        for tensor in described
        if isinstance(getattr(torch, tensor.dtype, None), torch.dtype)
    ]
