"""A batch: jobs from a JSON Lines file, one report file for each, resumable.

A line names a problem and a candidate, as paths (relative to the jobs file) or whole:

    {"id": "relu-1", "problem": "relu.py", "candidate": "kernels/relu_1.py", "settings": {"baseline": "best"}}

Everything but problem and candidate may be left out. `"dtype": "bfloat16"` and `"backward": true` ask for the problem
in another form.
"""

from __future__ import annotations

import json
import queue
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge import jsonable
from kforge.errors import KForgeError, UsageError, WireError
from kforge.types import Candidate, Job, Problem, ProblemForm, Report, Settings
from kforge.whole_file import write_whole
from kforge.worker.judges import Judges, usual_builders
from kforge.worker.report_file import read_report

_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LETTING_GO_SECONDS = 5.0
_FIELDS = ("id", "problem", "candidate", "settings", "dtype", "backward")


@dataclass(frozen=True)
class Done:
    """How one job of a batch went."""

    job: Job
    report: Report | None
    error: str = ""
    """Why there is no report: the problem or the harness, not the candidate."""
    resumed: bool = False
    """Whether the report was there from an earlier run."""


def read_jobs(path: Path, defaults: Settings, platform: str, form: ProblemForm = ProblemForm()) -> list[Job]:
    """The jobs of a file; UsageError names the line that is wrong. What a line does not say is as given here."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    jobs: list[Job] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            job = _read_job(json.loads(line), number, path.parent, defaults, platform, form)
        except (json.JSONDecodeError, KForgeError, KeyError, TypeError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{path}:{number}: {what}") from None
        if job.id in seen:
            raise UsageError(f"{path}:{number}: the id {job.id!r} was used before")
        seen.add(job.id)
        jobs.append(job)
    return jobs


def run_jobs(
    jobs: list[Job],
    out: Path,
    platform: str,
    tell: Callable[[Done], None],
    progress: Any = None,
    tell_busy_share: Callable[[float], None] | None = None,
    builders: int = 0,
    devices: tuple[int, ...] = (),
) -> list[Done]:
    """Evaluate what has no report yet; jobs of one problem follow one another, so that it stays warm.

    `builders` programs are in hand at once for each device, so that it need not wait for compilers; 0 for what suits
    the platform. `devices` are the numbers of those to judge on, empty for all.
    `tell_busy_share` is called, at the end, with the part of the time in which the devices were held.
    """
    out.mkdir(parents=True, exist_ok=True)
    results: list[Done] = []
    workers: list[threading.Thread] = []
    try:
        with Judges(platform, devices) as judges:
            at_once = (builders or usual_builders(platform)) * len(judges.devices)
            waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
            finished: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
            stopped = threading.Event()
            for job in [*order_by_problem(jobs, at_once - 1), *[None] * at_once]:
                waiting.put(job)

            def work() -> None:
                while (job := waiting.get()) is not None and not stopped.is_set():
                    try:
                        finished.put(_run_job(judges, job, out, progress))
                    except BaseException as error:
                        # A report that cannot be written: whoever waits for it must not wait for ever.
                        finished.put(error)

            # Daemons: a candidate that hangs must not keep the program from ending.
            for number in range(at_once):
                workers.append(threading.Thread(target=work, name=f"kforge-job-{number}", daemon=True))
                workers[-1].start()
            try:
                for _ in jobs:
                    done = finished.get()
                    if isinstance(done, BaseException):
                        raise done
                    results.append(done)
                    tell(done)
            finally:
                stopped.set()
            if tell_busy_share is not None:
                tell_busy_share(judges.busy_share())
    finally:
        # A thread that is in the middle of something when the interpreter goes away takes the process with it.
        for worker in workers:
            worker.join(_LETTING_GO_SECONDS)
    return results


def order_by_problem(jobs: list[Job], ahead: int) -> list[Job]:
    """Jobs of one problem together, but the first of each so many places earlier.

    It is the first that has to wait until the problem is read and its baselines are built, and the device has the jobs
    in between to judge meanwhile.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.problem.id, []).append(job)
    together = [(number == 0, job) for group in groups.values() for number, job in enumerate(group)]
    places = [(place - ahead if first else place, place) for place, (first, _) in enumerate(together)]
    return [together[place][1] for _, place in sorted(places)]


def _run_job(judges: Judges, job: Job, out: Path, progress: Any) -> Done:
    return _earlier_result(job, out) or _evaluate(judges, job, out, progress)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=1).encode())


def _read_job(data: Any, number: int, folder: Path, defaults: Settings, platform: str, form: ProblemForm) -> Job:
    if not isinstance(data, dict):
        raise UsageError("a job is a JSON object")
    unknown = sorted(set(data) - set(_FIELDS))
    if unknown:
        raise UsageError(f"a job has no field {unknown[0]!r}; known: {', '.join(_FIELDS)}")
    problem, candidate = data["problem"], data["candidate"]
    problem = Problem.from_file(folder / problem) if isinstance(problem, str) else jsonable.decode(Problem, problem)
    problem = problem.in_form(ProblemForm(data.get("dtype", form.dtype), data.get("backward", form.backward)))
    if isinstance(candidate, str):
        candidate = read_candidate(folder / candidate, platform)
    else:
        candidate = jsonable.decode(Candidate, candidate)
    settings = jsonable.decode(Settings, {**jsonable.encode(defaults), **data.get("settings", {})})
    name = str(data.get("id") or f"{number:05d}-{problem.name}-{candidate.id}")
    return Job(_NAME.sub("_", name), problem, candidate, settings)


def read_candidate(path: Path, platform: str) -> Candidate:
    """A candidate from a file."""
    try:
        return Candidate(path.read_text(encoding="utf-8"), platform, name=path.stem)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def _earlier_result(job: Job, out: Path) -> Done | None:
    """The report of an earlier run, if it answers this very job."""
    try:
        report = read_report(out / f"{job.id}.json", job)
    except WireError:
        return None
    return None if report is None else Done(job, report, resumed=True)


def _evaluate(judges: Judges, job: Job, out: Path, progress: Any) -> Done:
    try:
        tell = (lambda what: progress(job, what)) if progress else (lambda _: None)
        report = judges.report(job, tell)
    except KForgeError as error:
        return Done(job, None, str(error))
    except Exception as error:
        # A fault of ours must not take the rest of the batch with it.
        return Done(job, None, f"internal error, please report it: {type(error).__name__}: {error}")
    write_json(out / f"{job.id}.json", jsonable.encode(report))
    return Done(job, report)
