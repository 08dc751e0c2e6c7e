"""What a controller has asked for and has no answer to yet: the only place where that is held.

Jobs wait here, and only a window of them is with the scheduler, so that other controllers' jobs find a place beside
them and nothing is lost with the scheduler. Equal jobs are one entry, whoever waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kforge.cluster.job_message import JobRequest
from kforge.types import JudgingDevice

MOST_DEATHS = 2
"""Workers that a job may take with it before nobody is asked to carry it out again."""


@dataclass(eq=False)
class QueuedJob:
    """A job that is asked for. Its identity is what counts: it changes while it waits."""

    request: JobRequest
    model: str
    key: str
    """What it is called at the scheduler: the same job on another model of device is another."""
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Whoever waits for it, and is told what is being done."""
    avoid: Mapping[str, str] = field(default_factory=dict)
    """Worker processes that could not carry it out -> their hosts."""
    apart_from: JudgingDevice = JudgingDevice()
    """Which has judged the same before: another one is asked by preference."""
    begun_on: dict[str, str] = field(default_factory=dict)
    """Worker processes that have begun it -> their hosts; one that handed it back is taken out again."""
    place: str = ""
    """The worker process that has it, as far as is known: where it was steered to, or has begun."""
    workers: list[str] = field(default_factory=list)
    """Those that it is asked for from now, by address; empty for all that have the device."""
    is_begun: bool = False
    """Whether a worker has begun it since it was last handed out."""
    moves: int = 0
    """How often it was taken back from a worker that it was for, to be asked for elsewhere."""
    losses: int = 0
    """How often its answer was lost on the way."""
    handed_out: bool = False

    @property
    def task(self) -> str:
        """What it is called at the scheduler now: what was taken back there may be on its way out still."""
        return f"{self.key}-moved-{self.moves}" if self.moves else self.key

    def tell(self, words: str) -> None:
        for listener in list(self.listeners):
            listener(words)


class JobQueue:
    """Entries in the order in which they were asked for."""

    def __init__(self) -> None:
        self._entries: dict[str, QueuedJob] = {}
        self._waiting: deque[QueuedJob] = deque()
        self._in_hand = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def in_hand(self) -> int:
        """How many are with the scheduler."""
        return self._in_hand

    def __iter__(self) -> Iterator[QueuedJob]:
        return iter(list(self._entries.values()))

    def get(self, key: str) -> QueuedJob | None:
        return self._entries.get(key)

    def add(self, job: QueuedJob) -> QueuedJob:
        """The entry of a job: one that is there already, if an equal job is waited for."""
        known = self._entries.get(job.key)
        if known is not None:
            known.listeners += job.listeners
            return known
        self._entries[job.key] = job
        self._waiting.append(job)
        return job

    def remove(self, job: QueuedJob) -> None:
        """It is answered, or nobody waits for it any longer. A second answer finds nothing to answer."""
        if self._entries.get(job.key) is not job:
            return
        del self._entries[job.key]
        if job.handed_out:
            self._in_hand -= 1
        else:
            self._waiting.remove(job)

    def hand_out(self, window: int) -> Iterator[tuple[QueuedJob, int]]:
        """(job, its priority) for as many as the window has room for: the n-th that is out has the priority -n.

        So what a controller with few jobs asks for comes before most of what one with many does.
        """
        while self._waiting and self._in_hand < window:
            job = self._waiting.popleft()
            job.handed_out = True
            self._in_hand += 1
            yield job, -self._in_hand

    def take_back(self, job: QueuedJob) -> None:
        """The scheduler lost it, or it is to go elsewhere: it is the first to be handed out again."""
        if job.handed_out and self._entries.get(job.key) is job:
            job.handed_out = False
            self._in_hand -= 1
            self._waiting.appendleft(job)
