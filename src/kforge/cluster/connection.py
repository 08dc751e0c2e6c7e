"""A controller's connection to a scheduler: made anew whenever it is lost, with who is there as of a moment ago."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
import time
from typing import Any, Protocol

from distributed import Client

from kforge.cluster.address import ClusterAddress
from kforge.cluster.census import Census, read_census
from kforge.cluster.dask_settings import dask_security, quiet_client
from kforge.cluster.exchange import SchedulerExchange
from kforge.cluster.reachability import make_sure_reachable
from kforge.cluster.tasks import TOPIC, describe_cluster
from kforge.errors import KForgeError
from kforge.execution.base import WAIT_PREFIX

_LOOK_SECONDS = 0.2
_CENSUS_SECONDS = 5.0
_CENSUS_SECONDS_ALONE = 1.0
"""Where nobody is there to take a job."""
_CONNECT_SECONDS = 15.0
_LONGEST_BACKOFF = 10.0
_CLOSE_SECONDS = 10.0


class ConnectionUser(Protocol):
    """Who works with a connection, in its event loop."""

    @property
    def is_lonely(self) -> bool:
        """Whether somebody waits and nobody is there for it."""
        ...

    @property
    def held(self) -> dict[str, int]:
        """How many jobs wait here until the scheduler has room for them, by the resource that they take."""
        ...

    def hear(self, told: dict[str, str]) -> None:
        """A worker says what it is doing with somebody's job: the key, the words, its host and process."""
        ...

    def note_change(self) -> None:
        """Somebody else may be there now, or the scheduler is lost."""
        ...


class SchedulerConnection:
    """Everything here happens in the loop that `keep` runs in."""

    def __init__(self, address: ClusterAddress, user: ConnectionUser) -> None:
        self._address, self._user = address, user
        self._client: Client | None = None
        self._changed = asyncio.Event()
        self._trouble = "connecting to the cluster"
        self._census_at = -1e9
        self._closed = False
        self.exchange: SchedulerExchange | None = None
        """Of this connection; None while there is none."""
        self.census = Census()
        """The last one that was taken, of an earlier connection too."""
        self.made_at = -1e9
        """On the monotonic clock."""

    async def keep(self) -> None:
        """Connect, and do so again whenever that is lost, until it is closed."""
        backoff = _LOOK_SECONDS
        while True:
            try:
                await self._serve_connected()
                self._trouble = f"{WAIT_PREFIX}the scheduler at {self._address.url} is gone; trying again"
                backoff = _LOOK_SECONDS
            except (Exception, asyncio.CancelledError) as error:
                # Whatever Dask makes of a scheduler that ends in the middle of something: it is asked again.
                if self._closed:
                    raise
                self._trouble = f"{WAIT_PREFIX}{self._words(error)}; trying again"
            try:
                self._user.note_change()
            except Exception as error:
                # Without this loop everybody would wait for ever, and nobody be told why.
                self._trouble = f"{WAIT_PREFIX}internal error: {type(error).__name__}: {error}"
            await asyncio.sleep(backoff)
            backoff = min(_LONGEST_BACKOFF, 2 * backoff)

    async def look(self) -> None:
        """Ask who is there."""
        client = self._client
        if client is None:
            return
        asking = client.run_on_scheduler(describe_cluster, asker=client.id, held=self._user.held)
        told = await asyncio.wait_for(asking, _CONNECT_SECONDS)
        self.census = read_census(told)
        self._census_at = time.monotonic()
        self._changed.set()

    async def wait_for_census(self, seconds: float) -> None:
        """Until somebody has looked, or so long."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def missing_reason(self, platform: str, model: str = "") -> str:
        """Why a job for this cannot be carried out now; empty if it can."""
        if self._client is None:
            return self._trouble
        if self._census_at < self.made_at or self.census.slots(platform, model):
            return ""
        start = f"kforge worker --scheduler {self._address.url} --platforms {platform}"
        return f"{WAIT_PREFIX}{self.census.missing_reason(platform, model)}. Start one: {start}"

    async def close(self) -> None:
        """End the connection; it is not made anew."""
        self._closed = True
        client, self._client, self.exchange = self._client, None, None
        if client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(timeout=3), 5)

    async def _serve_connected(self) -> None:
        """One connection, until it is lost."""
        await make_sure_reachable(self._address)
        client = self._make_client()
        try:
            await asyncio.wait_for(_started(client), 2 * _CONNECT_SECONDS)
            await self._watch(client)
        finally:
            self._client = self.exchange = None
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client._close(fast=True), _CLOSE_SECONDS)

    def _words(self, error: BaseException) -> str:
        if isinstance(error, KForgeError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"the scheduler at {self._address.url} does not answer"
        return f"{type(error).__name__}: {error}"

    def _make_client(self) -> Client:
        quiet_client()
        name = f"kforge-{_user()}@{socket.gethostname()}-{os.getpid()}"
        return Client(
            self._address.url,
            asynchronous=True,
            security=dask_security(self._address),
            timeout=_CONNECT_SECONDS,
            name=name,
            set_as_default=False,
            direct_to_workers=False,
        )

    async def _watch(self, client: Client) -> None:
        """Until the scheduler is lost."""
        client.subscribe_topic(TOPIC, self._hear)
        self._client, self.exchange = client, SchedulerExchange(client)
        self.made_at, self._census_at = time.monotonic(), -1e9
        while client.status == "running":
            seconds = _CENSUS_SECONDS_ALONE if self._user.is_lonely else _CENSUS_SECONDS
            if time.monotonic() - self._census_at >= seconds:
                await self.look()
                self._user.note_change()
            await asyncio.sleep(_LOOK_SECONDS)

    def _hear(self, event: tuple[float, Any]) -> None:
        told = event[1]
        names = ("key", "words", "host", "process")
        if isinstance(told, dict) and all(isinstance(told.get(name), str) for name in names):
            self._user.hear(told)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user that nobody has written down.
        return str(os.getuid())


async def _started(client: Client) -> None:
    await client
