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
from .ready_call import ANOTHER
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
                module.__class__ = self._kind(module, names, strict)
                changed.append(name)
        return changed[::-1]

    def kind_for(self, module: torch.nn.Module, strict: bool | None = None) -> type | None:
        """The class that has a module call the program; None if it computes something else."""
        names = self._match(module, {})
        return None if names is None else self._kind(module, names, strict)

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

    def _kind(self, module: torch.nn.Module, names: tuple[str, ...], strict: bool | None) -> type:
        parameters = dict(module.named_parameters(remove_duplicate=False))
        kinds = tuple("_parameters" if name in parameters else "_buffers" for name in names)
        key = (type(module), names, kinds, strict)
        if key not in self._kinds:
            self._kinds[key] = _make_kind(type(module), self._program, names, kinds, strict)
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


def _make_kind(
    kind: type, program: ForgedProgram, names: tuple[str, ...], kinds: tuple[str, ...], strict: bool | None
) -> type:
    """A subclass of a module's class, whose forward calls the program."""
    original: Any = kind.forward  # type: ignore[attr-defined]
    forward = _write_forward(original, names, kinds, program, strict)
    forward.__doc__ = f"What {kind.__name__} computes, by the program of {program.name} where that was verified."
    forward.__wrapped__ = original

    def reduce(self: Any, protocol: Any) -> Any:
        # A saved model is the original one: whoever loads it need not have the package.
        return _rebuild, (kind,), self.__dict__.copy()

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


def _write_forward(
    original: Any, names: tuple[str, ...], kinds: tuple[str, ...], program: ForgedProgram, strict: bool | None
) -> Any:
    """A forward with the original's own arguments, which hands them and the module's tensors to the program.

    It is written out: every argument more that is looked for at run time would cost as much as a comparison.
    """
    count = len(program.guard.tree[1])
    parameters = list(inspect.signature(original).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    is_plain = len(parameters) == count and all(item.kind in plain for item in parameters)
    holders = {part: f"h{number}" for number, part in enumerate(dict.fromkeys(map(_holder, names, kinds)))}
    reads = [f"    {short} = {part}" for part, short in holders.items()]
    reads += [
        f"    t{number} = {holders[_holder(name, kind)]}.get({name.rpartition('.')[2]!r})"
        for number, (name, kind) in enumerate(zip(names, kinds))  # noqa: B905
    ]
    tensors = "".join(f"t{number}, " for number in range(len(names)))
    keys = "".join(f"id(t{number}), " for number in range(len(names)))
    if is_plain:
        given = [
            f"{item.name}=_defaults[{item.name!r}]" if item.default is not item.empty else item.name
            for item in parameters
        ]
        lines = [
            f"def forward(self, {', '.join(given)}):" if given else "def forward(self):",
            f"    arguments = ({''.join(f'{item.name}, ' for item in parameters)})",
        ]
    else:
        lines = [
            "def forward(self, *arguments, **named):",
            f"    if named or len(arguments) != {count}:",
            "        given = _signature.bind(self, *arguments, **named)",
            "        given.apply_defaults()",
            f"        if given.kwargs or len(given.args) != {count + 1}:",
            "            return _original(self, *arguments, **named)",
            "        arguments = given.args[1:]",
        ]
    lines += [
        *reads,
        "    if not _is_compiling():",
        f"        for ready in _ready.by_state.get(({keys}), ()):",
        f"            output = ready(arguments, ({tensors}), self.training)",
        "            if output is not _another:",
        "                return output",
        f"    return _program(arguments, ({tensors}), self.training, _strict, self)",
    ]
    names_used: dict[str, Any] = {
        "_is_compiling": torch.compiler.is_compiling,
        "_ready": program.ready,
        "_another": ANOTHER,
        "_program": program.call,
        "_strict": strict,
        "_original": original,
        "_signature": inspect.signature(original),
        "_defaults": {item.name: item.default for item in parameters},
    }
    exec(compile("\n".join(lines), f"<forward of a module that calls {program.name}>", "exec"), names_used)
    return names_used["forward"]


def _holder(name: str, kind: str) -> str:
    """The dictionary of a module that holds a tensor, as an expression."""
    return "self" + "".join(f"._modules[{step!r}]" for step in name.split(".")[:-1]) + f".{kind}"


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
