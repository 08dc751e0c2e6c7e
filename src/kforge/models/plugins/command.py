"""`command:CLI ...`: a program that reads the prompt on standard input and prints its reply."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
import time
from pathlib import Path

from kforge.errors import ModelError, ModelRejected, ModelUnavailable, UsageError
from kforge.models.base import ModelPlugin
from kforge.models.pictures import image_list, write_pictures
from kforge.models.prices import input_tokens, tokens_in
from kforge.models.secret_filter import scrub
from kforge.types import Completion, ModelSettings, Prompt, Usage

_MISUSED = frozenset({2, 64, 126, 127})
"""Exit statuses by which programs say that they were called wrongly."""
_LAST_LINES = 5


class Command:
    """A command line as a model. Its price is unknown, and its tokens are counted at four characters each."""

    def __init__(self, line: str, settings: ModelSettings = ModelSettings()) -> None:
        """`line` is split like a shell would, and no shell runs. Raises UsageError for a program that is not there."""
        try:
            self._arguments = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"command:{line}: {error}") from None
        if not self._arguments:
            raise UsageError("command: names no program; write for example --model 'command:claude -p'")
        if shutil.which(self._arguments[0]) is None:
            raise UsageError(f"command:{line}: there is no program {self._arguments[0]!r} on this machine")
        self._name = f"command:{line}"
        self._limit = settings.timeout_seconds

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, prompt: Prompt) -> Completion:
        started = time.monotonic()
        # Files, not pipes: a stray grandchild that keeps a pipe open cannot keep the reply back.
        with tempfile.TemporaryDirectory(prefix="kforge-command-") as folder:
            here = Path(folder)
            pictures = write_pictures(prompt, here, "image")
            (here / "prompt").write_text(prompt.text + image_list(pictures), encoding="utf-8")
            status = await self._run(here)
            reply = (here / "reply").read_text(encoding="utf-8", errors="replace")
            if status != 0:
                raise self._failure(status, (here / "errors").read_text(encoding="utf-8", errors="replace"), prompt)
        usage = Usage(requests=1, input_tokens=input_tokens(prompt), output_tokens=tokens_in(reply), unpriced=1)
        return Completion(reply, self._name, usage, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """Nothing stays open between requests."""

    async def _run(self, here: Path) -> int:
        with (
            (here / "prompt").open("rb") as ask,
            (here / "reply").open("wb") as out,
            (here / "errors").open("wb") as err,
        ):
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._arguments, stdin=ask, stdout=out, stderr=err, start_new_session=True
                )
            except OSError as error:
                raise ModelRejected(f"{self._name} cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._limit):
                return await process.wait()
        except TimeoutError:
            raise ModelUnavailable(f"{self._name}: no reply within {self._limit:g} s") from None
        finally:
            # Also on Ctrl-C, and for what the program left running.
            _kill_group(process.pid)
            await process.wait()

    def _failure(self, status: int, errors: str, prompt: Prompt) -> ModelError:
        tail = "\n".join(errors.strip().splitlines()[-_LAST_LINES:])
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        kind = ModelRejected if status in _MISUSED else ModelUnavailable
        return kind(f"{self._name} {how}: {scrub(tail, prompt) or 'it said nothing'}")


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class CommandPlugin(ModelPlugin):
    name = "command"
    form = "'command:claude -p'"
    what = "a program: prompt on standard input, reply on standard output"

    def open(self, argument: str, settings: ModelSettings) -> Command:
        return Command(argument, settings)


PLUGIN = CommandPlugin()
