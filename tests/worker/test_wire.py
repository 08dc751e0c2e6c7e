"""The wire: whole messages, descriptors with them, and nothing a peer writes can do more than end the talk."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.worker.wire import MAX_MESSAGE, Channel, PeerBroke, PeerError, PeerGone, PeerSilent

pytestmark = pytest.mark.pure

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_messages_arrive_as_they_were_sent(message):
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    other.send(message)
    assert ours.receive(1.0)[0] == message
    ours.close()
    other.close()


def test_descriptors_travel():
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    reader, writer = os.pipe()
    ours.send({"op": "take"}, (writer,))
    os.close(writer)
    _, fds = other.receive(1.0)
    os.write(fds[0], b"hello")
    os.close(fds[0])
    assert os.read(reader, 10) == b"hello"
    os.close(reader)
    ours.close()
    other.close()


def test_a_large_message_crosses_the_socket_buffer():
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    text = "x" * (4 << 20)
    thread = threading.Thread(target=other.send, args=({"text": text},))
    thread.start()
    assert ours.receive(10.0)[0]["text"] == text
    thread.join()
    ours.close()
    other.close()


@given(st.binary(max_size=200))
def test_garbage_ends_the_talk_and_nothing_else(data):
    ours, theirs = Channel.pair()
    theirs.sendall(data)
    theirs.close()
    try:
        message, _ = ours.receive(1.0)
        assert isinstance(message, dict)
    except PeerError:
        pass
    finally:
        ours.close()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (struct.pack("!I", MAX_MESSAGE + 1), PeerBroke),
        (struct.pack("!I", 4) + b"null", PeerBroke),
        (struct.pack("!I", 3) + b"{{{", PeerBroke),
        (struct.pack("!I", 400_000) + b"[" * 400_000, PeerBroke),
        (struct.pack("!I", 10) + b"abc", PeerGone),
        (b"", PeerGone),
    ],
)
def test_each_kind_of_nonsense(data, error):
    ours, theirs = Channel.pair()
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
    sender.start()
    with pytest.raises(error):
        ours.receive(5.0)
    ours.close()
    sender.join()


def test_silence_is_noticed():
    ours, theirs = Channel.pair()
    with pytest.raises(PeerSilent):
        ours.receive(0.05)
    ours.close()
    theirs.close()


def test_the_kernel_tells_who_sent():
    ours, theirs = Channel.pair()
    if not hasattr(socket, "SCM_CREDENTIALS"):
        pytest.skip("no credentials on this system")
    Channel(theirs).send({})
    ours.receive(1.0)
    assert ours.peer_pid == os.getpid()
    ours.close()
    theirs.close()
