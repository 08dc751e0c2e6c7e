"""Which devices judge, and how many programs are in hand at once for each."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.errors import UsageError


@dataclass(frozen=True)
class DeviceSelection:
    """Who works at once."""

    devices: tuple[int, ...] = ()
    """Numbers of the devices to judge on; empty: all."""
    builders: int = 0
    """Programs in hand at once for each device; 0: what suits the platform."""

    @property
    def first(self) -> int | None:
        """The device for a single program; None leaves the choice to the judge."""
        return self.devices[0] if self.devices else None


def device_numbers(text: str) -> tuple[int, ...]:
    """`0` or `0,1` as numbers; empty for an empty text; UsageError for anything else."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"{text}: name devices by their numbers, as in 0 or 0,1") from None
