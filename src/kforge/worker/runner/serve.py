"""The runner: loads one program and answers the judge until it is told to finish.

Everything it uses is captured before the program is imported. What it reports is evidence, not truth: the judge
checks the outputs in shared memory and holds its own clock beside the times claimed here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import random
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import torch

from kforge import registry
from kforge.worker import trees
from kforge.worker.arena import Arena, Spec, dtype_name, tensor_hash
from kforge.worker.device_memory import DeviceArena
from kforge.worker.gradients import gradients
from kforge.worker.held_tensors import held_tensors, module_tensors
from kforge.worker.memory_overlap import is_shared, overlaps_itself
from kforge.worker.runner import kernels, misuse, modes, probes, standalone, tamper, watch
from kforge.worker.runner.device_gate import DeviceGate
from kforge.worker.runner.exported_memory import ExportedMemory
from kforge.worker.runner.mapped_inputs import MappedInputs
from kforge.worker.runner.timed_calls import TimedCalls
from kforge.worker.wire import LAZY_VIEW, Channel, PeerError

_copy = torch.Tensor.copy_
_take = torch.take
_equal = torch.equal
_randint = torch.randint
_dice = random.SystemRandom()
_PROBES = 64
_MAX_TEXT = 200_000
_HELD_BYTES = 1 << 30
"""A result larger than this is not held to see whether its memory is handed out again."""


class ProgramFailed(Exception):
    """The program raised; `phase` says where."""

    def __init__(self, phase: str, error: BaseException, filename: str) -> None:
        super().__init__(str(error))
        self.phase = phase
        self.report = _describe_error(error, filename)


def serve(channel: Channel, platform_name: str, home: str) -> None:
    """Answer requests until told to finish or the judge is gone."""
    runner = _Runner(platform_name, home)
    channel.send({"ok": True})
    while True:
        try:
            request, fds = channel.receive()
        except PeerError:
            return
        try:
            reply = {"ok": True, **runner.answer(request, fds)}
        except ProgramFailed as failure:
            reply = {"ok": False, "phase": failure.phase, "error": failure.report}
        reply["findings"] = runner.findings()
        if not channel.untouched():
            reply["findings"].append({"rule": "protocol", "what": "it changed the judge's channel"})
        descriptors = runner.taken_descriptors()
        channel.send(reply, tuple(descriptors))
        for fd in descriptors:
            os.close(fd)
        if request["op"] == "finish":
            return


class _Runner:
    def __init__(self, platform_name: str, home: str) -> None:
        # Any: an emulated platform is asked for more than the others.
        self._platform: Any = registry.load("platforms", platform_name)
        self._platform.enter_runner()
        self._stopwatch = self._platform.stopwatch()
        self._synchronize = self._platform.synchronize
        self._seed = torch.default_generator.manual_seed if self._platform.device == "cpu" else torch.manual_seed
        self._home = home
        self._watch: watch.Watch | None = None
        self._snapshot: tamper.Snapshot | None = None
        self._unsettled = False
        self._unchecked = False
        self._file = os.path.join(home, "candidate.py")
        self._model: Any = None
        self._module: Any = None
        self._inputs = MappedInputs(self._platform.device, always_copied=self._platform.emulated)
        self._timed = TimedCalls(self._seed)
        self._gate: DeviceGate | None = None
        self._exported = ExportedMemory()
        self._descriptors: list[int] = []
        self._last_output: Any = None
        self._reused = False
        self._shared = False
        self._out_of_bounds = False
        self._probes = probes.Probes()
        self._scripted = kernels.scripted_functions()

    def answer(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        handler = getattr(self, f"_op_{request['op']}")
        result: dict[str, Any] = handler(request, fds)
        return result

    def taken_descriptors(self) -> list[int]:
        """Descriptors that go with the reply."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def findings(self) -> list[dict[str, str]]:
        found = list(self._watch.findings) if self._watch else []
        if self._unsettled:
            found.append({"rule": "unsettled_output", "what": "the output still changed after forward had returned"})
        if self._out_of_bounds:
            found.append({"rule": "out_of_bounds", "what": "it wrote outside of a tensor that torch had given it"})
        if self._unchecked:
            found.append({"rule": "introspection", "what": "it switched off the emulator's checked mode"})
        return found

    # -- loading -------------------------------------------------------------------------------------------------

    def _op_load(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Import the program and construct its module under a seed."""
        arena = Arena(fds[0], request["size"]) if request["size"] else None
        tensors = [arena.tensor(Spec.from_json(item)).clone() for item in request["specs"]] if arena else []
        arguments = trees.unpack(request["arguments"], tensors)
        if request.get("build"):
            standalone.unpack(self._home, fds[-1], request["build"])
        # torch's default is TF32 in convolutions and not in products; here it is one or the other, and said.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(request.get("tf32"))
        if request["watched"]:
            self._snapshot = tamper.Snapshot()
            self._watch = watch.Watch(self._home, kernels_only=self._platform.emulated)
            self._watch.install()
        namespace = self._import(request["source"])
        kind = getattr(namespace, request["class_name"], None)
        if not isinstance(kind, type):
            raise ProgramFailed("missing", NameError(request["class_name"]), self._file)
        with self._phase("init"), self._surroundings():
            torch.manual_seed(request["seed"])
            self._module = kind(*arguments)
            if not isinstance(self._module, torch.nn.Module):
                raise TypeError(f"{request['class_name']} is a {kind.__mro__[1].__name__}, not a torch.nn.Module")
        return self._ready(request)

    def _op_load_live(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A trusted, pickled module."""
        import cloudpickle

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(request.get("tf32"))
        with open(fds[0], "rb") as file:
            self._module, _inputs = cloudpickle.load(file)
        return self._ready(request)

    def _ready(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._phase("init"):
            if request["training"] is not None:
                self._module.train(request["training"])
            if self._is_emulated():
                with self._surroundings():
                    self._module = self._module.to(self._device())
            elif self._platform.device != "cpu":
                self._module = self._module.to(self._platform.device)
            self._model = self._module
            if request["compile"]:
                mode = request["compile"] if isinstance(request["compile"], str) else "default"
                self._model = torch.compile(self._module, mode=mode)
            if self._is_emulated():
                self._model = self._surrounded
            return {"state": self._describe_state(), "layouts": self._layouts(), "patched": self._patched()}

    def _import(self, source: str) -> Any:
        with open(self._file, "w", encoding="utf-8") as file:
            file.write(source)
        spec = importlib.util.spec_from_file_location("candidate", self._file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        with self._phase("import"), self._surroundings():
            spec.loader.exec_module(module)
        return module

    def _surroundings(self) -> contextlib.AbstractContextManager[Any]:
        """What a program's own code runs inside; the reference's is plain torch."""
        return self._platform.surroundings() if self._watch is not None else contextlib.nullcontext()

    def _surrounded(self, *arguments: Any) -> Any:
        self._platform.bring(trees.pack(arguments)[1])
        with self._platform.surroundings():
            return self._module(*arguments)

    def _is_emulated(self) -> bool:
        """Whether the module runs on an emulated device; the reference of an emulated platform does not."""
        return self._platform.emulated and self._watch is not None

    def _device(self) -> str:
        """The type of device that the module runs on, and outputs must be on."""
        return str(self._platform.hardware().device if self._is_emulated() else self._platform.device)

    def _where(self, tensor: torch.Tensor) -> str:
        return str(self._platform.where(tensor) if self._is_emulated() else tensor.device)

    def _patched(self) -> list[str]:
        return self._snapshot.changed()[:20] if self._snapshot is not None else []

    # -- state ---------------------------------------------------------------------------------------------------

    def _describe_state(self) -> list[list[Any]]:
        with torch.no_grad():
            return [
                [name, kind, dtype_name(value.dtype), list(value.shape), tensor_hash(value)]
                for name, (kind, value) in held_tensors(self._module).items()
            ]

    def _layouts(self) -> list[list[Any]]:
        return [
            [name, dtype_name(value.dtype), list(value.shape), list(value.stride())]
            for name, value in module_tensors(self._module)
            if value.layout == torch.strided
        ]

    def _op_state(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Load values by name, the way any user would: load_state_dict, strictly."""
        arena = Arena(fds[0], request["size"])
        fresh = {name: arena.tensor(Spec.from_json(spec)) for name, spec in request["values"]}
        with self._phase("load_state_dict"), torch.no_grad(), self._surroundings():
            held = held_tensors(self._module)
            whole = {name: fresh.get(name, value.detach()) for name, (_, value) in held.items() if name[0] != "="}
            self._module.load_state_dict(whole, strict=True)
            for name, value in fresh.items():
                if name[0] == "=":
                    _copy(held[name][1], value)
        arena.close()
        return {}

    # -- calls ---------------------------------------------------------------------------------------------------

    def _op_inputs(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map input sets and output slots. The tensors persist; the judge changes the bytes of the inputs."""
        self._stopwatch.ahead_ns = request["ahead_ns"]
        with self._phase("inputs"):
            self._inputs.map(request, fds)
            if request.get("words"):
                self._gate = DeviceGate(DeviceArena.attach(fds[1], request["words"], False))
        return {}

    def _op_slots(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Map slots for outputs that cannot be read where they lie."""
        with self._phase("inputs"):
            self._inputs.map_slots(request["slots"], fds[0], request["size"], shared=True)
        return {}

    def _op_export(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Hand the judge the memory that these addresses lie in, where it has not got it yet."""
        blocks, self._descriptors, more = self._exported.share(request["ranges"])
        return {"blocks": blocks, "more": more}

    def _op_forget(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Drop the mapped inputs, so that another arena can take their place."""
        self._inputs.forget()
        self._timed.forget()
        self._exported.forget()
        self._gate = None
        self._last_output = None
        return {}

    def _op_memory(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The most device memory held at once since this was last asked."""
        return {"peak": self._platform.peak_bytes()}

    def _op_release(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Give memory that is only kept for later back to the device."""
        self._timed.forget()
        self._exported.forget()
        gc.collect()
        if self._platform.device == "cuda":
            torch.cuda.empty_cache()
        return {}

    def _op_block(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Calls in a row, each timed on its own, each output delivered to its slot before the next call."""
        times: list[int] = []
        described: list[Any] = []
        which: list[int] = []
        calls = request["calls"]
        probed = _dice.randrange(len(calls))
        poison = modes.Poison("" if self._is_emulated() else self._platform.device) if request["poison"] else None
        mode = poison or contextlib.nullcontext()
        self._inputs.refresh()
        if self._platform.emulated:
            self._platform.set_checked(request["checked"])
        gc.disable()
        try:
            with self._phase("forward"), torch.no_grad(), mode:
                for number, (set_index, slot, seed) in enumerate(calls):
                    output, spent = self._call(set_index, seed)
                    times.append(spent)
                    description = self._deliver(output, slot, probe=number == probed)
                    if request["poison"]:
                        self._shared |= self._shares(output, set_index)
                    if not described or description != described[-1]:
                        described.append(description)
                    which.append(len(described) - 1)
                self._synchronize()
                self._stopwatch.restore()
                self._inputs.deliver()
        finally:
            gc.enable()
        self._out_of_bounds |= poison is not None and poison.crossed()
        if request["checked"] and self._platform.emulated and self._platform.unchecked_launches():
            self._unchecked = True
        return {
            "ns": times,
            "described": described,
            "which": which,
            "reused": self._reused,
            "shared": self._shared,
        }

    def _shares(self, output: Any, set_index: int) -> bool:
        """Whether an output lies in memory of another, of an input or of a parameter."""
        if self._is_emulated():
            return False
        given = trees.pack(self._inputs.sets[set_index])[1]
        return is_shared(trees.pack(output)[1], [*given, *self._module.parameters()])

    def _op_timed(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Calls in a row on the judge's clock, their outputs held where the judge can read them."""
        calls, sets = request["calls"], self._inputs.sets
        slots = self._inputs.slots if request["copies"] else None
        # Behind a gate nothing may be waited for: it opens when this has answered.
        turn = request.get("turn", 0)
        gate = self._gate.closed(turn) if turn and self._gate is not None else contextlib.nullcontext()
        gc.disable()
        try:
            with self._phase("forward"), torch.no_grad():
                self._timed.begin(request.get("first", True))
                with gate:
                    if request["idle"]:
                        self._timed.repeat(calls)
                    elif slots is not None:
                        self._timed.run_copied(self._model, sets, calls, slots)
                    else:
                        self._timed.run(self._model, sets, calls, request["rounds"])
                    # What is only computed when it is looked at is part of the call.
                    described = self._timed.described(_type_name, self._where)
                if not turn:
                    self._synchronize()
                    self._stopwatch.restore()
                return described
        finally:
            gc.enable()

    def _call(self, set_index: int, seed: int | None) -> tuple[Any, int]:
        arguments = self._inputs.sets[set_index]
        if seed is not None:
            self._seed(seed)
        output, spent = self._stopwatch.time(lambda: self._model(*arguments))
        return output, int(spent)

    def _untimed(self, set_index: int, seed: int | None) -> Any:
        """A call as a user makes it, with nothing around it, seen to its end."""
        if seed is not None:
            self._seed(seed)
        output = self._model(*self._inputs.sets[set_index])
        self._synchronize()
        self._stopwatch.restore()
        return output

    def _deliver(self, output: Any, slot: int, probe: bool) -> Any:
        """Copy an output that fits into its slot; describe it either way."""
        tree, tensors = trees.pack(output)
        targets = self._inputs.slots[slot]
        leaves = []
        device = self._device()
        for index, tensor in enumerate(tensors):
            where = self._where(tensor)
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
            leaves.append([_type_name(tensor), dtype_name(tensor.dtype), list(tensor.shape), where, dense, fits])
        if tensors and tensors[0].device.type == self._platform.device and type(tensors[0]) is torch.Tensor:
            address = tensors[0].data_ptr() if leaves[0][-1] and tensors[0].nbytes <= _HELD_BYTES else 0
            if self._last_output is not None and address and self._last_output[0] == address:
                self._reused = True
            # While it is held, its memory cannot be given to the next one by chance.
            self._last_output = (address, output) if address else None
        return [tree, leaves]

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

    def _op_observe(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A watched call: whether the program's own code had an effect."""
        effects = modes.Effects(self._platform.device, self._synchronize)
        self._inputs.refresh()
        arguments = self._inputs.sets[request["set"]]
        with self._phase("forward"), torch.no_grad():
            given = [*(value for _, value in held_tensors(self._module).values()), *trees.pack(arguments)[1]]
            effects.learn(given)
            self._platform.launched()
            if self._is_emulated():
                self._platform.follow(given)
            with effects:
                self._seed(request["seed"])
                output = self._model(*arguments)
            mine = self._platform.launched()
            apart = self._platform.followed(trees.pack(output)[1]) if self._is_emulated() else ""
            effects.conclude(trees.pack(output)[1])
            self._stopwatch.restore()
        return {"custom_effect": effects.seen, "launched": mine, "apart": apart}

    def _op_record(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A recorded call: which operators and kernels ran, and for how long. What it gave is delivered."""
        self._inputs.refresh()
        arguments = self._inputs.sets[request["set"]]
        outputs: list[Any] = []

        def call() -> None:
            self._seed(request["seed"])
            outputs.append(self._model(*arguments))

        launched: list[Any] = []
        busy = took = 0
        described: Any = None
        with self._phase("forward"), torch.no_grad():
            if self._platform.device == "cuda":
                scripted = kernels.scripted_functions(self._module) > self._scripted
                launched, operators, busy = kernels.record(call, self._synchronize, scripted)
            else:
                operators, took = modes.record_operators(call)
            if self._inputs.slots:
                described = self._deliver(outputs.pop(), request["set"], probe=False)
                self._synchronize()
            self._stopwatch.restore()
        return {
            "operators": operators,
            "call_ns": took,
            "described": described,
            "kernels": launched,
            "device_ns": busy,
        }

    def _op_misuse(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A call with the module's tensors in another dtype or stride, its output delivered in the usual dtype.

        "usual" changes nothing: the result that the others must agree with.
        """
        self._inputs.refresh()
        arguments, targets = self._inputs.sets[0], self._inputs.slots[0]
        how = request["how"]
        usual: contextlib.AbstractContextManager[list[torch.Tensor]] = contextlib.nullcontext([])
        change = misuse.changed(self._module, how) if how != "usual" else usual
        with torch.no_grad(), change as tensors:
            if self._is_emulated():
                self._platform.bring(tensors)
            self._seed(request["seed"])
            try:
                outputs = trees.pack(self._model(*arguments))[1]
                self._synchronize()
            except Exception as error:
                return {"raised": type(error).__name__}
            for output, target in zip(outputs, targets, strict=False):
                if output.shape == target.shape:
                    _copy(target, output)
            self._synchronize()
            self._stopwatch.restore()
            self._inputs.deliver()
        return {"raised": "", "layouts": self._layouts()}

    def _op_gradients(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Gradients of the first set's arguments and of parameters, written to the judge's memory."""
        arena = Arena(fds[0], request["size"])
        self._inputs.refresh()
        held = held_tensors(self._module)

        def call(arguments: list[Any]) -> Any:
            self._seed(request["seed"])
            return self._model(*arguments)

        try:
            parameters = [held[name][1] for name in request["names"]]
            found = gradients(call, self._inputs.sets[0], parameters, request["seed"])
            self._synchronize()
        except Exception as error:
            return {"raised": type(error).__name__}
        there = []
        for spec, gradient in zip(request["specs"], found or (), strict=False):
            place = arena.tensor(Spec.from_json(spec))
            there.append(gradient is not None and gradient.shape == place.shape)
            if gradient is not None and there[-1]:
                _copy(place, gradient.detach())
        return {"raised": "", "there": there}

    def _op_patches(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        return {"patched": self._patched()}

    def _op_prepare(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Let a probe get ready, before the program is imported."""
        with self._phase("probe"):
            return {"answer": self._probes.prepare(request["source"], self._home, request["request"])}

    def _op_look(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Let a probe look at the program."""
        sets = self._inputs.sets
        turns = itertools.cycle(range(len(sets))) if sets else iter(())
        self._inputs.refresh()
        subject = probes.Subject(lambda: self._untimed(next(turns), request["seed"]), self._module, sets, self._home)
        with self._phase("probe"), torch.no_grad():
            return {"answer": self._probes.look(request["source"], subject, request["request"])}

    def _op_alone(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Run a program in a process of its own, behind a tool; nothing of it is imported here."""
        with self._phase("alone"):
            self._inputs.refresh()
            return {"answer": standalone.run(self._home, request, fds, self._inputs.sets)}

    def _op_pack(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """What a program run alone has built, written to the judge's descriptor."""
        with self._phase("pack"):
            data = standalone.pack(self._home)
            with open(fds[0], "wb") as file:
                file.write(data)
        return {"size": len(data)}

    def _op_finish(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        return {}

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        try:
            yield
        except ProgramFailed:
            raise
        except BaseException as error:
            raise ProgramFailed(name, error, self._file) from None


_probe_generator = torch.Generator()
_probe_generator.seed()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _type_name(tensor: torch.Tensor) -> str:
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter):
        if tensor.layout == torch.strided and overlaps_itself(tensor):
            return LAZY_VIEW
        return LAZY_VIEW if tensor.is_neg() or tensor.is_conj() else kind.__name__
    return f"{kind.__module__}.{kind.__qualname__}"[:200]


def _describe_error(error: BaseException, filename: str) -> dict[str, Any]:
    """What was raised, where in the program, and any compiler output that came with it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    where = [f"line {frame.lineno}, in {frame.name}: {frame.line}" for frame in frames[-6:]]
    if isinstance(error, SyntaxError) and error.filename == filename:
        where = [f"line {error.lineno}: {(error.text or '').rstrip()}"]
    texts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(texts) < 20:
        try:
            texts.append(str(link))
        except Exception:
            texts.append(f"(its message cannot be printed: {type(link).__name__})")
        for name in ("stderr", "output"):
            extra = getattr(link, name, None)
            if isinstance(extra, (bytes, str)):
                texts.append(extra.decode(errors="replace") if isinstance(extra, bytes) else extra)
        link = link.__cause__ or link.__context__
    return {
        "type": type(error).__name__,
        "message": texts[0][:_MAX_TEXT],
        "where": where,
        "text": "\n".join(dict.fromkeys(texts))[:_MAX_TEXT],
    }
