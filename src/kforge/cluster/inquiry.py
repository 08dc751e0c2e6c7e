"""Asking a cluster's scheduler who is there, once, from a process that has no connection to it."""

from __future__ import annotations

import asyncio
import threading
import time

from kforge.cluster.address import ClusterAddress
from kforge.cluster.census import Census, read_census
from kforge.cluster.dask_settings import dask_security, quiet_client
from kforge.cluster.reachability import check_reachable
from kforge.cluster.tasks import describe_cluster
from kforge.errors import HarnessError

_SECONDS = 20.0
_KEPT_SECONDS = 10.0
_known: dict[str, tuple[float, Census]] = {}
"""What was told a moment ago: a run asks several times before it begins."""


def take_census(address: ClusterAddress, fresh: bool = False) -> Census:
    """Who is there; SchedulerUnreachable says why that cannot be told."""
    when, census = _known.get(address.url, (-1e9, Census()))
    if not fresh and time.monotonic() - when < _KEPT_SECONDS:
        return census
    check_reachable(address)
    census = _in_thread(address)
    _known[address.url] = (time.monotonic(), census)
    return census


def _in_thread(address: ClusterAddress) -> Census:
    """In a loop of its own: whoever asks may be in one already."""
    results: list[Census | Exception] = []

    def work() -> None:
        try:
            results.append(asyncio.run(asyncio.wait_for(_ask(address), _SECONDS)))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=work, name="kforge-inquiry", daemon=True)
    thread.start()
    thread.join(_SECONDS + 5)
    result = results[0] if results else TimeoutError()
    if isinstance(result, Census):
        return result
    if isinstance(result, TimeoutError):
        raise HarnessError(f"the scheduler at {address.url} does not answer") from None
    raise HarnessError(f"the scheduler at {address.url} cannot be asked: {result}") from result


async def _ask(address: ClusterAddress) -> Census:
    from distributed import Client

    quiet_client()
    async with Client(
        address.url,
        asynchronous=True,
        security=dask_security(address),
        timeout=_SECONDS,
        set_as_default=False,
        name="kforge-census",
    ) as client:
        return read_census(await client.run_on_scheduler(describe_cluster))
