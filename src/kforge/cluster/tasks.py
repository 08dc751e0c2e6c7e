"""The functions that are named across the wire. Dask carries their names and bytes; nothing heavy is imported here."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.cluster.device_host import DeviceHost

TOPIC = "kforge"
"""Under which workers say what they are doing."""
_hosts: list[DeviceHost] = []
"""Of this process: none on a scheduler or a controller, one on a worker."""


def set_host(host: DeviceHost) -> None:
    """From now on this process is a worker, and judges with this."""
    _hosts[:] = [host]


async def carry_out(key: str, message: bytes, payload: bytes, model: str, apart_from: str = "") -> bytes:
    """The answer to a request, on the worker that Dask calls it on; on another device than the one of that identity
    where it has several.
    """
    if not _hosts:
        raise RuntimeError("this Dask worker is no worker of KForge's: start it with kforge worker")
    return await _hosts[0].answer(key, message, payload, model, apart_from)


def describe_cluster(dask_scheduler: Any = None, asker: str = "", held: dict[str, int] | None = None) -> bytes:
    """Who is there and what waits, as JSON: called on the scheduler.

    A controller says what it holds itself, for whoever asks next; with the scheduler it is forgotten.
    """
    now = time.time()
    notes: dict[str, dict[str, int]] = dask_scheduler.__dict__.setdefault("kforge_held", {})
    if asker:
        notes[asker] = held or {}
    for gone in notes.keys() - dask_scheduler.clients.keys():
        del notes[gone]
    workers = [
        {
            "address": state.address,
            "name": str(state.name),
            "status": state.status.name,
            "silent_seconds": round(max(0.0, now - state.last_seen), 1),
            "description": state.extra.get("kforge"),
            "activity": (state.metrics or {}).get("kforge"),
        }
        for state in dask_scheduler.workers.values()
    ]
    controllers = []
    for client in dask_scheduler.clients.values():
        counts: Counter[tuple[str, str]] = Counter()
        for task in client.wants_what:
            if str(task.key).startswith("kforge-"):
                wanted = max(task.resource_restrictions or {"": 1}, key=lambda name: (name.count(":"), len(name)))
                counts[wanted, task.state] += 1
        counts.update({(name, "held"): count for name, count in notes.get(client.client_key, {}).items()})
        jobs = [{"resource": name, "state": state, "count": count} for (name, state), count in counts.items()]
        if jobs:
            controllers.append({"name": str(client.client_key), "jobs": jobs})
    answer = {"workers": workers, "controllers": controllers, "deaths_allowed": dask_scheduler.allowed_failures}
    return json.dumps(answer).encode()
