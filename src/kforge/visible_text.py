"""Text of others made visible: what a terminal would obey, or a reader could not see, is written out.

Programs, models, compilers and problems write into messages. An escape sequence among them could overwrite a verdict
on the terminal, and a sign that turns the direction of writing could show a program other than the one that ran.
"""

from __future__ import annotations

import re
import unicodedata

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e\xa1-\xac\xae-\u02ff]")
"""What may be hidden: everything but plain characters, which are most of any text."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Categories of Unicode that show nothing or change how the rest is shown."""
_BLANK = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
"""Letters and marks that show nothing, or nothing but a gap."""
_VARIATIONS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
"""Selectors that follow another character and can carry bytes unseen."""


def visible(text: str) -> str:
    """The text with every control, formatting and separating character but newline and tab written as its escape."""
    return _SUSPECT.sub(_escape_character, text.replace("\r\n", "\n"))


def _escape_character(match: re.Match[str]) -> str:
    sign = match.group()
    number = ord(sign)
    unseen = number in _BLANK or any(number in group for group in _VARIATIONS)
    if not unseen and unicodedata.category(sign) not in _HIDDEN:
        return sign
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
