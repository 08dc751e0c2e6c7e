"""`local`: this machine, all its devices; `local:0,1` some of them."""

from __future__ import annotations

from kforge.execution.base import Executor, ExecutorPlugin
from kforge.worker.device_selection import device_numbers


class LocalPlugin(ExecutorPlugin):
    name = "local"
    form = "local"
    what = "this machine: all its devices, or some of them (local:0,1)"
    judges_here = True

    def open(self, argument: str, platform: str) -> Executor:
        # It imports torch, which checking a name does without.
        from kforge.execution.local import LocalExecutor

        return LocalExecutor(platform, device_numbers(argument))

    def canonical(self, argument: str) -> str:
        device_numbers(argument)
        return argument


PLUGIN = LocalPlugin()
