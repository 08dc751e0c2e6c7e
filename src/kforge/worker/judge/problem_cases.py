"""What the judge knows of one problem before any candidate: its time, its soundness, and the cases to check."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kforge.errors import HarnessError, ProblemError
from kforge.types import Problem
from kforge.worker import trees
from kforge.worker.device_memory import DeviceMemoryFull
from kforge.worker.judge import audit, distributions
from kforge.worker.judge.compare import Expected, ExpectedLeaf, Tolerance, compare, distance, make_leaf
from kforge.worker.judge.device import Device
from kforge.worker.judge.in_pieces import Inseparable, run_in_pieces
from kforge.worker.judge.reference import Reference, State
from kforge.worker.judge.special_values import allow_other_places
from kforge.worker.memory_overlap import is_shared, overlaps_itself

_KEEP_BYTES, _KEEP_SHARE = 256 << 20, 24
_MOSTLY_FINITE = 0.5
_LONG_CALL = 0.01
_AHEAD_NS = 50_000
_NUDGED = 2
_MATRIX_WORK = ("mm", "mv", "linear", "conv", "dot", "attention", "gru", "lstm", "rnn", "fft")
"""Parts of names of operators that multiply matrices."""
_REACH = 8
"""How far an algorithm for a convolution may carry a NaN: what is computed together is at most so wide."""
_SURE_DRAWS = 3
_SAME_SEED_RUNS, _BEYOND_CHANCE = 2, 16.0
"""How often the reference is run under one seed, where another gives something else; and how much further than these
runs from each other that must be, to be of numbers that were drawn."""
_WHOLE_SHARE = 48
"""Beyond this part of the device's memory, float64 is computed in pieces."""


@dataclass(frozen=True)
class Case:
    """One checked call: what goes in, and what must come out."""

    distribution: str
    seed: int
    arguments: list[Any]
    state: State
    expected: Expected


