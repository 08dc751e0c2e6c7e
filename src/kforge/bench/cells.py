"""Which cell is which: by all that decides what comes of it, so that a changed experiment keeps what still holds."""

from __future__ import annotations

import json

from kforge import jsonable
from kforge.types import Cell, Experiment, text_hash


def fingerprint(experiment: Experiment, cell: Cell) -> str:
    """The same for the same problem, platform, configuration and seed, whatever else the experiment holds."""
    configuration = experiment.configuration(cell.configuration)
    decides = [
        jsonable.encode(cell),
        list(configuration.models),
        sorted((name, jsonable.encode(value)) for name, value in configuration.options.items()),
    ]
    return text_hash(json.dumps(decides, sort_keys=True))


def by_fingerprint(experiment: Experiment) -> dict[str, Cell]:
    """All cells, in the order they are worked on: one platform after another, then problem by problem."""
    return {fingerprint(experiment, cell): cell for cell in experiment.cells()}
