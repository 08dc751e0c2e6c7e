"""What a program was verified for: the record that its guard is made from."""

from __future__ import annotations

from dataclasses import replace

import torch

from kforge.types import Domain, DynamicAxes, TensorLayout
from kforge.worker import trees
from kforge.worker.arena import ArenaLayout
from kforge.worker.judge.held_out_sizes import HeldOutSize
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.session import ProblemSession
from kforge.worker.protocol.records import ModuleTensor


def make_domain(session: ProblemSession, at_first: list[list[TensorLayout]], at_last: list[TensorLayout]) -> Domain:
    """What a program was verified for: its first workload, with the ranges around it and the further workloads.

    `at_first` are the tensors of its module for each workload as it was loaded, `at_last` those of the first one at the
    end: what its own calls change is left out.
    """
    changed = {item.name for item in at_first[0] if item not in at_last}
    each = [
        _make_domain(workload.cases, [item for item in held if item.name not in changed])
        for workload, held in zip(session.workloads, at_first, strict=True)
    ]
    first, others = each[0], each[1:]
    sizes = session.held_out.sizes() if session.held_out is not None else []
    if sizes:
        ranges = _find_ranges(session, first, sizes)
        first = replace(first, ranges=ranges)
        others = [other for other in others if not (ranges and _includes(first, other))]
        alike = [size for size in sizes if size.cases.has_same_arguments(session.cases)]
        others += [] if ranges else [_make_domain(size.cases, list(first.state)) for size in alike]
    return replace(first, others=tuple(others))


def _make_domain(cases: ProblemCases, state: list[TensorLayout]) -> Domain:
    """What a program was verified for at one size."""
    platform = cases.device.platform
    (tree, tensors), (other_tree, others) = (_argument_layouts(cases, number) for number in (0, 1))
    return Domain(
        arguments=_common_tree(tree, other_tree, tensors == others),
        tensors=tensors,
        state=tuple(state),
        device=platform.hardware().device,
        training=cases.reference.training if cases.mode_matters else None,
        exact_shapes=not platform.emulated,
        backward=cases.reference.backward,
        constants=dict(cases.problem.main_workload.constants),
    )


def _find_ranges(session: ProblemSession, first: Domain, sizes: list[HeldOutSize]) -> tuple[DynamicAxes, ...]:
    """Which axes follow which dynamic size; empty where sizes change more than lengths of contiguous tensors."""
    dynamic = session.problem.dynamic
    found: list[list[tuple[int, int]]] = [[] for _ in dynamic]
    seen = [(size.values, _argument_layouts(size.cases, 0)) for size in sizes]
    if not all(size.cases.has_same_arguments(session.cases) for size in sizes):
        return ()
    if any(tree != first.arguments or len(tensors) != len(first.tensors) for _, (tree, tensors) in seen):
        return ()
    for number, layout in enumerate(first.tensors):
        others = [(values, tensors[number]) for values, (_, tensors) in seen]
        if any(other.dtype != layout.dtype or len(other.shape) != len(layout.shape) for _, other in others):
            return ()
        if all(other == layout for _, other in others):
            continue
        if not all(map(_is_contiguous, (layout, *(other for _, other in others)))):
            return ()
        for axis, length in enumerate(layout.shape):
            if all(other.shape[axis] == length for _, other in others):
                continue
            followed = [
                index
                for index in range(len(dynamic))
                if all(other.shape[axis] == values[index] for values, other in others)
            ]
            if len(followed) != 1:
                return ()
            found[followed[0]].append((number, axis))
    pairs = zip(dynamic, found, strict=True)
    return tuple(DynamicAxes(size.low, size.high, size.step, tuple(axes)) for size, axes in pairs if axes)


def _includes(first: Domain, other: Domain) -> bool:
    """Whether calls like another domain's lie in the ranges of the first."""
    if (first.arguments, first.state, first.training) != (other.arguments, other.state, other.training):
        return False
    shapes = [list(item.shape) for item in first.tensors]
    for span in first.ranges:
        lengths = {other.tensors[number].shape[axis] for number, axis in span.axes}
        if len(lengths) != 1 or not lengths <= set(range(span.low, span.high + 1, span.step)):
            return False
        for number, axis in span.axes:
            shapes[number][axis] = min(lengths)
    moving = {number for span in first.ranges for number, _ in span.axes}
    return all(
        item.shape == tuple(shapes[number])
        and (_is_contiguous(item) if number in moving else item == first.tensors[number])
        for number, item in enumerate(other.tensors)
    )


def _is_contiguous(layout: TensorLayout) -> bool:
    step, wanted = 1, []
    for length in reversed(layout.shape):
        wanted.append(step)
        step *= length
    # Where there is but one element along an axis, or none at all, its stride says nothing.
    pairs = zip(layout.shape, layout.stride, reversed(wanted), strict=True)
    return step == 0 or all(length == 1 or stride == usual for length, stride, usual in pairs)


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
