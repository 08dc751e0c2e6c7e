"""The sizes that a problem is wanted for: workloads that are timed, and ranges in which it must be right."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class AxisLength(NamedTuple):
    """Another length of one axis of a live module's input."""

    argument: int
    """forward's argument, a tensor, by its position."""
    axis: int
    length: int


@dataclass(frozen=True)
class Workload:
    """One of the sizes that a problem is wanted for, and how much it counts."""

    constants: dict[str, Any] = field(default_factory=dict)
    """Constants of the problem's file that have another value than the file gives them."""
    inputs: int = 0
    """Of a live module: which of its example inputs."""
    lengths: tuple[AxisLength, ...] = ()
    """Of a live module: in what the inputs differ from that example."""
    weight: float = 1.0
    """Its share of the mean over all workloads, which need not add up to 1."""
    name: str = ""
    """What people call it, where its constants do not say it."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"a weight of {self.weight} is none: it must be a positive number")

    def __str__(self) -> str:
        listed = ", ".join(f"{name} = {value!r}" for name, value in self.constants.items())
        return self.name or listed or "the problem's own sizes"

    @property
    def identity(self) -> str:
        """What tells it from other workloads of the same problem."""
        lengths = "".join(f" {item.argument}.{item.axis}={item.length}" for item in self.lengths)
        return f"{sorted(self.constants.items())} {self.inputs}{lengths} {self.weight}"


@dataclass(frozen=True)
class DynamicSize:
    """A size that callers vary within a range: a constant of the problem's file, or axes of a live module's inputs."""

    name: str
    """The constant, or the argument and the axis: x[0]."""
    low: int
    high: int
    step: int = 1
    """Only every so-many-th value from the lowest one on is meant."""
    axes: tuple[tuple[int, int], ...] = ()
    """Of a live module: the position of the argument, and the axis, of each that has this length."""

    def __post_init__(self) -> None:
        if not (1 <= self.low <= self.high and self.step >= 1):
            raise ValueError(f"{self.name}: {self.low} to {self.high} in steps of {self.step} is no range of sizes")

    def __str__(self) -> str:
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.name} from {self.low} to {self.high}{steps}"
