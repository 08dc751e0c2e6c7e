"""`kforge bench --list`: the experiments in the store."""

from __future__ import annotations

import json

from rich.markup import escape
from rich.table import Table

from kforge.cli.screen import Screen
from kforge.experiments.cells import cells_by_fingerprint
from kforge.store.experiments import ExperimentRecord, Experiments
from kforge.store.store import Store

_MOST = 50


def run(store: str, as_json: bool) -> int:
    with Store.open(store) as opened:
        experiments = Experiments(opened)
        rows = [(begun, *_progress(experiments, begun)) for begun in experiments.newest(_MOST)]
    if as_json:
        for begun, done, cells in rows:
            line = {"id": begun.id, "name": begun.experiment.name, "finished": done, "cells": cells}
            print(json.dumps({**line, "created": begun.created.isoformat()}))
        return 0
    console = Screen()
    if not rows:
        console.print("no experiment yet: kforge bench --suite bundled makes one", highlight=False)
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    # An id is there to be copied: whole, whatever else has to be folded.
    table.add_column("id", no_wrap=True, min_width=max(len(begun.id) for begun, _, _ in rows))
    table.add_column("finished", justify="right", no_wrap=True)
    table.add_column("name", overflow="fold")
    for begun, done, cells in rows:
        table.add_row(begun.id, f"{done}/{cells}", escape(begun.experiment.name))
    console.print(table)
    return 0


def _progress(experiments: Experiments, begun: ExperimentRecord) -> tuple[int, int]:
    """How many of its cells have a finished run, and how many there are."""
    cells = cells_by_fingerprint(begun.experiment)
    known = experiments.cell_states(begun.id)
    return sum(known[key].finished for key in cells if key in known), len(cells)
