"""The planted bottlenecks: recordings of ncu, and what each of them must be called."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures" / "ncu"
LIMITERS = {
    "uncoalesced": "uncoalesced",
    "bank_conflicts": "bank-conflicts",
    "low_occupancy_registers": "registers",
    "low_occupancy_shared": "shared-memory",
    "tiny": "launches",
    "atomics": "atomics",
    "spilling": "spilling",
    "no_tensor_cores": "tensor-cores",
    "compute_bound": "compute",
    "memory_bound": "memory",
}
"""Kernel -> the word its limiter begins with."""


def table(name: str) -> str:
    """What ncu wrote about this kernel."""
    return (FOLDER / f"{name}.csv").read_text(encoding="utf-8")


def tables(*names: str) -> str:
    """One table of several kernels, as if one call had run them all."""
    first, *others = (table(name).splitlines() for name in names)
    rows = [line for lines in others for line in lines if line.startswith('"') and line[1].isdigit()]
    return "\n".join([*first, *rows])
