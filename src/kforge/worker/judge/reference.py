"""The problem, loaded: the reference module, its inputs and its state. Lives in the judge, never beside a candidate."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import linecache
import sys
import threading
import time
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.errors import ProblemError
from kforge.types import Problem
from kforge.visible_text import visible
from kforge.worker import live_problem, trees
from kforge.worker.arena import named_dtype
from kforge.worker.floating_dtype import cast_module, cast_tensor
from kforge.worker.gradients import gradients
from kforge.worker.held_tensors import load_whole_state, whole_state
from kforge.worker.judge.device import Device
from kforge.worker.judge.rounding_noise import RoundingNoise
from kforge.worker.matrix_precision import allow_tf32
from kforge.worker.training_step import TrainingStep

State = dict[str, torch.Tensor]
_seeding = threading.RLock()
"""Held from the seeding of torch's generators, which all threads share, until what was seeded has been drawn."""
_MODULE = "kforge_problem_"
"""How the names of modules begin that are made of problems' texts."""
_RUNNING = ("running_mean", "running_var")
_NEGATIVE_SHARE = 0.125
_SHORT_DTYPES = (torch.float16, torch.bfloat16)
_LARGE_SHARE, _LARGE_FACTOR = 1 / 128, 4.0
"""Elements of a short dtype that are drawn much larger than the others: floating numbers do not mind, integers with one
step for a whole row do.
"""
_NUDGE, _SHORT_NUDGE = 0.25, 3.0
"""By how much of a parameter's mean size its few elements move; in a short dtype so far that rounding does not hide it,
nor a bias beside small inputs.
"""
_MOST_CALLS, _SHORT_SECONDS = 50, 200e-6
_REDRAWN_AT_ONCE = 1 << 26
_STATE_SHARE = 16
"""Beyond this part of the device's memory, states are kept in the host's."""


