"""Packages for tests: a program that was judged for real, exported and imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import kforge
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted
from kforge.packages.description import Winner
from kforge.packages.package_files import package_files, write_package
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.types import Settings

UNTIMED = Settings(timing_seconds=0, compile_baseline=False, seeds=2)
ANY = Settings(timing_seconds=0, compile_baseline=False, seeds=2, policy="any")
"""For programs that are not compiled: what is tested is what is around them."""


def forged(
    judge: Any, problem: Any, program: str, folder: Path, settings: Settings = UNTIMED, **options: Any
) -> kforge.ForgeResult:
    """A run of one program, judged without being timed."""
    model = Scripted([f"```python\n{program}```"])
    executor = NullExecutor(lambda job: judge.evaluate(job.problem, job.candidate, settings))
    place = RunEnvironment(str(folder / "store"), ModelAccess(models={"scripted": model}), executor=executor)
    result = kforge.forge(problem, "cpu", "scripted", place, iterations=1, **options)
    assert result.best is not None, result.history[-1].verdict.detail
    return result


def export(result: kforge.ForgeResult, name: str, folder: Path, **choices: Any) -> Path:
    """The run's package in a folder of its name."""
    assert result.best is not None
    write_package(package_files(Winner.of(result, result.best), name, **choices), folder / name)
    return folder / name


def load(package: Path) -> Any:
    """The package, imported."""
    sys.path.insert(0, str(package))
    try:
        return importlib.import_module(package.name)
    finally:
        sys.path.remove(str(package))
