"""The Definitions in a dataset of flashinfer-bench or SOL-ExecBench: flashinfer:PATH, sol:PATH."""

from __future__ import annotations

from pathlib import Path

from kforge.errors import UsageError
from kforge.trace_definition import FLASHINFER, SOL, SOL_FILE

DATASETS = {
    FLASHINFER: "definitions/KIND/NAME.json and workloads/KIND/NAME.jsonl, as flashinfer-bench keeps them",
    SOL: f"folders with {SOL_FILE} and workload.jsonl, as SOL-ExecBench keeps them",
}
"""The datasets that a place may name, and what each looks like."""


def definition_files(kind: str, place: str, folder: Path) -> list[Path]:
    """The Definitions of a dataset, by their paths."""
    home = folder / Path(place).expanduser()
    if not place.strip() or not home.is_dir():
        raise UsageError(f"{kind}:{place}: there is no such folder; name one that holds {DATASETS[kind]}")
    if kind == SOL:
        found = home.rglob(SOL_FILE)
    else:
        inside = "definitions" in home.absolute().parts
        found = home.rglob("*.json") if inside else (home / "definitions").rglob("*.json")
    files = sorted(path for path in found if path.is_file())
    if not files:
        raise UsageError(f"{kind}:{place}: there is no Definition in it; name a folder that holds {DATASETS[kind]}")
    return files
