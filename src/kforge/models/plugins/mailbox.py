"""`mailbox:DIR`: prompts as files out, replies as files in. A person answers, or any program."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from kforge.errors import UsageError
from kforge.models.base import ModelPlugin, tell_wait
from kforge.models.pictures import image_list, write_pictures
from kforge.models.prices import input_tokens, tokens_in
from kforge.types import Completion, ModelSettings, Prompt, Usage
from kforge.whole_file import write_whole

POLL_SECONDS = 0.2
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_README = """\
KForge asks here and waits.

Each question is a file NAME.prompt.md; pictures that belong to it are named at its end and lie beside it.
Answer by writing NAME.reply.md: the same name, with reply in place of prompt. Write it under another name and
rename it, so that it appears whole; a plain write works too, if the file is written in one go.
A question may wait for hours. An answer that is already there is used at once, so nothing is asked twice.
"""


class Mailbox:
    """A folder as a model. There is no time limit: a person may take hours.

    The price of a reply is unknown, and its tokens are counted at four characters each.
    """

    def __init__(self, folder: str | Path) -> None:
        """Makes the folder; raises UsageError if that cannot be done."""
        self._name = f"mailbox:{folder}"
        self._folder = Path(folder).expanduser()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / "README.txt", _README.encode())
        except OSError as error:
            raise UsageError(f"{self._name}: the folder cannot be written: {error.strerror or error}") from None

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, prompt: Prompt) -> Completion:
        started = time.monotonic()
        name = file_name(prompt)
        reply = self._folder / f"{name}.reply.md"
        if not reply.exists():
            self._ask(prompt, name)
            tell_wait(str(reply))
        text = await _wait_for_reply(reply)
        usage = Usage(requests=1, input_tokens=input_tokens(prompt), output_tokens=tokens_in(text), unpriced=1)
        return Completion(text, self._name, usage, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """Nothing is held open."""

    def _ask(self, prompt: Prompt, name: str) -> None:
        try:
            pictures = write_pictures(prompt, self._folder, name)
            text = prompt.text + image_list([path.name for path in pictures])
            write_whole(self._folder / f"{name}.prompt.md", text.encode())
        except OSError as error:
            raise UsageError(f"{self._name}: the question cannot be written: {error.strerror or error}") from None


def file_name(prompt: Prompt) -> str:
    """The stem of a question's files: which problem, draw and agent, what is asked. Safe whatever the names hold."""
    words = [_UNSAFE.sub("_", word)[:60] for word in (prompt.problem, prompt.sample)]
    return ".".join([*filter(None, words), prompt.purpose, prompt.id])


async def _wait_for_reply(reply: Path) -> str:
    """The reply's text, once it is there, not empty and no longer growing."""
    seen: tuple[int, int] | None = None
    while True:
        try:
            facts = reply.stat()
        except FileNotFoundError:
            facts = None
        if facts is not None and facts.st_size:
            now = (facts.st_size, facts.st_mtime_ns)
            if now == seen or time.time() - facts.st_mtime > 10 * POLL_SECONDS:
                return reply.read_text(encoding="utf-8", errors="replace")
            seen = now
        await asyncio.sleep(POLL_SECONDS)


class MailboxPlugin(ModelPlugin):
    name = "mailbox"
    form = "mailbox:DIR"
    what = "a folder: prompts as files out, replies as files in"

    def open(self, argument: str, settings: ModelSettings) -> Mailbox:
        return Mailbox(argument)


PLUGIN = MailboxPlugin()
