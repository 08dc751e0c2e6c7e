"""Where a cluster is, and what may be spoken to it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kforge.cluster.address import TLS_VARIABLE, canonical_address, parse_address
from kforge.cluster.certificates import make_certificates
from kforge.errors import UsageError

pytestmark = pytest.mark.pure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ca.pem", "node.pem", "node.key"):
        (tmp_path / name).write_text("in place of one")
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tls://head:8786", "tls://head:8786"),
        ("tls://head", "tls://head:8786"),
        ("tcp://127.0.0.1:1/", "tcp://127.0.0.1:1"),
        ("tls://[::1]:8786", "tls://[::1]:8786"),
        ("tcp://head?insecure", "tcp://head:8786?insecure"),
    ],
)
def test_an_address_means_the_same_everywhere(text: str, canonical: str) -> None:
    assert canonical_address(text) == canonical


@pytest.mark.parametrize(
    "text", ["head:8786", "http://head:8786", "tls://", "tls://head:port", "tls://a b", "inproc://x"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is no address of a cluster: write for example tls://head:8786"):
        canonical_address(text)


def test_what_is_wrong_with_an_address_is_said() -> None:
    with pytest.raises(UsageError, match="there is no port 70000"):
        canonical_address("tls://head:70000")
    with pytest.raises(UsageError, match="no option 'trusting'"):
        canonical_address("tcp://head?trusting")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "[::1]"])
def test_plain_tcp_stays_on_this_machine(host: str) -> None:
    assert parse_address(f"tcp://{host}:1").certificates is None


@pytest.mark.parametrize("host", ["head", "192.168.1.2", "0.0.0.0", "localhost.example.org", "[2001:db8::1]"])
def test_plain_tcp_beyond_it_is_refused_unless_it_is_accepted(host: str) -> None:
    with pytest.raises(UsageError, match="run code on every worker"):
        parse_address(f"tcp://{host}:1")
    assert parse_address(f"tcp://{host}:1", insecure=True).insecure
    assert parse_address(f"tcp://{host}:1?insecure").insecure


def test_certificates_are_where_the_option_or_the_environment_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TLS_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=f"{TLS_VARIABLE}=DIR"):
        parse_address("tls://head")
    monkeypatch.setenv(TLS_VARIABLE, str(folder))
    assert parse_address("tls://head").certificates == parse_address("tls://head", folder).certificates
    with pytest.raises(UsageError, match=r"is not there: the folder of a cluster.s certificates holds ca\.pem"):
        parse_address("tls://head", tmp_path / "nowhere")


def test_a_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "node.key").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        parse_address("tls://head", folder)


def test_certificates_are_made_once_and_the_key_is_their_owners(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    made = make_certificates(tmp_path / "new")
    made.check()
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert sorted(path.name for path in made.path.iterdir()) == ["ca.pem", "node.key", "node.pem"], "no key of the CA"
    with pytest.raises(UsageError, match=r"holds ca\.pem already"):
        make_certificates(tmp_path / "new")
