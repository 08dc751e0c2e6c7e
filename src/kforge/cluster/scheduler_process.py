"""Dask's own scheduler, set up for judging: what a worker's death means, and nothing open without a certificate."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from distributed import Scheduler

from kforge.cluster.address import ClusterAddress
from kforge.cluster.dask_settings import configure_process, dask_security
from kforge.errors import UsageError

_CLOSE_SECONDS = 10.0


async def serve_scheduler(
    address: ClusterAddress, started: Callable[[str], None], stopped: asyncio.Event | None = None
) -> None:
    """Serve at an address until SIGINT, SIGTERM or `stopped`; UsageError where it is taken or not this machine's."""
    configure_process()
    scheduler = Scheduler(
        host=address.plain_host,
        port=address.port,
        protocol=f"{address.scheme}://",
        security=dask_security(address),
        dashboard=False,
        dashboard_address="127.0.0.1:0",
    )
    stopped = stopped or asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        await scheduler
    except RuntimeError as error:
        # Dask says that it failed to start, and only the cause why.
        cause = error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise UsageError(
            f"no scheduler can be started at {address.url}: {cause.strerror or cause}. Name an address of this machine "
            "and a port that is free"
        ) from None
    try:
        started(scheduler.address)
        waiting = asyncio.create_task(stopped.wait())
        finished = asyncio.create_task(scheduler.finished())
        await asyncio.wait({waiting, finished}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        finished.cancel()
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(scheduler.close(), _CLOSE_SECONDS)