class ProblemCases:
    """One problem under one master seed."""

    def __init__(self, problem: Problem, device: Device, seed: int, init_seed: int | None = None) -> None:
        """`init_seed` is for modules that are constructed as another's are."""
        self.problem = problem
        self.device = device
        self.seed = seed
        self.init_seed = self.derive("init", 0) if init_seed is None else init_seed
        self.reference = Reference(problem, device, self.init_seed)
        self.initial_state = self.reference.initial_state()
        self.timed_state = self.initial_state
        """Parameters of watched and timed calls: never the initial ones, which may be special."""
        self.unchecked: list[str] = []
        """What could not be checked for this problem."""
        self._errors: dict[str, list[tuple[float, float, float]]] = {}
        """Distribution -> per output: eager's own error norm, largest error and median relative error."""
        self._kept: dict[tuple[int, str], Case] = {}
        self._usable: list[str] = []
        """Distributions of which a case was made."""
        self.accepts_tf32: bool | None = None
        """Whether what eager gives with TF32 would be accepted of a candidate, as far as cases were made; None where
        the device or the problem has no use for it."""
        self._prepare()

    def derive(self, purpose: str, index: int) -> int:
        """A seed for a purpose, from the master seed."""
        text = f"{self.seed}/{purpose}/{index}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def _prepare(self) -> None:
        """Run one natural case: its time, its operators, and the audit."""
        seed = self.derive("case", 0)
        arguments = self.reference.inputs(seed)
        self.floating = any(tensor.is_floating_point() for tensor in trees.pack(arguments)[1])
        """Whether an argument holds floating values."""
        self.device.gained_bytes()
        try:
            first = self.reference.run(arguments, self.initial_state, seed)
            spent = self.reference.call_seconds(arguments, self.initial_state, seed)
            launching = self.reference.launch_seconds(arguments, self.initial_state, seed)
            other = self.reference.run(arguments, self.initial_state, seed + 1)
        except Exception as error:
            raise self.reference.fault_in_forward(error) from error
        self.gained_bytes = self.device.gained_bytes()
        """What a call takes of the device's memory at most, its outputs included."""
        self.call_seconds = spent
        self.ahead_ns = round(2e9 * launching + _AHEAD_NS) if launching else 0
        """How long both sides of a measurement are given to launch a call before the device starts."""
        tree, tensors = trees.pack(first)
        if trees.foreign_type(tree):
            raise self.reference.fault_in_forward(TypeError(f"it returns a {trees.foreign_type(tree)}"))
        self.reference.refuse_odd_tensors(tensors, "forward")
        self._operators = self._count_operators(arguments, seed)
        if "tf32" in self.device.platform.baselines:
            self.accepts_tf32 = self._multiplies_float32(arguments) or None
        self._try_state(arguments, seed, tensors)
        self._note_constants(arguments)
        self.stochastic = self._draws_numbers(arguments, seed, tensors, trees.pack(other)[1])
        if self.stochastic:
            self.unchecked.append("the reference draws random numbers: compared in its own precision, not float64")
        self.lazy_output = any(_is_lazy(tensor) for tensor in tensors)
        """Whether the reference itself returns expanded or pending views."""
        self.shares_memory = is_shared(tensors, trees.pack(arguments)[1] + self.reference.tensors())
        """Whether the reference itself returns memory of an argument, a parameter, a buffer or another output."""
        self.outputs = tuple(tensor.detach().to("meta") for tensor in tensors)
        """What a call returns: shapes and types, no values."""
        names = self.reference.gradient_names
        self.forward_count = len(trees.pack(first[0])[1]) if names is not None else len(tensors)
        """How many tensors of the output are forward's; those behind them are gradients."""
        self.output_names = _output_names(self.forward_count, len(tensors), names or ())
        """What each tensor of the output is called in messages."""
        choosing = any(not tensor.is_floating_point() and not tensor.is_complex() for tensor in tensors)
        if names is not None:
            # Which of several subgradients a program takes is its own choice.
            choosing = True
            self.unchecked.append("NaN, infinities, zeros and ties: which gradient is right there is not certain")
        self.extremes = distributions.levels_of_extremes(choosing, self._multiplies())
        """What is left to try of the edges of the operation, the one in use first."""
        self.set_bytes = _total_bytes(trees.pack(arguments)[1]) + _total_bytes(tensors)
        self.large = self.set_bytes > self.device.large_bytes
        """Whether two sets of inputs and outputs are already a burden here."""
        del first, other, tensors
        self._give_back()
        reasons = audit.audit(self.reference, arguments, self.initial_state, spent, seed)
        # Where nothing is timed, nothing is too small to be.
        self.degenerate = tuple(item for item in reasons if self.device.platform.can_time or not audit.is_of_time(item))

    def _draws_numbers(
        self, arguments: list[Any], seed: int, outputs: list[torch.Tensor], others: list[torch.Tensor]
    ) -> bool:
        """Whether outputs under two seeds differ by more than under one, where sums may be made in an order of chance.

        On a GPU some convolutions and scattered sums are, and float64 is as good a reference of them as of others.
        """
        apart = [0.0 if _are_same(*pair) else distance(*pair) for pair in zip(outputs, others, strict=True)]
        for _ in range(_SAME_SEED_RUNS):
            if not any(apart):
                return False
            again = trees.pack(self.reference.run(arguments, self.initial_state, seed))[1]
            by_chance = [distance(*pair) for pair in zip(outputs, again, strict=True)]
            del again
            apart = [0.0 if far <= _BEYOND_CHANCE * near else far for far, near in zip(apart, by_chance, strict=True)]
        return any(apart)

    def _note_constants(self, arguments: list[Any]) -> None:
        """Say which arguments are the same under every seed, and are given as they are."""
        one, two = arguments, self.reference.inputs(self.derive("case", 0) + 1)
        for number, (first, second) in enumerate(zip(one, two, strict=False)):
            tensors, others = trees.pack(first), trees.pack(second)
            moving = [tensor for tensor in tensors[1] if tensor.is_floating_point()]
            same = tensors[0] == others[0] and all(map(torch.equal, tensors[1], others[1]))
            if same and not moving:
                self._note_unchecked(f"argument {number} is the same under every seed: a program may take it for known")

    def _try_state(self, arguments: list[Any], seed: int, initially: list[torch.Tensor]) -> None:
        """Try how far the state may be moved: the reference decides, by what it gave with the initial one."""
        reference, shares = self.reference, [_finite_share(tensor) for tensor in initially]
        for signs, buffers in itertools.product((False, True), repeat=2):
            reference.keeps_signs, reference.keeps_buffers = signs, buffers
            self.timed_state = reference.randomise_state(self.initial_state, self.derive("timed state", 0))
            raised = ""
            try:
                moved = trees.pack(reference.run(arguments, self.timed_state, seed))[1]
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                raised = type(error).__name__
                continue
            if all(_finite_share(tensor) >= share for tensor, share in zip(moved, shares, strict=True)):
                break
        if raised:
            self.timed_state = self.initial_state
            self._note_unchecked(f"the reference raises {raised} on other parameters: timed with the initial ones")
        if reference.keeps_signs:
            self._note_unchecked("its parameters cannot take another sign: checked with that of the initial ones")
        if reference.keeps_buffers:
            self._note_unchecked("its buffers cannot hold other values: checked with the initial ones")

    @property
    def call_bytes(self) -> int:
        """What a call needs: its inputs, its outputs, and the module's parameters and buffers."""
        return self.set_bytes + self.reference.state_bytes

    def _give_back(self) -> None:
        """Return memory that is kept for later, where a call's is a good part of the device's and little is free."""
        self.device.give_back(max(self.call_bytes, self.gained_bytes))

    def give_back_all(self) -> None:
        """Return all memory that is kept for later, where a call's is a good part of the device's."""
        if self.device.is_scarce(self.reference.state_bytes):
            self.reference.forget_double()
        self.device.give_back_all(self.call_bytes)

    def tensor_shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of what the reference's module holds."""
        return tuple((name, tuple(value.shape)) for name, value in self.initial_state.items())

    def has_same_arguments(self, other: ProblemCases) -> bool:
        """Whether the reference's module is constructed with the same arguments as another's."""
        one, two = trees.pack(self.reference.init_arguments), trees.pack(other.reference.init_arguments)
        return one[0] == two[0] and all(map(_are_same, one[1], two[1]))

    def has_same_state(self, other: ProblemCases) -> bool:
        """Whether the reference's module holds tensors of the same names and shapes as another's."""
        return _shapes(self.initial_state) == _shapes(other.initial_state)

    @functools.cached_property
    def mode_matters(self) -> bool:
        """Whether the reference gives something else, or raises, in its other mode: training or evaluation."""
        seed = self.derive("case", 0)
        arguments = self.reference.inputs(seed)
        one = trees.pack(self.reference.run(arguments, self.initial_state, seed))[1]
        try:
            two = trees.pack(self.reference.run_in_other_mode(arguments, self.initial_state, seed))[1]
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return True
        return len(one) != len(two) or not all(map(_are_same, one, two))

    @contextlib.contextmanager
    def limit_threads(self) -> Iterator[None]:
        """Keep the judge's own worker threads out of the way: they would go on spinning into a runner's call.

        A reference that takes long is worth its threads; their spinning then no longer matters.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(threads if self.call_seconds > _LONG_CALL else 1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def cases_to_check(self, count: int) -> Iterator[Case]:
        """`count` cases, rotating over the distributions the problem can take; kept where they are small."""
        names = [name for name in self.problem.distributions if name != distributions.EXTREMES]
        index = 0
        while index < count and names:
            name = names[index % len(names)]
            case = self._kept.get((index, name)) or self._make_case(index, name)
            if case is None:
                names.remove(name)
                continue
            if self.keeps_cases(count):
                self._kept[index, name] = case
            yield case
            del case
            index += 1
        if not index:
            raise HarnessError(f"the reference of {self.problem.name} gives no usable output under any distribution")
        extreme = self._extreme_case(index)
        if extreme is not None:
            yield extreme

    def errors_under(self, distribution: str) -> list[tuple[float, float, float]]:
        """Per output: eager's own error norm, largest error and median relative error on such inputs."""
        return self._errors.get(distribution) or self._errors["natural"]

    def timed_distributions(self) -> tuple[str, ...]:
        """The distributions of timed inputs: those that checked calls have, but for the edges of the operation."""
        return tuple(name for name in self._usable if name != distributions.EXTREMES) or ("natural",)

    def apply_distribution(self, distribution: str, arguments: list[Any], seed: int) -> list[Any]:
        """The problem's own arguments under a distribution."""
        integers_too = not self.floating and not self.reference.movable_names()
        return distributions.apply(distribution, arguments, seed, integers_too)

    def edges(self) -> distributions.Extremes | None:
        """The edges of the operation that a checked call has reached; None where there was none."""
        return self.extremes[0] if distributions.EXTREMES in self._usable and self.extremes else None

    @property
    def edges_multiply(self) -> bool:
        """Whether the checked edges have NaN in products of matrices, which no convolution bounds to one entry."""
        edges = self.edges()
        return edges is not None and edges.special and edges.multiplying and not self._calls_of("conv")

    def without_nan(self, case: Case) -> Case | None:
        """The case with the problem's own values in place of NaN in its arguments; None where it has none."""
        tree, tensors = trees.pack(case.arguments)
        usual = trees.pack(self.reference.inputs(case.seed))[1]
        cleaned = [
            torch.where(torch.isnan(tensor), own, tensor) if tensor.is_floating_point() else tensor
            for tensor, own in zip(tensors, usual, strict=True)
        ]
        if not _holds_nan(tensors) or _holds_nan(cleaned):
            return None
        arguments = list(trees.unpack(tree, cleaned))
        with self.limit_threads():
            expected = self._expect(arguments, case.state, case.seed, extreme=True)
        return Case(case.distribution, case.seed, arguments, case.state, expected)

    def expect_timed(self, arguments: list[Any], seed: int, distribution: str) -> Expected:
        """What a timed call must give."""
        return self._expect(arguments, self.timed_state, seed, distribution == distributions.EXTREMES)

    def keeps_cases(self, count: int) -> bool:
        """Whether so many cases stay for the next candidate; otherwise each is made again."""
        apart = self.device.has_own_memory
        room, state = (
            (self.device.memory_bytes // _KEEP_SHARE, self.reference.state_bytes) if apart else (4 * _KEEP_BYTES, 0)
        )
        return 4 * count * (self.set_bytes + state) <= room

    def _extreme_case(self, index: int) -> Case | None:
        """The edges of the operation, as many of them as the reference takes; None where it takes none."""
        name = distributions.EXTREMES
        if name not in self.problem.distributions or not self.floating:
            return None
        kept = self._kept.get((index, name))
        if kept is not None:
            return kept
        while self.extremes:
            case = self._make_case(index, name)
            if case is not None:
                if self.keeps_cases(index):
                    self._kept[index, name] = case
                self._note_unchecked_special()
                return case
            self.extremes = self.extremes[1:]
        self._note_unchecked("extreme inputs: the reference raises on them, or gives hardly anything finite")
        return None

    def _note_unchecked_special(self) -> None:
        """Say which special values the checked edges leave out."""
        if self.reference.backward:
            return
        if not self.extremes[0].special:
            self._note_unchecked(
                "NaN and infinities: the reference gives hardly anything finite on them, or nothing sure"
            )
        elif self.extremes[0].multiplying:
            self._note_unchecked("infinities: what becomes of them in sums of products depends on the algorithm")

    def _make_case(self, index: int, name: str) -> Case | None:
        seed = self.derive("case", index)
        self._give_back()
        arguments = self.reference.inputs(seed)
        if name == distributions.EXTREMES:
            arguments = self.extremes[0].apply(arguments, self.derive("edges", index))
        else:
            arguments = self.apply_distribution(name, arguments, seed)
        state = self._state(index)
        try:
            with self.limit_threads():
                expected = self._expect(arguments, state, seed, name == distributions.EXTREMES)
                if name not in self._errors:
                    self._errors[name] = [(leaf.eager_norm, leaf.eager_worst, leaf.typical) for leaf in expected.leaves]
        except (ProblemError, torch.OutOfMemoryError, DeviceMemoryFull):
            raise
        except Exception as error:
            if name == "natural" and not index:
                raise self.reference.fault_in_forward(error) from error
            if name != distributions.EXTREMES:
                self._note_unchecked(f"distribution {name}: the reference raises {type(error).__name__} on it")
            return None
        if name != "natural" and not _is_mostly_finite(expected):
            if name != distributions.EXTREMES:
                self._note_unchecked(f"distribution {name}: the reference's output is mostly not finite on it")
            return None
        if name == distributions.EXTREMES and name not in self._usable and not self._is_sure_of_special(index, state):
            return None
        if name not in self._usable:
            self._usable.append(name)
        if self.accepts_tf32 and name != distributions.EXTREMES:
            self.accepts_tf32 = self._accepts_tf32(expected, arguments, state, seed)
        return Case(name, seed, arguments, state, expected)

    def _state(self, index: int) -> State:
        """The parameters of a case: the initial ones at first, then others; of the third, the second's but for a few
        elements, so that whoever looks at a part of them is wrong."""
        if not index:
            return self.initial_state
        if index == _NUDGED:
            return self.reference.nudge_state(self._state(index - 1), self.derive("nudge", index))
        return self.reference.randomise_state(self.initial_state, self.derive("state", index))

    def _count_operators(self, arguments: list[Any], seed: int) -> Counter[str]:
        """How often each operator is called, by its name; nothing where the reference cannot be watched."""
        try:
            return self.reference.count_operators(arguments, self.initial_state, seed)
        except torch.OutOfMemoryError:
            raise
        except Exception:
            return Counter()

    def _calls_of(self, *words: str) -> int:
        """How many calls there are of operators with one of these words in their names."""
        return sum(count for name, count in self._operators.items() if any(word in name for word in words))

    def _multiplies(self) -> bool:
        """Whether the reference multiplies matrices, or does something of the kind."""
        return self._calls_of(*_MATRIX_WORK) > 0

    def _multiplies_float32(self, arguments: list[Any]) -> bool:
        """Whether the reference multiplies matrices of float32, which is all that TF32 is for."""
        given = (*trees.pack(arguments)[1], *self.initial_state.values())
        return self._multiplies() and any(tensor.dtype == torch.float32 for tensor in given)

    def _accepts_tf32(self, expected: Expected, arguments: list[Any], state: State, seed: int) -> bool:
        outputs = trees.pack(self.reference.run_in_tf32(arguments, state, seed))[1]
        tolerance = Tolerance(self.problem.tolerances)
        wrong = any(
            compare(leaf, got, tolerance, "it").message for leaf, got in zip(expected.leaves, outputs, strict=True)
        )
        del outputs
        self._give_back()
        return not wrong

    def _is_sure_of_special(self, index: int, state: State) -> bool:
        """Whether attention, fused and in steps, leaves no doubt where NaN belongs, whatever is drawn."""
        if not self.extremes[0].special or not self._calls_of("attention"):
            return True
        for draw in range(_SURE_DRAWS):
            seed = self.derive(f"sure {draw}", index)
            arguments = self.extremes[0].apply(self.reference.inputs(seed), seed)
            fused = trees.pack(self.reference.run(arguments, state, seed))[1]
            plain = trees.pack(self.reference.run_plainly(arguments, state, seed))[1]
            if not all(map(torch.equal, map(torch.isfinite, fused), map(torch.isfinite, plain))):
                return False
        return True

    def _allow_other_places(
        self, leaves: tuple[ExpectedLeaf, ...], arguments: list[Any], state: State, seed: int
    ) -> tuple[ExpectedLeaf, ...]:
        """The leaves of a result with NaN in it, with where else an honest algorithm may put that."""
        if not self._multiplies() or all(leaf.finite for leaf in leaves):
            return leaves
        others: list[list[torch.Tensor]] = [[] for _ in leaves]
        try:
            outputs = trees.pack(self.reference.run_without_libraries(arguments, state, seed))[1]
            others = [[tensor.detach().clone()] for tensor in outputs]
        except Exception:
            # Torch's own code may lack the operator, or take more memory than there is.
            self._give_back()
        reach = _REACH * self._calls_of("conv")
        return tuple(allow_other_places(leaf, other, reach) for leaf, other in zip(leaves, others, strict=True))

    def _note_unchecked(self, reason: str) -> None:
        if reason not in self.unchecked:
            self.unchecked.append(reason)

    def _expect(self, arguments: list[Any], state: State, seed: int, extreme: bool) -> Expected:
        tree, eager = trees.pack(self.reference.run(arguments, state, seed))
        eager = [tensor.detach().clone() for tensor in eager]
        if _kinds(eager) != _kinds(self.outputs):
            raise ProblemError(
                "the shape of the output depends on the values of the input; such a problem cannot be judged",
                path=self.problem.path or self.problem.name,
            )
        exact: list[Any] = [None] * len(eager)
        if self.large:
            self._note_unchecked("too large for a float64 reference here: compared in its own precision")
        elif not self.stochastic:
            exact = self._exact_outputs(arguments, state, seed, eager)
        others: list[Any] = eager
        if not self.large and any(tensor is None for tensor in exact):
            others, exact = self._noisy_outputs(arguments, state, seed, eager), eager
        leaves = tuple(make_leaf(one, two, extreme) for one, two in zip(others, exact, strict=True))
        if extreme and self.extremes and self.extremes[0].special:
            leaves = self._allow_other_places(leaves, arguments, state, seed)
        self._give_back()
        return Expected(tree, tuple(eager), leaves)

    def _noisy_outputs(
        self, arguments: list[Any], state: State, seed: int, eager: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The outputs with more rounding than eager has: in place of float64, they show how far that can lead."""
        try:
            others = trees.pack(self.reference.run_with_noise(arguments, state, seed))[1]
        except Exception:
            return eager
        return [tensor.detach().clone() for tensor in others] if _kinds(others) == _kinds(eager) else eager

    def _exact_outputs(self, arguments: list[Any], state: State, seed: int, eager: list[torch.Tensor]) -> list[Any]:
        """The outputs in float64, whole or in pieces; None for each where neither can be had."""
        reason = ""
        if not self.device.has_own_memory or self.set_bytes <= self.device.memory_bytes // _WHOLE_SHARE:
            try:
                doubles = trees.pack(self.reference.run_double(arguments, state, seed))[1]
                return [tensor.detach().clone() for tensor in doubles]
            except torch.OutOfMemoryError:
                reason = "out of memory"
            except Exception as error:
                self._note_unchecked(f"no float64 reference ({type(error).__name__}): compared in its own precision")
                return [None] * len(eager)
        self._give_back()
        try:
            return run_in_pieces(
                lambda part: self.reference.run_double(part, state, seed),
                lambda part: self.reference.run(part, state, seed),
                arguments,
                eager,
                self.device.memory_bytes // (2 * _WHOLE_SHARE),
            )
        except Inseparable as error:
            reason = str(error)
        except Exception as error:
            reason = type(error).__name__
        self._note_unchecked(f"too large for a float64 reference here ({reason}): compared in its own precision")
        return [None] * len(eager)


def _output_names(outputs: int, count: int, parameters: tuple[str, ...]) -> tuple[str, ...]:
    names = [f"output {number}" for number in range(outputs)] if outputs > 1 else ["the output"] * outputs
    names += [f"the gradient of input {number}" for number in range(count - outputs - len(parameters))]
    return (*names, *(f"the gradient of parameter {name}" for name in parameters))


def _holds_nan(tensors: list[torch.Tensor]) -> bool:
    return any(bool(torch.isnan(tensor).any()) for tensor in tensors if tensor.is_floating_point())


def _are_same(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.shape != two.shape:
        return False
    equal = one == two
    if one.is_floating_point() or one.is_complex():
        equal = equal | (torch.isnan(one) & torch.isnan(two))
    return bool(equal.all())


def _is_lazy(tensor: torch.Tensor) -> bool:
    return overlaps_itself(tensor) or tensor.is_neg() or tensor.is_conj()


def _kinds(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _shapes(state: State) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def _is_mostly_finite(expected: Expected) -> bool:
    pairs = zip(expected.outputs, expected.leaves, strict=True)
    return all(leaf.finite or _finite_share(tensor) >= _MOSTLY_FINITE for tensor, leaf in pairs)


def _finite_share(tensor: torch.Tensor) -> float:
    """The share of elements that are finite; of integers, all are."""
    return int(torch.isfinite(tensor).count_nonzero()) / tensor.numel() if tensor.numel() else 1.0


def _total_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
