"""Messages about a runner's processes: forking it, stopping it, reading its memory, ending it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kforge.worker.protocol.base import Acknowledged, PeerRequest


@dataclass(frozen=True)
class ForkRunner(PeerRequest[Acknowledged], operation="fork"):
    """Fork a keeper and its runner; the keeper answers.

    With two descriptors: the runner's end of its channel, then the keeper's.
    """

    platform: str
    home: str
    """Its private folder."""
    environment: dict[str, str]
    memory_bytes: int
    """The most that all its processes together may hold."""
    address_space: bool
    """Whether that bounds its address space too."""
    file_bytes: int
    """The most that it may write to one file, or to its temporary folders."""
    processes: int
    nice: int
    stoppable: bool
    """Whether it may do nothing that could wake a process which is stopped."""
    kept: tuple[str, ...]
    """Folders below a temporary one that it must see."""


@dataclass(frozen=True)
class ContinueProcesses(PeerRequest[Acknowledged], operation="continue"):
    """Let everything that was stopped go on."""


@dataclass(frozen=True)
class StoppedProcesses:
    """Whether everything of a runner is at rest."""

    stopped: bool
    others: bool
    """Whether there are other processes than the runner's own."""


@dataclass(frozen=True)
class StopProcesses(PeerRequest[StoppedProcesses], operation="stop"):
    """Stop everything, and see it at rest."""


class ThreadPlace(NamedTuple):
    """Where a thread's next instruction comes from."""

    file: str
    """The mapped file; an empty name for memory that belongs to none."""
    offset: int
    """The place in that file."""


@dataclass(frozen=True)
class SampledThreads:
    """Where all threads were at one moment."""

    places: list[ThreadPlace]


@dataclass(frozen=True)
class SampleThreads(PeerRequest[SampledThreads], operation="sample_threads"):
    """Stop everything for a moment, to see where its threads are."""


@dataclass(frozen=True)
class ReadableMemory:
    """Whether the runner's memory can be read."""

    readable: bool


@dataclass(frozen=True)
class MapTarget(PeerRequest[ReadableMemory], operation="map_target"):
    """Map memory, whose descriptor comes with this, that is to hold what is read."""

    memory_bytes: int


@dataclass(frozen=True)
class MemoryRead:
    """What came of reading memory."""

    refused: str
    """Why nothing was read: not_own where a piece is not the process's alone; empty if all of it was."""


@dataclass(frozen=True)
class ReadMemory(PeerRequest[MemoryRead], operation="read_memory"):
    """Copy pieces of the stopped runner's memory; a list for each column of them."""

    addresses: list[int]
    lengths: list[int]
    offsets: list[int]
    """Where each goes in the memory that was mapped."""
    own: bool
    """Whether to refuse what does not lie in private memory that belongs to no file."""


@dataclass(frozen=True)
class Ending:
    """How a runner ended."""

    status: int | None = None
    """Exit status, negative for a signal; None if it had to be killed."""
    left: tuple[str, ...] = ()
    """Names of processes it left behind."""
    printed: int = 0
    """Bytes it printed."""
    output: str = ""
    """The first part of them."""
    fault: int | None = None
    """Where the invalid access was that ended it, in bytes from the start of its inputs' memory; None if not known."""


@dataclass(frozen=True)
class EndRunner(PeerRequest[Ending], operation="end"):
    """Wait a moment for the runner to leave, end everything, and say how it went."""
