"""The PyTorch reference: what runs wherever the program was not verified, and says what shapes come out."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_SEED = 20_011


class ReferenceFile:
    """One text of the reference, at one of its sizes."""

    def __init__(self, name: str, source: str, path: str, dtype: str, training: bool | None) -> None:
        self._name = name
        self._source = source
        self._path = path
        self._dtype = dtype
        self._training = training
        self._module: types.ModuleType | None = None
        self._lock = threading.RLock()
        self._mine = threading.local()

    def _namespace(self) -> Any:
        with self._lock:
            if self._module is None:
                digest = hashlib.sha256(self._source.encode()).hexdigest()[:12]
                module = types.ModuleType(f"{self._name}.reference_{digest}")
                module.__file__ = self._path
                sys.modules[module.__name__] = module
                exec(compile(self._source, self._path, "exec"), module.__dict__)
                self._module = module
            return self._module

    def init_arguments(self) -> list[Any]:
        """What the module is constructed with."""
        given = self._namespace().get_init_inputs()
        named = getattr(torch, self._dtype) if self._dtype else None
        return [
            value.to(named) if named and isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for value in given
        ]

    def inputs(self) -> list[Any]:
        """Arguments of a call, as the problem draws them."""
        return list(self._namespace().get_inputs())

    def construct(self) -> torch.nn.Module:
        """A module as its constructor makes it."""
        with quiet_random():
            module = cast_module(self._namespace().Model(*self.init_arguments()), self._dtype)
        if self._training is not None:
            module.train(self._training)
        return module

    def run(self, arguments: Any, names: list[str], state: list[torch.Tensor], training: bool | None = None) -> Any:
        """The reference's result with these tensors as its parameters and buffers."""
        module = self.shell()
        mode = self._training if training is None else training
        if mode is not None:
            module.train(mode)
        return torch.func.functional_call(module, dict(zip(names, state)), tuple(arguments))  # noqa: B905

    def shell(self) -> torch.nn.Module:
        """A module of this thread without values of its own: those of parameters and buffers come with each call."""
        module: torch.nn.Module | None = getattr(self._mine, "shell", None)
        if module is None:
            # Whatever looks into the call that needs it first does not see how it is made.
            with torch.utils._python_dispatch._disable_current_modes(), _no_transforms():
                module = self.construct()
                for part in module.modules():
                    both: tuple[Any, ...] = (part._parameters, part._buffers)
                    for held in both:
                        for key, value in held.items():
                            if value is not None:
                                empty = value.detach().to("meta")
                                held[key] = torch.nn.Parameter(empty, False) if held is part._parameters else empty
            self._mine.shell = module
        return module


def open_references(
    name: str, sources: dict[str, str], home: Path | None, verified: dict[str, Any]
) -> dict[str, ReferenceFile]:
    """The reference's texts by the names of their files, ready to be run."""
    dtype, training = verified["dtype"], verified["training"]
    place = f"<{name}>" if home is None else str(home)
    return {file: ReferenceFile(name, text, f"{place}/{file}", dtype, training) for file, text in sources.items()}


def cast_module(module: torch.nn.Module, dtype: str) -> torch.nn.Module:
    """A module with its floating parameters and buffers in a dtype; as it is where none is named."""
    if dtype:
        named = getattr(torch, dtype)
        change: Any = module._apply
        change(lambda tensor: tensor.to(named) if tensor.is_floating_point() else tensor)
    return module


def _no_transforms() -> contextlib.AbstractContextManager[Any]:
    """Outside of every transform of torch.func."""
    from torch._functorch import pyfunctorch

    clear: Any = getattr(pyfunctorch, "temporarily_clear_interpreter_stack", contextlib.nullcontext)
    found: contextlib.AbstractContextManager[Any] = clear()
    return found


@contextlib.contextmanager
def quiet_random() -> Iterator[None]:
    """Random numbers that are the same each time, and that leave the caller's as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_SEED)
        yield
