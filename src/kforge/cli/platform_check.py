"""`kforge platform check`: the contract, clause by clause."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from kforge import registry
from kforge.cli.screen import Screen
from kforge.testing import CLAUSES, ClauseResult, ClauseState, Contract

_MARKS = {ClauseState.KEPT: "[green]✓[/]", ClauseState.BROKEN: "[red]✗[/]", ClauseState.SKIPPED: "[yellow]–[/]"}


def run(names: Iterable[str], as_json: bool) -> int:
    """0 if no platform breaks a clause of the contract."""
    return max(_check(_place(name), as_json) for name in names)


def _place(name: str) -> str:
    """A registered name as it is, with a note where a folder here has it too; else the folder, if there is one."""
    if os.sep in name or not (Path(name) / "platform.py").is_file():
        return name
    folder = os.path.join(os.curdir, name)
    if name not in registry.names("platforms"):
        return folder
    note = (
        f"note: {name} is the platform of that name that is installed, not the folder {folder}; to check the folder: "
        f"kforge platform check {folder}"
    )
    Screen(stderr=True).print(escape(note), highlight=False, soft_wrap=True)
    return name


def _check(name: str, as_json: bool) -> int:
    console, results = Screen(), []
    with Contract(name) as contract:
        if not as_json:
            console.print(f"[bold]{escape(contract.platform.name)}[/]  [dim]{escape(str(contract.platform.home()))}[/]")
        for clause in CLAUSES:
            with Screen(stderr=True).status(clause):
                results.append(contract.finding(clause))
            if not as_json:
                console.print(_row(results[-1], bool(contract.absent)))
    marks = Counter(finding.mark for finding in results)
    if as_json:
        clauses = [{"clause": item.clause, "mark": item.mark.value, "said": item.said} for item in results]
        print(json.dumps({"platform": contract.platform.name, "absent": contract.absent or None, "clauses": clauses}))
        sys.stdout.flush()
    else:
        console.print(_summary(marks), highlight=False)
    return 1 if marks[ClauseState.BROKEN] else 0


def _row(finding: ClauseResult, absent: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=1)
    table.add_column(width=max(map(len, CLAUSES)))
    table.add_column(overflow="fold")
    text = finding.said
    if finding.mark is ClauseState.SKIPPED:
        # Why a platform is absent is said once, by its clause.
        text = "skipped: it is absent here" if absent else f"skipped: {finding.said}"
    style = "" if finding.mark is ClauseState.BROKEN else "[dim]"
    table.add_row(_MARKS[finding.mark], finding.clause, style + escape(text))
    return table


def _summary(marks: Counter[ClauseState]) -> str:
    counts = ", ".join(f"{marks[mark]} {mark.value}" for mark in ClauseState if marks[mark])
    if marks[ClauseState.BROKEN]:
        return f"[red]the contract is broken[/]: {counts}"
    if marks[ClauseState.SKIPPED]:
        return f"[yellow]as far as it can be told here, the contract is kept[/]: {counts}"
    return f"[green]the contract is kept[/]: {counts}"
