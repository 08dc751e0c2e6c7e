"""`bundle:DIR`: a folder that is carried to another machine."""

from __future__ import annotations

from pathlib import Path

from kforge.errors import UsageError
from kforge.execution.base import Executor, ExecutorPlugin
from kforge.execution.bundle import BundleExecutor
from kforge.execution.early_compilation import early_compilation, split_option, with_option
from kforge.worker.bundle_folder import BundleFolder


class BundlePlugin(ExecutorPlugin):
    name = "bundle"
    form = "bundle:DIR"
    what = "another machine, by way of a folder that is carried there and back"
    leaves_jobs = True

    def open(self, argument: str, platform: str) -> Executor:
        return BundleExecutor(self.folder(argument), early_compilation(platform, split_option(argument)[1]))

    def canonical(self, argument: str) -> str:
        return with_option(str(self.folder(argument)), split_option(argument)[1])

    def check(self, argument: str, platform: str) -> None:
        """What the machine over there lacks is for its worker to say."""
        BundleFolder(self.folder(argument)).check()

    def facts(self, argument: str, platform: str) -> dict[str, str]:
        return BundleFolder(self.folder(argument)).facts(platform)

    def folder(self, argument: str) -> Path:
        """The bundle's folder, by its whole path; UsageError if none is named."""
        place, _ = split_option(argument)
        if not place.strip():
            raise UsageError("a bundle is a folder: write for example --executor bundle:DIR")
        return Path(place).expanduser().absolute()


PLUGIN = BundlePlugin()
