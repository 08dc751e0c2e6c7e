"""Putting a program into a model in place of the modules that compute the same, and taking it out again.

A module stays the object it is: its parameters, buffers, hooks and name are untouched, and only its class becomes one
whose forward calls the program. Taking it out gives the class back.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .forged_program import ForgedProgram, example_of
from .guard import unflatten
from .structure import Structure, named_tensors, structure_of

_SIMPLE = (int, float, str, bool, type(None), torch.dtype)


class Substitution:
    """Finds the modules of a model that a program can stand for."""

    def __init__(self, program: ForgedProgram) -> None:
        self._program = program
        self._kinds: dict[Any, type] = {}
        self._wanted: dict[bool, list[tuple[Structure, tuple[Any, ...]]]] = {}

    def apply(self, model: torch.nn.Module, strict: bool | None = None) -> list[str]:
        """Have every module that computes what the program was verified for call it; the names of those modules."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"apply takes a torch.nn.Module, and was given a {type(model).__name__}")
        known: dict[Any, tuple[str, ...] | None] = {}
        changed: list[str] = []
        # Inner modules come first: a module around one that was found computes the same, and need not be changed.
        for name, module in reversed(list(model.named_modules())):
            if any(not name or inner.startswith(f"{name}.") for inner in changed):
                continue
            if is_substituted(module) or isinstance(module, torch.jit.ScriptModule) or _has_inner_hooks(module):
                continue
            names = self._match(module, known)
            if names is not None:
                module.__class__ = self._kind(type(module), names, strict)
                changed.append(name)
        return changed[::-1]

    def kind_for(self, module: torch.nn.Module, strict: bool | None = None) -> type | None:
        """The class that has a module call the program; None if it computes something else."""
        names = self._match(module, {})
        return None if names is None else self._kind(type(module), names, strict)

    def _match(self, module: torch.nn.Module, known: dict[Any, tuple[str, ...] | None]) -> tuple[str, ...] | None:
        """The module's tensors in the order of the reference's, if it computes the same."""
        if not self._has_like_tensors(module):
            return None
        key = _key(module)
        if key is not None and key in known:
            return known[key]
        found = self._compare(module)
        if key is not None:
            known[key] = found
        return found

    def _has_like_tensors(self, module: torch.nn.Module) -> bool:
        """Whether the module holds as many tensors of each shape as the reference does; a look without tracing."""
        own = sorted(tuple(value.shape) for value in named_tensors(module).values())
        return any(own == sorted(layout.shape for layout in call.state) for call in self._program.guard.calls)

    def _compare(self, module: torch.nn.Module) -> tuple[str, ...] | None:
        for wanted, arguments in self._structures(module.training):
            found = structure_of(module, arguments)
            if found is None or found.text != wanted.text:
                continue
            place = dict(zip(wanted.names, found.names))  # noqa: B905
            rest = [name for name in named_tensors(module) if name not in found.names]
            names: list[str] = []
            for name in self._program.guard.state_names:
                # What the graph does not use goes by its name.
                if name not in place and name not in rest:
                    return None
                names.append(place.get(name, name))
            own = named_tensors(module)
            same = all(tuple(own[name].shape) == layout.shape for name, layout in zip(names, self._state()))  # noqa: B905
            if same:
                return tuple(names)
        return None

    def _state(self) -> Any:
        return self._program.guard.calls[0].state

    def _structures(self, training: bool) -> list[tuple[Structure, tuple[Any, ...]]]:
        """The reference's structure in each verified call, with the arguments that it was found with."""
        if training not in self._wanted:
            found = []
            for call in self._program.guard.calls:
                leaves, _ = example_of(call, torch.device("meta"))
                arguments = tuple(unflatten(call.tree, leaves))
                module = self._program.references[call.reference].shell().train(training)
                structure = structure_of(module, arguments)
                if structure is not None:
                    found.append((structure, arguments))
            self._wanted[training] = found
        return self._wanted[training]

    def _kind(self, kind: type, names: tuple[str, ...], strict: bool | None) -> type:
        key = (kind, names, strict)
        if key not in self._kinds:
            self._kinds[key] = _make_kind(kind, self._program, names, strict)
        return self._kinds[key]


def is_substituted(module: torch.nn.Module) -> bool:
    """Whether a module calls a program, of whichever package."""
    return hasattr(type(module), "_kforge_original")


def revert(model: torch.nn.Module, program: ForgedProgram | None = None) -> list[str]:
    """Give every module its own class back; the names of those that had another. With a program, only where it is."""
    changed = []
    for name, module in model.named_modules():
        kind: Any = type(module)
        if is_substituted(module) and (program is None or kind._kforge_program is program):
            module.__class__ = kind._kforge_original
            changed.append(name)
    return changed


def _make_kind(kind: type, program: ForgedProgram, names: tuple[str, ...], strict: bool | None) -> type:
    """A subclass of a module's class, whose forward calls the program."""
    original: Any = kind.forward  # type: ignore[attr-defined]
    count = len(program.guard.tree[1])
    signature = inspect.signature(original)
    paths = [(tuple(name.split(".")[:-1]), name.split(".")[-1]) for name in names]

    def state_of(module: Any) -> list[torch.Tensor]:
        tensors = []
        for path, key in paths:
            part = module
            for step in path:
                part = part._modules[step]
            held = part._parameters.get(key)
            tensors.append(part._buffers[key] if held is None else held)
        return tensors

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != count:
            given = signature.bind(self, *arguments, **named)
            given.apply_defaults()
            if given.kwargs or len(given.args) != count + 1:
                return original(self, *arguments, **named)
            arguments = given.args[1:]
        return program(arguments, state_of(self), self.training, strict, lambda *given: original(self, *given))

    forward.__doc__ = f"What {kind.__name__} computes, by the program of {program.name} where that was verified."

    def reduce(self: Any, protocol: Any) -> Any:
        # A saved model is the original one: whoever loads it need not have the package.
        state = self.__dict__.copy()
        return _rebuild, (kind,), state

    return type(
        f"Forged{kind.__name__}",
        (kind,),
        {
            "forward": forward,
            "__reduce_ex__": reduce,
            "__deepcopy__": _deepcopy,
            "__module__": kind.__module__,
            "_kforge_original": kind,
            "_kforge_program": program,
        },
    )


def _has_inner_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody looks at a module inside of this one, which would no longer be called."""
    return any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        for part in module.modules()
        if part is not module
    )


def _rebuild(kind: Any) -> Any:
    return kind.__new__(kind)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    """A copy that calls the program too."""
    import copy

    made = self.__class__.__new__(self.__class__)
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def _key(module: torch.nn.Module) -> Any:
    """What tells apart modules that may compute something else; None where that cannot be told by looking."""
    parts: list[Any] = [type(module), module.training]
    for name, value in sorted(vars(module).items()):
        if name in ("_parameters", "_buffers", "_modules", "training"):
            continue
        if name.startswith("_") and not value and not isinstance(value, _SIMPLE):
            continue
        if all(isinstance(item, _SIMPLE) for item in (value if isinstance(value, tuple) else (value,))):
            parts.append((name, value))
        elif name.startswith("_") and name in vars(torch.nn.Module()):
            continue
        else:
            return None
    for name, value in (*module._parameters.items(), *module._buffers.items()):
        parts.append((name, None if value is None else (tuple(value.shape), value.dtype)))
    for name, child in module._modules.items():
        inner = None if child is None else _key(child)
        if child is not None and inner is None:
            return None
        parts.append((name, inner))
    return tuple(parts)
