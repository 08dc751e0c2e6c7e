"""Putting a program into a model in place of the modules that compute the same, and taking it out again.

A module stays the object it is: its parameters, buffers, hooks and name are untouched, and only its class becomes one
whose forward calls the program. Taking it out gives the class back.
"""

from __future__ import annotations

import copy
import copyreg
import inspect
import keyword
from typing import Any

import torch

from .example_calls import examples_of
from .forged_program import ForgedProgram
from .guard import unflatten
from .ready_call import ANOTHER
from .structure import Structure, is_same, named_tensors, own_values, structure_of

_SIMPLE = (int, float, str, bool, type(None), torch.dtype, torch.device)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Substitution:
    """Finds the modules of a model that a program can stand for."""

    def __init__(self, program: ForgedProgram) -> None:
        self._program = program
        self._wanted: dict[bool, list[tuple[Structure, tuple[Any, ...]]] | None] = {}

    def apply(self, model: torch.nn.Module, strict: bool | None = None) -> list[str]:
        """Have every module that computes what the program was verified for call it; the names of those modules."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"apply takes a torch.nn.Module, and was given a {type(model).__name__}")
        known: dict[Any, Any] = {}
        changed: list[str] = []
        # Inner modules come first: a module around one that was found computes the same, and need not be changed.
        for name, module in reversed(list(model.named_modules())):
            if any(not name or inner.startswith(f"{name}.") for inner in changed):
                continue
            kind = self.kind_for(module, strict, known)
            if kind is not None:
                module.__class__ = kind
                changed.append(name)
        return changed[::-1]

    def kind_for(
        self, module: torch.nn.Module, strict: bool | None = None, known: dict[Any, Any] | None = None
    ) -> type | None:
        """The class that has a module call the program; None if it computes something else, or nobody can tell.

        `known` are the answers for modules that were looked at before.
        """
        if is_substituted(module) or isinstance(module, torch.jit.ScriptModule) or not self._has_like_tensors(module):
            return None
        if "forward" in vars(module):
            # Its class's forward is not what is called.
            return None
        if any(part.__dict__[hooks] for part in module.modules() if part is not module for hooks in _HOOKS):
            # Somebody looks at a module inside of this one, which would no longer be called.
            return None
        key = _key(module)
        known = {} if known is None else known
        if key is None or key not in known:
            found = self._compare(module)
            made = None if found is None else _make_kind(module, self._program, *found, strict)
            if key is None:
                return made
            known[key] = made
        kind: type | None = known[key]
        return kind

    def _has_like_tensors(self, module: torch.nn.Module) -> bool:
        """Whether the module holds as many tensors of each shape as the reference does; a look without tracing."""
        own = sorted(tuple(value.shape) for value in named_tensors(module).values())
        return any(own == sorted(layout.shape for layout in call.state) for call in self._program.guard.calls)

    def _compare(self, module: torch.nn.Module) -> tuple[tuple[str, ...], bool] | None:
        """(The module's tensors in the order of the reference's, whether both modes are alike), if it computes the
        same."""
        modes = [(part, part.training) for part in module.modules()]
        before = [own_values(part) for part in module.modules()]
        if any(isinstance(value, torch.Tensor) for part in module.modules() for value in vars(part).values()):
            # A tensor that is a plain attribute may change, and nothing would show it.
            return None
        names = self._names(module, module.training)
        is_free = False
        if names is not None and all(mode is module.training for _, mode in modes):
            module.train(not module.training)
            is_free = self._names(module, module.training) == names
            for part, mode in modes:
                part.training = mode
        after = [own_values(part) for part in module.modules()]
        if len(after) != len(before) or not all(map(is_same, before, after)):
            # A forward that leaves something behind does more than compute.
            for part, values in zip(module.modules(), before):  # noqa: B905
                part.__dict__.update(values)
            return None
        return None if names is None else (names, is_free)

    def _names(self, module: torch.nn.Module, training: bool) -> tuple[str, ...] | None:
        """The module's tensors in the order of the reference's, if all its graphs are the reference's."""
        wanted = self._structures(training)
        answers = {self._match(module, structure, arguments) for structure, arguments in wanted or ()}
        return next(iter(answers)) if len(answers) == 1 else None

    def _match(self, module: torch.nn.Module, wanted: Structure, arguments: tuple[Any, ...]) -> tuple[str, ...] | None:
        found = structure_of(module, arguments)
        if found is None or found.text != wanted.text:
            return None
        own = named_tensors(module)
        place = dict(zip(wanted.names, found.names))  # noqa: B905
        rest = [name for name in own if name not in found.names]
        names: list[str] = []
        for name, layout in zip(self._program.guard.state_names, self._program.guard.calls[0].state):  # noqa: B905
            if name not in place:
                # What the graph does not use goes by the last part of its name.
                alike = [other for other in rest if other.rpartition(".")[2] == name.rpartition(".")[2]]
                if len(alike) != 1:
                    return None
                rest.remove(alike[0])
                place[name] = alike[0]
            names.append(place[name])
            if tuple(own[place[name]].shape) != layout.shape:
                return None
        return tuple(names)

    def _structures(self, training: bool) -> list[tuple[Structure, tuple[Any, ...]]] | None:
        """The reference's structure in each verified call, at several sizes where there is a range of them, with the
        arguments that it was found with; None where it has none."""
        if training not in self._wanted:
            found: list[tuple[Structure, tuple[Any, ...]]] | None = []
            for call in self._program.guard.calls:
                module = self._program.references[call.reference].construct().train(training)
                for leaves in examples_of(call):
                    arguments = tuple(unflatten(call.tree, leaves))
                    structure = structure_of(module, arguments)
                    found = None if structure is None or found is None else [*found, (structure, arguments)]
            self._wanted[training] = found
        return self._wanted[training]


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


