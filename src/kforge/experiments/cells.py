"""Which cell is which: by all that decides what comes of it, so that a changed experiment keeps what still holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kforge import jsonable
from kforge.types import Cell, Configuration, Experiment, text_hash


def cells_by_fingerprint(experiment: Experiment) -> dict[str, Cell]:
    """All cells, in the order they are worked on: one platform after another, then problem by problem.

    A fingerprint is the same for the same problem, platform, seed and way to forge, whatever that is called and
    whatever else the experiment holds.
    """
    meanings = {item.name: _meaning(item) for item in experiment.configurations}
    names = list(meanings)
    # Two configurations may mean the same on purpose, to see what chance does.
    twins = {name: [meanings[other] for other in names[:at]].count(meanings[name]) for at, name in enumerate(names)}
    cells = {}
    for cell in experiment.cells():
        name = cell.configuration
        decides = [jsonable.encode(replace(cell, configuration="")), meanings[name], twins[name]]
        cells[text_hash(json.dumps(decides, sort_keys=True))] = cell
    return cells


def _meaning(item: Configuration) -> list[Any]:
    return [list(item.models), sorted((name, jsonable.encode(value)) for name, value in item.options.items())]
