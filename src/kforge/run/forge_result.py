"""A result that can be put to use in the caller's own process."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kforge.run import drop_in
from kforge.run.result import RunResult
from kforge.spec.judging_platform import target_of


@dataclass(frozen=True, repr=False)
class ForgeResult(RunResult):
    """What `kforge.forge` gives: a run's history, its best program, and that program as a module."""

    def module(self, weights: torch.nn.Module | None = None) -> torch.nn.Module:
        """The best program as a drop-in nn.Module. It runs generated code here, outside any sandbox.

        With `weights`, an instance of the reference module, it takes over its parameters, buffers and mode; for a
        problem made from a live module it takes them from there by itself. It is for inference, in calls like those it
        was verified in; any other (gradients, tracers, other dtypes or shapes) raises an error that says so. A
        NotFasterWarning says so where it is not surely faster than eager.
        """
        self.warn_unless_faster(stacklevel=2)
        target = target_of(self.spec.platform, self.spec.executor, self.spec.problem.form)
        return drop_in.load(self.spec.problem, self.guarded_source, target.device_class, weights)