class Reference:
    """Makes inputs, runs the reference in its own precision and in float64, and knows which state may change."""

    def __init__(self, problem: Problem, device: Device, init_seed: int = 0) -> None:
        """`init_seed` is what the module is constructed under; a live one is as it is."""
        self.problem = problem
        self.device = device
        self.source = problem.sized_source(device.platform.device_class)
        self._examples: list[Any] | None = None
        self._double: torch.nn.Module | None = None
        self._resident: tuple[State, State] | None = None
        self.keeps_signs = False
        """Whether what is nowhere negative must stay so."""
        self.keeps_buffers = False
        """Whether its constant buffers must stay as they are."""
        self._file = f"<problem {problem.name} {problem.id}>"
        self._dtype = named_dtype(problem.form.dtype) if problem.form.dtype else None
        self.backward = problem.form.backward
        """Whether a call is forward and backward; the output's gradients are then one more argument, the last."""
        self._differentiable: list[torch.Tensor | None] | None = None
        """The output's tensors that have a gradient, without their values; None for those that have none."""
        if problem.payload:
            self.init_arguments: list[Any] = []
            module, self._examples = live_problem.restore(problem)
            self._module = module.to(device.torch_device)
        else:
            self._namespace = self._execute()
            arguments = self._call("get_init_inputs")
            if not isinstance(arguments, (list, tuple)):
                kind = type(arguments).__name__
                raise ProblemError(f"get_init_inputs() returns a {kind}; it must return a list", path=problem.path)
            self.init_arguments = list(_map_tensors(list(arguments), self._cast))
            self._module = self._construct(init_seed)
        packed = trees.foreign_type(trees.pack(self.init_arguments)[0])
        if packed:
            raise ProblemError(
                f"get_init_inputs() returns a {packed}, which cannot be sent to a runner", path=problem.path
            )
        self.training = bool(self._module.training)

    # -- inputs and state ------------------------------------------------------------------------------------------

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of a call, drawn under a seed: forward's, and the output's gradients where those count."""
        arguments = self._forward_inputs(seed)
        return [*arguments, self._output_gradients(arguments, seed)] if self.backward else arguments

    def forward_arguments(self, arguments: list[Any]) -> list[Any]:
        """Those of a call's arguments that are forward's."""
        return arguments[:-1] if self.backward else arguments

    def _forward_inputs(self, seed: int) -> list[Any]:
        with _seeding:
            self._seed(seed)
            if self._examples is not None:
                return list(_map_tensors([_resample(value) for value in self._examples], self._to_device))
            with self.device.as_default():
                values = self._call("get_inputs")
        if not isinstance(values, (list, tuple)):
            raise ProblemError(
                f"get_inputs() returns a {type(values).__name__}; it must return a list of forward's arguments",
                path=self.problem.path,
            )
        tree, tensors = trees.pack(list(values))
        self.refuse_odd_tensors(tensors, "get_inputs()")
        foreign = trees.foreign_type(tree)
        if foreign:
            raise ProblemError(
                f"get_inputs() returns a {foreign}, which cannot be sent to a runner", path=self.problem.path
            )
        return list(_map_tensors(list(values), self._to_device))

    def _output_gradients(self, arguments: list[Any], seed: int) -> list[torch.Tensor | None]:
        """Gradients of the output, drawn under a seed: a tensor for each of its tensors, None where it has none."""
        if self._differentiable is None:
            self._differentiable = self._find_differentiable(arguments, seed)
        device = self.device.torch_device
        # Another number than the arguments are drawn with: no gradient is one of them again.
        generator = torch.Generator(device=device).manual_seed((seed * 6364136223846793005 + 1) % (1 << 62))
        return [
            None if like is None else torch.randn(like.shape, generator=generator, device=device).to(like.dtype)
            for like in self._differentiable
        ]

    def _find_differentiable(self, arguments: list[Any], seed: int) -> list[torch.Tensor | None]:
        try:
            with _seeding, torch.enable_grad():
                self._seed(seed)
                output = self._module(*_map_tensors(arguments, _as_leaf))
        except Exception as error:
            raise self.fault_in_forward(error) from error
        tensors = trees.pack(output)[1]
        found = [tensor.detach().to("meta") if _has_gradient(tensor) else None for tensor in tensors]
        if not any(tensor is not None for tensor in found):
            message = "no output of the reference has a gradient: the problem cannot be asked for with gradients"
            raise ProblemError(message, path=self.problem.path or self.problem.name)
        return found

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._cast(tensor.to(self.device.torch_device))

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._dtype is None else cast_tensor(tensor, self._dtype)

    def initial_state(self) -> State:
        """Parameters and buffers as the module was constructed.

        A program for a live module has no arguments to compute buffers from that are not persistent: they are part of
        what it is given.
        """
        state = self._module.state_dict()
        odd = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
        if odd:
            raise ProblemError(f"the module's state holds {odd[0]!r}, which is no tensor", path=self.problem.path)
        if self._examples is not None:
            state = whole_state(self._module)
        return {name: self._keep(value.detach().clone()) for name, value in state.items()}

    @functools.cached_property
    def state_bytes(self) -> int:
        """What the module's parameters and buffers take up."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())

    def _keep(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of a state where states are kept: on the device, unless they are a burden there."""
        fits = self.device.has_own_memory and self.state_bytes <= self.device.memory_bytes // _STATE_SHARE
        return value if fits else value.cpu()

    def randomise_state(self, state: State, seed: int) -> State:
        """The state drawn anew: no value, sum, extent or order of a parameter or running statistic stays what it was.

        Parameters take either sign, unless the reference cannot. Other floating buffers, which hold constants, keep
        their signs, zeros and infinities.
        """
        generator = self._generator(seed)
        movable, constant = self.movable_names(), self.constant_buffers()
        signed = set() if self.keeps_signs else set(self.trainable_names())
        moved = {name: _redraw(value, generator, name in signed) for name, value in state.items() if name in movable}
        moved |= {name: _stretch(value, generator) for name, value in state.items() if name in constant}
        return self._with_moved(state, moved)

    def nudge_state(self, state: State, seed: int) -> State:
        """The state with one element in 1024 of each parameter and running statistic moved, drawn at random."""
        generator = self._generator(seed)
        movable = self.movable_names()
        moved = {name: _nudge(value, generator) for name, value in state.items() if name in movable}
        return self._with_moved(state, moved)

    def _generator(self, seed: int) -> torch.Generator:
        """Random numbers for a state, drawn where the module is: millions of them take seconds on a processor."""
        return torch.Generator(self.device.torch_device).manual_seed(seed)

    def _with_moved(self, state: State, moved: State) -> State:
        """The state with those tensors in place of its own, tied ones alike."""
        tied = self._tied_names()
        kept = {name: self._keep(value) for name, value in moved.items()}
        return {name: kept.get(tied.get(name, name), value) for name, value in state.items()}

    def _tied_names(self) -> dict[str, str]:
        """Name -> the first name of the same tensor, for weights that are shared."""
        first: dict[int, str] = {}
        held = self._module.state_dict(keep_vars=True)
        return {name: first.setdefault(id(value), name) for name, value in held.items()}

    def movable_names(self) -> set[str]:
        """Names of floating parameters and running statistics: what a kernel must follow."""
        names = {name for name, _ in self._module.named_parameters()}
        names |= {name for name, _ in self._module.named_buffers() if name.rsplit(".", 1)[-1] in _RUNNING}
        held = self._module.state_dict()
        return {name for name in names if name in held and held[name].is_floating_point()}

    def constant_buffers(self) -> set[str]:
        """Names of floating buffers that are no running statistics, unless other values proved too much for it."""
        if self.keeps_buffers:
            return set()
        held = self._module.state_dict()
        names = {name for name, _ in self._module.named_buffers()} - self.movable_names()
        return {name for name in names if name in held and held[name].is_floating_point()}

    def trainable_names(self) -> list[str]:
        """Names of the module's floating parameters: what a gradient can be asked for."""
        named = dict(self._module.named_parameters())
        return sorted(name for name in self.movable_names() if name in named)

    @property
    def gradient_names(self) -> tuple[str, ...] | None:
        """Names of the parameters whose gradients are part of a call; None where a call is forward alone."""
        if not self.backward:
            return None
        named = self._module.named_parameters()
        return tuple(name for name, value in named if value.requires_grad and value.is_floating_point())

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor the module holds."""
        return [*self._module.parameters(), *self._module.buffers()]

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output in the problem's own precision."""
        load_whole_state(self._module, self._state_on_device(state))
        return self._forward(self._module, arguments, seed)

    def run_plainly(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output with attention in separate steps: fused, it treats infinities in ways of its own."""
        with sdpa_kernel(SDPBackend.MATH):
            return self.run(arguments, state, seed)

    def run_without_libraries(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output by torch's own code where it would otherwise ask cuDNN or oneDNN: by other algorithms."""
        with _seeding, _without_libraries():
            # Nobody else runs a reference meanwhile.
            return self.run(arguments, state, seed)

    def count_operators(self, arguments: list[Any], state: State, seed: int) -> Counter[str]:
        """The names of torch's operators in a call, without their namespace, and how often each is called."""
        seen = _OperatorCounts()
        with seen:
            self.run(arguments, state, seed)
        return seen.counts

    def run_in_tf32(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output with matrices multiplied in TF32, on a device that has it."""
        with _seeding:
            # Nobody else runs a reference meanwhile.
            allow_tf32(True)
            try:
                return self.run(arguments, state, seed)
            finally:
                allow_tf32(False)

    def run_with_noise(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output with arguments and the results of all operators up to a last place off."""
        noise = RoundingNoise(seed)
        changed = noise.add_to_all(arguments)
        with noise:
            return self.run(changed, state, seed)

    def run_moved(
        self, arguments: list[Any], state: State, seed: int, draw: int, sizes: tuple[float, float], double: bool
    ) -> Any:
        """The output with arguments and floating state moved at random by the first size, results of operators by the
        second, in float64 where `double`: the same way for the same draw, and the other way for negative sizes.
        """
        moved, rounded = sizes
        noise = RoundingNoise(draw, rounded)
        run = self.run_double if double else self.run
        given = _map_tensors(arguments, _to_double) if double else arguments
        movable = self.movable_names()
        values = {
            name: noise.add_to(value.double() if double else value, moved) if name in movable else value
            for name, value in state.items()
        }
        changed = noise.add_to_all(given, moved)
        self._resident = None
        with noise:
            return run(changed, values, seed)

    def _seed(self, seed: int) -> None:
        """Seed torch's generators of the processor and of the device: those of other devices take their time."""
        torch.default_generator.manual_seed(seed)
        if self.device.has_own_memory:
            kind = torch.get_device_module(self.device.torch_device)
            getattr(kind, "manual_seed_all", torch.manual_seed)(seed)

    def _state_on_device(self, state: State) -> State:
        """The state where the module is, kept for the calls that follow with the same one."""
        if not self.device.has_own_memory or all(value.device.type != "cpu" for value in state.values()):
            return state
        if self._resident is None or self._resident[0] is not state:
            self._resident = (state, {name: value.to(self.device.torch_device) for name, value in state.items()})
        return self._resident[1]

    def run_double(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output computed in float64; raises whatever the operators raise where they cannot."""
        double = self._double
        if double is None:
            double = self._double = copy.deepcopy(self._module).double()
        load_whole_state(double, self._state_on_device(state))
        return self._forward(double, _map_tensors(arguments, _to_double), seed)

    def forget_double(self) -> None:
        """Give up the module in float64 until it is asked for again."""
        self._double = None

    def run_in_other_mode(self, arguments: list[Any], state: State, seed: int) -> Any:
        """The output of the same module in training mode if it is in evaluation mode, and the other way round."""
        other = copy.deepcopy(self._module).train(not self.training)
        load_whole_state(other, self._state_on_device(state))
        return self._forward(other, arguments, seed)

    def gradients(self, arguments: list[Any], state: State, names: list[str], seed: int) -> list[torch.Tensor | None]:
        """Gradients of the floating arguments, then of the state's tensors of these names.

        Raises whatever torch raises where the reference has none.
        """
        module = copy.deepcopy(self._module)
        load_whole_state(module, self._state_on_device(state))
        held = module.state_dict(keep_vars=True)
        tensors = [held[name].requires_grad_() for name in names]

        def call(given: list[Any]) -> Any:
            self._seed(seed)
            return module(*given)

        with _seeding:
            return gradients(call, arguments, tensors, seed) or []

    def call_seconds(self, arguments: list[Any], state: State, seed: int) -> float:
        """How long a call of the reference takes here: the fastest of a few, of forward alone."""
        load_whole_state(self._module, self._state_on_device(state))
        best = float("inf")
        with _seeding, torch.no_grad():
            self._seed(seed)
            for turn in range(_MOST_CALLS):
                self.device.synchronize()
                began = time.perf_counter()
                self._call_module(self._module, arguments)
                self.device.synchronize()
                best = min(best, time.perf_counter() - began)
                # A short call is soon made again: others on the machine disturb some of them, hardly all.
                if best > 0.5 or (turn >= 5 and best > _SHORT_SECONDS):
                    break
        return best

    def launch_seconds(self, arguments: list[Any], state: State, seed: int) -> float:
        """How long the processor needs to launch a call on the device; 0 where there is no other device."""
        if not self.device.has_own_memory:
            return 0.0
        load_whole_state(self._module, self._state_on_device(state))
        spent = []
        with _seeding, torch.no_grad():
            self._seed(seed)
            for _ in range(6):
                self.device.synchronize()
                began = time.perf_counter()
                self._call_module(self._module, arguments)
                spent.append(time.perf_counter() - began)
        self.device.synchronize()
        return sorted(spent)[len(spent) // 2]

    def refuse_odd_tensors(self, tensors: list[torch.Tensor], where: str) -> None:
        """ProblemError for tensors that cannot be laid out in memory both sides share."""
        for tensor in tensors:
            odd = "" if tensor.layout == torch.strided else str(tensor.layout)
            odd = odd or ("quantized" if tensor.is_quantized else "")
            expected = tensor.device.type in ("cpu", self.device.torch_device.type)
            odd = odd or ("" if expected else f"on device {tensor.device}")
            odd = odd or (str(tensor.dtype) if "float8" in str(tensor.dtype) else "")
            if odd:
                message = f"{where} returns a tensor that is {odd}; only dense tensors can be judged"
                raise ProblemError(message, path=self.problem.path or self.problem.name)

    def _forward(self, module: torch.nn.Module, arguments: list[Any], seed: int) -> Any:
        with _seeding, torch.no_grad():
            self._seed(seed)
            return self._call_module(module, arguments)

    def _call_module(self, module: torch.nn.Module, arguments: list[Any]) -> Any:
        """A call as the problem is wanted: forward alone, or forward and backward."""
        names = self.gradient_names
        call = module if names is None else TrainingStep(module, module, names)
        return call(*_map_tensors(arguments, lambda tensor: tensor))

    # -- loading ---------------------------------------------------------------------------------------------------

    def _execute(self) -> types.ModuleType:
        # Lines of this text are shown in tracebacks, and inspect.getsource works on its classes.
        linecache.cache[self._file] = (len(self.source), None, self.source.splitlines(True), self._file)
        name = _MODULE + hashlib.sha256(self.source.encode()).hexdigest()[:12]
        module = types.ModuleType(name)
        module.__file__ = self.problem.path or self._file
        module.__dict__["print"] = _print_apart
        _mute_warnings()
        try:
            exec(compile(self.source, self._file, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            raise self._fault("running the file", error) from error
        return module

    def _call(self, name: str) -> Any:
        try:
            return getattr(self._namespace, name)()
        except (Exception, SystemExit) as error:
            raise self._fault(f"{name}()", error) from error

    def _construct(self, seed: int) -> torch.nn.Module:
        try:
            with _seeding:
                self._seed(seed)
                module = self._namespace.Model(*self.init_arguments)
        except (Exception, SystemExit) as error:
            raise self._fault("Model(*get_init_inputs())", error) from error
        if not isinstance(module, torch.nn.Module):
            raise ProblemError("class `Model` must derive from torch.nn.Module", path=self.problem.path)
        module = module.to(self.device.torch_device)
        return module if self._dtype is None else cast_module(module, self._dtype)

    def _fault(self, what: str, error: BaseException) -> ProblemError:
        if isinstance(error, torch.OutOfMemoryError):
            free = self.device.free_bytes() / (1 << 30)
            message = (
                f"{what} runs out of device memory ({free:.0f} GiB are free): give it smaller sizes for this device "
                "class, or use a GPU with more memory"
            )
            return ProblemError(message, path=self.problem.path or self.problem.name)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file]
        line = frames[-1].lineno if frames else None
        message = f"{what} raises {type(error).__name__}: {error}"
        return ProblemError(message, path=self.problem.path or self.problem.name, line=line)

    def fault_in_forward(self, error: BaseException) -> ProblemError:
        """The error that says the reference itself cannot run."""
        form = f" in {self.problem.form.dtype}" if self.problem.form.dtype else ""
        what = "a call of the reference, forward and backward," if self.backward else "the reference's forward"
        return self._fault(f"{what}{form}", error)


@contextlib.contextmanager
def _without_libraries() -> Iterator[None]:
    """Have torch use no library for convolutions and recurrent networks."""
    libraries: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.mkldnn)
    switches = [item for item in libraries if hasattr(item, "enabled")]
    before = [item.enabled for item in switches]
    try:
        for item in switches:
            item.enabled = False
        yield
    finally:
        for item, enabled in zip(switches, before, strict=True):
            item.enabled = enabled


class _OperatorCounts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def _nudge(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    place = generator.device
    value = value.to(place)
    chosen = torch.rand(value.shape, generator=generator, device=place) < 1 / 1024
    if not bool(chosen.any()) and value.numel():
        chosen.view(-1)[int(torch.randint(value.numel(), (1,), generator=generator, device=place))] = True
    factors = 1 + 0.5 * torch.rand(value.shape, generator=generator, device=place)
    distance = _SHORT_NUDGE if value.dtype in _SHORT_DTYPES else _NUDGE
    moved = value * factors.to(value.dtype) + value.abs().mean() * distance
    return torch.where(chosen, moved, value).to(value.dtype)


def _mute_warnings() -> None:
    """What problems' own lines warn of would be said by every process, among the results of others."""
    # A filter's module is a pattern, a name or None.
    if not any(getattr(where, "pattern", where) == _MODULE for _, _, _, where, _ in warnings.filters):
        warnings.filterwarnings("ignore", module=_MODULE)


def _print_apart(*values: object, sep: str | None = " ", end: str | None = "\n", **_: object) -> None:
    """Print for a problem: what it prints must not mix with results, nor steer the terminal they go to."""
    text = (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
    sys.stderr.write(visible(text))


def _resample(value: Any) -> Any:
    """Fresh values like an example: drawn from the example's own, so that ranges and indices stay valid."""
    if not isinstance(value, torch.Tensor) or value.numel() < 2:
        return value
    flat = value.detach().reshape(-1)
    return flat[torch.randint(flat.numel(), (flat.numel(),))].reshape(value.shape)


def _redraw(value: torch.Tensor, generator: torch.Generator, signed: bool) -> torch.Tensor:
    """New values of the same kind: ones become 0.5 to 1.5, zeros -0.5 to 0.5; random ones are permuted, each is
    stretched by a factor of its own, all by another, and shifted; of a short dtype some are much larger. What is
    nowhere negative gets some negative values where it may be `signed`, and none otherwise.
    """
    flat = value.detach().reshape(-1)
    if flat.numel() == 0:
        return value
    first, positive = float(flat[0]), not bool((flat < 0).any())
    alike = bool((flat == flat[0]).all()) or flat.numel() < 8
    stretch, shift = torch.rand(2, generator=generator, dtype=torch.float64, device=generator.device).tolist()
    spread = 0.0 if positive or alike else float(flat.float().std())
    offset = (0.1 + 0.2 * shift) * spread * (1 if shift < 0.5 else -1)
    drawn = []
    # Not all of a large one at once: what is drawn takes up many times as much.
    for part in torch.split(flat, _REDRAWN_AT_ONCE):
        here = part.to(generator.device).double()
        noise = torch.rand(here.shape, generator=generator, dtype=torch.float64, device=here.device) - 0.5
        if alike:
            here = here + noise * (abs(first) if first != 0 else 1.0)
        else:
            order = torch.randperm(here.numel(), generator=generator, device=here.device)
            here = here[order] * (1.0 + noise) * (0.75 + 0.75 * stretch) + offset
            if value.dtype in _SHORT_DTYPES:
                large = torch.rand(here.shape, generator=generator, device=here.device) < _LARGE_SHARE
                here *= torch.where(large, _LARGE_FACTOR, 1.0)
        if positive and signed:
            negative = torch.rand(here.shape, generator=generator, device=here.device) < _NEGATIVE_SHARE
            here *= torch.where(negative, -1.0, 1.0)
        drawn.append(here.to(value.dtype))
    return torch.cat(drawn).reshape(value.shape)


def _stretch(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with every element times a factor of its own, of 0.75 to 1.25."""
    place = generator.device
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=place) * 0.5 + 0.75
    return (value.to(place).double() * noise).to(value.dtype)


def _as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor


def _has_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.requires_grad


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _map_tensors(value: Any, change: Any) -> Any:
    """A copy of a structure with every tensor changed; containers are always new."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [_map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _map_tensors(item, change) for key, item in value.items()}
    return value
