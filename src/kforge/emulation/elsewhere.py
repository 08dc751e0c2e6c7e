"""Tensors of the processor that say they are on another device, for programs that ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Elsewhere(TorchFunctionMode):
    """Inside, `device` is where tensors are made, and where they say they are."""

    def __init__(self, device: str, asked: Callable[[torch.Tensor], None] = lambda _: None) -> None:
        """`asked` is told of each tensor whose address a program takes."""
        super().__init__()
        self._device = device
        self._asked = asked
        self._is_there = getattr(torch.Tensor, f"is_{device}")

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.device:
            # Only a name so far.
            return func(*args, **(kwargs or {}))
        if func is torch.Tensor.data_ptr:
            self._asked(args[0])
        given = {name: self._here(value) for name, value in (kwargs or {}).items()}
        result = func(*(self._here(value) for value in args), **given)
        what = getattr(func, "__self__", None)
        if what is torch.Tensor.device and result.type == "cpu":
            return torch.device(self._device, 0)
        return what is self._is_there or result

    def _here(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == self._device else value
        if isinstance(value, str) and (value == self._device or value.startswith(f"{self._device}:")):
            return "cpu"
        return value
