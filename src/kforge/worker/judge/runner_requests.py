"""Requests to a runner that come with memory: a program to load, values for its module, archives of what was built."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from typing import IO, Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena, ArenaLayout
from kforge.worker.judge.device import Device
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.protocol.program import (
    LoadedModule,
    LoadProgram,
    PackBuild,
    RunStandalone,
    SetState,
    StandaloneAnswer,
)


def send_load(
    runner: RunnerHandle,
    request: LoadProgram,
    arguments: list[Any],
    seed: int,
    seconds: float,
    build: bytes = b"",
) -> LoadedModule:
    """Ask a runner to import a program and construct its module with these arguments.

    `build` is an archive of what the same program built before.
    """
    tree, tensors = trees.pack(arguments)
    layout = ArenaLayout()
    specs = [layout.place(tensor) for tensor in tensors]
    request = replace(request, arguments=tree, specs=tuple(specs), seed=seed, archive_bytes=len(build))
    with contextlib.ExitStack() as held:
        descriptors: list[int] = []
        if tensors:
            arena = Arena.create(layout.size)
            held.callback(arena.close)
            for spec, tensor in zip(specs, tensors, strict=True):
                arena.tensor(spec).copy_(tensor)
            request = replace(request, memory_bytes=arena.size)
            descriptors.append(arena.fd)
        if build:
            descriptors.append(held.enter_context(_make_file(build)).fileno())
        return runner.ask(request, seconds, tuple(descriptors))


def send_standalone(
    runner: RunnerHandle, request: RunStandalone, seconds: float, build: bytes, turn: int | None = None
) -> StandaloneAnswer:
    """Have a program run alone, with what the same program built before. `turn`: a descriptor on which it says that it
    is ready for its calls, and waits.
    """
    request = replace(request, archive_bytes=len(build), takes_turns=turn is not None)
    turns = () if turn is None else (turn,)
    if not build:
        return runner.ask(request, seconds, turns)
    with _make_file(build) as file:
        return runner.ask(request, seconds, (*turns, file.fileno()))


def receive_build(runner: RunnerHandle, most: int, seconds: float, tuned: bool = True) -> bytes:
    """What a program has built in this runner, or alone behind it, at most so many bytes of it; else an error.

    `tuned`: with what it chose by timing, too.
    It is written to memory of a fixed size: a program could answer in the runner's place, and fill the disk.
    """
    arena = Arena.create(most)
    try:
        runner.ask(PackBuild(tuned), seconds, (arena.fd,))
        written = os.lseek(arena.fd, 0, os.SEEK_HOLE)
        # gzip takes zeros at its end for nothing, and its own last bytes may be zeros.
        data = os.pread(arena.fd, min(written, most), 0).rstrip(b"\0")
        return data + bytes(8) if data else b""
    finally:
        arena.close()


def _make_file(data: bytes) -> IO[bytes]:
    """A nameless file that holds these bytes, to be read from its start."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    file.write(data)
    file.seek(0)
    return file


def send_state(runner: RunnerHandle, values: list[tuple[str, torch.Tensor]], seconds: float, device: Device) -> None:
    """Load these values into a runner's module, by name: through the device's memory where they lie there."""
    layout = ArenaLayout()
    specs = [layout.place(value) for _, value in values]
    on_device = device.supports_ipc and all(value.device.type == device.torch_device.type for _, value in values)
    arena = device.arena(layout.size) if on_device else Arena.create(layout.size)
    try:
        torch._foreach_copy_([arena.tensor(spec) for spec in specs], [value for _, value in values])
        named = tuple((name, spec) for (name, _), spec in zip(values, specs, strict=True))
        device.synchronize()
        runner.ask(SetState(arena.size, named, on_device), seconds, (arena.fd,))
    finally:
        arena.close()
