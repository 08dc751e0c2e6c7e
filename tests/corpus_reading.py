"""Lists the corpora of kernels for emulation: programs as models write them, right ones and ones with a planted bug."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CAUGHT = ("checked", "mismatch", "either")
"""How a planted bug shows: named by checked mode, by other numbers than the reference's, or by either of them."""


@dataclass(frozen=True)
class Entry:
    """One program of a corpus, and what its header says."""

    path: Path
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def is_right(self) -> bool:
        return self.path.parent.name == "right"

    @property
    def style(self) -> str:
        return self.headers.get("style", "")

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.headers.get("features", "").split(",") if word.strip())

    @property
    def bug(self) -> str:
        """What was planted; empty where the program is right."""
        return self.headers.get("bug", "")

    @property
    def caught(self) -> str:
        """One of `CAUGHT`; empty where the program is right."""
        return self.headers.get("caught", "")

    @property
    def faulty_line(self) -> str:
        """A text that stands on the line at fault; empty where the program is right."""
        return self.headers.get("line", "")

    @property
    def faulty_line_number(self) -> int:
        """The line at fault in the file, from 1; 0 where the program is right."""
        if not self.faulty_line:
            return 0
        lines = self.path.read_text(encoding="utf-8").splitlines()
        found = [
            number
            for number, line in enumerate(lines, 1)
            if self.faulty_line in line and not line.startswith("# line:")
        ]
        if len(found) != 1:
            raise ValueError(f"{self.path.name}: `# line:` names {len(found)} lines; write a text that is on one")
        return found[0]


def entries(corpus: str, kind: str) -> list[Entry]:
    """The programs of `corpus` (`msl`, `cuda_c`) of one `kind` (`right`, `wrong`), by name."""
    return [Entry(path, header(path)) for path in sorted((HERE / f"corpus_{corpus}" / kind).glob("*.py"))]


def header(path: Path) -> dict[str, str]:
    """The `# name: value` lines that a program begins with."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        name, _, value = line.lstrip("# ").partition(":")
        found[name.strip()] = value.strip()
    return found
