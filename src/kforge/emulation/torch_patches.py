"""Things of torch that are replaced while there is an emulated device, put in and taken out again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kforge.emulation import fake_device

Patches = dict[tuple[Any, str], Any]
"""(where, name) -> what replaces it."""
_ABSENT = object()
_WITH_VALUE = ("manual_seed", "set_state")


def install(patches: Patches) -> None:
    """Put patches in, for the rest of this process."""
    for (holder, name), value in patches.items():
        setattr(holder, name, value)


@contextlib.contextmanager
def installed(patches: Patches) -> Iterator[None]:
    """Put patches in for a block."""
    before = {(holder, name): getattr(holder, name, _ABSENT) for holder, name in patches}
    install(patches)
    try:
        yield
    finally:
        fake_device.set_default_device(None)
        for (holder, name), value in before.items():
            if value is _ABSENT:
                delattr(holder, name)
            else:
                setattr(holder, name, value)


def device_patches(device: str) -> Patches:
    """Patches for what programs ask of torch itself."""
    return {
        (torch, "Generator"): generator_class(device),
        (torch, "set_default_device"): fake_device.set_default_device,
        (torch, "get_default_device"): fake_device.get_default_device,
        (torch.accelerator, "is_available"): constant_function(True),
        (torch.accelerator, "device_count"): constant_function(1),
        (torch.accelerator, "current_accelerator"): constant_function(torch.device(device)),
        (torch.accelerator, "synchronize"): constant_function(None),
    }


def generator_class(device: str) -> type:
    """torch.Generator, which may also be the device's."""

    class Generator(torch.Generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            made = super().__new__(cls)
            made._named = torch.device(device)  # type: ignore[attr-defined]
            return made

        @property
        def device(self) -> torch.device:  # type: ignore[override]
            named: torch.device = self._named  # type: ignore[attr-defined]
            return torch.device(device, 0) if named.type == device else named

    return Generator


class EmulatedStream:
    """Everything runs in the order in which it is launched, so that a stream has nothing to wait for."""

    cuda_stream = 0
    device_index = 0
    priority = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or EmulatedEvent()

    def query(self) -> bool:
        return True

    def __enter__(self) -> EmulatedStream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class EmulatedEvent:
    """An event is recorded at once; a time between two says nothing of the device."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    def wait(self, *_: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Any) -> float:
        raise RuntimeError("Event.elapsed_time: nothing is timed in emulation")


class NullContext:
    """A `with` that changes nothing: there is one device, and one stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


def constant_function(value: Any) -> Any:
    """A function with one answer. Each call makes another function: torch's compiler knows them by identity."""
    return lambda *_, **__: value


def generator_function(name: str) -> Any:
    """A function of the device's generator: its numbers are drawn by the processor's."""
    return lambda *arguments: getattr(torch.default_generator, name)(*arguments[: 1 if name in _WITH_VALUE else 0])


def absent_function(name: str) -> Any:
    """A function in place of what the emulator does not have: it raises an error that names it."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{name} is not emulated: see docs/emulation.md for what is")

    return refuse