def warmup(model: torch.nn.Module, program: ForgedProgram) -> None:
    """Have every module that calls a program do so once; ValueError where none does."""
    changed = [part for part in model.modules() if getattr(type(part), "_kforge_program", None) is program]
    if not changed:
        raise ValueError(f"no module of the model calls {program.name}: apply(model) comes first")
    for part in changed:
        kind: Any = type(part)
        own = (*part.named_parameters(remove_duplicate=False), *part.named_buffers(remove_duplicate=False))
        tensors: dict[str, torch.Tensor] = dict(own)
        lost = [name for name in kind._kforge_tensors if name not in tensors]
        if lost or kind._kforge_changed(part):
            what = f"has no {lost[0]} any more" if lost else "was changed"
            raise ValueError(f"a {kind._kforge_original.__name__} {what} after apply, and calls the program no longer")
        program.warmup_with([tensors[name] for name in kind._kforge_tensors], part.training, part)


def _make_kind(
    module: torch.nn.Module, program: ForgedProgram, names: tuple[str, ...], is_free: bool, strict: bool | None
) -> type:
    """A subclass of a module's class, whose forward calls the program."""
    kind: Any = type(module)
    forward, was_changed = _write_forward(module, names, is_free, program, strict)
    forward.__doc__ = f"What {kind.__name__} computes, by the program of {program.name} where that was verified."
    forward.__wrapped__ = kind.forward

    def reduce(self: Any, protocol: Any) -> Any:
        # A saved model is the original one: whoever loads it need not have the package.
        state = kind.__getstate__(self) if hasattr(kind, "__getstate__") else self.__dict__
        return copyreg._reconstructor, (kind, object, None), state  # type: ignore[attr-defined]

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        forged = type(self)
        self.__class__ = kind
        try:
            made = copy.deepcopy(self, memo)
        finally:
            self.__class__ = forged
        # Objects in it are copies too, and what it is compared with from now on is them.
        made.__class__ = _make_kind(made, program, names, is_free, strict)
        return made

    return type(
        f"Forged{kind.__name__}",
        (kind,),
        {
            "forward": forward,
            "__reduce_ex__": reduce,
            "__deepcopy__": deepcopy,
            "__module__": kind.__module__,
            "_kforge_original": kind,
            "_kforge_program": program,
            "_kforge_tensors": names,
            "_kforge_changed": was_changed,
        },
    )


