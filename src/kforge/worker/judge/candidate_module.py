"""A candidate's module in its runner: constructed as the reference's is, and its tensors matched to that one's."""

from __future__ import annotations

from kforge.types import Outcome
from kforge.worker.judge import domain, parameters
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.judge.reference import State
from kforge.worker.judge.refusal import Refused, refuse_nonsense
from kforge.worker.judge.runner_failures import refuse_findings, refuse_patches
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.judge.runner_requests import send_load, send_state
from kforge.worker.protocol.program import LoadProgram, UseModule
from kforge.worker.protocol.records import HeldTensor


class CandidateModule:
    """One module of a candidate's program. Refused if it cannot take the reference's place."""

    def __init__(self, runner: RunnerHandle, cases: ProblemCases, seconds: float, source: str, build: bytes) -> None:
        """`source` is empty for a further module of the program that the runner holds; `build` is what it built."""
        self._runner = runner
        self._cases = cases
        reference = cases.reference
        request = LoadProgram(
            source=source,
            class_name="ModelNew",
            watched=True,
            training=reference.training,
            dtype=cases.problem.form.dtype,
            gradients=reference.gradient_names,
            known=cases.tensor_shapes(),
        )
        loaded = send_load(runner, request, reference.init_arguments, cases.init_seed, seconds, build)
        refuse_patches(loaded.patched)
        refuse_findings(runner)
        with refuse_nonsense():
            parameters.check_held_tensors(loaded.state)
        self.layouts = domain.read_layouts(loaded.layouts)
        """Its parameters and buffers as it was loaded."""
        self.matches, lost = parameters.match(cases.initial_state, loaded.state)
        self._refuse_lost([name for name in lost if name in reference.movable_names()])
        self._refuse_missing_parameters(loaded.state)
        self.notes = [
            f"buffer {name} of the reference has no counterpart in the candidate" for name in lost if name[0] != "="
        ]

    def use(self, number: int) -> None:
        """Have the runner turn to this module, the so-many-th that it constructed."""
        self._runner.ask(UseModule(number), 30.0)

    def send_state(self, state: State, seconds: float) -> None:
        """Load a state of the reference's."""
        if self.matches:
            values = [(match.name, match.value(state)) for match in self.matches]
            send_state(self._runner, values, seconds, self._cases.device)

    def _refuse_lost(self, names: list[str]) -> None:
        """Refuse a module that cannot follow the reference's parameters."""
        if names:
            listed = ", ".join(f"`{name}` {tuple(self._cases.initial_state[name].shape)}" for name in names)
            raise Refused(
                Outcome.MISMATCH,
                f"the module does not hold the reference's {listed}: nothing in ModelNew has that name and shape, or "
                "was initialised with the same values. Register each under exactly this name, as an nn.Parameter or a "
                "buffer, so that new values can be loaded",
            )

    def _refuse_missing_parameters(self, held: list[HeldTensor]) -> None:
        """Refuse a module that cannot be trained in the reference's place: by its optimiser, from its checkpoints."""
        shapes = {item.name: item.shape for item in held if item.kind == "parameter"}
        for name in self._cases.reference.gradient_names or ():
            wanted = tuple(self._cases.initial_state[name].shape)
            if shapes.get(name) != wanted:
                raise Refused(
                    Outcome.MISMATCH,
                    f"gradients are asked for, and the module has no parameter `{name}` of shape {wanted}: hold each "
                    "of the reference's parameters as an nn.Parameter of the same name and shape, so that optimisers "
                    "and checkpoints find it",
                )
