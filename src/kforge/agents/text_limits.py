"""Keeping text under a ceiling: how long it is for a model, and how a log is cut around its first error."""

from __future__ import annotations

import re

_CHARACTERS_PER_TOKEN = 3.0
"""Code and logs run to 3 to 4 characters a token with the common tokenisers; the low end keeps the promise."""

TOKENS_PER_IMAGE = 1_600
"""What providers charge for a picture of a screen, at most."""

_ERROR = re.compile(
    r"\berror\b|\bError\b|Traceback|Exception|FAILED|failed|undefined reference|Segmentation|mismatch|expected",
)


def tokens(text: str) -> int:
    """An upper estimate of a text's length in tokens."""
    return int(len(text.encode()) / _CHARACTERS_PER_TOKEN) + 1


def cut_log(text: str, characters: int) -> str:
    """At most about that many characters of a log, around its first error, and saying what was left out."""
    if len(text) <= characters:
        return text
    lines = [_shorten(line) for line in text.split("\n")]
    first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
    start = end = first
    size = len(lines[first]) + 1
    # Twice as much after the error as before it: what follows says more than what led there.
    for turn in range(3 * len(lines)):
        before = turn % 3 == 0
        number = start - 1 if before else end + 1
        if not 0 <= number < len(lines):
            continue
        if size + len(lines[number]) + 1 > characters:
            break
        size += len(lines[number]) + 1
        start, end = (number, end) if before else (start, number)
    kept = lines[start : end + 1]
    if start:
        kept.insert(0, f"[{start} lines left out]")
    if end < len(lines) - 1:
        kept.append(f"[{len(lines) - 1 - end} lines left out]")
    return "\n".join(kept)


def _shorten(line: str, limit: int = 400) -> str:
    return line if len(line) <= limit else f"{line[:limit]} [{len(line) - limit} characters left out]"


def fence(text: str, language: str = "") -> str:
    """The text in a code fence that nothing inside it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


def inline(text: str) -> str:
    """Untrusted text as part of a line: nothing in it can begin a block."""
    return " ".join(text.split()).replace("```", "` ` `")
