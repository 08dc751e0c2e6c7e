"""Who is on a cluster, as its scheduler tells: read as hostile data, like everything from the wire."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kforge import jsonable
from kforge.cluster.description import DeviceGroup, WorkerActivity, WorkerDescription
from kforge.errors import WireError
from kforge.types import JudgingDevice
from kforge.visible_text import visible

_LONGEST_NAME = 120


@dataclass(frozen=True)
class WorkerStanding:
    """A worker process, as the scheduler knows it."""

    address: str
    name: str
    status: str
    """Dask's word for it: running, paused, closing_gracefully."""
    silent_seconds: float
    """Since it was last heard of."""
    description: WorkerDescription | None
    """None for one that is not KForge's, or of a version that cannot be read."""
    activity: WorkerActivity

    @property
    def process(self) -> str:
        """What no other worker process is called."""
        return self.description.process if self.description else self.address

    @property
    def host(self) -> str:
        """The host that it is on; empty where that is not known."""
        return self.description.host if self.description else ""

    def has_other(self, platform: str, model: str, device: JudgingDevice) -> bool:
        """Whether one of its devices of a model is another one."""
        return self.description is not None and self.description.has_other(platform, model, device)

    @property
    def takes_jobs(self) -> bool:
        """Whether it is handed jobs of this KForge."""
        return self.status == "running" and self.description is not None and self.description.is_current


@dataclass(frozen=True)
class QueuedCount:
    """How many jobs of a controller ask for something, in one state: Dask's word for it, or held by the controller."""

    resource: str
    state: str
    count: int


@dataclass(frozen=True)
class ControllerStanding:
    """Who asks for reports."""

    name: str
    jobs: tuple[QueuedCount, ...]

    @property
    def title(self) -> str:
        """Whose it is and where: Dask's name for it without what makes it unique."""
        own = re.fullmatch(r"Client-kforge-(.*)-(\d+)-[0-9a-f-]{36}", self.name)
        return f"{own[1]}, process {own[2]}" if own else self.name


@dataclass(frozen=True)
class Census:
    """Everybody."""

    workers: tuple[WorkerStanding, ...] = ()
    controllers: tuple[ControllerStanding, ...] = ()
    deaths_allowed: int = 0

    def groups(self, platform: str) -> list[DeviceGroup]:
        """The devices for a platform whose workers take jobs of this KForge."""
        return [
            group
            for worker in self.workers
            if worker.takes_jobs and worker.description is not None
            for group in worker.description.groups
            if group.platform == platform
        ]

    @functools.cached_property
    def _places(self) -> dict[tuple[str, str], dict[str, int]]:
        """By platform and model, and by worker process. Asked for every job, and of hundreds of workers."""
        places: dict[tuple[str, str], dict[str, int]] = {}
        for worker in self.workers:
            if worker.takes_jobs and worker.description is not None:
                for group in worker.description.groups:
                    there = places.setdefault((group.platform, group.model), {})
                    there[worker.process] = there.get(worker.process, 0) + group.slots
        return places

    @functools.cached_property
    def _slots(self) -> Counter[tuple[str, str]]:
        """By platform and model."""
        return Counter({key: sum(there.values()) for key, there in self._places.items()})

    def places(self, platform: str, model: str) -> dict[str, int]:
        """By worker process, how many jobs for a model of device each takes at once."""
        return self._places.get((platform, model), {})

    def slots(self, platform: str, model: str) -> int:
        """How many jobs for a model can be in hand at once."""
        return self._slots[platform, model]

    def largest_model(self, platform: str) -> str:
        """The model that has the most places; empty where there is none. Of equals the first by name."""
        slots = {model: count for (name, model), count in self._slots.items() if name == platform}
        return min(slots, key=lambda model: (-slots[model], model), default="")

    def facts(self, platform: str, model: str) -> dict[str, str]:
        """What is known of a model, for prompts."""
        return next((dict(group.facts) for group in self.groups(platform) if group.model == model), {})

    @functools.cached_property
    def _by_process(self) -> dict[str, WorkerStanding]:
        return {worker.process: worker for worker in self.workers}

    def worker(self, process: str) -> WorkerStanding | None:
        """A worker process; None where it is not there, or no longer."""
        return self._by_process.get(process)

    def has_process(self, process: str) -> bool:
        """Whether a worker process is still there."""
        return process in self._by_process

    def has_any(self, addresses: list[str]) -> bool:
        """Whether one of these workers is still there."""
        return any(address in self._taking for address in addresses)

    def takes_any(self, addresses: list[str]) -> bool:
        """Whether one of these workers is there and begins further jobs."""
        return any(self._taking.get(address, False) for address in addresses)

    @functools.cached_property
    def _taking(self) -> dict[str, bool]:
        """By address, whether a worker takes jobs."""
        return {worker.address: worker.takes_jobs for worker in self.workers}

    def takers(self, platform: str, model: str) -> list[WorkerStanding]:
        """The workers that take jobs for a model of device."""
        there = self.places(platform, model)
        return [worker for worker in self.workers if worker.takes_jobs and worker.process in there]

    def missing_reason(self, platform: str, model: str = "") -> str:
        """Why nobody can carry out a job, and who is there instead."""
        wanted = f"{platform} on {model}" if model else platform
        there = Counter(
            group.platform
            for worker in self.workers
            if worker.takes_jobs and worker.description is not None
            for group in worker.description.groups
        )
        others = ", ".join(f"{count} for {name}" for name, count in sorted(there.items()))
        versions = sorted(
            {
                worker.description.kforge
                for worker in self.workers
                if worker.description is not None and not worker.description.is_current
            }
        )
        sentence = f"no worker judges for {wanted}; there are: {others or 'none'}"
        if versions:
            sentence += f" (and workers of KForge {', '.join(versions)}: install one version on both sides)"
        return sentence


def read_census(data: bytes) -> Census:
    """What `tasks.describe_cluster` told; WireError for what is no such thing."""
    try:
        told = json.loads(data)
        workers = tuple(_worker(item) for item in told["workers"])
        controllers = tuple(jsonable.decode(ControllerStanding, item) for item in told["controllers"])
        deaths = int(told["deaths_allowed"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(
            f"what the scheduler tells of its cluster cannot be read ({type(error).__name__}): is its KForge of "
            "another version? Install one version on all machines, and start the scheduler anew"
        ) from None
    return Census(workers, controllers, deaths)


def _worker(item: dict[str, Any]) -> WorkerStanding:
    try:
        description = jsonable.decode(WorkerDescription, item["description"], ignore_unknown=True)
    except WireError:
        description = None
    try:
        activity = jsonable.decode(WorkerActivity, item["activity"], ignore_unknown=True)
    except WireError:
        activity = WorkerActivity()
    return WorkerStanding(
        _short(item["address"]),
        _short(item["name"]),
        _short(item["status"]),
        float(item["silent_seconds"]),
        description,
        activity,
    )


def _short(text: Any) -> str:
    return visible(str(text))[:_LONGEST_NAME]
