"""A verified program in use: the program where it was verified, the reference everywhere else.

    arguments and state -> Guard -> BoundProgram          a call that was verified
                              \\--> reference or error     any other

Calls that somebody looks into (torch.compile, tracers, autograd without a verified backward) go through a torch
operator; all others go straight to the program, which saves the dispatcher's time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from .bound_program import BoundProgram, BoundPrograms, versions_of
from .call_counts import CallCounts
from .example_calls import count_of_examples, example_of, has_lengths_of
from .guard import Guard, Unlike, VerifiedCall, flatten, unflatten
from .program_file import ProgramFile, Unavailable
from .ready_call import ANOTHER, ReadyCalls, make_ready
from .reference_file import ReferenceFile

_MOST_SHAPES = 4096

Fallback = Any
"""A module whose class was changed (`substitution.py`)."""


class NotVerified(RuntimeError):
    """A call that the program was not verified for, where strict=True makes that an error."""


class ForgedProgram:
    """One program with its guard, its reference and its operator."""

    def __init__(
        self,
        name: str,
        verified: dict[str, Any],
        program: str,
        references: dict[str, ReferenceFile],
        home: Path | None = None,
    ) -> None:
        """`program` is a text; `home` is the folder it is from, if it is from one."""
        self.name = name
        self.verified = verified
        self.guard = Guard(verified)
        self.references = references
        self.counts = CallCounts(name)
        self.is_strict = False
        """Whether a call that was not verified is an error wherever nobody says otherwise."""
        self.operator: Callable[..., Any] | None = None
        """torch's operator, once it is registered."""
        self.takes_list = False
        """Whether the operator takes the module's tensors as a list."""
        self._file = ProgramFile(name, program, verified.get("built", []), home)
        self._bound = BoundPrograms(self._file, self.references, verified)
        self.ready = ReadyCalls()
        """Calls that need not be looked at closely again."""
        self._has_backward: bool = verified["backward"]
        self._output: list[Any] = verified["output"]

    def call(
        self,
        arguments: Any,
        state: Any,
        training: bool | None = None,
        strict: bool | None = None,
        fallback: Fallback | None = None,
    ) -> Any:
        """The result of a call; `fallback` is the module whose own forward runs where the program may not.

        Without one, that is the package's reference. `state` are the module's tensors in the reference's order.
        """
        if torch.compiler.is_compiling():
            return self._call_operator(arguments, list(state), training, strict, fallback)
        for ready in self.ready.by_state.get(tuple(map(id, state)), ()):
            output = ready(arguments, state, training)
            if output is not ANOTHER:
                return output
        return self._look(arguments, list(state), training, strict, fallback)

    def _look(
        self,
        arguments: Any,
        state: list[torch.Tensor],
        training: bool | None,
        strict: bool | None,
        fallback: Fallback | None,
    ) -> Any:
        """A call that is looked at closely, as the first of its kind is."""
        leaves: list[Any] = []
        try:
            flatten(self.guard.tree, list(arguments), leaves)
            self.guard.check_tensors(state)
        except Unlike as difference:
            return self._fall_back(str(difference), arguments, state, training, strict, fallback)
        if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
            reason = "a transform of torch.func or a forward-mode derivative is at work"
            return self._fall_back(reason, arguments, state, training, strict, fallback)
        if _is_looked_into(leaves, state):
            return self._call_operator(arguments, state, training, strict, fallback)
        try:
            call, fitted, where = self.guard.fit(leaves, state, training)
            followed = torch.is_grad_enabled() and any(_is_followed(item) for item in (*fitted, *state))
            if followed and not self._has_backward:
                return self._call_operator(arguments, state, training, strict, fallback)
            shapes = _shapes_of(call, fitted, followed)
            bound = self._bound.find(call, state, where, shapes)
            output = self._call(where, bound, unflatten(call.tree, list(fitted)), state, shapes)
        except (Unlike, Unavailable) as difference:
            return self._fall_back(str(difference), arguments, state, training, strict, fallback)
        if not followed:
            self._keep_ready(bound, call, (leaves, fitted), state, training, self._known_layouts(call))
        next(self.counts.program)
        if followed:
            _refuse_second_derivatives(self.name, output)
        return output

    def _keep_ready(
        self,
        bound: BoundProgram,
        call: VerifiedCall,
        arguments: tuple[list[Any], list[Any]],
        state: list[torch.Tensor],
        training: bool | None,
        layouts: list[Any] | None,
    ) -> None:
        """Have the next call like this one found at once. `arguments` are as they were given, and as they fitted.

        `layouts` are the strides of what comes out; a graph's node needs them.
        """
        given, fitted = arguments
        same = all(one is two for one, two in zip(fitted, given))  # noqa: B905
        if not (self.guard.is_flat and same):
            return
        ready = make_ready(bound, fitted, state, training, self.counts, bool(call.fixed or call.ties))
        if ready is not None:
            self.ready.add(state, ready, layouts)

    def _known_layouts(self, call: VerifiedCall) -> list[Any] | None:
        """The strides of what the reference gives in such a call; None where its lengths decide."""
        return None if call.ranges or not self.guard.is_exact else [item.stride for item in call.outputs]

    def _call(
        self, where: torch.device | None, bound: BoundProgram, arguments: Any, state: list[torch.Tensor], shapes: Any
    ) -> Any:
        """The program's result; Unavailable where a first call fails, as that of one does that compiles in it."""
        known, kind = shapes in bound.done, (str(where), shapes)
        compiling = contextlib.nullcontext() if kind in self._file.done else self._file.at_first_call()
        try:
            with compiling:
                output = _call_on(where, bound, arguments, state)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if known:
                raise
            if self._file.done:
                # It works, but not for such calls.
                raise Unavailable(self._file.explain(error)) from error
            raise self._file.fail(error) from error
        for done in (bound.done, self._file.done):
            if len(done) >= _MOST_SHAPES:
                done.clear()
        bound.done.add(shapes)
        self._file.done.add(kind)
        bound.versions = versions_of(state)
        return output

    def _fall_back(
        self,
        reason: str,
        arguments: Any,
        state: list[torch.Tensor],
        training: bool | None,
        strict: bool | None,
        fallback: Fallback | None,
    ) -> Any:
        self._refuse_if_strict(reason, strict)
        self.counts.fall_back(reason)
        if fallback is not None:
            return fallback._kforge_original.forward(fallback, *arguments)
        return self.run_reference(arguments, state, training)

    def _refuse_if_strict(self, reason: str, strict: bool | None) -> None:
        if self.is_strict if strict is None else strict:
            raise NotVerified(f"{self.name}: {reason}; the program was not verified for that, and strict=True")

    def run_own(self, module: Any, reason: str, strict: bool | None, arguments: Any, named: Any = None) -> Any:
        """A module's own forward, in a call that the program may not do."""
        self._refuse_if_strict(reason, strict)
        if not torch.compiler.is_compiling():
            self.counts.fall_back(reason)
        return module._kforge_original.forward(module, *arguments, **(named or {}))

    def run_reference(self, arguments: Any, state: list[torch.Tensor], training: bool | None = None) -> Any:
        """The package's own reference, with these tensors as its parameters and buffers."""
        file = self.references[self.guard.calls[0].reference]
        return file.run(arguments, self.guard.state_names, state, training)

    def _call_operator(
        self,
        arguments: Any,
        state: list[torch.Tensor],
        training: bool | None,
        strict: bool | None,
        fallback: Fallback | None,
    ) -> Any:
        """The same call as one node of a graph, or of autograd's.

        What can be told of it now decides whether it is: a graph holds the node, or the module's own operators.
        """
        if self.operator is None:
            raise RuntimeError(f"{self.name} is registered as no operator: it can be part of no graph")
        leaves: list[Any] = []
        reason = ""
        mode = self.guard.training
        if mode is not None and training is not None and training is not mode:
            reason = "the module is in the mode that was not verified"
        elif torch.is_autocast_enabled(self.guard.device):
            reason = "autocast is on"
        else:
            try:
                flatten(self.guard.tree, list(arguments), leaves)
            except Unlike:
                reason = "its arguments are other containers"
            if not reason and fallback is not None and not self.guard.has_shapes_of(leaves, state):
                reason = "it has other shapes, dtypes or numbers"
        if reason:
            self._refuse_if_strict(reason, strict)
            if fallback is not None:
                return fallback._kforge_original.forward(fallback, *arguments)
            return self.run_reference(arguments, state, training)
        strict = self.is_strict if strict is None else strict
        outputs = self.operator(*self.operator_arguments(leaves, state), strict=strict)
        return unflatten(self._output, list(outputs) if isinstance(outputs, (list, tuple)) else [outputs])

    def operator_arguments(self, leaves: list[Any], state: list[torch.Tensor]) -> list[Any]:
        """What the operator is called with."""
        return [*leaves, state] if self.takes_list else [*leaves, *state]

    def run_node(self, leaves: list[Any], state: list[torch.Tensor], strict: bool) -> list[torch.Tensor]:
        """What the operator does when it is run: the output's tensors, laid out as the reference lays them out."""
        training = self.guard.training
        for ready, layouts in self.ready.for_nodes.get(tuple(map(id, state)), ()):
            output = ANOTHER if layouts is None else ready(leaves, state, training)
            if layouts is not None and output is not ANOTHER:
                return [_laid_out(one, stride) for one, stride in zip(self._tensors(output), layouts)]  # noqa: B905
        try:
            call, fitted, where = self.guard.fit(leaves, state, training)
            shapes = _shapes_of(call, fitted, False)
            bound = self._bound.find(call, state, where, shapes)
            output = self._call(where, bound, unflatten(call.tree, list(fitted)), state, shapes)
        except (Unlike, Unavailable) as difference:
            arguments = unflatten(self.guard.tree, list(leaves))
            return self._tensors(self._fall_back(str(difference), arguments, state, None, strict, None))
        layouts = self._known_layouts(call)
        if layouts is None:
            layouts = [item.stride() for item in self.run_fake(leaves, state)]
        self._keep_ready(bound, call, (leaves, fitted), state, training, layouts)
        next(self.counts.program)
        return [_laid_out(one, stride) for one, stride in zip(self._tensors(output), layouts)]  # noqa: B905

    def run_fake(self, leaves: list[Any], state: list[torch.Tensor]) -> list[torch.Tensor]:
        """What comes out, without values: shapes, dtypes and strides, from tensors that have none or are real."""
        fakes = any(type(item).__name__ == "FakeTensor" for item in (*leaves, *state))
        if not fakes:
            leaves = [item.to("meta") if isinstance(item, torch.Tensor) else item for item in leaves]
            state = [item.to("meta") for item in state]
        arguments = unflatten(self.guard.tree, list(leaves))
        file = self.references[self.guard.calls[0].reference]
        return self._tensors(file.run(arguments, self.guard.state_names, state, self.guard.training))

    def run_gradients(
        self, leaves: list[Any], state: list[torch.Tensor], gradients: list[torch.Tensor], wanted: list[int]
    ) -> list[torch.Tensor]:
        """Gradients of what is wanted (an index among leaves and state), by way of a further forward pass.

        The pass is the program's where its gradients were verified, otherwise the reference's.
        """
        tensors = [*leaves, *state]
        with torch.enable_grad():
            for index in wanted:
                tensors[index] = tensors[index].detach().requires_grad_()
            own, held = tensors[: len(leaves)], tensors[len(leaves) :]
            outputs = self._tensors(self._run_forward(own, held))
            pairs = [(out, grad) for out, grad in zip(outputs, gradients) if out.requires_grad]  # noqa: B905
            found: Any = [None] * len(wanted)
            if pairs:
                sources = [tensors[index] for index in wanted]
                roots, values = [out for out, _ in pairs], [grad for _, grad in pairs]
                found = torch.autograd.grad(roots, sources, values, allow_unused=True)
        none = [torch.zeros_like(tensors[index]) for index in wanted]
        return [
            empty if gradient is None else _laid_out(gradient, empty.stride())
            for gradient, empty in zip(found, none)  # noqa: B905
        ]

    def _run_forward(self, leaves: list[Any], state: list[torch.Tensor]) -> Any:
        if self._has_backward:
            try:
                call, fitted, where = self.guard.fit(leaves, state, self.guard.training)
                shapes = _shapes_of(call, fitted, True)
                bound = self._bound.find(call, state, where, shapes)
                return self._call(where, bound, unflatten(call.tree, list(fitted)), state, shapes)
            except (Unlike, Unavailable):
                pass
        return self.run_reference(unflatten(self.guard.tree, list(leaves)), state, self.guard.training)

    def _tensors(self, output: Any) -> list[torch.Tensor]:
        leaves: list[Any] = []
        flatten(self._output, output, leaves)
        return leaves

    def warmup(self, device: str | torch.device | None = None) -> None:
        """Compile what has to be, by calls of each kind that was verified, with random numbers."""
        # The device that such a tensor is really on: of a GPU without a number, the current one.
        where = torch.empty(0, device=device if device is not None else self.guard.device).device
        for call in self.guard.calls:
            for pick in range(count_of_examples(call)):
                leaves, state = example_of(call, where, pick)
                with torch.no_grad():
                    self.run_node(leaves, state, True)

    def warmup_with(self, state: list[torch.Tensor], training: bool, module: Fallback) -> None:
        """The same with a module's own tensors, as its forward hands them over; NotVerified where they do not fit."""
        where = state[0].device if state else torch.empty(0, device=self.guard.device).device
        fits = [call for call in self.guard.calls if has_lengths_of(state, call)] or self.guard.calls[:1]
        for call in fits:
            for pick in range(count_of_examples(call)):
                arguments = unflatten(call.tree, example_of(call, where, pick)[0])
                with torch.no_grad():
                    self.call(arguments, state, training, True, module)


