"""Calls whose outputs are copied to the judge's memory: checked ones, watched ones, and calls nobody verified for."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import Arena, dtype_name
from kforge.worker.gradients import gradients
from kforge.worker.held_tensors import held_tensors
from kforge.worker.memory_overlap import is_shared
from kforge.worker.protocol.base import RunnerFinding
from kforge.worker.protocol.calls import (
    CallWithChangedState,
    ChangedStateResult,
    CheckedOutputs,
    ComputeGradients,
    GradientsResult,
    MakeCheckedCalls,
    MeasureSavedMemory,
    RecordCall,
    RecordedCall,
    SavedMemory,
    WatchCall,
    WatchedCall,
)
from kforge.worker.protocol.records import ObservedKernel, Operator, OutputLeaf, SlotOutput
from kforge.worker.runner import kernels, misuse, modes
from kforge.worker.runner.fenced_memory import FencedMemory
from kforge.worker.runner.heap_poison import FILLS, poisoned_heap
from kforge.worker.runner.loaded_program import LoadedProgram, type_name
from kforge.worker.runner.mapped_inputs import MappedInputs
from kforge.worker.training_step import TrainingStep, saved_bytes

_copy = torch.Tensor.copy_
_take = torch.take
_equal = torch.equal
_randint = torch.randint
_dice = random.SystemRandom()
_PROBES = 64
_HELD_BYTES = 1 << 30
"""A result larger than this is not held to see whether its memory is handed out again."""


class CheckedCalls:
    """Makes calls on mapped inputs and delivers what they give; remembers what was odd about it."""

    def __init__(self, program: LoadedProgram, inputs: MappedInputs) -> None:
        self._program = program
        self._platform = program.platform
        self._inputs = inputs
        self._last_output: Any = None
        self._reused = False
        self._shared = False
        self._unsettled = False
        self._out_of_bounds = ""
        self._memory: FencedMemory | None = None
        if self._platform.device == "cpu" and program.emulator is None:
            self._memory = FencedMemory()
        self._fills = itertools.cycle(FILLS)
        self._calls = 0
        """With a heap that was filled."""
        self._unchecked = False
        self._scripted = kernels.scripted_functions()

    def findings(self) -> list[RunnerFinding]:
        findings = []
        if self._unsettled:
            findings.append(RunnerFinding("unsettled_output", "the output still changed after forward had returned"))
        if self._out_of_bounds:
            findings.append(RunnerFinding("out_of_bounds", f"it wrote {self._out_of_bounds}"))
        if self._unchecked:
            findings.append(RunnerFinding("introspection", "it switched off the emulator's checked mode"))
        return findings

    def forget(self) -> None:
        """Hold no output any more."""
        self._last_output = None

    # -- checked calls -------------------------------------------------------------------------------------------

    def make(self, request: MakeCheckedCalls, fds: list[int]) -> CheckedOutputs:
        """Calls in a row, each timed on its own, each output delivered to its slot before the next call."""
        times: list[int] = []
        described: list[SlotOutput] = []
        which: list[int] = []
        probed = _dice.randrange(len(request.sets))
        emulator = self._program.emulator
        device = self._platform.device if emulator is None else ""
        if self._memory is not None:
            self._memory.begin_call()
        poison = modes.Poison(device, self._memory) if request.poison else None
        mode = poison or contextlib.nullcontext()
        is_filled = request.poison_heap and self._memory is not None
        heap = poisoned_heap(next(self._fills), self._calls < len(FILLS)) if is_filled else contextlib.nullcontext()
        self._calls += is_filled
        self._inputs.refresh()
        if emulator is not None:
            emulator.set_checked(request.closely)
        gc.disable()
        try:
            with self._program.phase("forward"), torch.no_grad(), mode, heap:
                for number, (set_index, slot, seed) in enumerate(request.rows()):
                    output, spent = self._call(set_index, seed)
                    times.append(spent)
                    description = self._deliver(output, slot, probe=number == probed)
                    if request.poison:
                        self._shared |= self._shares_memory(output, set_index)
                    if not described or description != described[-1]:
                        described.append(description)
                    which.append(len(described) - 1)
                self._program.synchronize()
                self._program.stopwatch.restore()
                self._inputs.deliver()
        finally:
            gc.enable()
        if poison is not None and poison.is_fence_crossed():
            self._out_of_bounds = "outside of a tensor that torch had given it"
        elif self._memory is not None:
            self._out_of_bounds = self._memory.place_written()
        if request.closely and emulator is not None and emulator.unchecked_launches():
            self._unchecked = True
        return CheckedOutputs(times, described, which, self._reused, self._shared)

    def _call(self, set_index: int, seed: int | None) -> tuple[Any, int]:
        arguments = self._inputs.sets[set_index]
        if seed is not None:
            self._program.seed(seed)
        output, spent = self._program.stopwatch.time(lambda: self._program.model(*arguments))
        return output, int(spent)

    def _shares_memory(self, output: Any, set_index: int) -> bool:
        """Whether an output lies in memory of another, of an input or of a parameter."""
        if self._program.emulator is not None:
            return False
        inputs = trees.pack(self._inputs.sets[set_index])[1]
        return is_shared(trees.pack(output)[1], [*inputs, *self._program.module.parameters()])

    def _deliver(self, output: Any, slot: int, probe: bool) -> SlotOutput:
        """Copy an output that fits into its slot; describe it either way."""
        tree, tensors = trees.pack(output)
        targets = self._inputs.slots[slot]
        leaves: list[OutputLeaf] = []
        device = self._program.device()
        for index, tensor in enumerate(tensors):
            where = self._program.device_of(tensor)
            fits = (
                index < len(targets)
                and type(tensor) in (torch.Tensor, torch.nn.Parameter)
                and tensor.layout == torch.strided
                and where.partition(":")[0] == device
                and tensor.dtype == targets[index].dtype
                and tensor.shape == targets[index].shape
            )
            if fits:
                self._hand_over(tensor, targets[index], probe)
            dense = fits and tensor.stride() == targets[index].stride()
            shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
            leaves.append(OutputLeaf(type_name(tensor), dtype, shape, where, dense, fits))
        if tensors and tensors[0].device.type == self._platform.device and type(tensors[0]) is torch.Tensor:
            address = tensors[0].data_ptr() if leaves[0].delivered and tensors[0].nbytes <= _HELD_BYTES else 0
            if self._last_output is not None and address and self._last_output[0] == address:
                self._reused = True
            # While it is held, its memory cannot be given to the next one by chance.
            self._last_output = (address, output) if address else None
        return SlotOutput(tree, tuple(leaves))

    def _hand_over(self, tensor: torch.Tensor, target: torch.Tensor, probe: bool) -> None:
        if not probe or not tensor.numel():
            _copy(target, tensor)
            return
        places = _randint(tensor.numel(), (_PROBES,), generator=_probe_generator)
        here, there = places.to(tensor.device), places.to(target.device)
        first = _take(tensor, here)
        _copy(target, tensor)
        if not _equal(_bits(first), _bits(_take(target, there).to(first.device))):
            self._unsettled = True

    # -- whose work it is ----------------------------------------------------------------------------------------

    def watch(self, request: WatchCall, fds: list[int]) -> WatchedCall:
        """A watched call: whether the program's own code had an effect."""
        effects = modes.Effects(self._platform.device, self._program.synchronize)
        emulator = self._program.emulator
        self._inputs.refresh()
        arguments = self._inputs.sets[request.set]
        with self._program.phase("forward"), torch.no_grad():
            inputs = [*(value for _, value in held_tensors(self._program.module).values()), *trees.pack(arguments)[1]]
            effects.learn(inputs)
            self._platform.launched()
            if emulator is not None:
                emulator.begin_dataflow_trace(inputs)
            self._program.seed(request.seed)
            seen: list[bool] = []
            if self._program.step is not None and emulator is None:
                output, seen = self._watch_step(self._program.step, effects, arguments)
            else:
                with effects:
                    output = self._program.model(*arguments)
            mine = self._platform.launched()
            apart = emulator.end_dataflow_trace(trees.pack(output)[1]) if emulator is not None else ""
            effects.conclude(trees.pack(output)[1])
            self._program.stopwatch.restore()
        return WatchedCall(any(seen) or effects.seen, mine, apart, seen)

    @staticmethod
    def _watch_step(step: TrainingStep, effects: modes.Effects, arguments: list[Any]) -> tuple[Any, list[bool]]:
        """A watched call, forward and backward: whether the program's own code had an effect in each."""
        saved: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor.detach())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            with effects:
                made = step.forward(*arguments)
            effects.conclude(trees.pack(made.output)[1])
        seen = effects.seen
        effects.seen = False
        # What forward made is no work of backward's.
        effects.learn([*saved, *trees.pack(made.output)[1]])
        with effects:
            result = step.backward(made)
        effects.conclude(trees.pack(result[1:])[1])
        return result, [seen, effects.seen]

    def record(self, request: RecordCall, fds: list[int]) -> RecordedCall:
        """A recorded call: which operators and kernels ran, and for how long. What it gave is delivered."""
        self._inputs.refresh()
        arguments = self._inputs.sets[request.set]
        described: SlotOutput | None = None
        step = self._program.step if self._program.emulator is None else None
        with self._program.phase("forward"), torch.no_grad():
            self._program.seed(request.seed)
            if step is None:
                output, recorded = self._record_part(lambda: self._program.model(*arguments))
            else:
                made, first = self._record_part(lambda: step.forward(*arguments))
                output, then = self._record_part(lambda: step.backward(made))
                recorded = _joined(first, then)
            if self._inputs.slots:
                described = self._deliver(output, request.set, probe=False)
                self._program.synchronize()
            self._program.stopwatch.restore()
        return replace(recorded, output=described)

    def _record_part(self, call: Callable[[], Any]) -> tuple[Any, RecordedCall]:
        """What a call gives, and what ran in it."""
        outputs: list[Any] = []
        launched: list[Any] = []
        busy = took = 0
        if self._platform.records_kernels:
            scripted = kernels.scripted_functions(self._program.module) > self._scripted
            launched, operators, busy = kernels.record(
                lambda: outputs.append(call()), self._program.synchronize, scripted
            )
        else:
            operators, took = modes.record_operators(lambda: outputs.append(call()))
        ran, on_device = [Operator(*item) for item in operators], [ObservedKernel(*item) for item in launched]
        return outputs.pop(), RecordedCall(ran, took, None, on_device, busy)

    def measure_saved_memory(self, request: MeasureSavedMemory, fds: list[int]) -> SavedMemory:
        """How much memory a call holds between forward and backward."""
        step = self._program.step
        if step is None:
            return SavedMemory(0)
        self._inputs.refresh()
        arguments = self._inputs.sets[request.set]
        with self._program.phase("forward"), torch.no_grad():
            self._program.seed(request.seed)
            before = self._platform.allocated_bytes()
            if before is None:
                return SavedMemory(saved_bytes(step, arguments))
            made = step.forward(*arguments)
            self._program.synchronize()
            held = (self._platform.allocated_bytes() or 0) - before
            del made
            return SavedMemory(max(0, held))

    # -- calls nobody verified it for ------------------------------------------------------------------------------

    def call_with_changed_state(self, request: CallWithChangedState, fds: list[int]) -> ChangedStateResult:
        """A call with the module's tensors in another dtype or stride, its output delivered in the usual dtype."""
        self._inputs.refresh()
        arguments, targets = self._inputs.sets[0], self._inputs.slots[0]
        usual: contextlib.AbstractContextManager[list[torch.Tensor]] = contextlib.nullcontext([])
        change = misuse.change_tensors(self._program.module, request.change) if request.change != "usual" else usual
        with torch.no_grad(), change as tensors:
            if self._program.emulator is not None:
                self._program.emulator.mark_on_device(tensors)
            self._program.seed(request.seed)
            try:
                outputs = trees.pack(self._program.model(*arguments))[1]
                self._program.synchronize()
            except Exception as error:
                return ChangedStateResult(type(error).__name__, [])
            for output, target in zip(outputs, targets, strict=False):
                if output.shape == target.shape:
                    _copy(target, output)
            self._program.synchronize()
            self._program.stopwatch.restore()
            self._inputs.deliver()
        return ChangedStateResult("", self._program.layouts())

    def gradients(self, request: ComputeGradients, fds: list[int]) -> GradientsResult:
        """Gradients of the first set's arguments and of parameters, written to the judge's memory."""
        arena = Arena(fds[0], request.memory_bytes)
        self._inputs.refresh()
        held = held_tensors(self._program.module)

        def call(arguments: list[Any]) -> Any:
            self._program.seed(request.seed)
            return self._program.model(*arguments)

        try:
            parameters = [held[name][1] for name in request.names]
            results = gradients(call, self._inputs.sets[0], parameters, request.seed)
            self._program.synchronize()
        except Exception as error:
            return GradientsResult(type(error).__name__, [])
        there: list[bool] = []
        for spec, gradient in zip(request.specs, results or (), strict=False):
            place = arena.tensor(spec)
            there.append(gradient is not None and gradient.shape == place.shape)
            if gradient is not None and there[-1]:
                _copy(place, gradient.detach())
        return GradientsResult("", there)


def _joined(forward: RecordedCall, backward: RecordedCall) -> RecordedCall:
    """One call of its two parts."""
    return RecordedCall(
        operators=[*forward.operators, *backward.operators],
        call_ns=forward.call_ns + backward.call_ns,
        output=None,
        kernels=[*forward.kernels, *backward.kernels],
        device_ns=forward.device_ns + backward.device_ns,
        forward_operators=len(forward.operators),
        forward_kernels=len(forward.kernels),
        forward_ns=forward.call_ns or forward.device_ns,
    )


_probe_generator = torch.Generator()
_probe_generator.seed()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
