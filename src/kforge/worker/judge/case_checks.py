"""Checked calls: a candidate on the cases of a problem, each result held against the reference's."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

from kforge.platforms.base import Platform
from kforge.types import ErrorNorm, Outcome
from kforge.worker import trees
from kforge.worker.arena import Side, dtype_name
from kforge.worker.judge import distributions, explain
from kforge.worker.judge.baselines import Unsettled
from kforge.worker.judge.candidate_module import CandidateModule
from kforge.worker.judge.compare import Expected, OutputDifference, Tolerance, same_bits
from kforge.worker.judge.lane import InputSets, Lane
from kforge.worker.judge.problem_cases import Case, ProblemCases
from kforge.worker.judge.refusal import Refused, refuse_nonsense
from kforge.worker.judge.rounding_grants import compare_outputs
from kforge.worker.judge.runner_failures import refuse_findings
from kforge.worker.judge.runner_handle import RunnerHandle, RunnerLost
from kforge.worker.judge.special_values import allow_nan_anywhere
from kforge.worker.judge.structure import structure_difference
from kforge.worker.protocol.records import SlotOutput
from kforge.worker.wire import LAZY_VIEW


class _CarriesNan(Exception):
    """All that is wrong with a result is NaN in more places than the reference has."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__()
        self.refusal = refusal


