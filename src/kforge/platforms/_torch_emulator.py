"""KForge's own emulator behind the face that runners use: tensors of torch with marks, launches that are traced."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

import torch

from kforge.emulation import launch_trace, storage_marks
from kforge.platforms._emulated_runtime import EmulatedRuntime


class TorchEmulator(EmulatedRuntime):
    def __init__(self, stand_in: str, device_type: str) -> None:
        """`stand_in`: the module in the vendor's place; `device_type`: what torch calls the emulated device."""
        self._stand_in = importlib.import_module(stand_in)
        self._device_name = f"{device_type}:0"

    def surroundings(self) -> AbstractContextManager[Any]:
        return self._stand_in.surroundings()  # type: ignore[no-any-return]

    def mark_on_device(self, tensors: list[torch.Tensor]) -> None:
        storage_marks.mark_on_device(tensors)

    def device_of(self, tensor: torch.Tensor) -> str:
        return self._device_name if storage_marks.is_on_device(tensor) else str(tensor.device)

    def set_checked(self, yes: bool) -> None:
        launch_trace.set_checked(yes)

    def unchecked_launches(self) -> int:
        return launch_trace.unchecked_launches()

    def begin_dataflow_trace(self, tensors: list[torch.Tensor]) -> None:
        launch_trace.begin_dataflow_trace(tensors)

    def end_dataflow_trace(self, tensors: list[torch.Tensor]) -> str:
        return launch_trace.end_dataflow_trace(tensors)
