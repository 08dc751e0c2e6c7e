"""From an executor's name to the executor. Nothing is started before the first job."""

from __future__ import annotations

from kforge.execution.base import Executor
from kforge.execution.bundle import BundleExecutor
from kforge.execution.executor_names import devices_of, folder_of
from kforge.execution.local import LocalExecutor


def open_executor(name: str, platform: str) -> Executor:
    """`local` or `bundle:DIR`; UsageError for anything else."""
    folder = folder_of(name)
    return LocalExecutor(platform, devices_of(name)) if folder is None else BundleExecutor(folder)