def _write_forward(
    module: torch.nn.Module, names: tuple[str, ...], is_free: bool, program: ForgedProgram, strict: bool | None
) -> tuple[Any, Any]:
    """(A forward with the original's own arguments, which hands them and the module's tensors to the program; whether
    a module is no longer what was compared.)

    It is written out, the values that the module had when it was compared included: every one that is looked for at run
    time would cost as much as a comparison, and a compiler sees what it reads.
    """
    original: Any = type(module).forward
    count = len(program.guard.tree[1])
    parameters = list(inspect.signature(original).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    known: dict[str, Any] = {
        "_is_compiling": torch.compiler.is_compiling,
        "_ready": program.ready,
        "_another": ANOTHER,
        "_program": program.call,
        "_own": program.run_own,
        "_strict": strict,
        "_bind": _bind,
        "_id": id,
        "_type": type,
        "_len": len,
        "_signature": inspect.signature(original),
        "_defaults": {item.name: item.default for item in parameters},
    }
    own = dict(module.named_parameters(remove_duplicate=False))
    holders: dict[str, str] = {}
    reads = []
    for number, name in enumerate(names):
        path, _, key = name.rpartition(".")
        part = f"{_reach(path)}.{'_parameters' if name in own else '_buffers'}"
        short = holders.setdefault(part, f"h{len(holders)}")
        reads.append(f"    t{number} = {short}.get({key!r})")
    if len(parameters) == count and all(item.kind in plain for item in parameters):
        given = [
            f"{item.name}=_defaults[{item.name!r}]" if item.default is not item.empty else item.name
            for item in parameters
        ]
        lines = [
            f"def forward({', '.join(('self', *given))}):",
            f"    arguments = ({''.join(f'{item.name}, ' for item in parameters)})",
        ]
    else:
        lines = [
            "def forward(self, *arguments, **named):",
            f"    if named or len(arguments) != {count}:",
            f"        given = _bind(_signature, self, arguments, named, {count})",
            "        if given is None:",
            "            return _own(self, 'its arguments are others', _strict, arguments, named)",
            "        arguments = given",
        ]
    tensors = "".join(f"t{number}, " for number in range(len(names)))
    keys = "".join(f"_id(t{number}), " for number in range(len(names)))
    tests = _tests(module, is_free, known)
    lines += [
        *(
            f"    if {test}:\n        return _own(self, 'it was changed after apply', _strict, arguments)"
            for test in tests
        ),
        *(f"    {short} = {part}" for part, short in holders.items()),
        *reads,
        "    if not _is_compiling():",
        f"        for ready in _ready.by_state.get(({keys}), ()):",
        f"            output = ready(arguments, ({tensors}), self.training)",
        "            if output is not _another:",
        "                return output",
        f"    return _program(arguments, ({tensors}), self.training, _strict, self)",
    ]
    lines += ["def was_changed(self):", f"    return bool({' or '.join(f'({test})' for test in tests) or False})"]
    exec(compile("\n".join(lines), f"<forward of a module that calls {program.name}>", "exec"), known)
    return known["forward"], known["was_changed"]


def _tests(module: torch.nn.Module, is_free: bool, known: dict[str, Any]) -> list[str]:
    """Expressions that are true where a module, or one inside of it, is no longer what was compared."""
    tests = []
    for path, part in module.named_modules(remove_duplicate=False):
        here, parts = _reach(path), []
        if path:
            known[f"_kind{len(known)}"] = type(part)
            parts.append(f"_type({here}) is not _kind{len(known) - 1}")
            parts.append(f"(not _is_compiling() and 'forward' in {here}.__dict__)")
            parts += [f"{here}.{hooks}" for hooks in _HOOKS]
            parts.append(f"{here}.training is not {'self.training' if is_free else part.training}")
        elif not is_free:
            parts.append(f"self.training is not {part.training}")
        for held in ("_modules", "_parameters", "_buffers"):
            values = part.__dict__[held]
            parts.append(f"_len({here}.{held}) != {len(values)}")
            parts += [f"{here}.{held}[{name!r}] is not None" for name, value in values.items() if value is None]
        for name, value in own_values(part).items():
            known[f"_value{len(known)}"] = value
            relation = "!=" if _is_simple(value) and value == value else "is not"
            plain = name.isidentifier() and not keyword.iskeyword(name)
            read = f"{here}.{name}" if plain else f"getattr({here}, {name!r})"
            parts.append(f"{read} {relation} _value{len(known) - 1}")
        tests += [" or ".join(parts)] if parts else []
    return tests


def _reach(path: str) -> str:
    return "self" + "".join(f"._modules[{step!r}]" for step in path.split(".") if step)


def _bind(signature: Any, module: Any, arguments: Any, named: Any, count: int) -> Any:
    """The arguments in their order, where the others have the values that they have by default; None where not."""
    given = signature.bind(module, *arguments, **named)
    given.apply_defaults()
    rest = given.args[count + 1 :]
    defaults = [item.default for item in signature.parameters.values()][count + 1 :]
    if given.kwargs or len(rest) > len(defaults) or any(one is not two for one, two in zip(rest, defaults)):  # noqa: B905
        return None
    return given.args[1 : count + 1]


def _is_simple(value: Any) -> bool:
    return all(isinstance(item, _SIMPLE) for item in (value if isinstance(value, tuple) else (value,)))


def _key(module: torch.nn.Module) -> Any:
    """What tells apart modules that may compute something else; None where that cannot be told by looking."""
    values = own_values(module)
    if not all(map(_is_simple, values.values())):
        return None
    tensors: list[Any] = []
    for name, value in (*module._parameters.items(), *module._buffers.items()):
        tensors.append((name, None if value is None else (tuple(value.shape), value.dtype, value.device)))
    children = []
    for name, child in module._modules.items():
        inner = None if child is None else _key(child)
        if child is not None and inner is None:
            return None
        children.append((name, inner))
    return (type(module), module.training, *sorted(values.items()), *tensors, *children)
