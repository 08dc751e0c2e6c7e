"""Which platform a text is written for, and what language its fence names, as far as the text tells.

What tells is each platform's `dialect`, a third party's included.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from kforge import registry
from kforge.platforms.base import Dialect

_LANGUAGES = {
    ".py": "python",
    ".c": "c",
    **dict.fromkeys((".cpp", ".cc", ".cxx", ".h", ".hpp"), "cpp"),
}
"""By the endings of files that are of no one platform."""
_PYTHON = re.compile(r"^(?:import \w|from [\w.]+ import |def \w+\(|class \w+.*:$)", re.MULTILINE)


def platform_of(source: str) -> str:
    """The platform a program is written for; empty where its text names none, or several."""
    dialects = _dialects()
    matching = [name for name, dialect in dialects.items() if _matches(dialect.marks, source)]
    matching = matching or [name for name, dialect in dialects.items() if _matches(dialect.shared_marks, source)]
    return matching[0] if len(matching) == 1 else ""


def language_of(source: str, name: str = "") -> str:
    """What a fence around the text is called; `name` is that of its file. Empty where it cannot be told."""
    suffix = PurePath(name).suffix.lower()
    dialects = _dialects()
    by_suffix = (dialect.language for dialect in dialects.values() if suffix in dialect.suffixes)
    known = _LANGUAGES.get(suffix) or next(by_suffix, "")
    if known:
        return known
    return "python" if _PYTHON.search(source) else dialects.get(platform_of(source), Dialect()).language


def _dialects() -> dict[str, Dialect]:
    """Platform -> dialect. Of several with the same marks, such as an original and its copy, the first has them."""
    by_marks: dict[tuple[str, str], tuple[str, Dialect]] = {}
    for name, platform in registry.load_all("platforms").items():
        dialect = platform.hardware().dialect
        by_marks.setdefault((dialect.marks, dialect.shared_marks), (name, dialect))
    return dict(by_marks.values())


def _matches(pattern: str, source: str) -> bool:
    return bool(pattern and re.search(pattern, source))
