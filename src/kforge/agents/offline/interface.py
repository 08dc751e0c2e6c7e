"""What a lifted program looks like from outside: its arguments, its state, its result. Plain values, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DenseLayout:
    """A dense tensor's shape in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    """torch's name for it: float32, int64."""

    @classmethod
    def of(cls, tensor: Any) -> DenseLayout:
        """The layout of a dense tensor of torch's."""
        return cls(tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())), str(tensor.dtype)[6:])

    @property
    def contiguous(self) -> bool:
        return self.stride == row_major(self.shape) or 0 in self.shape


@dataclass(frozen=True)
class Input:
    """A leaf of forward's arguments."""

    name: str
    """What the graph calls it."""
    access: str
    """The expression that reaches it from forward's parameters."""
    layout: DenseLayout | None
    """None for a value that is no tensor."""
    value: str = ""
    """That value, as Python text."""


@dataclass(frozen=True)
class StateTensor:
    """A tensor of the module's state."""

    name: str
    """Its dotted name."""
    layout: DenseLayout
    parameter: bool
    tied: str = ""
    """The first name of the same tensor, where it has several."""
    persistent: bool = True
    """Whether it is in the module's state_dict."""


@dataclass(frozen=True)
class Interface:
    """Everything around the generated code."""

    parameters: tuple[str, ...]
    """forward's parameters, in order."""
    inputs: tuple[Input, ...]
    state: tuple[StateTensor, ...]
    reads: dict[str, str]
    """What the graph calls a state tensor -> its dotted name."""
    constants: dict[str, str]
    """What the graph calls a constant -> the expression that makes it."""
    result: str
    """forward's result, with {0}, {1}, ... for the graph's outputs."""
    copied: tuple[int, ...] = ()
    """Outputs that must not share an input's memory."""
    constant_layouts: dict[str, DenseLayout] = field(default_factory=dict)
    """What the graph calls a constant -> how it lies in memory."""
    definitions: str = ""
    """The reference's own file, where a constant is taken from its module."""


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))
