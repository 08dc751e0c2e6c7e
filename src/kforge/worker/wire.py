"""Messages between judge and runner: length-prefixed JSON over a Unix socket, with file descriptors.

JSON only, never pickle: whatever a runner writes is data to the judge. A message that is not well formed, too
long or late ends the conversation with a `PeerError` that says which.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import time
from typing import Any

MAX_MESSAGE = 32 << 20
CHANNEL_LOST = 70
"""Exit status of a runner that can no longer reach the judge."""
LAZY_VIEW = "lazy view"
"""How a runner names a tensor whose elements are not all there: expanded, or with a pending negation or conjugation."""
FINISHED = "finished"
"""The file by which a program that runs alone says that nothing ended it early."""
UNINSTRUMENTED = "uninstrumented"
"""The file by which a tool in front of a program says that there was nothing it could look at."""
_HEADER = struct.Struct("!I")
_to_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_CREDENTIALS = struct.Struct("3i")
_MAX_FDS = 128


class PeerError(Exception):
    """The other side cannot be talked to any more."""


class PeerGone(PeerError):
    """The other side closed its end: the process ended, or closed the descriptor."""


class PeerSilent(PeerError):
    """The other side did not answer in time."""


class PeerBroke(PeerError):
    """The other side wrote something that is not a message."""


class Channel:
    """One end of a conversation. `send` and `receive` are whole messages; nothing is buffered across them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.peer_pid = 0
        """The sender's process id as this process sees it, once a message came in with credentials."""

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """(our end, the raw socket to hand over). Our end learns the peer's pid from the kernel."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        if hasattr(socket, "SO_PASSCRED"):
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return cls(ours), theirs

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def is_untouched(self) -> bool:
        """Whether the descriptor is still in the mode this side last put it in: blocking, between messages."""
        return os.get_blocking(self._sock.fileno())

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = (), timeout: float | None = 30.0) -> None:
        data = _to_json(message).encode()
        frame = _HEADER.pack(len(data)) + data
        try:
            self._sock.settimeout(timeout)
            if fds:
                sent = socket.send_fds(self._sock, [frame], list(fds))
                frame = frame[sent:]
            if frame:
                self._sock.sendall(frame)
        except TimeoutError:
            raise PeerSilent("it does not read its messages") from None
        except OSError as error:
            raise PeerGone(f"its channel is closed ({error.strerror})") from None

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        fds: list[int] = []
        try:
            (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline, fds))
            if length > MAX_MESSAGE:
                raise PeerBroke(f"a message of {length} bytes was announced; at most {MAX_MESSAGE} are read")
            data = self._read(length, deadline, fds)
            message = json.loads(data)
            if b"\\ud" in data.lower():
                message = _without_surrogates(message)
        except (ValueError, RecursionError):
            _close_all(fds)
            raise PeerBroke("what it wrote is not JSON") from None
        except PeerError:
            _close_all(fds)
            raise
        if not isinstance(message, dict):
            _close_all(fds)
            raise PeerBroke("what it wrote is not a JSON object")
        return message, fds

    def _read(self, size: int, deadline: float | None, fds: list[int]) -> bytes:
        chunks: list[bytes] = []
        while size:
            left = None
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise PeerSilent("no answer in time")
            try:
                self._sock.settimeout(left)
                chunk = self._recvmsg(min(size, 1 << 20), fds)
            except TimeoutError:
                raise PeerSilent("no answer in time") from None
            except OSError as error:
                raise PeerGone(f"its channel broke ({error.strerror})") from None
            if not chunk:
                raise PeerGone("it closed its channel")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def _recvmsg(self, size: int, fds: list[int]) -> bytes:
        room = socket.CMSG_SPACE(_MAX_FDS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        data, ancillary, _flags, _address = self._sock.recvmsg(size, room)
        for level, kind, payload in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == socket.SCM_RIGHTS:
                items = array.array("i")
                items.frombytes(payload[: len(payload) - len(payload) % items.itemsize])
                fds.extend(items)
                if len(fds) > _MAX_FDS:
                    raise PeerBroke(f"more than {_MAX_FDS} descriptors in one message")
            elif kind == getattr(socket, "SCM_CREDENTIALS", -1):
                self.peer_pid = _CREDENTIALS.unpack(payload[: _CREDENTIALS.size])[0]
        return data


def _without_surrogates(value: Any) -> Any:
    """Half characters cannot be printed or written to a file."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
    fds.clear()
