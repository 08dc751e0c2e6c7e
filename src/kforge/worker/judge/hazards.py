"""What a correct program does in calls it was not verified for: raising is fine, a wrong result without a word is not.

Nothing here decides an outcome. What is found is said with the verdict: such a program may be handed over only behind a
guard (`forging/guarded_program.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from kforge.types import TensorLayout
from kforge.worker import trees
from kforge.worker.arena import Arena, ArenaLayout
from kforge.worker.judge.domain import read_layouts
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.parameters import Match
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost
from kforge.worker.protocol.calls import CallWithChangedState, ComputeGradients

Calling = Callable[[], contextlib.AbstractContextManager[None]]
"""What is entered for each call of a program."""

_CLAUSES = {
    "dtype": "a parameter or buffer has another dtype",
    "stride": "a parameter or buffer is not contiguous",
    "gradient": "a gradient is asked for",
}
_CRASHES = "{} (it crashes or hangs)"
_FAR_OFF = 1e-2
"""Half of bfloat16's floor: a misread number is far beyond it, another rounding of float32 far below."""
_MOST_BYTES = 256 << 20


class HazardTrial:
    """Calls a program outside of what it was verified for, in the runner that judged it; the runner may not survive.

    What the reference gives is found first, and needs the device; the program's calls do not need it for themselves.
    """

    def __init__(
        self, runner: RunnerHandle, cases: ProblemCases, matches: list[Match], seconds: float, calling: Calling
    ) -> None:
        """`calling` is entered for each of the program's calls."""
        self._calling = calling
        self._runner = runner
        self._cases = cases
        self._matches = matches
        self._seconds = seconds
        self._gradient_seed = cases.derive("misuse", 2)
        self._arguments: list[Any] = cases.reference.inputs(cases.derive("misuse", 0))
        self._gradients = None if cases.reference.backward else self._expected_gradients()
        self.layouts: list[TensorLayout] = []
        """The module's parameters and buffers after its calls."""
        self.is_alive = True
        """Whether the runner has survived so far."""

    def hazards(self) -> list[str]:
        """The calls, of those that were tried, in which the program is silently wrong, a clause each."""
        cases = self._cases
        with contextlib.closing(InputSets([self._arguments], cases.device)) as sets:
            lane = Lane(self._runner, sets, cases.outputs, self._seconds)
            hazards = self._try_changed_state(lane)
            return hazards + (self._try_gradients() if self.is_alive else [])

    def _try_changed_state(self, lane: Lane) -> list[str]:
        self._call_changed("usual")
        usual = [slot.clone() for slot in lane.slots[0]]
        hazards: list[str] = []
        for how in ("stride", "dtype") if self.layouts else ():
            for slot in lane.slots[0]:
                slot.zero_()
            self._cases.device.synchronize()
            try:
                wrong = self._call_changed(how) and not all_agree(usual, lane.slots[0])
            except RunnerLost:
                self.is_alive = False
                return [*hazards, _CRASHES.format(_CLAUSES[how])]
            hazards += [_CLAUSES[how]] if wrong else []
        return hazards

    def _call_changed(self, how: str) -> bool:
        """Call the program with its state changed: whether it gave a result at all, right or wrong."""
        try:
            with self._calling():
                answer = self._runner.ask(CallWithChangedState(how, self._cases.derive("misuse", 1)), self._seconds)
        except ProgramError:
            return False
        if answer.raised:
            return False
        if how == "usual":
            self.layouts = read_layouts(answer.layouts)
        return True

    def _expected_gradients(self) -> tuple[list[str], list[torch.Tensor]] | None:
        """The program's parameters with a gradient, and what it is, the inputs' before them; None where none is."""
        arguments = self._arguments
        names = self._cases.reference.trainable_names()
        try:
            gradients = self._cases.reference.gradients(arguments, self._cases.timed_state, names, self._gradient_seed)
        except Exception:
            return None
        floats = [tensor for tensor in trees.pack(arguments)[1] if tensor.is_floating_point()]
        values = dict(zip(names, gradients[len(floats) :], strict=False))
        zeros = {name: torch.zeros_like(self._cases.timed_state[name]) for name in names}
        state = {name: zeros[name] if value is None else value.cpu() for name, value in values.items()}
        matches = [match for match in self._matches if match.source in state]
        expected = [torch.zeros_like(one) if two is None else two for one, two in zip(floats, gradients, strict=False)]
        expected += [match.value(state) for match in matches]
        there = any(bool(tensor.count_nonzero()) for tensor in expected)
        return ([match.name for match in matches], expected) if there else None

    def _try_gradients(self) -> list[str]:
        """Try gradients: a clause where they are missing or wrong and the reference has them."""
        if self._gradients is None:
            return []
        try:
            return self._compare_gradients(*self._gradients)
        except RunnerLost:
            return [_CRASHES.format(_CLAUSES["gradient"])]

    def _compare_gradients(self, names: list[str], expected: list[torch.Tensor]) -> list[str]:
        layout = ArenaLayout()
        specs = [layout.place(tensor) for tensor in expected]
        arena = Arena.create(layout.size)
        try:
            request = ComputeGradients(tuple(names), tuple(specs), arena.size, self._gradient_seed)
            with self._calling():
                answer = self._runner.ask(request, self._seconds, (arena.fd,))
            if answer.raised:
                return []
            whole = len(answer.there) == len(expected) and all(
                is_there or not tensor.count_nonzero() for is_there, tensor in zip(answer.there, expected, strict=True)
            )
            right = whole and all_agree([tensor.cpu() for tensor in expected], [arena.tensor(spec) for spec in specs])
            return [] if right else [_CLAUSES["gradient"]]
        except ProgramError:
            return []
        finally:
            arena.close()


def can_be_tried(cases: ProblemCases) -> bool:
    """Whether there is room for a few more calls and their gradients."""
    return cases.set_bytes <= _MOST_BYTES and not cases.large


def all_agree(wanted: list[torch.Tensor], actual: list[torch.Tensor]) -> bool:
    """Whether tensors hold the same numbers as others, but for rounding; wherever either lie."""
    return all(_agrees(one, two.to(one.device)) for one, two in zip(wanted, actual, strict=True))


def _agrees(wanted: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers, but for rounding."""
    if not wanted.numel():
        return True
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return bool((wanted != actual).double().mean() <= _FAR_OFF)
    if wanted.is_complex():
        wanted, actual = torch.view_as_real(wanted.resolve_conj()), torch.view_as_real(actual.resolve_conj())
    finite = torch.isfinite(wanted)
    if not torch.equal(finite, torch.isfinite(actual)):
        return False
    zero = torch.zeros((), dtype=wanted.dtype, device=wanted.device)
    one, two = torch.where(finite, wanted, zero).double(), torch.where(finite, actual, zero).double()
    return bool(torch.linalg.vector_norm(one - two) <= _FAR_OFF * torch.linalg.vector_norm(one))
