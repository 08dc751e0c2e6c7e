"""Where a donor, a program from elsewhere to learn from, comes from, as a run records it in one line.

store:cuda:RUN:1.3     chain 1, step 3 of a run in the store: found correct on cuda
file:cuda:k.cu         a file; its platform as far as the text tells, or nothing
text:cuda              a text that was handed over
inductor:triton        written by PyTorch's own compiler
"""

from __future__ import annotations

from dataclasses import dataclass

STORE, FILE, TEXT, INDUCTOR = "store", "file", "text", "inductor"


@dataclass(frozen=True)
class Origin:
    """Where a donor comes from: such a line, read."""

    kind: str
    """store, file, text or inductor; empty where nobody said."""
    platform: str = ""
    """What it is written for; empty where that is not known."""
    name: str = ""
    """A file's name; for an origin in words of somebody's own, those."""
    run: str = ""
    """The run in the store that it was made in."""
    step: str = ""
    """Which attempt of that run: chain.step, as `kforge show RUN --step` takes it."""

    @property
    def record(self) -> str:
        """The line; `read` gives the same origin back."""
        rest = {STORE: (self.platform, self.run, self.step), FILE: (self.platform, self.name)}
        return ":".join((self.kind, *rest.get(self.kind, (self.platform,)))) if self.kind else self.name

    @property
    def is_proven(self) -> bool:
        """Whether a judge found it correct."""
        return self.kind == STORE

    @property
    def description(self) -> str:
        """The origin for a prompt: the same wherever the program is the same, so without the run."""
        return {
            STORE: f"the best correct program for {self.platform} that is known",
            FILE: f"from the file {self.name}",
            TEXT: "given by the user",
            INDUCTOR: "written by PyTorch's own compiler, Inductor",
        }.get(self.kind, self.name)

    @property
    def description_with_place(self) -> str:
        """The origin for people, with the place where the program can be looked at."""
        return f"{self.description}: run {self.run}, step {self.step}" if self.kind == STORE else self.description


def read(record: str) -> Origin:
    """The origin of a line; one in other words is kept as it is."""
    kind, _, rest = record.partition(":")
    if kind == STORE and rest.count(":") == 2:
        platform, run, step = rest.split(":")
        return Origin(STORE, platform, run=run, step=step)
    if kind == FILE and ":" in rest:
        platform, _, name = rest.partition(":")
        return Origin(FILE, platform, name)
    if kind in (TEXT, INDUCTOR) and record.count(":") == 1:
        return Origin(kind, rest)
    return Origin("", name=record)
