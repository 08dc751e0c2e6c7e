"""Tensors that are in no state: written as text where they can be, taken from the reference's module where not.

A live module cannot be made anew in the program. What it registers as a buffer that is not persistent is given to the
program together with its state.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kforge.agents.offline.interface import DenseLayout
from kforge.agents.offline.loaded_problem import LoadedReference
from kforge.agents.offline.recipe import Unliftable
from kforge.worker.held_tensors import transient_buffers

_SMALL = 64
_OTHER_SEED = 7919
_LARGEST_LITERAL = 4096


class Maker:
    """Collects the expressions for a program's constants."""

    def __init__(self, loaded: LoadedReference) -> None:
        self._loaded = loaded
        self._redrawn: torch.nn.Module | None = None
        self.expressions: dict[str, str] = {}
        self.transient: dict[str, str] = {}
        """What the graph calls a buffer that is given to the program as its state is -> its dotted name."""
        self.layouts: dict[str, DenseLayout] = {}
        self.definitions = ""
        """The reference's file, once an expression needs it."""

    def add(self, name: str, target: str, value: torch.Tensor) -> None:
        """Find an expression for a constant; `target` is where the module has it, empty if it does not."""
        held = _reach(self._loaded.values, target)
        self.layouts[name] = DenseLayout.of(value)
        if self._loaded.held is not None and held is not None:
            # What was traced has no values.
            value = held.detach().cpu()
        text = "" if self._is_drawn(target) else expression(value)
        if not text and self._loaded.source and held is not None:
            self.definitions = self._loaded.source
            text = "reference" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in target.split("."))
        if not text and value.numel() <= _LARGEST_LITERAL:
            text = _tensor(value)
        if not text and f"={target}" in transient_buffers(self._loaded.values):
            self.transient[name] = target
            return
        if not text:
            what = f"{target or name!r} of shape {tuple(value.shape)}"
            raise Unliftable(f"the constant {what} is in no state: register it as a buffer of the module")
        self.expressions[name] = text

    def _is_drawn(self, target: str) -> bool:
        """Whether the module's constructor drew a constant at random: then another seed means other values."""
        value = _reach(self._loaded.values, target)
        if value is None or self._loaded.remake is None:
            return False
        if self._redrawn is None:
            self._redrawn = self._loaded.remake(_OTHER_SEED)
        again = _reach(self._redrawn, target)
        return again is None or not torch.equal(again, value)


def expression(value: torch.Tensor) -> str:
    """A short expression that makes exactly this tensor; empty if none is known."""
    if value.numel() <= _SMALL:
        return _tensor(value)
    return _full(value) or _arange(value) or _triangle(value)


def literal(value: Any) -> str:
    """A scalar as Python text."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _tensor(value: torch.Tensor) -> str:
    return f"torch.tensor({_list_text(value.detach().tolist())}, dtype={value.dtype})"


def _list_text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_list_text, value)) + "]"
    return literal(value)


def _full(value: torch.Tensor) -> str:
    first = value.reshape(-1)[0]
    if not bool((value == first).all()):
        return ""
    return f"torch.full({tuple(value.shape)}, {literal(first.item())}, dtype={value.dtype})"


def _arange(value: torch.Tensor) -> str:
    flat = value.reshape(-1)
    if value.dtype == torch.bool or value.is_complex() or not bool(flat[:2].isfinite().all()):
        return ""
    start, step = flat[0].item(), (flat[1] - flat[0]).item()
    if step == 0 or start != int(start) or step != int(step):
        return ""
    text = f"torch.arange({int(start)}, {int(start + step * flat.numel())}, {int(step)}, dtype={value.dtype})"
    made = torch.arange(int(start), int(start + step * flat.numel()), int(step), dtype=value.dtype)
    if not torch.equal(made, flat):
        return ""
    return text if value.dim() == 1 else f"{text}.reshape({tuple(value.shape)})"


def _triangle(value: torch.Tensor) -> str:
    """A mask: one value above a diagonal, another below it."""
    if value.dim() < 2 or value[..., 0, 0].numel() != 1:
        return ""
    shape = tuple(value.shape)
    upper, lower = value.reshape(-1)[shape[-1] - 1], value.reshape(-1)[-shape[-1]]
    for diagonal in (0, 1):
        above = torch.ones(shape, dtype=torch.bool).triu(diagonal)
        if torch.equal(torch.where(above, upper, lower), value):
            mask = f"torch.ones({shape}, dtype=torch.bool).triu({diagonal})"
            high, low = literal(upper.item()), literal(lower.item())
            return f"torch.full({shape}, {low}, dtype={value.dtype}).masked_fill_({mask}, {high})"
    return ""


def _reach(module: torch.nn.Module, target: str) -> torch.Tensor | None:
    value: Any = module
    for part in target.split("."):
        value = value[int(part)] if part.isdigit() and isinstance(value, (list, tuple)) else getattr(value, part, None)
    return value if isinstance(value, torch.Tensor) else None
