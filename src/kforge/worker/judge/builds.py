"""Programs that take long to build are built beforehand: without a device, several at a time, once for each source.

What a build leaves is an archive that only a runner of the very same source unpacks, inside its sandbox. The judge
never looks into it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform as machine
import re
import threading
from pathlib import Path

import torch

from kforge.cache_folder import cache_folder
from kforge.types import Candidate, Settings
from kforge.whole_file import write_whole
from kforge.worker.judge.runner_handle import ProgramError, RunnerLost
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.judge.runner_requests import receive_build
from kforge.worker.judge.standalone import standalone_request
from kforge.worker.protocol.program import StandaloneAnswer

_SLOW = re.compile(r"\bload_inline\b|\bcpp_extension\b")
_MOST_BYTES = 256 << 20
_KEPT_BYTES = 4 << 30
_FAILED = re.compile(r"Error building extension|compilation failed|ninja: build stopped|fatal error:")


class BuildFailed(Exception):
    """The compiler refused the program; the message is what it said."""


class BuildRefused(Exception):
    """The program broke a rule while it was built."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


class Builds:
    """Archives of what programs built, by content."""

    def __init__(self, runner_pool: RunnerPool, folder: Path | None = None) -> None:
        self._runner_pool = runner_pool
        self._folder = folder or cache_folder() / "builds"
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def archive(self, candidate: Candidate, settings: Settings) -> bytes:
        """What the program built, from before or made now; empty for one that builds in no time, or leaves nothing."""
        if not _SLOW.search(candidate.source):
            return b""
        key = self._key(candidate)
        with self._guard:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            path = self._folder / f"{key}.tar.gz"
            try:
                data = path.read_bytes()
                os.utime(path)
                return data
            except OSError:
                pass
            data = self._build(candidate, settings)
            if data:
                self._keep(path, data)
            return data

    def _build(self, candidate: Candidate, settings: Settings) -> bytes:
        runner = self._runner_pool.spawn_bounded(settings.limits, 0)
        seconds = settings.limits.build_seconds
        try:
            request = standalone_request(candidate.source, ("env",), seconds, ("findings.json",), only_load=True)
            answer = runner.ask(request, seconds + 30)
            _refuse_findings(answer)
            if not _is_complete(answer, seconds):
                return b""
            return receive_build(runner, _MOST_BYTES, 60.0)
        except RunnerLost as error:
            if error.kind == "timeout":
                raise BuildFailed(f"building took longer than {seconds:.0f} s") from None
            return b""
        except ProgramError:
            # What it left cannot be packed: it is built where it runs.
            return b""
        finally:
            runner.end()

    def _keep(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
            kept = sorted(path.parent.glob("*.tar.gz"), key=lambda item: item.stat().st_mtime, reverse=True)
            total = 0
            for item in kept:
                total += item.stat().st_size
                if total > _KEPT_BYTES:
                    item.unlink(missing_ok=True)
        except OSError:
            # No room to keep it: it will be built again.
            pass

    def _key(self, candidate: Candidate) -> str:
        parts = (candidate.source, torch.__version__, machine.python_version(), *self._runner_pool.build_facts())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _refuse_findings(answer: StandaloneAnswer) -> None:
    """BuildRefused for what the program did while it was built."""
    try:
        findings = json.loads(base64.b64decode(answer.files["findings.json"]))
        first = (str(findings[0][0]), str(findings[0][1])[:500]) if findings else None
    except (KeyError, TypeError, ValueError, IndexError, RecursionError):
        return
    if first is not None:
        raise BuildRefused(*first)


def _is_complete(answer: StandaloneAnswer, seconds: float) -> bool:
    """Whether a build came to its end, so that what it left can be used; BuildFailed where the compiler refused."""
    if answer.status < 0:
        if answer.seconds >= seconds:
            raise BuildFailed(f"building took longer than {seconds:.0f} s")
        # Half a build may hold a lock that every later one would wait for.
        return False
    if answer.status and _FAILED.search(answer.errors):
        raise BuildFailed(answer.errors)
    return True
