"""The program that a runner holds: how it is imported, and its module constructed, described and given other values."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kforge import registry
from kforge.platforms._emulated_runtime import EmulatedRuntime
from kforge.platforms._method_fault import platform_method
from kforge.platforms.base import Platform
from kforge.worker import trees
from kforge.worker.arena import Arena, dtype_name, named_dtype, tensor_hash
from kforge.worker.device_memory import DeviceArena
from kforge.worker.floating_dtype import cast_module
from kforge.worker.held_tensors import held_tensors, module_tensors
from kforge.worker.matrix_precision import allow_tf32
from kforge.worker.memory_overlap import overlaps_itself
from kforge.worker.protocol.base import Acknowledged
from kforge.worker.protocol.program import (
    ListPatches,
    LoadedModule,
    LoadPickled,
    LoadProgram,
    PatchedNames,
    SetState,
    UseModule,
)
from kforge.worker.protocol.records import HeldTensor, ModuleTensor
from kforge.worker.runner import standalone, tamper, watch
from kforge.worker.runner.heap_poison import FILLS, poisoned_heap
from kforge.worker.runner.raised_error import ProgramFailed
from kforge.worker.training_step import TrainingStep
from kforge.worker.wire import LAZY_VIEW

_copy = torch.Tensor.copy_


class LoadedProgram:
    """A program and its module, on the platform's device; nothing before one is loaded."""

    def __init__(self, platform_name: str, home: str) -> None:
        with platform_method(platform_name, "its module"):
            self.platform: Platform = registry.load("platforms", platform_name)
        with platform_method(platform_name, "enter_runner"):
            self.platform.enter_runner()
        with platform_method(platform_name, "stopwatch"):
            self.stopwatch = self.platform.stopwatch()
        with platform_method(platform_name, "emulator"):
            self._device_emulator = self.platform.emulator()
        self.synchronize = self.platform.synchronize
        self.seed = torch.default_generator.manual_seed if self.platform.device == "cpu" else torch.manual_seed
        self.home = home
        self.emulator: EmulatedRuntime | None = None
        """What the program runs on where its device is emulated; the reference of such a platform is plain torch."""
        self.watch: watch.Watch | None = None
        """What the program does, where that is noted."""
        self._snapshot: tamper.Snapshot | None = None
        self._file = os.path.join(home, "candidate.py")
        self._namespace: Any = None
        self.module: Any = None
        self.model: Any = None
        """What is called: the module, or what stands around it."""
        self.step: TrainingStep | None = None
        """Where a call is forward and backward: its two parts."""
        self._constructed: list[tuple[Any, Any, TrainingStep | None]] = []
        """Module, model and step of each that was constructed."""

    # -- loading -------------------------------------------------------------------------------------------------

    def load(self, request: LoadProgram, fds: list[int]) -> LoadedModule:
        """Import the program, unless it has been, and construct its module under a seed."""
        arena = Arena(fds[0], request.memory_bytes) if request.memory_bytes else None
        tensors = [arena.tensor(spec).clone() for spec in request.specs] if arena else []
        arguments = trees.unpack(request.arguments, tensors)
        if request.archive_bytes:
            standalone.unpack(self.home, fds[-1], request.archive_bytes)
        allow_tf32(request.tf32)
        if request.watched and self._snapshot is None:
            self._begin_watch()
        if request.source:
            self._namespace = self._import(request.source)
        self._construct(request.class_name, arguments, request.seed)
        if request.dtype:
            with self.phase("init"), self._surroundings():
                self.module = cast_module(self.module, named_dtype(request.dtype))
        return self._prepare_module(request)

    def import_alone(self, source: str) -> None:
        """Import a program whose module nobody calls; it is noted what it does."""
        self._begin_watch()
        self._namespace = self._import(source)

    def construct_alone(self, class_name: str, arguments: list[Any]) -> None:
        """Construct the module of a program that was imported."""
        self._construct(class_name, arguments, seed=0)

    def _construct(self, class_name: str, arguments: Any, seed: int) -> None:
        kind = getattr(self._namespace, class_name, None)
        if not isinstance(kind, type):
            raise ProgramFailed("missing", NameError(class_name), self._file)
        with self.phase("init"), self._surroundings():
            torch.manual_seed(seed)
            self.module = kind(*arguments)
            if not isinstance(self.module, torch.nn.Module):
                raise TypeError(f"{class_name} is a {kind.__mro__[1].__name__}, not a torch.nn.Module")

    def _begin_watch(self) -> None:
        self.emulator = self._device_emulator
        self._snapshot = tamper.Snapshot()
        self.watch = watch.Watch(self.home, kernels_only=self.platform.emulated)
        self.watch.install()

    def load_pickled(self, request: LoadPickled, fds: list[int]) -> LoadedModule:
        """A trusted, pickled module."""
        import cloudpickle

        allow_tf32(request.tf32)
        with open(fds[0], "rb") as file:
            self.module = cloudpickle.load(file)[0]
        return self._prepare_module(request)

    def _prepare_module(self, request: LoadProgram | LoadPickled) -> LoadedModule:
        with self.phase("init"):
            if request.training is not None:
                self.module.train(request.training)
            if self.device() != "cpu":
                with self._surroundings():
                    self.module = self.module.to(self.device())
            self.model, self.step = self.module, None
            if request.compile_mode:
                self.model = torch.compile(self.module, mode=request.compile_mode)
            if request.gradients is not None:
                self.model = self.step = TrainingStep(self.model, self.module, request.gradients)
            if self.emulator is not None:
                self.model = functools.partial(_call_emulated, self.emulator, self.model)
            self._constructed.append((self.module, self.model, self.step))
            known = (
                {(name, tuple(shape)) for name, shape in request.known} if isinstance(request, LoadProgram) else None
            )
            return LoadedModule(self._state(known), self.layouts(), self._patched_names())

    def use_module(self, request: UseModule, fds: list[int]) -> Acknowledged:
        """Turn to another of the modules that were constructed."""
        self.module, self.model, self.step = self._constructed[request.number]
        return Acknowledged()

    def _import(self, source: str) -> Any:
        with open(self._file, "w", encoding="utf-8") as file:
            file.write(source)
        spec = importlib.util.spec_from_file_location("candidate", self._file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        with self.phase("import"), self._surroundings():
            spec.loader.exec_module(module)
        return module

    def _surroundings(self) -> contextlib.AbstractContextManager[Any]:
        """What a program's own code runs inside."""
        if self.emulator is not None:
            return self.emulator.surroundings()
        # What it keeps for its calls is to hold no zeros that nobody wrote.
        is_filled = self.watch is not None and self.platform.device == "cpu"
        return poisoned_heap(FILLS[0]) if is_filled else contextlib.nullcontext()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Where in its life the program raises whatever it raises in the block."""
        try:
            yield
        except ProgramFailed:
            raise
        except BaseException as error:
            raise ProgramFailed(name, error, self._file) from None

    # -- the device ----------------------------------------------------------------------------------------------

    def device(self) -> str:
        """The type of device that the module runs on, and outputs must be on."""
        return self.platform.device if self.emulator is None else self.platform.hardware().device

    def device_of(self, tensor: torch.Tensor) -> str:
        """The device that a tensor is on."""
        return str(tensor.device) if self.emulator is None else self.emulator.device_of(tensor)

    # -- state ---------------------------------------------------------------------------------------------------

    def _state(self, known: set[tuple[str, tuple[int, ...]]] | None) -> list[HeldTensor]:
        """What the module holds, hashed where it is not known already; None: all of it is."""
        held = []
        with torch.no_grad():
            for name, (kind, value) in held_tensors(self.module).items():
                shape = tuple(value.shape)
                is_known = known is None or (name, shape) in known
                held.append(HeldTensor(name, kind, shape, "" if is_known else tensor_hash(value)))
        return held

    def layouts(self) -> list[ModuleTensor]:
        """The module's parameters and buffers as they lie in memory now."""
        return [
            ModuleTensor(name, dtype_name(value.dtype), tuple(value.shape), tuple(value.stride()))
            for name, value in module_tensors(self.module)
            if value.layout == torch.strided
        ]

    def set_state(self, request: SetState, fds: list[int]) -> Acknowledged:
        """Load values by name, the way any user would: load_state_dict, strictly."""
        arena: Arena | DeviceArena
        if request.on_device:
            arena = DeviceArena.attach(fds[0], request.memory_bytes, read_only=True)
        else:
            arena = Arena(fds[0], request.memory_bytes)
        fresh = {name: arena.tensor(spec) for name, spec in request.values}
        with self.phase("load_state_dict"), torch.no_grad(), self._surroundings():
            held = held_tensors(self.module)
            whole = {name: fresh.get(name, value.detach()) for name, (_, value) in held.items() if name[0] != "="}
            self.module.load_state_dict(whole, strict=True)
            for name, value in fresh.items():
                if name[0] == "=":
                    _copy(held[name][1], value)
        if self.step is not None:
            self.step.forget_parameters()
        arena.close()
        return Acknowledged()

    def list_patches(self, request: ListPatches, fds: list[int]) -> PatchedNames:
        return PatchedNames(self._patched_names())

    def _patched_names(self) -> list[str]:
        return self._snapshot.changed_names()[:20] if self._snapshot is not None else []


def type_name(tensor: torch.Tensor) -> str:
    """What the judge is told a tensor is."""
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter):
        if tensor.layout == torch.strided and overlaps_itself(tensor):
            return LAZY_VIEW
        return LAZY_VIEW if tensor.is_neg() or tensor.is_conj() else kind.__name__
    return f"{kind.__module__}.{kind.__qualname__}"[:200]


def _call_emulated(emulator: EmulatedRuntime, model: Callable[..., Any], *arguments: Any) -> Any:
    emulator.mark_on_device(trees.pack(arguments)[1])
    with emulator.surroundings():
        return model(*arguments)
