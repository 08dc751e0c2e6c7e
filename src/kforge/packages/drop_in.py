"""A winning program as an nn.Module in the caller's own process.

This runs generated code here, outside any sandbox: do it with programs whose verdict you have read.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

from kforge.cache_folder import cache_folder
from kforge.errors import UsageError
from kforge.types import Problem, text_hash
from kforge.whole_file import write_whole
from kforge.worker import live_problem
from kforge.worker.arena import named_dtype, tensor_hash
from kforge.worker.floating_dtype import cast_module, cast_tensor
from kforge.worker.held_tensors import held_tensors, whole_state
from kforge.worker.judge import parameters
from kforge.worker.judge.reference import State
from kforge.worker.protocol.records import HeldTensor

_SEED = 20_011


def load(problem: Problem, source: str, device_class: str, weights: torch.nn.Module | None = None) -> torch.nn.Module:
    """`ModelNew` of a program, constructed as the problem constructs its `Model`.

    With `weights`, an instance of the reference module, it takes over that module's parameters, buffers and mode. A
    program for a live module takes those of the captured module by itself.
    """
    if weights is not None and not isinstance(weights, torch.nn.Module):
        raise UsageError(
            f"weights is a {type(weights).__name__}: give a module of the reference's class, not its state"
        )
    kind = _import(source).ModelNew
    if problem.payload:
        original, _ = live_problem.restore(problem)
        weights = weights if weights is not None else original
        arguments: list[Any] = []
    else:
        namespace = _import(problem.sized_source(device_class))
        arguments = [_cast_argument(value, problem) for value in namespace.get_init_inputs()]
        torch.manual_seed(_SEED)
        original = _cast(namespace.Model(*arguments), problem)
    torch.manual_seed(_SEED)
    module = _cast(kind(*arguments), problem)
    module.train(original.training)
    state = whole_state(original)
    matches, lost = parameters.match(state, _held_records(module))
    if weights is not None:
        values = whole_state(weights)
        _check_weights(state, values, problem.name)
        _refuse_lost(lost, state, values, dict(weights.named_parameters()))
        own = held_tensors(module)
        with torch.no_grad():
            for match in matches:
                if problem.payload or not _is_same(match.source, state, values):
                    own[match.name][1].copy_(match.value(values))
        module.train(weights.training)
    return module


def _cast(module: torch.nn.Module, problem: Problem) -> torch.nn.Module:
    """A module in the dtype that the problem is wanted in."""
    dtype = problem.form.dtype
    return cast_module(module, named_dtype(dtype)) if dtype else module


def _cast_argument(value: Any, problem: Problem) -> Any:
    dtype = problem.form.dtype
    return cast_tensor(value, named_dtype(dtype)) if dtype and isinstance(value, torch.Tensor) else value


def _is_same(name: str, original: State, values: State) -> bool:
    """Whether a buffer that is not persistent is as the reference's constructor makes it: the program's own made what
    it needs of the same arguments, which need not be the same thing.
    """
    return name[0] == "=" and torch.equal(values[name].to(original[name]), original[name])


def _check_weights(original: State, values: State, problem: str) -> None:
    """UsageError where the weights are not those of a module like the reference."""
    unlike = f"weights is no module like the reference of {problem}"
    missing = [name for name in original if name not in values]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise UsageError(f"{unlike}: it has no {_name_list(missing[:5])}{more}")
    for name, value in original.items():
        if values[name].shape != value.shape:
            shapes = f"{tuple(values[name].shape)}, and the program was made for {tuple(value.shape)}"
            raise UsageError(f"{unlike}: its {_name_list([name])} is {shapes}")


def _name_list(names: list[str]) -> str:
    return ", ".join(name.lstrip("=") for name in names)


def _refuse_lost(lost: list[str], original: State, values: State, trainable: dict[str, Any]) -> None:
    """What the program has no place for must be what it was written for; a count of batches does not matter."""
    missing = [
        name
        for name in lost
        if name in trainable or not (name.endswith("num_batches_tracked") or torch.equal(values[name], original[name]))
    ]
    if missing:
        raise UsageError(
            f"the program has no place for the module's {_name_list(missing)}, and the values there are not those of "
            "the reference it was written for"
        )


def _import(source: str) -> Any:
    """A program's namespace, from a file of its own, so that tracebacks show its lines."""
    name = f"kforge_program_{text_hash(source)}"
    if name in sys.modules:
        return sys.modules[name]
    folder = cache_folder() / "programs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.py"
    write_whole(path, source.encode())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _held_records(module: torch.nn.Module) -> list[HeldTensor]:
    with torch.no_grad():
        return [
            HeldTensor(name, kind, tuple(value.shape), tensor_hash(value))
            for name, (kind, value) in held_tensors(module).items()
        ]
