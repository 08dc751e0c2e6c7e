"""What rounding does to a result, where float64 cannot say: every operator's result is up to a last place off."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.worker import trees


class RoundingNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, each floating tensor that an operator makes is off at random; views and writes are left."""

    def __init__(self, seed: int, size: float | None = None) -> None:
        """`size` is how far off, at most, of a number's own size; left out, a last place of its dtype."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._size = size
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if any(result.alias_info is not None for result in func._schema.returns):
            return output
        if isinstance(output, torch.Tensor):
            return self.add_to(output)
        if isinstance(output, tuple):
            return tuple(self.add_to(item) if isinstance(item, torch.Tensor) else item for item in output)
        return output

    def add_to(self, tensor: torch.Tensor, size: float | None = None) -> torch.Tensor:
        """The tensor with every element off, by another size where one is given."""
        if not tensor.is_floating_point() or tensor.layout != torch.strided:
            return tensor
        device = tensor.device
        if device not in self._generators:
            # One of its own: what the module draws must be the same as without noise.
            self._generators[device] = torch.Generator(device=device).manual_seed(self._seed)
        steps = torch.rand(tensor.shape, generator=self._generators[device], device=device).mul_(2).sub_(1)
        wanted = self._size if size is None else size
        last_place = torch.finfo(tensor.dtype).eps
        moved = tensor.addcmul(tensor, steps.to(tensor.dtype), value=last_place if wanted is None else wanted)
        # Infinity less infinity: a mask of attention would be NaN.
        return torch.where(torch.isfinite(tensor), moved, tensor)

    def add_to_all(self, arguments: list[Any], size: float | None = None) -> list[Any]:
        """Arguments with every floating element off."""
        tree, tensors = trees.pack(arguments)
        return list(trees.unpack(tree, [self.add_to(tensor, size) for tensor in tensors]))
