"""Calls that were found to be verified ones, made ready: the next one like it is compared and run in a microsecond.

For each thread, each set of parameters and each kind of call there is one function, written out for its number of
tensors: loops and look-ups would take longer than the comparison itself.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from .bound_program import BoundProgram

try:
    # A comparison of tensors' properties in one native call; what torch.compile's own guards are made of.
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None  # type: ignore[assignment,misc]

_MOST_SETS = 256
_MOST_KINDS = 6

ANOTHER = object()
"""What such a function gives for a call that is not the one it is ready for."""

ReadyCall = Callable[[Any, Any, Any], Any]


class ReadyCalls(threading.local):
    """The calls that are ready in a thread."""

    def __init__(self) -> None:
        self.by_state: dict[tuple[int, ...], list[ReadyCall]] = {}
        """By the identities of the parameters and buffers; an entry goes when one of them does."""
        self.for_nodes: dict[tuple[int, ...], list[tuple[ReadyCall, list[Any] | None]]] = {}
        """The same, with the strides of what a graph's node gives; None where they are not known."""
        self._watched: dict[int, Any] = {}

    def add(self, state: list[torch.Tensor], ready: ReadyCall, layouts: list[Any] | None) -> None:
        """Keep a call for its parameters; the newest is tried first."""
        key = tuple(map(id, state))
        if key not in self.by_state and len(self.by_state) >= _MOST_SETS:
            for kept in (self.by_state, self.for_nodes, self._watched):
                kept.clear()
        self.by_state[key] = [ready, *self.by_state.get(key, [])[: _MOST_KINDS - 1]]
        self.for_nodes[key] = [(ready, layouts), *self.for_nodes.get(key, [])[: _MOST_KINDS - 1]]
        for tensor in state:
            if id(tensor) not in self._watched:
                forget = functools.partial(_forget, (self.by_state, self.for_nodes), self._watched, id(tensor))
                self._watched[id(tensor)] = weakref.ref(tensor, forget)


def _forget(kept: tuple[dict[tuple[int, ...], Any], ...], watched: dict[int, Any], identity: int, _: Any) -> None:
    """Drop what was kept for a tensor that is gone: another may get its identity."""
    watched.pop(identity, None)
    for by_state in kept:
        for key in [key for key in by_state if identity in key]:
            by_state.pop(key, None)


def make_ready(
    bound: BoundProgram,
    arguments: list[torch.Tensor],
    state: list[torch.Tensor],
    training: bool | None,
    count: Any,
    is_checked: bool,
) -> ReadyCall | None:
    """A function for calls like this one; None where this torch offers no such comparison, or it needs more than that.

    `is_checked` says that values are part of what was verified.

    The comparison includes what is switched on around the call (autocast, modes, transforms), but for what is asked
    here besides.
    """
    tensors = [*arguments, *state]
    if TensorGuards is None or not tensors or bound.turned or is_checked:
        return None
    sizes: Any = [list(tensor.shape) for tensor in tensors]
    strides: Any = [list(tensor.stride()) for tensor in tensors]
    try:
        guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    except Exception:
        # It is torch's own and may change; all calls can be looked at closely instead.
        return None
    where = tensors[0].device
    make = _compiled(
        len(arguments),
        len(state),
        tuple(number for _, _, number in bound.places),
        any(tensor.requires_grad for tensor in tensors),
        where.index if where.type == "cuda" else None,
        not any(tensor.is_inference() for tensor in state),
    )
    names = [(held, key) for held, key, _ in bound.places]
    return make(guards.check, training, bound, bound.forward, count, names, guards)


@functools.cache
def _compiled(
    arguments: int, state: int, places: tuple[int, ...], is_followed: bool, device: int | None, has_versions: bool
) -> Callable[..., ReadyCall]:
    """What makes such functions for a number of arguments, a number of tensors and where those go."""
    given = [f"a{number}" for number in range(arguments)]
    held = [f"s{number}" for number in range(state)]
    conditions = [
        # First what tells most calls apart, and costs nothing.
        "training is wanted",
        f"check({', '.join((*given, *held))})",
        f"not ({' | '.join(f'{name}.data_ptr()' for name in (*given, *held))}) & 15",
        "forward_ad._current_level < 0",
        "not dispatch_modes()",
        "not function_modes()",
        "default_dtype() is float32",
    ]
    conditions += ["not is_grad_enabled()"] if is_followed else []
    # What is captured in a CUDA graph is looked at closely, and held against the states of its tensors.
    conditions += [f"current_device() == {device}", "not is_capturing()"] if device is not None else []
    versions = f"({''.join(f'{name}._version, ' for name in held)})"
    numbers = range(len(places))
    lines = [
        "def make(check, wanted, bound, forward, count, names, guards):",
        *(f"    h{number}, k{number} = names[{number}]" for number in numbers),
        "    def call(arguments, state, training):",
        f"        if len(arguments) != {arguments}:",
        "            return ANOTHER",
        *([f"        {', '.join(given)}, = arguments"] if given else []),
        *([f"        {', '.join(held)}, = state"] if held else []),
        f"        if {' and '.join(conditions)}:",
        "            next(count.program)",
        *(f"            h{number}[k{number}] = s{place}" for number, place in enumerate(places)),
        "            try:",
        f"                return forward({', '.join(given)})",
        "            finally:",
        *([f"                bound.versions = {versions}"] if device is not None and has_versions else []),
        *(f"                h{number}[k{number}] = None" for number in numbers),
        "                pass",
        "        return ANOTHER",
        "    call.guards = guards",
        "    return call",
    ]
    names: dict[str, Any] = {
        "ANOTHER": ANOTHER,
        "forward_ad": forward_ad,
        "default_dtype": torch.get_default_dtype,
        "float32": torch.float32,
        "is_grad_enabled": torch.is_grad_enabled,
        "dispatch_modes": torch._C._len_torch_dispatch_stack,
        "function_modes": torch._C._len_torch_function_stack,
        # As torch.cuda has them, without a function of Python around; a tensor that is on the device was initialised.
        "current_device": getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device),
        "is_capturing": getattr(torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing),
    }
    exec(compile("\n".join(lines), f"<a ready call of {arguments} and {state} tensors>", "exec"), names)
    make: Callable[..., ReadyCall] = names["make"]
    return make
