"""What is asked of a profiler."""

from __future__ import annotations


class Profiler:
    """A tool that can say where a program's time goes."""

    name = ""
    """The file's name."""
    what = ""
    """What it shows, in a few words."""

    def absent_because(self) -> str:
        """Why it cannot be used here, with the cure; empty if it can."""
        raise NotImplementedError
