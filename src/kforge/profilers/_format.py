"""Numbers and lines as a person reads them."""

from __future__ import annotations


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def size(count: float) -> str:
    for unit, bytes_each in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_each:
            return f"{count / bytes_each:.3g} {unit}"
    return f"{count:.0f} bytes"


def time(nanoseconds: float) -> str:
    for unit, each in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= each:
            return f"{nanoseconds / each:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def cut(text: str, most: int) -> str:
    """At most so many letters: cut between words where there are any, an open backtick closed, " ..." at the end."""
    text = text.strip()
    if len(text) <= most:
        return text
    room = max(most - len("` ..."), 1)
    kept = text[:room]
    if not text[room].isspace():
        head, gap, _ = kept.rpartition(" ")
        kept = head if gap and len(head) > room // 2 else kept
    kept = kept.rstrip(" ,;:(")
    if kept.count("`") % 2:
        kept = kept[:-1].rstrip() if kept.endswith("`") else kept + "`"
    return f"{kept} ..."[:most]
