"""What is asked of the lowering process, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kforge.types import Problem

CPP, TRITON = "cpp", "triton"
"""What Inductor writes kernels in."""
_LANGUAGES = {"cpu": CPP, "gpu": TRITON}
OWN_FAMILIES = ("gemm", "scan", "convolution")
"""Library calls that kernels of our own can stand in for."""


def language_of(device_class: str) -> str:
    """What kernels for a device are written in; empty where Inductor writes none for it."""
    return _LANGUAGES.get(device_class, "")


NO_GRADIENTS = (
    "the offline agents write no gradients: they lift what PyTorch's compiler makes of forward alone; name a language "
    "model for a problem with gradients"
)


class Unliftable(Exception):
    """The module cannot be lifted; the message says why, for a person."""


def first_line(error: BaseException) -> str:
    """An error in one line: its type, and the first thing it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


@dataclass(frozen=True)
class Recipe:
    """How a program is to be made."""

    options: dict[str, Any] = field(default_factory=dict)
    """Inductor's configuration, by dotted name."""
    flags: tuple[str, ...] = ()
    """Flags for the C++ compiler, after the ones every program has."""
    own: tuple[str, ...] = ()
    """Families of library calls to replace by our own kernels."""
    apart: tuple[str, ...] = ()
    """What to take apart before Inductor sees it: attention (products and a softmax), variance (two sums)."""
    rewrites: dict[str, str] = field(default_factory=dict)
    """Words of the generated kernels to write otherwise."""
    prelude: str = ""
    """C++ that the rewritten kernels need."""
    tuning: dict[str, int] = field(default_factory=dict)
    """How Triton kernels are launched: what `triton_launch.Tuning` has, by name."""
    row_limit: int = 0
    """Rows up to this length stay in registers; 0: as Inductor sees fit."""
    tile: tuple[int, ...] = ()
    """Rows, columns and depth of a matrix product's block, its stages and its warps."""

    def __add__(self, more: Recipe) -> Recipe:
        """Both recipes in one; where they disagree on an option or a word, the second is followed."""
        return Recipe(
            {**self.options, **more.options},
            self.flags + more.flags,
            self.own + more.own,
            self.apart + more.apart,
            {**self.rewrites, **more.rewrites},
            self.prelude + more.prelude,
            {**self.tuning, **more.tuning},
            more.row_limit or self.row_limit,
            more.tile or self.tile,
        )


OWN_TEMPLATES = Recipe(
    options={
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "ATEN,TRITON",
        "max_autotune_conv_backends": "ATEN,TRITON",
    },
    tile=(128, 128, 32, 3, 8),
)
"""Matrix products and convolutions from Inductor's own Triton templates instead of a library."""


@dataclass(frozen=True)
class LoweringRequest:
    """One program to make."""

    problem: Problem
    device_class: str
    variant: str
    """The name its header carries."""
    recipe: Recipe


@dataclass(frozen=True)
class LoweringResult:
    """The answer: a program, or why there is none."""

    source: str | None
    reason: str = ""
