"""What a runner asks of an emulated device, and of no other."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class EmulatedRuntime:
    """The emulator as the runner of a program uses it. The defaults suit one whose tensors are ordinary ones of torch,
    and that has no checked mode and traces nothing.
    """

    def surroundings(self) -> AbstractContextManager[Any]:
        """What the program's own code runs inside."""
        return nullcontext()

    def mark_on_device(self, tensors: list[torch.Tensor]) -> None:
        """From now on these tensors are on the emulated device."""

    def device_of(self, tensor: torch.Tensor) -> str:
        """The device a tensor is on, as the program sees it."""
        return str(tensor.device)

    def set_checked(self, yes: bool) -> None:
        """From now on every access of a kernel is looked at, or is not."""

    def unchecked_launches(self) -> int:
        """The number of launches since `set_checked` that were not looked at."""
        return 0

    def begin_dataflow_trace(self, tensors: list[torch.Tensor]) -> None:
        """A call begins, which works on these tensors."""

    def end_dataflow_trace(self, tensors: list[torch.Tensor]) -> str:
        """The call returned these tensors: why no kernel of the program has a part in them; empty if one has."""
        return ""
