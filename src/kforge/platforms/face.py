"""What the judge, the runner and the prompts ask of a platform. Everything but `name` has a default."""

from __future__ import annotations

import string
import sys
from pathlib import Path


class Platform:
    """Facts and device behaviour of one target. Subclass it in `platforms/<name>/platform.py`."""

    name = ""
    """The folder's name."""
    device_class = "cpu"
    """Which of a problem's sizes apply: cpu, gpu or emulator."""
    device = "cpu"
    """The torch device candidates and reference run on."""
    can_time = True
    """Whether a time measured here means anything."""
    profilers: tuple[str, ...] = ()
    """What looks at a correct program where nobody says otherwise."""

    def absent_because(self) -> str:
        """Why this platform cannot be used here, with the cure; empty if it can."""
        return ""

    def facts(self) -> dict[str, str]:
        """The machine, in words: these fill the guide's placeholders and go into the evidence."""
        return {}

    def compilers(self) -> dict[str, str]:
        """Compiler name -> version line, for those that exist here."""
        return {}

    def folders(self) -> tuple[str, ...]:
        """Folders a runner must see, read-only, to build and run a candidate."""
        return ()

    def environment(self) -> dict[str, str]:
        """Variables a runner needs beside the bare ones."""
        return {}

    def synchronize(self) -> None:
        """Wait until everything launched on the device has finished."""

    def guide(self) -> str:
        """What a prompt says of this platform, filled in from the machine."""
        text = (self._home() / "guide.md").read_text(encoding="utf-8")
        return string.Template(text).safe_substitute(self.facts())

    def example(self) -> tuple[str, str]:
        """The single-shot pair: a reference module and the same module on this platform."""
        folder = self._home() / "example"
        return (
            (folder / "reference.py").read_text(encoding="utf-8"),
            (folder / "candidate.py").read_text(encoding="utf-8"),
        )

    def _home(self) -> Path:
        return Path(str(sys.modules[type(self).__module__].__file__)).parent
