"""The runner: loads one program and answers the judge until it is told to finish.

Everything it uses is captured before the program is imported. What it reports is evidence, not truth: the judge
checks the outputs in shared memory and holds its own clock beside the times claimed here.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from collections.abc import Callable
from typing import Any

import torch

from kforge.errors import PlatformFault
from kforge.worker.device_memory import DeviceArena
from kforge.worker.protocol.base import (
    PLATFORM_PHASE,
    Acknowledged,
    PeerFailure,
    PeerRequest,
    RunnerFinding,
    answer_to_wire,
    request_from_wire,
)
from kforge.worker.protocol.calls import (
    CallWithChangedState,
    ComputeGradients,
    ForgetInputs,
    MakeCheckedCalls,
    MakeTimedCalls,
    MapInputs,
    MapSlots,
    MeasurePeakMemory,
    MeasureSavedMemory,
    MemoryBlocks,
    PeakMemory,
    RecordCall,
    ReleaseMemory,
    ShareMemory,
    TimedOutputs,
    WatchCall,
)
from kforge.worker.protocol.compiler import CompilerTrial, TryCompiler
from kforge.worker.protocol.program import (
    FinishRunner,
    ListPatches,
    LoadPickled,
    LoadProgram,
    PackBuild,
    PrepareProbe,
    ProbeAnswer,
    RunProbe,
    RunStandalone,
    SetState,
    StandaloneAnswer,
    UseModule,
)
from kforge.worker.runner import probes, standalone
from kforge.worker.runner.checked_calls import CheckedCalls
from kforge.worker.runner.device_gate import DeviceGate
from kforge.worker.runner.exported_memory import ExportedMemory
from kforge.worker.runner.fault_record import FaultRecord
from kforge.worker.runner.loaded_program import LoadedProgram, type_name
from kforge.worker.runner.mapped_inputs import MappedInputs
from kforge.worker.runner.raised_error import ProgramFailed, describe_error
from kforge.worker.runner.timed_calls import TimedCalls
from kforge.worker.wire import Channel, PeerError


def serve(channel: Channel, platform_name: str, home: str, faults: FaultRecord) -> None:
    """Answer requests until told to finish or the judge is gone."""
    try:
        runner = _Runner(LoadedProgram(platform_name, home), faults)
    except PlatformFault as fault:
        channel.send(answer_to_wire(PeerFailure(PLATFORM_PHASE, describe_error(fault))))
        return
    channel.send(answer_to_wire(Acknowledged()))
    while True:
        try:
            message, fds = channel.receive()
        except PeerError:
            return
        request = request_from_wire(message)
        answer: Any
        try:
            answer = runner.answer(request, fds)
        except ProgramFailed as error:
            answer = error.failure
        findings = runner.findings()
        if not channel.is_untouched():
            findings.append(RunnerFinding("protocol", "it changed the judge's channel"))
        descriptors = runner.take_descriptors()
        channel.send(answer_to_wire(answer, findings), tuple(descriptors))
        for fd in descriptors:
            os.close(fd)
        if isinstance(request, FinishRunner):
            return


class _Runner:
    def __init__(self, program: LoadedProgram, faults: FaultRecord) -> None:
        self._program = program
        self._platform = program.platform
        self._inputs = MappedInputs(self._platform.device, faults, always_copied=self._platform.emulated)
        self._checked = CheckedCalls(program, self._inputs)
        self._timed = TimedCalls(program.seed)
        self._gate: DeviceGate | None = None
        self._exported = ExportedMemory()
        self._descriptors: list[int] = []
        self._probes = probes.Probes()
        self._handlers: dict[type[PeerRequest[Any]], Callable[[Any, list[int]], Any]] = {
            LoadProgram: program.load,
            LoadPickled: program.load_pickled,
            SetState: program.set_state,
            UseModule: program.use_module,
            ListPatches: program.list_patches,
            MapInputs: self._map_inputs,
            MapSlots: self._map_slots,
            ForgetInputs: self._forget_inputs,
            ReleaseMemory: self._release_memory,
            MeasurePeakMemory: self._measure_peak_memory,
            ShareMemory: self._share_memory,
            MakeCheckedCalls: self._checked.make,
            MakeTimedCalls: self._make_timed_calls,
            WatchCall: self._checked.watch,
            RecordCall: self._checked.record,
            MeasureSavedMemory: self._checked.measure_saved_memory,
            CallWithChangedState: self._checked.call_with_changed_state,
            ComputeGradients: self._checked.gradients,
            PrepareProbe: self._prepare_probe,
            RunProbe: self._run_probe,
            RunStandalone: self._run_standalone,
            TryCompiler: self._try_compiler,
            PackBuild: self._pack_build,
            FinishRunner: lambda request, fds: Acknowledged(),
        }

    def answer(self, request: PeerRequest[Any], fds: list[int]) -> Any:
        """The record that the request's class names."""
        return self._handlers[type(request)](request, fds)

    def take_descriptors(self) -> list[int]:
        """Descriptors that go with the answer."""
        descriptors, self._descriptors = self._descriptors, []
        return descriptors

    def findings(self) -> list[RunnerFinding]:
        watch = self._program.watch
        return [*(watch.findings if watch is not None else ()), *self._checked.findings()]

    # -- memory --------------------------------------------------------------------------------------------------

    def _map_inputs(self, request: MapInputs, fds: list[int]) -> Acknowledged:
        """Map input sets and output slots. The tensors persist; the judge changes the bytes of the inputs."""
        self._program.stopwatch.ahead_ns = request.ahead_ns
        with self._program.phase("inputs"):
            self._inputs.map(request, fds)
            if request.gate_bytes:
                self._gate = DeviceGate(DeviceArena.attach(fds[1], request.gate_bytes, False))
        return Acknowledged()

    def _map_slots(self, request: MapSlots, fds: list[int]) -> Acknowledged:
        """Map slots for outputs that cannot be read where they lie."""
        with self._program.phase("inputs"):
            self._inputs.map_slots(request.slots, fds[0], request.slots_bytes, on_device=True)
        return Acknowledged()

    def _share_memory(self, request: ShareMemory, fds: list[int]) -> MemoryBlocks:
        """Hand the judge the memory that these addresses lie in, where it has not got it yet."""
        ranges = list(zip(request.starts, request.stops, strict=True))
        blocks, self._descriptors, more = self._exported.share(ranges)
        return MemoryBlocks(blocks, more)

    def _forget_inputs(self, request: ForgetInputs, fds: list[int]) -> Acknowledged:
        """Drop the mapped inputs, so that another arena can take their place."""
        self._inputs.forget()
        self._timed.forget()
        self._exported.forget()
        self._checked.forget()
        self._gate = None
        return Acknowledged()

    def _measure_peak_memory(self, request: MeasurePeakMemory, fds: list[int]) -> PeakMemory:
        """The most device memory held at once since this was last asked."""
        return PeakMemory(self._platform.peak_bytes())

    def _release_memory(self, request: ReleaseMemory, fds: list[int]) -> Acknowledged:
        """Give memory that is only kept for later back to the device."""
        self._timed.forget()
        self._exported.forget()
        gc.collect()
        self._platform.empty_cache()
        return Acknowledged()

    # -- timed calls -----------------------------------------------------------------------------------------------

    def _make_timed_calls(self, request: MakeTimedCalls, fds: list[int]) -> TimedOutputs:
        """Calls in a row on the judge's clock, their outputs held where the judge can read them."""
        calls, sets = request.rows(), self._inputs.sets
        # Behind a gate nothing may be waited for: it opens when this has answered.
        turn = request.turn
        gate = self._gate.hold_closed(turn) if turn and self._gate is not None else contextlib.nullcontext()
        gc.disable()
        try:
            with self._program.phase("forward"), torch.no_grad():
                self._timed.begin(request.first)
                with gate:
                    if request.idle:
                        self._timed.repeat(calls)
                    elif request.copies:
                        self._timed.run_and_copy(self._program.model, sets, calls, self._inputs.slots)
                    else:
                        self._timed.run(self._program.model, sets, calls, request.rounds)
                    # What is only computed when it is looked at is part of the call.
                    described = self._timed.describe_outputs(type_name, self._program.device_of)
                if not turn:
                    self._program.synchronize()
                    self._program.stopwatch.restore()
                return described
        finally:
            gc.enable()

    # -- looking at the program ------------------------------------------------------------------------------------

    def _prepare_probe(self, request: PrepareProbe, fds: list[int]) -> Acknowledged:
        """Let a probe get ready, before the program is imported."""
        with self._program.phase("probe"):
            self._probes.prepare(request.source, self._program.home)
        return Acknowledged()

    def _run_probe(self, request: RunProbe, fds: list[int]) -> ProbeAnswer:
        """Let a probe look at the program."""
        sets = self._inputs.sets
        turns = itertools.cycle(range(len(sets))) if sets else iter(())
        self._inputs.refresh()
        subject = probes.Subject(
            lambda: self._call_untimed(next(turns), request.seed), self._program.module, sets, self._program.home
        )
        with self._program.phase("probe"), torch.no_grad():
            return ProbeAnswer(self._probes.look(request.source, subject, request.request))

    def _call_untimed(self, set_index: int, seed: int | None) -> Any:
        """A call as a user makes it, with nothing around it, seen to its end."""
        if seed is not None:
            self._program.seed(seed)
        output = self._program.model(*self._inputs.sets[set_index])
        self._program.synchronize()
        self._program.stopwatch.restore()
        return output

    def _run_standalone(self, request: RunStandalone, fds: list[int]) -> StandaloneAnswer:
        """Run a program in a process of its own, behind a tool; nothing of it is imported here."""
        with self._program.phase("alone"):
            self._inputs.refresh()
            return standalone.run(self._program.home, self._platform.name, request, fds, self._inputs.sets)

    def _try_compiler(self, request: TryCompiler, fds: list[int]) -> CompilerTrial:
        """Import a program for a GPU that is elsewhere, to see whether its kernels compile."""
        # It is for controllers, which alone have what it imports.
        from kforge.worker.runner.compiler_trial import try_compiler

        return try_compiler(self._program, request)

    def _pack_build(self, request: PackBuild, fds: list[int]) -> Acknowledged:
        """What a program has built in this runner's folder, written to the judge's memory."""
        watch = self._program.watch
        if watch is not None:
            # Whoever unpacks this would not know who wrote it.
            watch.findings += watch.written_libraries(self._program.home)
        with self._program.phase("pack"):
            data = standalone.pack(self._program.home, request.tuned)
            with open(fds[0], "wb") as file:
                file.write(data)
        return Acknowledged()
