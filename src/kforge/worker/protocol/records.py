"""Tensors as messages describe them, and the outputs of calls."""

from __future__ import annotations

from typing import Any, NamedTuple


class Spec(NamedTuple):
    """Where a tensor lies in memory that both sides map, and how to read it."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Bytes from the start of that memory."""


class ArgumentSet(NamedTuple):
    """forward's arguments: their tree, and where its tensors lie."""

    tree: Any
    """As `worker/trees.py` packs it."""
    specs: tuple[Spec, ...]


class HeldTensor(NamedTuple):
    """A tensor that a module says it holds."""

    name: str
    """Where it is held; of what is in no state, with a leading equals sign."""
    kind: str
    """parameter, buffer or attribute."""
    shape: tuple[int, ...]
    digest: str
    """A hash of its values; empty where its name and shape say what it is."""


class ModuleTensor(NamedTuple):
    """How a parameter or buffer of a module lies in memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class OutputLeaf(NamedTuple):
    """A tensor that came back, as the runner describes it."""

    kind: str
    """The name of its class, or `wire.LAZY_VIEW`."""
    dtype: str
    shape: tuple[int, ...]
    device: str
    usual_layout: bool
    """Whether its elements lie in memory as the reference's do."""
    delivered: bool
    """Whether it could be copied to its slot, or read from where it lies."""


class SlotOutput(NamedTuple):
    """What came back from one call: structure, and a description of each tensor."""

    tree: Any
    leaves: tuple[OutputLeaf, ...]


class HeldLeaf(NamedTuple):
    """A tensor that came back and is held where it lies."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    stride: tuple[int, ...]
    """Empty where its elements do not lie in memory at all: a sparse one, say."""


class HeldOutput(NamedTuple):
    """What came back from one call and is held: structure, and a description of each tensor."""

    tree: Any
    leaves: tuple[HeldLeaf, ...]


class Operator(NamedTuple):
    """An operator of torch's that ran."""

    name: str
    kind: str
    """compute, move, view, allocation, or outer: one inside which others computed."""
    elements: int
    nanoseconds: int


class ObservedKernel(NamedTuple):
    """What ran on a device of its own."""

    name: str
    whose: str
    """own, torch (an operator launched it) or library (a library's code, launched past torch's operators)."""
    nanoseconds: int
