"""A result that can be put to use in the caller's own process."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from kforge.errors import UsageError
from kforge.packages import drop_in
from kforge.packages.description import Winner, describe, function_name
from kforge.packages.runtime.forged_program import ForgedProgram
from kforge.packages.runtime.substitution import Substitution
from kforge.packages.runtime.torch_operator import register
from kforge.run.result import RunResult
from kforge.spec.judging_platform import target_of

_NAMESPACE = "kforge_modules"
_registered: dict[str, ForgedProgram] = {}
"""Programs that are operators of this process already: torch takes a name once."""


@dataclass(frozen=True, repr=False)
class ForgeResult(RunResult):
    """What `kforge.forge` gives: a run's history, its best program, and that program as a module."""

    def module(
        self, weights: torch.nn.Module | None = None, *, fallback: torch.nn.Module | None = None, strict: bool = False
    ) -> torch.nn.Module:
        """The best program as a drop-in nn.Module. It runs generated code here, outside any sandbox.

        With `fallback`, the module that it stands for, it is that module with another forward: the same parameters,
        buffers and hooks, the program in calls that it was verified for, and the module's own forward in all others,
        which are counted and said once (with `strict`, they are errors). torch.compile takes it for one node of a
        graph; gradients are the reference's where none were verified.

        Without, it is a module of its own, for calls like those it was verified in; any other (gradients, tracers,
        other dtypes or shapes) raises an error that says so. With `weights`, an instance of the reference module, it
        takes over its parameters, buffers and mode; for a problem made from a live module it takes them from there by
        itself.

        A NotFasterWarning says so where it is not surely faster than eager.
        """
        self.warn_unless_faster(stacklevel=2)
        if fallback is not None:
            if weights is not None:
                raise UsageError("give weights or fallback: the module that is fallen back to has weights of its own")
            return self._substitute(fallback, strict)
        target = target_of(self.spec.platform, self.spec.executor, self.spec.problem.form)
        return drop_in.load(self.spec.problem, self.guarded_source, target.device_class, weights)

    def _substitute(self, original: torch.nn.Module, strict: bool) -> torch.nn.Module:
        if not isinstance(original, torch.nn.Module):
            raise UsageError(f"fallback is a {type(original).__name__}: give the module that the program stands for")
        made = copy.copy(original)
        kind = Substitution(self._program()).kind_for(made, strict)
        if kind is None:
            raise UsageError(
                f"fallback is no module like the reference of {self.spec.problem.name}: torch.export finds another "
                "graph for it, or its tensors have other shapes"
            )
        made.__class__ = kind
        return made

    def _program(self) -> ForgedProgram:
        """The best program as an operator of this process, registered once."""
        best = self._winner()
        assert best.candidate is not None
        name = f"{function_name(self.spec.problem.name)}_{self.spec.problem.id[:8]}_{best.candidate.id[:8]}"
        if name not in _registered:
            made = describe(Winner.of(self, best), name, name)
            program = ForgedProgram(name, made.verified, made.program, made.loaded)
            register(program, _NAMESPACE, "reference")
            _registered[name] = program
        return _registered[name]
