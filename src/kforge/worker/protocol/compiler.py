"""A message about loading a program where its device is not, so that NVRTC compiles it."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.worker.protocol.base import PeerRequest, RaisedError


@dataclass(frozen=True)
class CompilerTrial:
    """How loading a program went, with NVRTC at work and in the device's place only what is known of it."""

    error: RaisedError | None
    """What it raised; None for a program that was loaded."""
    refusals: tuple[str, ...]
    """What NVRTC said of each source that it did not compile."""
    doubts: tuple[str, ...]
    """What the program met that may be otherwise where the device is. With any of them nothing follows."""


@dataclass(frozen=True)
class TryCompiler(PeerRequest[CompilerTrial], operation="try_compiler"):
    """Load a program and have NVRTC compile what it compiles meanwhile."""

    source: str
    class_name: str
    """Of the module, which is constructed if the import compiled nothing."""
    problem_source: str
    """Its `get_init_inputs` gives the constructor's arguments; empty where it takes none."""
    capability: tuple[int, int]
    """The device's compute capability."""
    device_name: str
    """Empty where it is not known."""
    multiprocessors: int
    """0 where it is not known."""
