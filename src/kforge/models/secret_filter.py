"""Keeps keys and prompts out of what providers and programs say: both like to repeat what they were sent."""

from __future__ import annotations

import re

from kforge.models.keys import secrets
from kforge.types import Prompt

LONGEST = 300
"""Characters of somebody else's message that are passed on."""
SHARED = 12
"""Letters and digits in a row, as in the prompt, that count as repeating it."""

_HIDDEN = "[...]"
_READ = 4000
"""Characters that are looked at; error pages can be long."""
_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|key|Bearer|AIza)[-_ ]?[\w*.-]{8,}|\S*\*{3,}\S*")
_ESCAPE = re.compile(r"\\[nrt\"']")
_NOISE = re.compile(r"[\W_]+")
_WORD = re.compile(r"\w+")


def scrub(message: str, prompt: Prompt) -> str:
    """A message without keys and without what it shares with the prompt, on one line and cut to length."""
    for secret in secrets():
        message = message.replace(secret, _HIDDEN)
    message = " ".join(_KEY_LIKE.sub(_HIDDEN, _ESCAPE.sub(" ", message[:_READ])).split())
    prompt_text = _NOISE.sub("", _ESCAPE.sub(" ", prompt.text)).lower()
    words = list(_WORD.finditer(message))
    shown, reached = "", 0
    for start, word in enumerate(words):
        end = _end_of_repetition(words, start, prompt_text)
        if end > start and words[end - 1].end() > reached:
            if word.start() > reached:
                shown += message[reached : word.start()] + _HIDDEN
            reached = words[end - 1].end()
    shown += message[reached:]
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + "..."


def _end_of_repetition(words: list[re.Match[str]], start: int, prompt_text: str) -> int:
    """Where the run of words from `start` that stands in the prompt ends; `start` if it is too short to tell."""
    run = ""
    for end in range(start, len(words)):
        run += _NOISE.sub("", words[end].group()).lower()
        if run not in prompt_text:
            return start
        if len(run) >= SHARED:
            return end + 1
    return start
