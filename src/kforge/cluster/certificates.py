"""The certificates of a cluster: a folder that every machine of it has a copy of.

    DIR/
      ca.pem      who signed it: a peer whose certificate is not from here is refused
      node.pem    the certificate that every machine shows
      node.key    its key; whoever holds it belongs to the cluster, and may run code on every worker of it

The authority's own key signs the one certificate and is then forgotten: nothing that is carried about can sign another.
"""

from __future__ import annotations

import datetime
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import PluginAbsent, UsageError
from kforge.whole_file import write_whole

_FILES = ("ca.pem", "node.pem", "node.key")
_VALID_DAYS = 825
_NAME = "KForge cluster"


@dataclass(frozen=True)
class CertificateFolder:
    """The files of one cluster's certificates."""

    path: Path

    @property
    def authority(self) -> Path:
        return self.path / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.path / "node.pem"

    @property
    def key(self) -> Path:
        return self.path / "node.key"

    def check(self) -> None:
        """UsageError where a file is missing, or where others of this machine may read the key."""
        for file in (self.authority, self.certificate, self.key):
            if not os.access(file, os.R_OK):
                reason = "cannot be read" if file.exists() else "is not there"
                raise UsageError(
                    f"{file} {reason}: the folder of a cluster's certificates holds {', '.join(_FILES)}. Copy it whole "
                    "from the machine where `kforge cluster certificates DIR` made it"
                )
        mode = stat.S_IMODE(self.key.stat().st_mode)
        if mode & 0o077:
            raise UsageError(f"{self.key}: others may read this key (its mode is {mode:04o}): chmod 600 {self.key}")


def make_certificates(path: Path, days: int = _VALID_DAYS) -> CertificateFolder:
    """Make the files of a new cluster. UsageError where the folder holds some already, or cannot be written."""
    folder = CertificateFolder(path.expanduser().absolute())
    there = [name for name in _FILES if (folder.path / name).exists()]
    if there:
        raise UsageError(f"{folder.path} holds {there[0]} already; name a new folder, or delete it to make others")
    authority, certificate, key = _sign(days)
    try:
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder.key, key, mode=0o600)
        write_whole(folder.certificate, certificate, mode=0o644)
        write_whole(folder.authority, authority, mode=0o644)
    except OSError as error:
        raise UsageError(f"{error.filename or folder.path}: {error.strerror}; it could not be written there") from None
    return folder


def _sign(days: int) -> tuple[bytes, bytes, bytes]:
    """(the authority's certificate, the machines' certificate, its key), as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise PluginAbsent(
            "certificates are made with the package cryptography: pip install 'kforge-kernels[cluster]'"
        ) from None

    def named(what: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} {what}")])

    now = datetime.datetime.now(datetime.UTC)
    begin, end = now - datetime.timedelta(hours=1), now + datetime.timedelta(days=days)
    authority_key, node_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def certificate(of: str, key: ec.EllipticCurvePublicKey, signs: bool) -> x509.Certificate:
        usage = x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)
        builder = x509.CertificateBuilder(
            issuer_name=named("authority"),
            subject_name=named(of),
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=begin,
            not_valid_after=end,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), True)
        builder = builder.add_extension(usage, True)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        builder = builder.add_extension(identifier, False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        return builder.sign(authority_key, hashes.SHA256())

    pem = serialization.Encoding.PEM
    private = node_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return (
        certificate("authority", authority_key.public_key(), True).public_bytes(pem),
        certificate("machine", node_key.public_key(), False).public_bytes(pem),
        private,
    )
