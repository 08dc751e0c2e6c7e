"""Reports on bundled jobs, as a worker would write them, without one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import makers
from kforge import jsonable
from kforge.types import Evidence, Job, Outcome, Profile, Report
from kforge.worker.bundle_folder import BundledJob, BundleFolder


def report_on(job: Job, result: float | Outcome, profiles: tuple[Profile, ...] = ()) -> Report:
    """What a worker would write, without one."""
    found = makers.verdict(outcome=result) if isinstance(result, Outcome) else makers.verdict(result)
    evidence = Evidence(
        problem=job.problem,
        candidate=job.candidate,
        settings=replace(job.settings, seed=7),
        device={"processor": "elsewhere"},
        versions={},
        distributions=(),
        parameters=(),
        operators=(),
        native=(),
        unchecked=(),
        seconds={},
    )
    verdict = replace(found, evidence=evidence)
    if not profiles and job.is_profiled(verdict):
        profiles = tuple(Profile(name, absent="not there") for name in job.settings.profilers)
    return Report(job.id, job.problem.name, job.candidate.id, job.candidate.platform, verdict, profiles)


def write(folder: BundleFolder, report: Report) -> Path:
    folder.reports.mkdir(exist_ok=True)
    path = folder.reports / f"{report.job}.json"
    path.write_text(json.dumps(jsonable.encode(report)))
    return path


def packed(folder: BundleFolder) -> list[Job]:
    """Every job in a bundle; the test fails if a file holds none."""
    found = []
    for item in folder.jobs():
        assert isinstance(item, BundledJob), item
        found.append(item.job)
    return found


def work(folder: BundleFolder, results: Iterable[float | Outcome], some: int = 99) -> int:
    """Write reports for the open jobs, by their names in order; how many."""
    waiting = [job for job in packed(folder) if not folder.has_report(job)][:some]
    for job, result in zip(waiting, results, strict=False):
        write(folder, report_on(job, result))
    return len(waiting)
