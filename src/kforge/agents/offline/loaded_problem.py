"""A problem as a live module with example inputs, inside the lowering process."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kforge.agents.offline.phantoms import Phantoms
from kforge.agents.offline.recipe import NO_GRADIENTS, TRITON, Unliftable, language_of
from kforge.types import Problem
from kforge.worker import live_problem
from kforge.worker.arena import named_dtype
from kforge.worker.floating_dtype import cast_module, cast_tensor

_SEED = 2357


@dataclass(frozen=True)
class LoadedReference:
    """The reference module, ready to be called."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    source: str = ""
    """The problem's file with the sizes in place; empty for a live module."""
    remake: Callable[[int], torch.nn.Module] | None = None
    """Constructs the module again under a seed; None for a live module."""
    held: torch.nn.Module | None = None
    """The module with its values, where the one to be traced has none."""
    phantoms: Phantoms | None = None
    """The maker of module and inputs, where those are without memory."""

    @property
    def values(self) -> torch.nn.Module:
        """The module whose tensors can be read."""
        return self.held if self.held is not None else self.module


def load(problem: Problem, device_class: str) -> LoadedReference:
    """The problem's module and one set of inputs; Unliftable if it cannot be run, or its gradients are wanted."""
    if problem.form.backward:
        raise Unliftable(NO_GRADIENTS)
    try:
        if problem.payload:
            loaded = _from_live_module(problem, device_class)
        else:
            loaded = _from_file(problem, device_class)
    except Exception as error:
        raise Unliftable(f"the reference cannot be loaded: {type(error).__name__}: {error}") from error
    if loaded.phantoms is not None:
        return loaded
    held = loaded.module.state_dict().values()
    if any(isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu" for tensor in held):
        raise Unliftable("the module lives on another device than the CPU")
    return loaded


def _from_file(problem: Problem, device_class: str) -> LoadedReference:
    source = problem.sized_source(device_class)
    file = f"<problem {problem.name}>"
    # torch.export and inspect read the lines of the classes they trace.
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace = types.ModuleType("lifted_problem")
    namespace.__file__ = problem.path or file
    exec(compile(source, file, "exec"), namespace.__dict__)

    dtype = named_dtype(problem.form.dtype) if problem.form.dtype else None

    def remake(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        module = namespace.Model(*namespace.get_init_inputs())
        if not isinstance(module, torch.nn.Module):
            raise TypeError("Model is no torch.nn.Module")
        return module if dtype is None else cast_module(module, dtype)

    def inputs() -> list[Any]:
        drawn = list(namespace.get_inputs())
        return drawn if dtype is None else pytree.tree_map_only(torch.Tensor, lambda x: cast_tensor(x, dtype), drawn)

    module = remake(_SEED)
    if language_of(device_class) == TRITON:
        phantoms = Phantoms()
        given = phantoms.inputs(inputs)
        return LoadedReference(phantoms.module(module), given, source, remake, held=module, phantoms=phantoms)
    return LoadedReference(module, tuple(inputs()), source, remake)


def _from_live_module(problem: Problem, device_class: str) -> LoadedReference:
    module, inputs = live_problem.restore(problem)
    if language_of(device_class) == TRITON:
        phantoms = Phantoms()
        return LoadedReference(phantoms.module(module), phantoms.move(tuple(inputs)), held=module, phantoms=phantoms)
    # Two arguments that are one tensor here will not be so in every call.
    return LoadedReference(module, tuple(pytree.tree_map_only(torch.Tensor, torch.clone, inputs)))
