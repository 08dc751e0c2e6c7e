"""Problems: where they come from. A file or a folder by path, a suite that comes with KForge by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kforge.errors import UsageError
from kforge.problems.definition_files import DATASETS, definition_files
from kforge.types import Problem
from kforge.types.evaluation import no_problem

BUNDLED = Path(__file__).parent / "bundled"
"""The bundled suite: level1 (single ops), level2 (fusions), level3 (small networks)."""
TRAINING = Path(__file__).parent / "training"
"""Problems with their gradients: a call is forward and backward."""
_SUITES = {"bundled": BUNDLED, "training": TRAINING}


def find(place: str | Path) -> list[Problem]:
    """The problems of a file or a folder, ordered by level and number.

    "bundled" is the bundled suite, "bundled:level2/3_name" one of its problems (the name's number is enough);
    "training" is the suite of problems with their gradients; "flashinfer:PATH" and "sol:PATH" are Definitions.
    """
    check_place(place)
    kind, _, rest = str(place).partition(":")
    if kind in DATASETS:
        return list(map(Problem.from_file, definition_files(kind, rest, Path())))
    if names_suite(place):
        suite, _, name = str(place).partition(":")
        return _suite_problems(suite, name)
    path = Path(place)
    if path.is_dir():
        return sorted(map(Problem.from_file, files_of(path)), key=_place)
    return [Problem.from_file(path)]


def names_suite(place: str | Path) -> bool:
    """Whether a place is a suite that comes with KForge, or a problem of one."""
    return str(place).partition(":")[0] in _SUITES


def check_place(place: object) -> None:
    """UsageError for what is neither a problem nor the place of one."""
    if not isinstance(place, (Problem, str, Path)):
        raise UsageError(no_problem(place))


def files_of(folder: Path) -> list[Path]:
    """The files of a folder that may be problems, ordered by level and number."""
    files = (file for file in folder.rglob("*.py") if file.is_file() and not file.name.startswith(("_", ".")))
    ordered = order_files(file for file in files if "__pycache__" not in file.parts)
    if not ordered:
        raise UsageError(f"{folder}: no .py file in it")
    return ordered


def order_files(files: Iterable[Path]) -> list[Path]:
    """The files by level, number and name, as they stand in the paths."""

    def place(file: Path) -> tuple[int, int, str, Path]:
        return (_leading_number(file.parent.name.removeprefix("level")), _leading_number(file.stem), file.stem, file)

    return sorted(files, key=place)


def _suite_problems(suite: str, name: str) -> list[Problem]:
    everything = sorted(map(Problem.from_file, _SUITES[suite].glob("level*/*.py")), key=_place)
    if not name:
        return everything
    matches = [
        problem
        for problem in everything
        if name
        in (
            problem.key,
            f"level{problem.level}/{problem.number}",
            f"level{problem.level}",
            problem.name,
        )
    ]
    if not matches:
        known = ", ".join(problem.key for problem in everything)
        raise UsageError(f"no {suite} problem is called {name!r}; there are: {known}")
    return matches


def _place(problem: Problem) -> tuple[int, int, str]:
    number = problem.number if problem.number is not None else _leading_number(problem.name)
    return (problem.level or 1 << 30, number, problem.name)


def _leading_number(name: str) -> int:
    """The number a name begins with; names without one come last."""
    digits = re.match(r"\d+", name)
    return int(digits[0]) if digits else 1 << 30
