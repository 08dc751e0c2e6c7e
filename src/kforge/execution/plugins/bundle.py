"""`bundle:DIR`: a folder that is carried to another machine."""

from __future__ import annotations

from pathlib import Path

from kforge.errors import UsageError
from kforge.execution.base import Executor, ExecutorPlugin
from kforge.execution.bundle import BundleExecutor
from kforge.worker.bundle_folder import BundleFolder


class BundlePlugin(ExecutorPlugin):
    name = "bundle"
    form = "bundle:DIR"
    what = "another machine, by way of a folder that is carried there and back"
    leaves_jobs = True

    def open(self, argument: str, platform: str) -> Executor:
        return BundleExecutor(self.folder(argument))

    def canonical(self, argument: str) -> str:
        return str(self.folder(argument))

    def check(self, argument: str, platform: str) -> None:
        """What the machine over there lacks is for its worker to say."""
        BundleFolder(self.folder(argument)).check()

    def facts(self, argument: str, platform: str) -> dict[str, str]:
        return BundleFolder(self.folder(argument)).facts(platform)

    def folder(self, argument: str) -> Path:
        """The bundle's folder, by its whole path; UsageError if none is named."""
        if not argument.strip():
            raise UsageError("a bundle is a folder: write for example --executor bundle:DIR")
        return Path(argument).expanduser().absolute()


PLUGIN = BundlePlugin()
