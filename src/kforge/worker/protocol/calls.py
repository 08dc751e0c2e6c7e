"""Messages about calls: the memory they read and write, calls that are checked, and calls that are timed.

Rows that are read between timed calls travel as columns, which take less time to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kforge.worker.protocol.base import Acknowledged, PeerRequest
from kforge.worker.protocol.records import (
    ArgumentSet,
    HeldOutput,
    ModuleTensor,
    ObservedKernel,
    Operator,
    SlotOutput,
    Spec,
)

CallRow = tuple[int, int, int | None]
"""Set, slot and seed of a call."""


# -- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapInputs(PeerRequest[Acknowledged], operation="map_inputs"):
    """Map input sets and output slots.

    With two descriptors: the memory of the sets, then that of the slots or of the gate.
    """

    sets_bytes: int
    slots_bytes: int
    read_only: bool
    """Whether the sets may only be read."""
    on_device: bool
    """Whether it is memory of the device; the host's otherwise."""
    ahead_ns: int
    """How long the device is kept busy before a call whose time the runner takes."""
    sets: tuple[ArgumentSet, ...]
    slots: tuple[tuple[Spec, ...], ...]
    """Where the outputs of each slot are delivered; empty where they are read from where they lie."""
    gate_bytes: int = 0
    """Of the memory that opens the gate calls wait behind; 0 where there is none."""
    guards: tuple[tuple[int, int], ...] = ()
    """Bytes of the sets' memory, in whole pages, that the runner is to make inaccessible to itself."""


@dataclass(frozen=True)
class MapSlots(PeerRequest[Acknowledged], operation="map_slots"):
    """Map slots, in memory of the device, for outputs that cannot be read where they lie."""

    slots_bytes: int
    slots: tuple[tuple[Spec, ...], ...]


@dataclass(frozen=True)
class ForgetInputs(PeerRequest[Acknowledged], operation="forget_inputs"):
    """Drop what is mapped, so that other memory can take its place."""


@dataclass(frozen=True)
class ReleaseMemory(PeerRequest[Acknowledged], operation="release_memory"):
    """Give memory that is only kept for later back to the device."""


@dataclass(frozen=True)
class PeakMemory:
    """The most device memory that was held at once."""

    peak_bytes: int


@dataclass(frozen=True)
class MeasurePeakMemory(PeerRequest[PeakMemory], operation="measure_peak_memory"):
    """Say how much device memory was held at once since this was last asked."""


@dataclass(frozen=True)
class SavedMemory:
    """Memory that is held between forward and backward."""

    saved_bytes: int


@dataclass(frozen=True)
class MeasureSavedMemory(PeerRequest[SavedMemory], operation="measure_saved_memory"):
    """Call forward once, and say how much memory is then held for backward."""

    set: int
    seed: int


@dataclass(frozen=True)
class MemoryBlocks:
    """Blocks of device memory; a descriptor of each comes with this."""

    blocks: list[tuple[int, int]]
    """First address and size, in bytes."""
    more: bool
    """Whether there are more than one message can carry."""


@dataclass(frozen=True)
class ShareMemory(PeerRequest[MemoryBlocks], operation="share_memory"):
    """Hand over the device memory that these addresses lie in, where the judge has not got it yet."""

    starts: list[int]
    stops: list[int]


# -- calls -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallColumns:
    """Calls in the order they are to be made."""

    sets: list[int]
    slots: list[int]
    seeds: list[int | None]
    """None where nothing is drawn."""

    def rows(self) -> list[CallRow]:
        return list(zip(self.sets, self.slots, self.seeds, strict=True))


def call_columns(calls: Sequence[CallRow]) -> tuple[list[int], list[int], list[int | None]]:
    """The first fields of a request for these calls."""
    return [row[0] for row in calls], [row[1] for row in calls], [row[2] for row in calls]


@dataclass(frozen=True)
class CheckedOutputs:
    """What a row of calls gave, delivered to the slots."""

    times_ns: list[int]
    """What each call took by the runner's own clock."""
    described: list[SlotOutput]
    """Each distinct structure once."""
    which: list[int]
    """Call -> its structure's place in that list."""
    reused: bool
    """Whether the same storage was returned twice."""
    shared: bool
    """Whether an output lies in memory of another output, an input or a parameter."""


