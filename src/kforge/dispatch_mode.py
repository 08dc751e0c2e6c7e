"""A mode that sees every operator, and does not import torch's compiler for that.

Torch keeps its compiler out of a mode's own code, and imports it to do so: a second or two for every process, most of
which compile nothing. Here it is kept out once somebody else has imported it; before, nothing can be compiled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_Dispatch = Callable[..., Any]


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What modes derive from."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        if "__torch_dispatch__" in cls.__dict__:
            setattr(cls, "__torch_dispatch__", _never_compiled(cls.__dict__["__torch_dispatch__"]))  # noqa: B010

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks: whether it is to keep its compiler out itself."""
        return False


def _never_compiled(dispatch: _Dispatch) -> _Dispatch:
    """The function, out of the compiler's sight from the moment that there is one."""
    disabled: list[_Dispatch] = []

    @functools.wraps(dispatch)
    def call(*args: Any, **kwargs: Any) -> Any:
        # While it is being imported it compiles nothing yet.
        if not disabled and hasattr(sys.modules.get("torch._dynamo"), "disable"):
            disabled.append(torch._disable_dynamo(dispatch, recursive=True))  # type: ignore[attr-defined]
        return (disabled[0] if disabled else dispatch)(*args, **kwargs)

    return call
