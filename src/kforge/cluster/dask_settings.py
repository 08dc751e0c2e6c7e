"""How Dask is set up: what would disturb a measurement is off, and what would take a pause for a death is patient."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from kforge.cluster.address import ClusterAddress
from kforge.cluster.job_queue import MOST_DEATHS

_SETTINGS: dict[str, Any] = {
    # A thread that looks at the judges' threads a hundred times a second.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    # Jobs are judged by processes of their own, and hold next to nothing here.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # Pages without certificates.
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    # A network that pauses for a minute is there again afterwards.
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.scheduler.allowed-failures": MOST_DEATHS - 1,
    # A hundred events each are plenty: they are told, and not read again.
    "distributed.admin.low-level-log-length": 100,
}
_LARGE_MODULE = "1TB"
"""A live module may be as large as it is: Dask would advise to load it with Dask."""


def configure_process() -> None:
    """Set up Dask in a process that is a worker or a scheduler, and nothing else."""
    import dask

    dask.config.set(_SETTINGS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    logging.getLogger("tornado").setLevel(logging.CRITICAL)


def quiet_client() -> None:
    """What a controller has to say about its connection it says itself."""
    import dask
    from distributed.versions import VersionMismatchWarning

    for name in ("client", "core", "batched", "comm", "utils"):
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)
    # Nothing of Python's travels but bytes: what must be the same is KForge's version, which workers look at.
    warnings.simplefilter("ignore", VersionMismatchWarning)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": _LARGE_MODULE})


def dask_security(address: ClusterAddress) -> Any:
    """Dask's own record of the certificates; None without."""
    if address.certificates is None:
        return None
    from distributed.security import Security

    folder = address.certificates
    sides = {
        f"tls_{side}_{part}": str(file)
        for side in ("scheduler", "worker", "client")
        for part, file in (("cert", folder.certificate), ("key", folder.key))
    }
    return Security(tls_ca_file=str(folder.authority), require_encryption=True, **sides)
