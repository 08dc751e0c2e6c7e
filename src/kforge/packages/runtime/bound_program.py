"""The program's module with the tensors of a call in it: parameters stay the caller's own, nothing is copied.

A module of the program is made once for each thread and for each set of parameters, since a program may keep in it what
it made of them.
"""

from __future__ import annotations

import collections
import copy
import threading
import weakref
from typing import Any

import torch

from .guard import VerifiedCall
from .program_file import ProgramFile
from .reference_file import ReferenceFile, cast_module, quiet_random

_MOST_KEPT = 256


class BoundProgram:
    """One module of the program, and where its tensors go."""

    def __init__(self, module: torch.nn.Module, call: VerifiedCall, state: list[torch.Tensor]) -> None:
        self.forward = module.forward
        self.owners = tuple(weakref.ref(tensor) for tensor in state)
        self.places: list[tuple[dict[str, Any], str, int]] = []
        self.turned: list[tuple[dict[str, Any], str, int, list[int], list[int]]] = []
        for binding in call.bindings:
            *path, key = binding["name"].split(".")
            part = module
            for step in path:
                part = getattr(part, step)
            held: dict[str, Any] = part.__dict__
            for some in (part._parameters, part._buffers):
                held = some if key in some else held
            number, axes = binding["state"], binding.get("axes")
            held[key] = None
            if axes is None:
                self.places.append((held, key, number))
            else:
                self.turned.append((held, key, number, axes, binding["shape"]))

    def __call__(self, arguments: Any, state: list[torch.Tensor]) -> Any:
        """The program's result. It holds the tensors no longer than the call takes."""
        for held, key, number in self.places:
            held[key] = state[number]
        for held, key, number, axes, shape in self.turned:
            held[key] = state[number].permute(axes).reshape(shape).contiguous()
        try:
            return self.forward(*arguments)
        finally:
            for held, key, _ in self.places:
                held[key] = None
            for held, key, *_ in self.turned:
                held[key] = None


class BoundPrograms:
    """Finds the module for a call."""

    def __init__(self, program: ProgramFile, references: dict[str, ReferenceFile], verified: dict[str, Any]) -> None:
        self._program = program
        self._references = references
        self._training: bool | None = verified["training"]
        self._dtype: str = verified["dtype"]
        self._device: str = verified["device"]
        self._mine = threading.local()
        self._fresh: dict[tuple[int, str], torch.nn.Module] = {}
        self._lock = threading.Lock()

    def find(self, call: VerifiedCall, state: list[torch.Tensor], where: torch.device | None) -> BoundProgram:
        """The module for a verified call with these tensors; Unavailable where the program cannot be had."""
        kept = getattr(self._mine, "kept", None)
        if kept is None:
            kept = self._mine.kept = collections.OrderedDict()
        key = (call.number, where, *map(id, state))
        bound: BoundProgram | None = kept.get(key)
        if bound is not None:
            for owner, tensor in zip(bound.owners, state):  # noqa: B905
                if owner() is not tensor:
                    break
            else:
                return bound
        bound = BoundProgram(self._copy(call, where), call, state)
        kept[key] = bound
        while len(kept) > _MOST_KEPT:
            kept.popitem(last=False)
        return bound

    def _copy(self, call: VerifiedCall, where: torch.device | None) -> torch.nn.Module:
        """A module as its constructor left it, sharing the tensors that are the program's own."""
        device = where if where is not None else torch.device(self._device)
        key = (call.number, str(device))
        with self._lock:
            fresh = self._fresh.get(key)
            if fresh is None:
                fresh = self._fresh[key] = self._construct(call, device)
            tensors = [*fresh.parameters(), *fresh.buffers()]
            return copy.deepcopy(fresh, {id(tensor): tensor for tensor in tensors})

    def _construct(self, call: VerifiedCall, device: torch.device) -> torch.nn.Module:
        kind = self._program.kind(device)
        with quiet_random():
            module = kind(*self._references[call.reference].init_arguments())
        module = cast_module(module, self._dtype).to(device)
        if self._training is not None:
            module.train(self._training)
        module.requires_grad_(False)
        # What every call brings along need not be kept.
        for binding in call.bindings:
            *path, key = binding["name"].split(".")
            part = module
            for step in path:
                part = getattr(part, step)
            for held in (part._parameters, part._buffers):
                if held.get(key) is not None:
                    held[key] = None
        return module
