"""A winning program as an nn.Module in the caller's own process.

This runs generated code here, outside any sandbox: do it with programs whose verdict you have read.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

from kforge import live_module
from kforge.cache_folder import cache_folder
from kforge.errors import UsageError
from kforge.types import Problem, text_hash
from kforge.whole_file import write_whole
from kforge.worker.arena import tensor_hash
from kforge.worker.held_tensors import held_tensors
from kforge.worker.judge import parameters
from kforge.worker.judge.reference import State
from kforge.worker.protocol.records import HeldTensor

_SEED = 20_011


def load(problem: Problem, source: str, device_class: str, weights: torch.nn.Module | None = None) -> torch.nn.Module:
    """`ModelNew` of a program, constructed as the problem constructs its `Model`.

    With `weights`, an instance of the reference module, it takes over that module's parameters, buffers and mode. A
    program for a live module takes those of the captured module by itself.
    """
    kind = _import(source).ModelNew
    if problem.payload:
        original, _ = live_module.restore(problem.payload, problem.payload_hash)
        weights = weights if weights is not None else original
        arguments: list[Any] = []
    else:
        namespace = _import(problem.sized_source(device_class))
        arguments = namespace.get_init_inputs()
        torch.manual_seed(_SEED)
        original = namespace.Model(*arguments)
    torch.manual_seed(_SEED)
    module = kind(*arguments)
    module.train(original.training)
    matches, lost = parameters.match(_state(original), _held(module))
    if weights is not None:
        values = _state(weights)
        _refuse_lost(lost, _state(original), values, dict(weights.named_parameters()))
        own = held_tensors(module)
        with torch.no_grad():
            for match in matches:
                own[match.name][1].copy_(match.value(values))
        module.train(weights.training)
    return module  # type: ignore[no-any-return]


def _refuse_lost(lost: list[str], original: State, values: State, trainable: dict[str, Any]) -> None:
    """What the program has no place for must be what it was written for; a count of batches does not matter."""
    missing = [
        name
        for name in lost
        if name in trainable or not (name.endswith("num_batches_tracked") or torch.equal(values[name], original[name]))
    ]
    if missing:
        raise UsageError(
            f"the program has no place for the module's {', '.join(missing)}, and the values there are not those of "
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


def _state(module: torch.nn.Module) -> State:
    return {name: value.detach() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _held(module: torch.nn.Module) -> list[HeldTensor]:
    with torch.no_grad():
        return [
            HeldTensor(name, kind, tuple(value.shape), tensor_hash(value))
            for name, (kind, value) in held_tensors(module).items()
        ]
