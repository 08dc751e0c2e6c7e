"""From what a user calls a place to the files in it: kernelbench:PATH, flashinfer:PATH, bundled, a folder, a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import UsageError
from kforge.problems import files_of, find, names_suite, order_files
from kforge.problems.definition_files import DATASETS, definition_files
from kforge.problems.selection import Selection

_KERNELBENCH = "kernelbench"
_WEIGHTS = 4
"""KernelBench's level of Hugging Face models: gigabytes of weights, so only where it is asked for."""
_CLONE = "git clone https://github.com/ScalingIntelligence/KernelBench"


@dataclass(frozen=True)
class File:
    """A file that may hold a problem."""

    path: Path
    must: bool = False
    """Whether it was named by itself: then it is an error if it cannot be used."""


def files_in(place: str, choice: Selection, folder: Path) -> list[File]:
    """The files that may be problems, in order; UsageError says what is wrong with the place. A relative path starts in
    the folder.
    """
    kind, _, rest = place.partition(":")
    if kind == _KERNELBENCH:
        return [File(path) for path in _checkout(rest, choice, folder)]
    if kind in DATASETS:
        return [File(path) for path in definition_files(kind, rest, folder)]
    if names_suite(place):
        return [File(Path(problem.path)) for problem in find(place)]
    path = folder / Path(place).expanduser()
    if path.is_dir():
        return [File(file) for file in files_of(path)]
    if not path.exists():
        raise UsageError(
            f"{place}: there is no such file or folder; a suite is bundled, training, kernelbench:PATH, "
            "flashinfer:PATH, sol:PATH, a folder or a file"
        )
    return [File(path, must=True)]


def _checkout(place: str, choice: Selection, folder: Path) -> list[Path]:
    """The problem files of a KernelBench checkout, by level and number."""
    home = folder / Path(place).expanduser()
    if not place.strip() or not home.is_dir():
        raise UsageError(f"kernelbench:{place}: there is no such folder; name a checkout of KernelBench ({_CLONE})")
    if re.fullmatch(r"level\d+", home.resolve().name):
        return order_files(home.glob("*.py"))
    for inner in (home / "KernelBench", home):
        levels = [level for level in inner.glob("level*") if level.is_dir() and level.name[5:].isdecimal()]
        if levels:
            wanted = [level for level in levels if level.name != f"level{_WEIGHTS}" or _asks_for_weights(choice)]
            return order_files(file for level in wanted for file in level.glob("*.py"))
    raise UsageError(f"kernelbench:{place}: there is no level1 in it, nor in a folder KernelBench of it ({_CLONE})")


def _asks_for_weights(choice: Selection) -> bool:
    return _WEIGHTS in choice.levels or any(re.match(rf"(level)?{_WEIGHTS}(/|$)", word) for word in choice.only)