def _call_on(where: torch.device | None, bound: BoundProgram, arguments: Any, state: list[torch.Tensor]) -> Any:
    """The program's result, with its tensors' GPU as the current one."""
    if torch._C._len_torch_function_stack():
        # A default device: the program was verified with none.
        with torch.device("cpu"):
            return _call_there(where, bound, arguments, state)
    return _call_there(where, bound, arguments, state)


def _call_there(where: torch.device | None, bound: BoundProgram, arguments: Any, state: list[torch.Tensor]) -> Any:
    if where is None or where.type != "cuda" or where.index == torch.cuda.current_device():
        return bound(arguments, state)
    with torch.cuda.device(where):
        return bound(arguments, state)


def _shapes_of(call: VerifiedCall, leaves: list[Any], followed: bool) -> Any:
    """What a program may compile, or keep something, anew for."""
    return call.number, followed, *(tuple(item.shape) for item in leaves if isinstance(item, torch.Tensor))


def _is_followed(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.requires_grad


def _is_looked_into(leaves: list[Any], state: list[torch.Tensor]) -> bool:
    """Whether a tracer or a mode wants to see what the call does."""
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return any(type(item).__name__ in ("FakeTensor", "FunctionalTensor") for item in (*leaves, *state))


def _laid_out(tensor: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor with given strides; itself where it has them."""
    if stride is None or tensor.stride() == tuple(stride):
        return tensor
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _refuse_second_derivatives(name: str, output: Any) -> None:
    from torch.utils import _pytree as pytree

    def refuse(gradient: torch.Tensor) -> None:
        # Autograd takes note of a backward pass only where somebody wants to derive it once more.
        if torch.is_grad_enabled():
            raise RuntimeError(f"{name} was verified for first derivatives only: leave out create_graph")

    for leaf in pytree.tree_leaves(output):
        if _is_followed(leaf):
            leaf.register_hook(refuse)
