"""A machine without a network: jobs are left in a folder, and reports are found there when somebody has carried it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kforge.errors import WireError
from kforge.execution.base import ReportAwaited, Tell
from kforge.execution.early_compilation import EarlyCompilation
from kforge.types import Job, Report
from kforge.worker.bundle_folder import BundleFolder


class BundleExecutor:
    """Answers from the reports in a bundle; what has none is left there as a job."""

    def __init__(self, folder: Path, early: EarlyCompilation | None = None) -> None:
        """`early`: compiles programs here before they are left there, where that is wanted."""
        self.folder = BundleFolder(folder)
        self._early = early

    @property
    def machine(self) -> asyncio.Lock:
        """Nothing is timed here: nobody has to wait."""
        return asyncio.Lock()

    async def run(self, job: Job, tell: Tell) -> Report:
        try:
            report = self.folder.report(job)
        except WireError as error:
            report, reason = None, f"{error}; the job stays open"
        else:
            failed = self.folder.error(job)
            name = self.folder.name(job)
            reason = f"job {name} could not be carried out there: {failed}" if failed else ""
        if report is not None:
            return report
        # A job that lies there has been compiled, or was to be left to the device.
        if self._early is not None and not self.folder.has_job(job):
            facts = self.folder.facts(job.candidate.platform)
            report = await self._early.report(job, [facts] if facts else [], tell)
            if report is not None:
                return report
        self.folder.put(job)
        raise ReportAwaited(reason or f"reports are awaited in {self.folder.path}")

    async def close(self) -> None:
        if self._early is not None:
            await self._early.close()
