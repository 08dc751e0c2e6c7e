"""Which worker's judge knows a problem: it has the reference and the baselines, which another would have to measure."""

from __future__ import annotations

from collections import Counter, OrderedDict

from kforge.cluster.census import Census
from kforge.cluster.job_queue import QueuedJob

_AHEAD = 2
"""Jobs for each place of a worker that knows their problems: one that is judged, and one that waits for it."""
_KEPT_PROBLEMS = 10_000


class WarmWorkers:
    """What a controller knows of who answered for what, and of who is busy with its own jobs."""

    def __init__(self) -> None:
        self._homes: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._busy: Counter[str] = Counter()

    def steer(self, job: QueuedJob, census: Census) -> list[str]:
        """The worker that knows a job's problem, by address, where it is free, or soon and nobody else is; or none."""
        process = self._homes.get(_problem(job), "")
        worker = census.worker(process)
        if worker is None or not self._has_room(process, census.places(job.request.platform, job.model)):
            return []
        self._put(job, process)
        return [worker.address]

    def begin(self, job: QueuedJob, process: str) -> None:
        """A worker says that it has begun a job."""
        self._put(job, process)

    def end(self, job: QueuedJob, is_answered: bool) -> None:
        """A job is with the scheduler no longer; whoever answered it knows its problem now."""
        if is_answered and job.place:
            self._homes[_problem(job)] = job.place
            self._homes.move_to_end(_problem(job))
            while len(self._homes) > _KEPT_PROBLEMS:
                self._homes.popitem(last=False)
        self._put(job, "")

    def forget(self, process: str) -> None:
        """A worker is not to be asked for the problems that it knows."""
        self._homes = OrderedDict((problem, home) for problem, home in self._homes.items() if home != process)

    def _has_room(self, process: str, places: dict[str, int]) -> bool:
        slots, busy = places.get(process, 0), self._busy[process]
        if busy < slots:
            return True
        return busy < _AHEAD * slots and all(self._busy[other] >= count for other, count in places.items())

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
