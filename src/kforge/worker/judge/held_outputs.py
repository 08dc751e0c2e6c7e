"""Verifies outputs of timed calls that both sides hold: rows drawn at random of every one, now and then one whole.

What the baseline gave on the same inputs is the measure. Where an output seems wrong, the call is looked at closely: in
full, against float64.
"""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from kforge.worker.arena import dtype_name
from kforge.worker.judge.against_eager import difference_from_exact
from kforge.worker.judge.compare import ExpectedLeaf, Tolerance, compare, make_leaf, same_bits
from kforge.worker.judge.held_lane import HeldBlock, HeldLane, Part, Parts
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.refusal import refuse_nonsense
from kforge.worker.judge.structure import structure_difference
from kforge.worker.judge.timed_inputs import TimedInputs

_ROWS = 8
_LONGEST_ROW = 8192
_SMALL_BYTES = 1 << 16
"""An output up to this size is read whole."""
_WHOLE_EVERY = 3
_AT_ONCE = 1 << 26
_dice = random.SystemRandom()


class WrongOutput(Exception):
    """A timed call's output is not what the reference gives."""


class InputsChanged(Exception):
    """A timed call wrote to its inputs."""


class OutputCheck:
    """Holds a candidate's outputs against the baseline's, while both are stopped."""

    def __init__(self, cases: ProblemCases, timed_inputs: TimedInputs, tolerance: Tolerance) -> None:
        self._cases = cases
        self._timed_inputs = timed_inputs
        self._tolerance = tolerance

    def choose(self, slots: range, every: bool) -> Parts:
        """Which elements to read of the next block, of either side; `every` asks for all of them."""
        whole = set(slots) if every else {_dice.choice(slots)} if not _dice.randrange(_WHOLE_EVERY) else set()
        return {
            (slot, number): self._parts(number, slot in whole, self._timed_inputs.edge(slot))
            for slot in slots
            for number in range(len(self._cases.outputs))
        }

    def __call__(
        self, candidate: HeldLane, ours: HeldBlock, baseline: HeldLane, theirs: HeldBlock, parts: Parts
    ) -> None:
        """Verify a block against the baseline's; these parts of both were read."""
        count = len(self._cases.outputs)
        for output in ours.outputs:
            if len(output.leaves) != count or not all(leaf.delivered for leaf in output.leaves):
                raise WrongOutput("a timed call returned something of another shape or type")
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
            with refuse_nonsense():
                difference = structure_difference(other.tree, mine.tree)
            if difference:
                raise WrongOutput(difference)
        slots = range(len(ours.outputs))
        for number in range(count):
            for group in self._group_slots(slots, number, parts):
                self._compare(candidate, ours, baseline, theirs, number, group, parts)
        # What was read where it lies was the result only if nothing has written there since.
        if not candidate.is_settled(ours):
            raise WrongOutput("an output still changed after the end of the calls")
        if candidate.has_changed_inputs(_dice.choice(slots)):
            raise InputsChanged

    def _parts(self, number: int, whole: bool, edge: int | None = None) -> list[Part]:
        """Which elements to read of an output: rows, so that each is held to its own scale.

        Where an entry of the inputs reaches an edge of the operation, a row of that entry is among them.
        """
        tensor = self._cases.outputs[number]
        size, row = tensor.numel(), min(tensor.shape[-1] if tensor.dim() else 1, _LONGEST_ROW)
        if whole or not tensor.is_contiguous() or size * tensor.element_size() <= _SMALL_BYTES or size <= _ROWS * row:
            return [(0, size)]
        parts = [(_dice.randrange(size // row) * row, row) for _ in range(_ROWS)]
        if edge is not None and edge < tensor.shape[0]:
            parts[0] = (edge * (size // tensor.shape[0]), row)
        return parts

    def _group_slots(self, slots: range, number: int, parts: Parts) -> list[list[int]]:
        """Groups of slots whose inputs are of one distribution, and of which the same number of elements was read."""
        groups: dict[tuple[str, int], list[int]] = {}
        for slot in slots:
            groups.setdefault((self._timed_inputs.distribution(slot), len(parts[slot, number])), []).append(slot)
        return list(groups.values())

    def _compare(
        self,
        candidate: HeldLane,
        ours: HeldBlock,
        baseline: HeldLane,
        theirs: HeldBlock,
        number: int,
        group: list[int],
        parts: Parts,
    ) -> None:
        got = _stack([candidate.read(ours, slot, number, parts[slot, number]) for slot in group])
        want = _stack([baseline.read(theirs, slot, number, parts[slot, number]) for slot in group])
        if self._is_surely_right(got, want):
            return
        leaf = self._expected_leaf(want, number, self._timed_inputs.distribution(group[0]))
        if compare(leaf, got, self._tolerance, self._cases.output_names[number]).message:
            for slot in group:
                self._look_closely(candidate, ours, slot)

    def _is_surely_right(self, got: torch.Tensor, want: torch.Tensor) -> bool:
        """Whether every element is within the floor of its own size, which is more than is asked for."""
        if torch.equal(got, want):
            return True
        if got.dtype not in (torch.float32, torch.float64):
            return False
        floor = self._tolerance.floor(dtype_name(got.dtype))
        if got.is_contiguous() and want.is_contiguous():
            pieces = zip(torch.split(got.reshape(-1), _AT_ONCE), torch.split(want.reshape(-1), _AT_ONCE), strict=True)
        else:
            pieces = zip((got,), (want,), strict=True)
        return all(bool(((one - two).abs_() <= two.abs().mul_(floor)).all()) for one, two in pieces)

    def _expected_leaf(self, output: torch.Tensor, number: int, distribution: str) -> ExpectedLeaf:
        """A leaf where the baseline stands in for float64, with eager's errors under the same distribution."""
        norm, worst, typical = self._cases.errors_under(distribution)[number]
        return replace(make_leaf(output, None), eager_norm=norm, eager_worst=worst, typical=typical)

    def _look_closely(self, candidate: HeldLane, block: HeldBlock, slot: int) -> None:
        """Verify one call in full, against the reference on the very inputs it had, which the judge makes again."""
        numbers = range(len(self._cases.outputs))
        candidate.take(block, {(slot, number): self._parts(number, True) for number in numbers})
        inputs = self._timed_inputs.content(slot)
        wrong = difference_from_exact(
            self._cases,
            self._timed_inputs.arguments(slot, inputs),
            self._timed_inputs.seeds()[slot] or 0,
            self._timed_inputs.distribution(slot),
            [candidate.output(block, slot, number) for number in numbers],
            self._tolerance,
        )
        if wrong:
            raise WrongOutput(wrong)
        if not all(map(same_bits, self._timed_inputs.sets().tensors[slot], inputs)):
            raise InputsChanged


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The tensors one above the other; of a single large one no copy is made."""
    return torch.stack(tensors) if len(tensors) > 1 else tensors[0].unsqueeze(0)
