"""A program in a process of its own, behind a tool (a profiler, a memory checker); and what a program built.

The runner that starts it never imports the program, so what it says of the tool's findings is not the program's word.
"""

from __future__ import annotations

import base64
import glob
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from typing import Any

import torch

from kforge.worker import trees
from kforge.worker.arena import dtype_name
from kforge.worker.protocol.program import RunStandalone, StandaloneAnswer

_MOST_OUTPUT, _MOST_FILES, _ERRORS = 8 << 20, 12 << 20, 20_000
_SAMPLE = 1 << 16
_SENT = ("class_name", "arguments", "seed", "training", "dtype", "gradients", "only_load")
_BUILT = ("torch_extensions", "triton")
"""Folders below the private one whose content is worth keeping for the next runner of the same source."""
_TUNED = ".autotune.json"


def run(home: str, platform: str, request: RunStandalone, fds: list[int], sets: list[list[Any]]) -> StandaloneAnswer:
    """Run the command, then Python with `standalone_program` on the source; how it ended and what it wrote."""
    if request.archive_bytes:
        unpack(home, fds[-1], request.archive_bytes)
    folder = os.path.join(home, "solo")
    os.makedirs(os.path.join(folder, "cubins"), exist_ok=True)
    _write(os.path.join(folder, "candidate.py"), request.source)
    arguments = sets[0] if sets else []
    tree, tensors = trees.pack(arguments)
    torch.save([_sample(tensor) for tensor in tensors], os.path.join(folder, "inputs.pt"))
    turn = fds[0] if request.takes_turns else None
    order = {
        "turn": turn,
        **{name: getattr(request, name) for name in _SENT},
        "platform": platform,
        "inputs": tree,
        "tensors": [[dtype_name(t.dtype), list(t.shape), list(t.stride())] for t in tensors],
    }
    _write(os.path.join(folder, "order.json"), json.dumps(order))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standalone_program.py")
    root = os.path.abspath(os.path.join(os.path.dirname(program), "..", "..", ".."))
    places = {"{home}": folder, "{python}": sys.executable, "{package}": os.path.join(root, "kforge")}
    command = [_fill_in(word, places) for word in request.command]
    command += [sys.executable, "-I", "-B", "-W", "ignore", program, root, folder]
    began = time.monotonic()
    with (
        open(os.path.join(folder, "stdout"), "w+b") as output,
        open(os.path.join(folder, "stderr"), "w+b") as errors,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=folder,
            env={**os.environ, **request.environment},
            start_new_session=True,
            pass_fds=() if turn is None else (turn,),
        )
        if turn is not None:
            # So that the judge sees the program's end.
            os.close(turn)
        try:
            status = process.wait(request.seconds)
        except subprocess.TimeoutExpired:
            status = -int(signal.SIGKILL)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        written, complaints = _tail(output, _MOST_OUTPUT), _tail(errors, _ERRORS)
    return StandaloneAnswer(status, written, complaints, time.monotonic() - began, _collect(folder, request.files))


def _fill_in(word: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(name, place)
    return word


def pack(home: str, tuned: bool = True) -> bytes:
    """What was built in the private folder, as an archive; empty if nothing was.

    `tuned`: with what Triton's autotuner chose, too.
    """
    if not any(os.path.isdir(os.path.join(home, name)) for name in _BUILT):
        return b""
    data = io.BytesIO()

    def whole_seconds(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not tuned and member.name.endswith(_TUNED):
            return None
        # A file must never seem newer than it was: a nanosecond is enough for ninja to build it again.
        member.mtime = os.lstat(os.path.join(home, member.name)).st_mtime_ns // 10**9
        return member

    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for name in _BUILT:
            if os.path.isdir(os.path.join(home, name)):
                archive.add(os.path.join(home, name), arcname=name, filter=whole_seconds)
    return data.getvalue()


def unpack(home: str, fd: int, size: int) -> None:
    """Lay out what an earlier runner of the same source built."""
    with open(fd, "rb") as file, tarfile.open(fileobj=io.BytesIO(file.read(size)), mode="r:gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(home, filter="data")
        else:
            # Python 3.11.0 to 3.11.3: no more than plain files and folders below the home.
            archive.extractall(home, [member for member in archive if _is_plain(member)])


def _is_plain(member: tarfile.TarInfo) -> bool:
    inside = not os.path.isabs(member.name) and ".." not in member.name.split("/")
    return inside and (member.isfile() or member.isdir())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """A few of a tensor's values, enough to draw others like them."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _SAMPLE)
    return flat[::step].cpu().clone()


def _collect(folder: str, patterns: Sequence[str]) -> dict[str, str]:
    """Plain files below the folder, and no way out of it: neither a link to a file nor one to a folder on the way."""
    files: dict[str, str] = {}
    room, inside = _MOST_FILES, os.path.realpath(folder) + os.sep
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(folder, pattern))):
            if not os.path.isfile(path) or os.path.islink(path) or not os.path.realpath(path).startswith(inside):
                continue
            size = os.path.getsize(path)
            if size <= room:
                room -= size
                with open(path, "rb") as file:
                    files[os.path.relpath(path, folder)] = base64.b64encode(file.read()).decode()
    return files


def _tail(file: Any, limit: int) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - limit))
    return str(file.read(limit).decode(errors="replace"))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
