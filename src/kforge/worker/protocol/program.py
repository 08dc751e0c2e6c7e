"""Messages about a program: loading it, what it holds, looking at it from inside, and running it alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kforge.worker.protocol.base import Acknowledged, PeerRequest
from kforge.worker.protocol.records import HeldTensor, ModuleTensor, Spec


@dataclass(frozen=True)
class LoadedModule:
    """A module that was constructed."""

    state: list[HeldTensor]
    layouts: list[ModuleTensor]
    patched: list[str]
    """Names of what its program replaced in torch, in the clock and in the runner."""


@dataclass(frozen=True)
class LoadProgram(PeerRequest[LoadedModule], operation="load"):
    """Import a program and construct its module under a seed.

    With the descriptor of memory that holds the arguments' tensors, if any, then that of the archive, if any.
    """

    source: str
    """Empty: of the program that was imported before, another module is constructed, and is the one in use."""
    class_name: str
    watched: bool
    """Whether it is noted what the program does: for one that nobody trusts."""
    training: bool | None
    """The mode that the module is put in; None leaves it as it is."""
    compile_mode: str = ""
    """Of torch.compile; empty to run the module as it is."""
    tf32: bool = False
    """Whether products and convolutions on a GPU may round their operands to TF32."""
    dtype: str = ""
    """Of the module's floating parameters and buffers; empty leaves them as they are."""
    gradients: tuple[str, ...] | None = None
    """Where a call is forward and backward: the names of the parameters whose gradients are wanted."""
    known: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes of the reference's tensors: what the module holds under the same ones is not hashed."""
    seed: int = 0
    arguments: Any = None
    """The constructor's, as `worker/trees.py` packs them."""
    specs: tuple[Spec, ...] = ()
    memory_bytes: int = 0
    """Of the memory that holds their tensors."""
    archive_bytes: int = 0
    """Of the archive that holds what the same program built before."""


@dataclass(frozen=True)
class LoadPickled(PeerRequest[LoadedModule], operation="load_pickled"):
    """Load a module that is trusted from the file whose descriptor comes with this."""

    training: bool | None
    compile_mode: str = ""
    tf32: bool = False
    gradients: tuple[str, ...] | None = None
    """Where a call is forward and backward: the names of the parameters whose gradients are wanted."""


@dataclass(frozen=True)
class UseModule(PeerRequest[Acknowledged], operation="use_module"):
    """Turn to another of the modules that were constructed."""

    number: int
    """In the order of their construction."""


@dataclass(frozen=True)
class SetState(PeerRequest[Acknowledged], operation="set_state"):
    """Load values by name, from memory whose descriptor comes with this."""

    memory_bytes: int
    values: tuple[tuple[str, Spec], ...]
    on_device: bool = False
    """Whether that memory is the device's."""


@dataclass(frozen=True)
class PatchedNames:
    """What a program has replaced so far."""

    patched: list[str]


@dataclass(frozen=True)
class ListPatches(PeerRequest[PatchedNames], operation="list_patches"):
    """Say what the program has replaced in torch, in the clock and in the runner."""


@dataclass(frozen=True)
class PrepareProbe(PeerRequest[Acknowledged], operation="prepare_probe"):
    """Let a profiler's probe get ready, before the program is imported."""

    source: str
    """The probe's own."""


@dataclass(frozen=True)
class ProbeAnswer:
    """What a probe saw; its profiler reads it."""

    answer: Any


@dataclass(frozen=True)
class RunProbe(PeerRequest[ProbeAnswer], operation="run_probe"):
    """Let a profiler's probe look at the program."""

    source: str
    """The probe's own."""
    request: dict[str, Any]
    """What the profiler asks of it."""
    seed: int | None
    """Before each call that the probe makes."""


@dataclass(frozen=True)
class StandaloneAnswer:
    """How a command ended that had the program behind it."""

    status: int
    """Its exit status, negative for a signal."""
    output: str
    """The end of what was written to stdout."""
    errors: str
    """The end of what was written to stderr."""
    seconds: float
    files: dict[str, str] = field(default_factory=dict)
    """Path in the private folder -> content, in base64."""


@dataclass(frozen=True)
class RunStandalone(PeerRequest[StandaloneAnswer], operation="run_standalone"):
    """Run a program in a process of its own, behind a command; nothing of it is imported in the runner.

    With the descriptor of its turn at the device, and that of an archive, where there are such.
    """

    source: str
    class_name: str
    command: tuple[str, ...]
    """What Python is started with; `{home}` stands for the private folder."""
    seconds: float
    """After which it is killed."""
    files: tuple[str, ...]
    """What is to come back, relative to the private folder; a trailing * matches."""
    arguments: Any
    """The constructor's, as `worker/trees.py` packs them; no tensors."""
    seed: int
    training: bool | None
    dtype: str
    """Of the module's floating parameters and buffers; empty leaves them as they are."""
    only_load: bool
    """Whether it is only imported: to build, and to see what it does meanwhile."""
    environment: dict[str, str]
    gradients: tuple[str, ...] | None = None
    """Where a call is forward and backward: the names of the parameters whose gradients are wanted."""
    archive_bytes: int = 0
    """Of the archive that holds what the same program built before."""
    takes_turns: bool = False
    """Whether the first descriptor is one on which the program says that it is ready for its calls, and waits."""


@dataclass(frozen=True)
class PackBuild(PeerRequest[Acknowledged], operation="pack_build"):
    """Write what a program has built to the memory whose descriptor comes with this."""

    tuned: bool = True
    """Whether what it chose by timing is part of that."""


@dataclass(frozen=True)
class FinishRunner(PeerRequest[Acknowledged], operation="finish"):
    """Leave: there is nothing more to answer."""
