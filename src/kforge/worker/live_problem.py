"""A live module's problem, loaded: the module, and the inputs of the workload that is meant."""

from __future__ import annotations

from typing import Any

import torch

from kforge import live_module
from kforge.types import Problem


def restore(problem: Problem) -> tuple[torch.nn.Module, list[Any]]:
    """(module, example inputs of the problem's main workload, in its lengths); ProblemError if the file cannot be
    used."""
    workload = problem.main_workload
    module, inputs = live_module.restore(problem.payload, problem.payload_hash, workload.inputs)
    for argument, axis, length in workload.lengths:
        inputs[argument] = resized(inputs[argument], axis, length)
    return module, inputs


def resized(tensor: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """The tensor with another length along an axis: cut, or begun again."""
    return tensor.index_select(axis, torch.arange(length, device=tensor.device) % tensor.shape[axis])
