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
    ("torch.mps", torch.mps),
    ("torch.cpu", torch.cpu),
    ("time", time),
    ("builtins", builtins),
)

_TORCH = os.path.dirname(torch.__file__) + os.sep
_VOLATILE = {"builtins._", "torch.Tensor.__slotnames__", "torch.nn.Module.__slotnames__"}


class Snapshot:
    """Identity of every function and class in the watched places, before a program is imported.

    Beside torch's, these are our own modules in this process and the classes they define: what watches must not be
    replaced either. The judge's rules of evidence rest on the outputs and on its own clock, not on this alone.
    """

    def __init__(self) -> None:
        self._places = (*_WATCHED, *_own_places())
        self._before = {name: id(value) for name, value in _contents(self._places).items() if _is_code(value)}

    def changed_names(self) -> list[str]:
        """Names whose object is another one now, or gone; what torch itself replaced does not count."""
        now = _contents(self._places)
        odd = [name for name, identity in self._before.items() if id(now.get(name)) != identity]
        return sorted(name for name in odd if name not in _VOLATILE and not _is_torchs_own(now.get(name)))


def _own_places() -> list[tuple[str, Any]]:
    """Every module of KForge in this process, the classes defined in them, and triton's timer."""
    places: list[tuple[str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name == "triton.testing":
            places.append((name, module))
        elif name.startswith("kforge.") and module is not None:
            places.append((name, module))
            places += [
                (f"{name}.{key}", value)
                for key, value in list(vars(module).items())
                if isinstance(value, type) and value.__module__ == name
            ]
    return places


def _contents(places: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Every name of the watched places, a class's inherited ones included, as it resolves now."""
    values: dict[str, Any] = {}
    for prefix, holder in places:
        for owner in reversed(holder.__mro__[:-1]) if isinstance(holder, type) else (holder,):
            values.update((f"{prefix}.{name}", value) for name, value in vars(owner).items())
    return values


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (staticmethod, classmethod, property))


def _is_torchs_own(value: Any) -> bool:
    """Whether torch put a function there: it wraps a few when its compiler is first imported, by code in its folder."""
    code = getattr(value, "__code__", None)
    return type(value) is types.FunctionType and code is not None and code.co_filename.startswith(_TORCH)
