"""Where a cluster's scheduler is, and how one may speak to it."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kforge.cluster.certificates import CertificateFolder
from kforge.errors import UsageError

TLS_VARIABLE = "KFORGE_CLUSTER_TLS"
DEFAULT_PORT = 8786
_INSECURE = "insecure"
_FORM = re.compile(r"(?P<scheme>tls|tcp)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?")
_EXAMPLE = "write for example tls://head:8786"


@dataclass(frozen=True)
class ClusterAddress:
    """A scheduler's address, and the certificates for it. One that may not be used cannot be built."""

    scheme: str
    """tls or tcp."""
    host: str
    port: int
    insecure: bool = False
    """Whether the user accepts that anybody on the way reads along, and may give orders."""
    certificates: CertificateFolder | None = None
    """Of tls."""

    @property
    def url(self) -> str:
        """As Dask writes it."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def plain_host(self) -> str:
        """The host without the brackets of an IPv6 address."""
        return self.host.strip("[]")

    @property
    def is_loopback(self) -> bool:
        """Whether nothing leaves this machine."""
        return is_loopback(self.plain_host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def canonical_address(text: str) -> str:
    """The address with its port, `?insecure` kept; UsageError for what is none."""
    scheme, host, port, insecure = _parts(text)
    return f"{scheme}://{host}:{port}" + (f"?{_INSECURE}" if insecure else "")


def parse_address(text: str, tls: Path | None = None, insecure: bool = False) -> ClusterAddress:
    """The address that a text means, with the certificates in `tls`, or in the folder that the environment names.

    UsageError for what is none, for plain TCP beyond this machine that nobody accepted, and where certificates are
    missing.
    """
    scheme, host, port, accepted = _parts(text)
    insecure = insecure or accepted
    if scheme == "tls":
        return ClusterAddress(scheme, host, port, insecure, _certificates(tls))
    if not is_loopback(host.strip("[]")) and not insecure:
        raise UsageError(
            f"tcp://{host}:{port} is plain TCP beyond this machine: whoever is on the way reads programs and reports, "
            "and whoever reaches it may run code on every worker. Use tls:// (kforge cluster certificates DIR makes "
            "what it takes). Where the network is yours alone: --insecure, and for an executor "
            f"dask:tcp://{host}:{port}?{_INSECURE}"
        )
    return ClusterAddress(scheme, host, port, insecure)


def _parts(text: str) -> tuple[str, str, int, bool]:
    place, _, option = text.strip().partition("?")
    match = _FORM.fullmatch(place.rstrip("/"))
    if match is None:
        raise UsageError(f"{text!r} is no address of a cluster: {_EXAMPLE}, or tcp://127.0.0.1:8786 on this machine")
    if option not in ("", _INSECURE):
        raise UsageError(f"{text}: an address has no option {option!r}; there is ?{_INSECURE}")
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port < 1 << 16:
        raise UsageError(f"{text}: there is no port {port}")
    return match["scheme"], match["host"], port, option == _INSECURE


def _certificates(tls: Path | None) -> CertificateFolder:
    named = tls or (Path(os.environ[TLS_VARIABLE]).expanduser() if os.environ.get(TLS_VARIABLE) else None)
    if named is None:
        raise UsageError(
            f"a tls:// address needs certificates: name their folder with {TLS_VARIABLE}=DIR (or --tls DIR). "
            "`kforge cluster certificates DIR` makes them, once for the whole cluster; every machine gets a copy"
        )
    folder = CertificateFolder(named.absolute())
    folder.check()
    return folder
