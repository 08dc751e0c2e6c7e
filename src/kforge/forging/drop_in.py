"""A winning program as an nn.Module in the caller's own process.

This runs generated code here, outside any sandbox: do it with programs whose verdict you have read.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch

from kforge.cache_folder import cache_folder
from kforge.errors import ProblemError, UsageError
from kforge.types import Problem, text_hash
from kforge.whole_file import write_whole
from kforge.worker.arena import dtype_name, tensor_hash
from kforge.worker.judge import parameters

_SEED = 20_011


def load(problem: Problem, source: str, device_class: str, weights: torch.nn.Module | None = None) -> torch.nn.Module:
    """`ModelNew` of a program, constructed as the problem constructs its `Model`.

    With `weights`, an instance of the reference module, it takes over that module's parameters, buffers and mode. A
    program for a live module takes those of the captured module by itself.
    """
    kind = _import(source).ModelNew
    if problem.payload:
        weights = weights if weights is not None else _captured(problem)
        torch.manual_seed(_SEED)
        module = kind()
        matches, lost = parameters.match(_state(weights), _held(module))
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
        _take_over(module, weights, matches, lost)
    return module  # type: ignore[no-any-return]


def _take_over(
    module: torch.nn.Module, weights: torch.nn.Module, matches: list[parameters.Match], lost: list[str]
) -> None:
    missing = [name for name in lost if name in dict(weights.named_parameters())]
    if missing:
        raise UsageError(f"the program holds nothing like the module's {', '.join(missing)}")
    values = _state(weights)
    own = {name: tensor for name, _, tensor in _tensors(module)}
    with torch.no_grad():
        for match in matches:
            own[match.name].copy_(match.value(values))
    module.train(weights.training)


def _captured(problem: Problem) -> torch.nn.Module:
    import cloudpickle

    try:
        with open(problem.payload, "rb") as file:
            module, _ = cloudpickle.load(file)
    except OSError as error:
        raise ProblemError(f"the captured module is gone: {error.strerror}", path=problem.payload) from None
    assert isinstance(module, torch.nn.Module)
    return module


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


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _tensors(module: torch.nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """(name, kind, tensor) of all a module holds; plain attributes are named with a leading '='."""
    found = [
        (name, "state", value)
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, torch.Tensor)
    ]
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if type(value) is torch.Tensor:
                found.append((f"={prefix}.{name}" if prefix else f"={name}", "attribute", value))
    return found


def _held(module: torch.nn.Module) -> list[parameters.Held]:
    with torch.no_grad():
        rows = [
            [name, kind, dtype_name(value.dtype), list(value.shape), tensor_hash(value)]
            for name, kind, value in _tensors(module)
        ]
    return parameters.read_held(rows)
