"""Which worker's judge knows a problem: it has the reference and the baselines, which another would have to measure."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict

from kforge.cluster.census import Census
from kforge.cluster.job_queue import QueuedJob

_AHEAD = 2
"""Jobs for each place of a worker that knows their problems: one that is judged, and one that waits for it."""
_KEPT_PROBLEMS, _KEPT_WORKERS = 10_000, 16
"""And of each problem, the workers that answered for it last."""


class WarmWorkers:
    """What a controller knows of who answered for what, and of who is busy with its own jobs."""

    def __init__(self) -> None:
        self._homes: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()
        """Problem -> who answered for it, the last one first."""
        self._busy: Counter[str] = Counter()

    def steer(self, job: QueuedJob, census: Census) -> list[str]:
        """A worker that knows a job's problem, by address, which is free, or soon and nobody else is; or none."""
        places = census.places(job.request.platform, job.model)
        there = {process: worker for process in self._knowing(job) if (worker := census.worker(process)) is not None}
        free = (process for process in there if self._is_free(process, places))
        soon = (process for process in there if self._is_free_soon(process, places))
        process = next(itertools.chain(free, soon), "")
        if not process:
            return []
        self._put(job, process)
        return [there[process].address]

    def knows_free_worker(self, job: QueuedJob, census: Census) -> bool:
        """Whether another worker that knows a job's problem has nothing to do."""
        places = census.places(job.request.platform, job.model)
        return any(
            self._is_free(process, places) and census.worker(process) is not None
            for process in self._knowing(job)
            if process != job.place
        )

    def _knowing(self, job: QueuedJob) -> list[str]:
        return self._homes.get(_problem(job), [])

    def begin(self, job: QueuedJob, process: str) -> None:
        """A worker says that it has begun a job."""
        self._put(job, process)

    def end(self, job: QueuedJob, is_answered: bool) -> None:
        """A job is with the scheduler no longer; whoever answered it knows its problem now."""
        if is_answered and job.place:
            others = [process for process in self._knowing(job) if process != job.place]
            self._homes[_problem(job)] = [job.place, *others][:_KEPT_WORKERS]
            self._homes.move_to_end(_problem(job))
            while len(self._homes) > _KEPT_PROBLEMS:
                self._homes.popitem(last=False)
        self._put(job, "")

    def forget(self, process: str) -> None:
        """A worker is not to be asked for the problems that it knows."""
        for problem, homes in list(self._homes.items()):
            if process in homes:
                homes.remove(process)
                if not homes:
                    del self._homes[problem]

    def _is_free(self, process: str, places: dict[str, int]) -> bool:
        return self._busy[process] < places.get(process, 0)

    def _is_free_soon(self, process: str, places: dict[str, int]) -> bool:
        busy = self._busy[process]
        within = busy < _AHEAD * places.get(process, 0)
        return within and all(self._busy[other] >= count for other, count in places.items())

    def _put(self, job: QueuedJob, process: str) -> None:
        if job.place:
            self._busy[job.place] -= 1
            if not self._busy[job.place]:
                del self._busy[job.place]
        if process:
            self._busy[process] += 1
        job.place = process


def _problem(job: QueuedJob) -> tuple[str, str, str]:
    return job.request.problem, job.request.platform, job.model