@dataclass(frozen=True)
class MakeCheckedCalls(CallColumns, PeerRequest[CheckedOutputs], operation="make_checked_calls"):
    """Calls in a row, each timed on its own, each output delivered to its slot before the next call."""

    poison: bool = False
    """Whether fresh memory of torch's holds nonsense, and what lies around it is looked at."""
    poison_heap: bool = False
    """Whether fresh memory of the C library's holds nonsense, where torch's device is the host."""
    closely: bool = False
    """Whether an emulator looks at every access."""


@dataclass(frozen=True)
class TimedOutputs:
    """What a row of calls gave, held where it lies."""

    described: list[HeldOutput]
    """Each distinct structure once."""
    which: list[int]
    """Call -> its structure's place in that list."""
    addresses: list[int]
    """Of the tensors of every call, one call after another."""


@dataclass(frozen=True)
class MakeTimedCalls(CallColumns, PeerRequest[TimedOutputs], operation="make_timed_calls"):
    """Calls in a row on the judge's clock, their outputs held where the judge can read them."""

    copies: bool = False
    """Whether each output is copied to its slot before the next call."""
    idle: bool = False
    """Whether everything is done but the calls, with the outputs of the calls before."""
    rounds: int = 1
    """How many times over; the outputs of the last one are held."""
    turn: int = 0
    """What opens the gate that they wait behind; 0 for no gate."""
    first: bool = True
    """Whether a block begins: outputs of earlier calls are no longer held."""


@dataclass(frozen=True)
class WatchedCall:
    """What a watched call showed."""

    custom_effect: bool
    """Whether the program's own code had an effect."""
    launched: list[str]
    """Kernels whose launches were noted."""
    apart: str
    """On an emulated device: how its kernels have no part in the result; empty if they have."""
    directions: list[bool] = field(default_factory=list)
    """Where a call is forward and backward: whether its own code had an effect in the one, and in the other."""


@dataclass(frozen=True)
class WatchCall(PeerRequest[WatchedCall], operation="watch_call"):
    """One call, watched for what the program's own code changes."""

    set: int
    seed: int


@dataclass(frozen=True)
class RecordedCall:
    """Which operators and kernels ran in a call, and for how long."""

    operators: list[Operator]
    call_ns: int
    """How long the call took; 0 where only time on the device counts."""
    output: SlotOutput | None
    """What it gave, where there are slots to deliver it to."""
    kernels: list[ObservedKernel]
    device_ns: int
    """How long any kernel ran."""
    forward_operators: int = 0
    """Where a call is forward and backward: how many of the operators, from the first on, are forward's."""
    forward_kernels: int = 0
    forward_ns: int = 0
    """How long forward took of the call."""


@dataclass(frozen=True)
class RecordCall(PeerRequest[RecordedCall], operation="record_call"):
    """One call under a profiler; what it gives is delivered."""

    set: int
    seed: int


@dataclass(frozen=True)
class ChangedStateResult:
    """What came of a call with the module's tensors changed; its output is in the first slot."""

    raised: str
    """The name of the exception's type; empty if there was none."""
    layouts: list[ModuleTensor]


@dataclass(frozen=True)
class CallWithChangedState(PeerRequest[ChangedStateResult], operation="call_with_changed_state"):
    """One call on the first set with the module's tensors in another dtype or stride."""

    change: str
    """dtype, stride, or usual: nothing is changed, for the result that the others must agree with."""
    seed: int


@dataclass(frozen=True)
class GradientsResult:
    """Which gradients there are, in the judge's memory."""

    raised: str
    """The name of the exception's type; empty if there was none."""
    there: list[bool]


@dataclass(frozen=True)
class ComputeGradients(PeerRequest[GradientsResult], operation="compute_gradients"):
    """Write gradients of the first set's arguments and of parameters to memory whose descriptor comes with this."""

    names: tuple[str, ...]
    """Of the parameters."""
    specs: tuple[Spec, ...]
    """Where each gradient goes: the arguments' first."""
    memory_bytes: int
    seed: int