class CaseChecks:
    """Calls a candidate's module on cases; Refused at the first result that is wrong."""

    def __init__(
        self,
        runner: RunnerHandle,
        module: CandidateModule,
        cases: ProblemCases,
        platform: Platform,
        tolerance: Tolerance,
        seconds: float,
        workload: str = "",
        compile_seconds: float = 0.0,
    ) -> None:
        """`seconds` is how long a request may take, the first call so many more in which the program may compile;
        `workload` is named in what is found.
        """
        self._runner = runner
        self._module = module
        self._cases = cases
        self._platform = platform
        self._tolerance = tolerance
        self._seconds = seconds
        self._compile_seconds = compile_seconds
        self._workload = workload
        self.errors: list[ErrorNorm] = []
        """Of each call: how far its worst output was off."""
        self.usual_layout = True
        """Whether every output lay in memory as outputs usually do."""
        self.carries_nan = False
        """Whether it was right but for NaN in more places than the reference has, and right without NaN."""
        self.close_calls = 0
        """Calls in an emulator's checked mode."""

    def check(self, case: Case, number: int) -> None:
        """Call the candidate on one case: once with fresh memory poisoned, and by chance once more without."""
        closely = self._platform.emulated and number == 0
        self._module.send_state(case.state, self._seconds)
        guarded: Side | None = None
        if not self._cases.device.has_own_memory and not self._platform.emulated:
            guarded = "start" if number % 2 else "end"
        with contextlib.closing(InputSets([case.arguments], self._cases.device, guarded=guarded)) as sets:
            try:
                self._check_calls(case, sets, closely)
                return
            except RunnerLost as error:
                if error.kind == "ended":
                    self._refuse_fault(sets)
                raise
            except _CarriesNan as carried:
                refusal = carried.refusal
        # Its NaN may hide what is wrong at other edges: they are checked without.
        without = self._cases.without_nan(case)
        if without is None:
            raise refusal
        self.check(without, number)
        self.carries_nan = True

    def _refuse_fault(self, sets: InputSets) -> None:
        """Refuse a candidate whose process was ended by an access to a guard around its inputs."""
        ending = self._runner.end()
        place = sets.place_of_fault(ending.fault) if ending.fault is not None else ""
        if place:
            refuse_findings(self._runner)
            what = f"it read or wrote memory {place}, and was killed by SIGSEGV during a checked call"
            raise Refused(Outcome.REJECTED, what + explain.printed_tail(ending), "out_of_bounds") from None

    def _check_calls(self, case: Case, sets: InputSets, closely: bool) -> None:
        seconds = self._seconds if self.errors else self._seconds + self._compile_seconds
        lane = Lane(self._runner, sets, self._cases.outputs, seconds)
        scarce = self._cases.device.is_scarce(self._cases.set_bytes)
        ways = [[True]] if scarce else [[True], [True, False], [False, True]]
        for poison in random.SystemRandom().choice(ways):
            block = lane.call([(0, 0, case.seed)], poison=poison, checked=closely, poison_heap=True)
            refuse_findings(self._runner)
            self._check_structure(block.outputs[0], case)
            self._compare(lane, case)
            self.close_calls += closely
            self._check_inputs(sets, case)
            if block.shared and not self._cases.shares_memory:
                what = "an output lies in memory of an input, a parameter or another output; it must have its own"
                raise Refused(Outcome.REJECTED, what, "output_type")
            if not lane.sample_is_settled(block):
                raise Unsettled
            for slot in lane.slots[0]:
                slot.zero_()
            self._cases.device.synchronize()

    def _check_structure(self, output: SlotOutput, case: Case) -> None:
        with refuse_nonsense():
            difference = structure_difference(case.expected.tree, output.tree)
        if difference:
            raise Refused(Outcome.MISMATCH, f"{difference} (distribution {case.distribution})")
        if len(output.leaves) != len(case.expected.outputs):
            raise Refused(
                Outcome.MISMATCH, f"{len(output.leaves)} tensors returned, {len(case.expected.outputs)} expected"
            )
        for number, (leaf, expected) in enumerate(zip(output.leaves, case.expected.outputs, strict=True)):
            name = self._cases.output_names[number]
            self.usual_layout = self.usual_layout and leaf.usual_layout
            if leaf.kind == LAZY_VIEW and not self._cases.lazy_output:
                raise Refused(Outcome.REJECTED, f"{name} is a view that leaves work to its reader", "output_type")
            if leaf.kind not in ("Tensor", "Parameter", LAZY_VIEW):
                raise Refused(Outcome.REJECTED, f"{name} is a {leaf.kind}, a subclass of torch.Tensor", "output_type")
            if leaf.shape != tuple(expected.shape):
                raise Refused(Outcome.MISMATCH, f"{name} has shape {leaf.shape}, expected {tuple(expected.shape)}")
            if leaf.dtype != dtype_name(expected.dtype):
                raise Refused(Outcome.MISMATCH, f"{name} has dtype {leaf.dtype}, expected {dtype_name(expected.dtype)}")
            wanted = self._platform.hardware().device if self._platform.emulated else self._platform.device
            if not leaf.device.startswith(wanted):
                raise Refused(Outcome.MISMATCH, f"{name} is on device {leaf.device}, expected {wanted}")
            if not leaf.delivered:
                raise Refused(Outcome.MISMATCH, f"{name} could not be read (layout or storage is not an ordinary one)")

    def _compare(self, lane: Lane, case: Case) -> None:
        norms = []
        for difference in self._differences(lane, case, case.expected):
            norms.append(
                ErrorNorm(case.distribution, difference.norm, difference.norm_limit, difference.worst, self._workload)
            )
            if difference.message:
                where = f"inputs: {self._describe_distribution(case)}"
                if case.state is not self._cases.initial_state and self._module.matches:
                    where += "; parameters: re-randomised, so a kernel must read them on every call"
                refusal = Refused(Outcome.MISMATCH, f"{difference.message}\n  ({where})")
                if self._only_carries_nan(lane, case):
                    raise _CarriesNan(refusal)
                self.errors.append(norms[-1])
                raise refusal
        worst = max(norms, key=lambda item: item.norm, default=self._no_error(case))
        self.errors.append(worst)

    def _only_carries_nan(self, lane: Lane, case: Case) -> bool:
        """Whether all that is wrong is NaN beside the reference's own, as Strassen's algorithm carries it in a product
        of matrices."""
        if case.distribution != distributions.EXTREMES or not self._cases.edges_multiply:
            return False
        leaves = tuple(map(allow_nan_anywhere, case.expected.leaves))
        differences = self._differences(lane, case, replace(case.expected, leaves=leaves))
        return not any(difference.message for difference in differences)

    def _differences(self, lane: Lane, case: Case, expected: Expected) -> list[OutputDifference]:
        """What a call gave, held against what is expected."""
        outputs, arguments = lane.slots[0], case.arguments
        return compare_outputs(self._cases, expected, arguments, case.state, case.seed, outputs, self._tolerance)

    def _describe_distribution(self, case: Case) -> str:
        if case.distribution != distributions.EXTREMES:
            return _DISTRIBUTION_DESCRIPTIONS[case.distribution]
        return self._cases.extremes[0].description()

    def _check_inputs(self, sets: InputSets, case: Case) -> None:
        for number, (seen, given) in enumerate(zip(sets.tensors[0], trees.pack(case.arguments)[1], strict=True)):
            if not same_bits(seen, given):
                raise Refused(Outcome.REJECTED, f"forward changed its input {number} in place", "input_modified")
        place = sets.place_written()
        if place:
            raise Refused(Outcome.REJECTED, f"it wrote {place}", "out_of_bounds")

    def _no_error(self, case: Case) -> ErrorNorm:
        return ErrorNorm(case.distribution, 0.0, 0.0, 0.0, self._workload)


_DISTRIBUTION_DESCRIPTIONS = {
    "natural": "as the problem gives them",
    "scaled": "the problem's, times 3",
    "small": "the problem's, times 0.01",
    "negated": "the problem's, negated",
    "shifted": "the problem's, plus 0.5",
}
