"""`kforge runs --platforms`: which platforms have a correct program for which problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from kforge import problems
from kforge.cli.live import speedup
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.store.store import Proven, Store


def list_platforms(store: str, problem: str, as_json: bool) -> int:
    """Which platforms have a correct program, for each problem."""
    with Store.open(store) as opened:
        wanted = problems_named(opened, problem) if problem else opened.problems()
        best = opened.proven([key for _, key in wanted])
    programs = {key: [item for item in best if item.problem_id == key] for _, key in wanted}
    if as_json:
        for name, key in wanted:
            platforms = [_flat_proven(item) for item in programs[key]]
            print(json.dumps({"problem": name, "id": key, "platforms": platforms}))
        return 0
    console = Screen()
    if not wanted:
        console.print("no run yet: kforge forge PROBLEM.py makes one", highlight=False)
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    widths = {"problem": 10, "platform": 8, "speedup": 7, "correct": 7, "step": 4}
    for name, width in widths.items():
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=width)
    # A name is there to be copied: whole, if need be in two lines.
    table.add_column("best: run", overflow="fold")
    several = {name for name, _ in wanted if sum(name == other for other, _ in wanted) > 1}
    for name, key in wanted:
        shown = f"{name} ({key[:8]})" if name in several else name
        if not programs[key]:
            table.add_row(escape(shown), "none", "-", "0", "", "")
        for item in programs[key]:
            cells = (item.platform, speedup(item.speedup), str(item.attempts), item.place, item.run)
            table.add_row(escape(shown), *map(escape, cells))
    console.print(table)
    console.print("--reference PLATFORM gives a new run the best one to read", style="dim", highlight=False)
    return 0


def _flat_proven(item: Proven) -> dict[str, Any]:
    return {
        "platform": item.platform,
        "speedup": item.speedup,
        "correct": item.attempts,
        "run": item.run,
        "step": item.place,
    }


def problems_named(store: Store, place: str) -> list[tuple[str, str]]:
    """(name, id) of the problems that a file, a folder or the bundled suite holds, or that the store knows by name."""
    if not problems.names_suite(place) and not Path(place).exists():
        known = store.problems(place)
        if not known:
            raise UsageError(
                f"no run is for a problem called {place!r}, and there is no such file; kforge runs lists all"
            )
        return known
    return list(dict.fromkeys((problem.name, problem.id) for problem in problems.find(place)))
