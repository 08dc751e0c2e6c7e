"""Carrying out the open jobs of a bundle on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from kforge import registry
from kforge.errors import KForgeError
from kforge.platforms.base import Platform
from kforge.types import Job
from kforge.worker.bundle_folder import EMULATED, PYTHON, BundledJob, BundleFolder
from kforge.worker.device_selection import DeviceSelection
from kforge.worker.jobs import Done, run_jobs


class OpenJobs:
    """The jobs of a bundle that have no report yet, and what is wrong with files that hold none."""

    def __init__(self, folder: BundleFolder) -> None:
        self._folder = folder
        items = list(folder.jobs())
        self.faults = [item for item in items if isinstance(item, str)]
        packed = [item for item in items if isinstance(item, BundledJob)]
        self._open = [item for item in packed if not folder.has_report(item.job)]
        self.answered = len(packed) - len(self._open)
        """How many have a report from before."""

    def __len__(self) -> int:
        return len(self._open)

    def carry_out(self, tell: Callable[[Done], None], selection: DeviceSelection = DeviceSelection()) -> list[Done]:
        """Judge the open jobs, one platform after another; each report is in the bundle when `tell` gets it."""
        results: list[Done] = []

        def note(done: Done) -> None:
            self._folder.set_error(done.job, done.error)
            results.append(done)
            tell(done)

        groups: dict[str, list[Job]] = {}
        for item in self._open:
            reason = _unfit_because(item)
            if reason:
                note(Done(item.job, None, reason))
            else:
                groups.setdefault(item.job.candidate.platform, []).append(item.job)
        for platform, jobs in groups.items():
            _judge(jobs, self._folder.reports, platform, note, selection)
        return results


def describe(folder: BundleFolder) -> tuple[str, ...]:
    """Write down what this machine is like; the platforms it has."""
    facts = {}
    for name in registry.names("platforms"):
        try:
            platform: Platform = registry.load("platforms", name)
            if not platform.unavailable_reason():
                facts[name] = platform.facts() | ({EMULATED: "yes"} if platform.emulated else {})
        except Exception:
            # A platform nobody asked for may be broken here; a job for it says what is wrong.
            continue
    folder.set_facts(facts)
    return tuple(facts)


def _judge(jobs: list[Job], out: Path, platform: str, note: Callable[[Done], None], selection: DeviceSelection) -> None:
    """Judge the jobs of one platform; what keeps its judge from starting is noted for each of them."""
    reported: set[str] = set()

    def tell(done: Done) -> None:
        reported.add(done.job.id)
        note(done)

    try:
        run_jobs(jobs, out, platform, tell, builders=selection.builders, devices=selection.devices)
    except KForgeError as error:
        for job in jobs:
            if job.id not in reported:
                note(Done(job, None, str(error)))


def _unfit_because(item: BundledJob) -> str:
    """Why a job cannot be carried out by this Python; empty if it can.

    Classes of a live module that no package holds travel as compiled code, which another Python would misread.
    """
    problem = item.job.problem
    if not problem.payload:
        return ""
    cure = "or forge the module from a problem file instead"
    if item.python != PYTHON:
        other = f"Python {item.python}"
        return f"a live module of {other}, and this is {PYTHON}: run the worker with {other}, {cure}"
    if importlib.util.find_spec("cloudpickle") is None:
        return f"a live module needs the package cloudpickle here: install it, {cure}"
    return ""
