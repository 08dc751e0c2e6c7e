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

from .guard import CAPTURED, Unlike, VerifiedCall, is_capturing
from .program_file import ProgramFile
from .reference_file import ReferenceFile, cast_module, quiet_random

_MOST_KEPT = 4096


class BoundProgram:
    """One module of the program, and where its tensors go."""

    def __init__(self, module: torch.nn.Module, call: VerifiedCall, where: torch.device) -> None:
        self.forward = module.forward
        self.done: set[Any] = set()
        """The shapes of calls that gave a result: some programs compile, or keep something, in the first of each."""
        self.versions: tuple[Any, ...] = ()
        """The states that the caller's tensors had in the last call: a program may keep what it made of them."""
        self.places: list[tuple[dict[str, Any], str, int]] = []
        """Tensors that are the caller's own: the dictionary that holds one, its name there, its number."""
        self.turned: list[tuple[torch.Tensor, int, list[int]]] = []
        """Tensors that the program lays out otherwise: filled anew for each call."""
        for binding in call.bindings:
            held, key = holder_of(module, binding["name"])
            number, axes = binding["state"], binding.get("axes")
            if axes is None:
                self.places.append((held, key, number))
                held[key] = None
                continue
            dtype = getattr(torch, binding["dtype"])
            own = torch.empty_strided(binding["shape"], binding["stride"], dtype=dtype, device=where)
            held[key] = own
            self.turned.append((own, number, axes))

    def __call__(self, arguments: Any, state: Any) -> Any:
        """The program's result. It holds the caller's tensors no longer than the call takes."""
        for held, key, number in self.places:
            held[key] = state[number]
        if self.turned:
            with torch.no_grad():
                for own, number, axes in self.turned:
                    # Into the same tensor each time: a program that keeps what it made of it looks at its version.
                    own.copy_(state[number].permute(axes).reshape(own.shape))
        try:
            return self.forward(*arguments)
        finally:
            for held, key, _ in self.places:
                held[key] = None


class BoundPrograms:
    """Finds the module for a call."""

    def __init__(self, program: ProgramFile, references: dict[str, ReferenceFile], verified: dict[str, Any]) -> None:
        self._program = program
        self._references = references
        self._training: bool | None = verified["training"]
        self._dtype: str = verified["dtype"]
        self._device: str = verified["device"]
        self._mine = _Kept()
        self._fresh: dict[tuple[int, str], torch.nn.Module] = {}
        self._lock = threading.Lock()

    def find(
        self, call: VerifiedCall, state: list[torch.Tensor], where: torch.device | None, shapes: Any
    ) -> BoundProgram:
        """The module for a verified call with these tensors; Unavailable where the program cannot be had.

        Unlike while a CUDA graph is captured, for tensors and shapes that are new, and tensors that were changed since:
        what a program keeps of such a call would be written into the graph, and not be there before that is replayed.
        """
        device = where if where is not None else torch.device(self._device)
        key = (call.number, str(device), *map(id, state))
        bound = self._mine.get(key)
        if is_capturing(device) and (bound is None or shapes not in bound.done or bound.versions != versions_of(state)):
            raise Unlike(CAPTURED)
        if bound is None:
            bound = BoundProgram(self._copy(call, device), call, device)
            self._mine.keep(key, state, bound)
        return bound

    def _copy(self, call: VerifiedCall, device: torch.device) -> torch.nn.Module:
        """A module as its constructor left it. What it works in is its own, and no other thread's."""
        key = (call.number, str(device))
        with self._lock:
            fresh = self._fresh.get(key)
            if fresh is None:
                fresh = self._fresh[key] = self._construct(call, device)
            try:
                return copy.deepcopy(fresh)
            except Exception:
                # It holds what cannot be copied, such as a function of a library.
                return self._construct(call, device)

    def _construct(self, call: VerifiedCall, device: torch.device) -> torch.nn.Module:
        kind = self._program.kind(device)
        arguments = self._references[call.reference].init_arguments()
        try:
            with quiet_random():
                module = kind(*arguments)
            module = cast_module(module, self._dtype).to(device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise self._program.fail(error) from error
        if self._training is not None:
            module.train(self._training)
        module.requires_grad_(False)
        # What every call brings along need not be kept.
        for binding in call.bindings:
            held, key = holder_of(module, binding["name"])
            held[key] = None
        return module


class _Kept(threading.local):
    """A thread's modules, by the identities of the tensors they are for; they go when one of those does."""

    def __init__(self) -> None:
        self._modules: collections.OrderedDict[Any, BoundProgram] = collections.OrderedDict()
        self._watched: dict[Any, list[Any]] = {}

    def get(self, key: Any) -> BoundProgram | None:
        bound = self._modules.get(key)
        if bound is not None:
            self._modules.move_to_end(key)
        return bound

    def keep(self, key: Any, state: list[torch.Tensor], bound: BoundProgram) -> None:
        def forget(_: Any, modules: Any = self._modules, watched: Any = self._watched) -> None:
            modules.pop(key, None)
            watched.pop(key, None)

        self._modules[key] = bound
        self._watched[key] = [weakref.ref(tensor, forget) for tensor in state]
        while len(self._modules) > _MOST_KEPT:
            oldest, _ = self._modules.popitem(last=False)
            self._watched.pop(oldest, None)


def versions_of(state: list[torch.Tensor]) -> tuple[Any, ...]:
    """Which states tensors are in; of those that are made for inference nobody can tell."""
    return tuple(None if tensor.is_inference() else tensor._version for tensor in state)


def holder_of(module: torch.nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """The dictionary that holds a module's tensor, and its name there."""
    *path, key = name.split(".")
    part: Any = module
    for step in path:
        part = getattr(part, step)
    for held in (part._parameters, part._buffers):
        if key in held:
            return held, key
    return part.__dict__, key
