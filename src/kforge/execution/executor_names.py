"""What executors are called: `local` is this machine (`local:0,1` some of its devices), `bundle:DIR` a folder that is
carried to another.
"""

from __future__ import annotations

from pathlib import Path

from kforge.errors import UsageError
from kforge.worker.device_selection import device_numbers

LOCAL = "local"
BUNDLE = "bundle"


def whole_name(name: str) -> str:
    """The name with the whole path of its folder, so that it means the same everywhere; UsageError if it is none."""
    folder = folder_of(name)
    return name if folder is None else f"{BUNDLE}:{folder}"


def devices_of(name: str) -> tuple[int, ...]:
    """The numbers of the devices that a local executor may use; empty for all."""
    kind, _, numbers = name.partition(":")
    if kind != LOCAL:
        return ()
    return device_numbers(numbers)


def folder_of(name: str) -> Path | None:
    """A bundle's folder; None for this machine."""
    kind, _, place = name.partition(":")
    if kind == LOCAL:
        devices_of(name)
        return None
    if kind != BUNDLE or not place.strip():
        raise UsageError(f"no executor is called {name!r}; there are: {LOCAL}, {BUNDLE}:DIR")
    return Path(place).expanduser().absolute()
