"""`kforge cluster`: who is on a cluster, what everybody is doing, and what waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from kforge import jsonable
from kforge.cli.screen import Screen
from kforge.cluster.__main__ import require_dask
from kforge.cluster.address import TLS_VARIABLE, parse_address
from kforge.cluster.census import Census, ControllerStanding, QueuedCount, WorkerStanding
from kforge.cluster.certificates import make_certificates
from kforge.cluster.inquiry import take_census
from kforge.cluster.job_queue import MOST_DEATHS
from kforge.reports.number_format import several

_SILENT_SECONDS = 15.0
"""A worker that was not heard of for so long may be gone, or its network is."""


def show(address: str, tls: Path | None, insecure: bool, as_json: bool) -> int:
    """Print who is there; 0."""
    require_dask()
    place = parse_address(address, tls, insecure)
    census = take_census(place, fresh=True)
    if as_json:
        print(json.dumps(jsonable.encode(census)))
        return 0
    console = Screen()
    for line in [*_head(census, place.url), *_workers(census), *_queues(census)]:
        _print(console, line)
    return 0


def certificates(place: str) -> int:
    """Make a cluster's certificates; 0."""
    folder = make_certificates(Path(place))
    console = Screen()
    for line in (
        f"made {folder.path}: ca.pem, node.pem, node.key",
        "Copy the folder to every machine of the cluster (scp -rp), and name it there:",
        f"  export {TLS_VARIABLE}={folder.path}",
        "Whoever has node.key may run code on every worker.",
    ):
        _print(console, line)
    return 0


def _head(census: Census, url: str) -> Iterator[str]:
    rate = sum(worker.activity.verdicts_per_hour for worker in census.workers)
    yield f"[bold]{escape(url)}[/]  {several(len(census.workers), 'worker')}, {rate:.0f} verdicts an hour"
    if census.deaths_allowed != MOST_DEATHS - 1:
        yield (
            f"[yellow]its scheduler lets a job end {census.deaths_allowed + 1} workers, not {MOST_DEATHS}: start it "
            "with kforge cluster start[/]"
        )


def _workers(census: Census) -> Iterator[str]:
    for worker in sorted(census.workers, key=lambda item: item.name):
        yield ""
        yield from _worker(worker)


def _worker(worker: WorkerStanding) -> Iterator[str]:
    description, activity = worker.description, worker.activity
    state = _state(worker)
    if description is None:
        yield f"[bold]{escape(worker.name)}[/]  {state}"
        yield "  no worker of KForge's, or of a version that cannot be read: nothing is handed to it"
        return
    yield f"[bold]{escape(worker.name)}[/]  {state}, {len(activity.in_hand)} of {description.slots} places taken"
    yield (
        f"  {escape(description.host)}, {escape(description.system)}, KForge {escape(description.kforge)}, torch "
        f"{escape(description.torch)}"
    )
    rate = f"{several(activity.verdicts, 'verdict')}, {activity.verdicts_per_hour:.0f} an hour"
    yield f"  {rate}; sandbox {escape(description.sandbox)}"
    if not description.is_current:
        yield "  [yellow]another version than this one: it is handed no jobs of this KForge[/]"
    for group in description.groups:
        yield f"  {escape(group.platform):<8} {len(group.devices)} x {escape(group.model)}, {group.slots} at once"
    for job in activity.in_hand:
        yield f"    {escape(job.title)} ({escape(job.platform)}), {job.seconds:.0f} s: {escape(job.doing or 'begun')}"


def _state(worker: WorkerStanding) -> str:
    if worker.silent_seconds > _SILENT_SECONDS:
        return f"[yellow]silent for {worker.silent_seconds:.0f} s[/]"
    if worker.activity.retiring or worker.status in ("paused", "closing_gracefully"):
        return "retiring"
    return "ready" if worker.status == "running" else escape(worker.status)


def _queues(census: Census) -> Iterator[str]:
    yield ""
    if not census.controllers:
        yield "nothing waits"
        return
    in_hand = {job.key for worker in census.workers for job in worker.activity.in_hand}
    yield f"[bold]asked for[/]  {len(in_hand)} judged now"
    for controller in census.controllers:
        yield from (f"  {line}" for line in _queue(controller, census))


def _queue(controller: ControllerStanding, census: Census) -> Iterator[str]:
    yield escape(controller.title)
    for item in controller.jobs:
        yield f"  {item.count} x {escape(item.resource)}: {_why(item, census)}"


def _why(item: QueuedCount, census: Census) -> str:
    if item.state == "memory":
        return "judged, and on the way back"
    platform, _, model = item.resource.removeprefix("kforge-").partition(":")
    slots = census.slots(platform, model)
    if item.state == "no-worker" or not slots:
        return escape(census.missing_reason(platform, model))
    if item.state == "held":
        return "waiting there until the scheduler has room: each controller hands out two for each place"
    if item.count > slots:
        return f"judged or waiting for one of {several(slots, 'place')}"
    return "judged, or about to be"


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=not console.is_terminal)
