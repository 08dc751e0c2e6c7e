"""Whether a candidate replaced something of torch's or of the clock's: compared by identity."""

from __future__ import annotations

import builtins
import os
import sys
import time
import types
from typing import Any

import torch
import torch.utils.benchmark

from kforge.worker import arena, device_memory, trees, wire
from kforge.worker.runner import modes

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
    ("torch.cuda.Stream", torch.cuda.Stream),
    *(("triton.testing", sys.modules[name]) for name in ("triton.testing",) if name in sys.modules),
    ("torch.mps", torch.mps),
    ("torch.cpu", torch.cpu),
    ("time", time),
    *((module.__name__, module) for module in (arena, device_memory, modes, trees, wire)),
    ("kforge.worker.runner.modes.Effects", modes.Effects),
    ("kforge.worker.runner.modes.Poison", modes.Poison),
    ("kforge.worker.wire.Channel", wire.Channel),
    ("builtins", builtins),
)

_TORCH = os.path.dirname(torch.__file__) + os.sep
_VOLATILE = {"builtins._", "torch.Tensor.__slotnames__", "torch.nn.Module.__slotnames__"}


def snapshot() -> dict[str, int]:
    """Identity of every function and class in the watched places."""
    return {name: id(value) for name, value in _contents().items() if _is_code(value)}


def changed(before: dict[str, int]) -> list[str]:
    """Names whose object is another one now, or gone; what torch itself replaced does not count."""
    now = _contents()
    odd = [name for name, identity in before.items() if id(now.get(name)) != identity and name not in _VOLATILE]
    return sorted(name for name in odd if not _by_torch(now.get(name)))


def _contents() -> dict[str, Any]:
    """Every name of the watched places, a class's inherited ones included, as it resolves now."""
    found: dict[str, Any] = {}
    for prefix, holder in _WATCHED:
        for owner in reversed(holder.__mro__[:-1]) if isinstance(holder, type) else (holder,):
            found.update((f"{prefix}.{name}", value) for name, value in vars(owner).items())
    return found


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _by_torch(value: Any) -> bool:
    """torch wraps a few of its functions when its compiler is first imported; that code lies in torch's folder."""
    code = getattr(value, "__code__", None)
    return type(value) is types.FunctionType and code is not None and code.co_filename.startswith(_TORCH)
