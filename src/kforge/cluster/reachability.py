"""Whether a scheduler answers at an address, and if not, why: Dask itself says only that it timed out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading

from kforge.cluster.address import TLS_VARIABLE, ClusterAddress
from kforge.cluster.certificates import CertificateFolder
from kforge.errors import HarnessError

_SECONDS = 10.0
_NOT_NOW = (9, 10)
"""OpenSSL's numbers for a certificate that holds not yet, and no longer."""


class SchedulerUnreachable(HarnessError):
    """No scheduler answers, or it refuses; the message says why and what to do."""


def check_reachable(address: ClusterAddress, seconds: float = _SECONDS) -> None:
    """Say hello to the scheduler; SchedulerUnreachable says what is wrong."""
    try:
        connection = socket.create_connection((address.plain_host, address.port), seconds)
    except OSError as error:
        reason = "it took too long" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise SchedulerUnreachable(
            f"no scheduler answers at {address.url}: {reason}. Start one there: kforge cluster start {address.url}"
        ) from None
    with connection:
        connection.settimeout(seconds)
        if address.certificates is None:
            _hear(connection, address)
        else:
            _hear_encrypted(connection, address, address.certificates)


async def make_sure_reachable(address: ClusterAddress, seconds: float = _SECONDS) -> None:
    """The same without holding up the loop; whoever is cancelled meanwhile waits for nothing."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

    def work() -> None:
        try:
            check_reachable(address, seconds)
            error = None
        except Exception as raised:
            error = raised
        # The loop may be gone by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=work, name="kforge-reach", daemon=True).start()
    await answer


def _hear(connection: socket.socket, address: ClusterAddress) -> None:
    """A scheduler speaks first. One that expects encryption says nothing to who does not begin with it."""
    try:
        if connection.recv(1):
            return
    except OSError:
        pass
    raise SchedulerUnreachable(
        f"what answers at {address.url} is no scheduler without encryption: try tls:// with {TLS_VARIABLE}=DIR, or see "
        "what else uses that port"
    )


def _hear_encrypted(connection: socket.socket, address: ClusterAddress, folder: CertificateFolder) -> None:
    context = ssl.create_default_context(cafile=str(folder.authority))
    context.check_hostname = False
    try:
        context.load_cert_chain(folder.certificate, folder.key)
        with context.wrap_socket(connection, server_hostname=address.plain_host) as encrypted:
            # A certificate that is refused is only told with the first bytes.
            if encrypted.recv(1):
                return
            reason = "it closed the connection"
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _NOT_NOW:
            raise SchedulerUnreachable(
                f"the certificates of the scheduler at {address.url} do not hold now: {error.verify_message}. Compare "
                "the clocks of both machines, or make new ones for the whole cluster: kforge cluster certificates DIR"
            ) from None
        reason = f"its certificate is not of the cluster of {folder.path}"
    except ssl.SSLError as error:
        reason = _tls_reason(error, folder)
    except OSError as error:
        reason = error.strerror or str(error)
    raise SchedulerUnreachable(
        f"the scheduler at {address.url} and this machine do not agree on certificates: {reason}. Every machine of a "
        "cluster needs a copy of one folder, made once by kforge cluster certificates DIR"
    )


def _tls_reason(error: ssl.SSLError, folder: CertificateFolder) -> str:
    text = str(error.reason or error).lower().replace("_", " ")
    if "unknown ca" in text or "certificate" in text:
        return f"it refuses the one in {folder.path} ({text})"
    if "wrong version" in text or "record layer" in text:
        return "it speaks without encryption (start it with tls://)"
    return text
