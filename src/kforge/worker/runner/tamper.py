"""Whether a candidate replaced something of torch's or of the clock's: compared by identity."""

from __future__ import annotations

import builtins
import time
from typing import Any

import torch
import torch.utils.benchmark

_WATCHED: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.testing", torch.testing),
    ("torch.random", torch.random),
    ("torch.autograd", torch.autograd),
    ("torch.utils.benchmark", torch.utils.benchmark),
    ("torch.utils.benchmark.Timer", torch.utils.benchmark.Timer),
    ("torch.cuda", torch.cuda),
    ("torch.cuda.Event", torch.cuda.Event),
    ("torch.mps", torch.mps),
    ("torch.cpu", torch.cpu),
    ("time", time),
    ("builtins", builtins),
)

_VOLATILE = {"builtins._", "torch.Tensor.__slotnames__", "torch.nn.Module.__slotnames__"}


def snapshot() -> dict[str, int]:
    """Identity of every function and class in the watched places."""
    found = {}
    for prefix, holder in _WATCHED:
        for name, value in vars(holder).items():
            if callable(value) or isinstance(value, (staticmethod, classmethod, property)):
                found[f"{prefix}.{name}"] = id(value)
    return found


def changed(before: dict[str, int]) -> list[str]:
    """Names whose object is another one now, or gone."""
    now: dict[str, int] = {}
    for prefix, holder in _WATCHED:
        now.update((f"{prefix}.{name}", id(value)) for name, value in vars(holder).items())
    return sorted(name for name, identity in before.items() if now.get(name) != identity and name not in _VOLATILE)
