"""A machine without a network: jobs are left in a folder, and reports are found there when somebody has carried it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kforge.errors import WireError
from kforge.execution.base import ReportAwaited, Tell
from kforge.types import Job, Report
from kforge.worker.bundle_folder import BundleFolder


class BundleExecutor:
    """Answers from the reports in a bundle; what has none is left there as a job."""

    def __init__(self, folder: Path) -> None:
        self.folder = BundleFolder(folder)

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
        self.folder.put(job)
        raise ReportAwaited(reason or f"reports are awaited in {self.folder.path}")

    async def close(self) -> None:
        """Nothing is held open."""
