"""`kforge audit`: is the problem itself sound?"""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from kforge.cli.screen import Screen
from kforge.errors import KForgeError
from kforge.problems import find
from kforge.types import Problem, ProblemForm, Settings
from kforge.worker.judge.judge import Judge

_INDENT = 12


def run(place: str, platform: str, as_json: bool, form: ProblemForm = ProblemForm()) -> int:
    console, worst = Screen(), 0
    problems = [problem.in_form(form) for problem in find(place)]
    with Judge(platform) as judge:
        for problem in problems:
            name = problem.key
            try:
                session = judge.session(problem, Settings())
                reasons, seconds, error = list(session.degenerate), session.cases.call_seconds, ""
            except KForgeError as failure:
                reasons, seconds, error = [], None, str(failure)
            worst = max(worst, 2 if error else 1 if reasons else 0)
            if as_json:
                answer = {"problem": name, "degenerate": reasons, "eager_seconds": seconds, "error": error or None}
                print(json.dumps({**answer, **_flat_sizes(problem)}))
                sys.stdout.flush()
            elif error:
                console.print(f"[red]unusable[/]    {escape(error)}", highlight=False)
            elif reasons:
                console.print(f"[yellow]degenerate[/]  {escape(name)}", highlight=False)
                for reason in reasons:
                    console.print(f"            {escape(reason)}", highlight=False)
                _print_sizes(console, problem)
            else:
                console.print(f"[green]sound[/]       {escape(name)}", highlight=False)
                _print_sizes(console, problem)
    return worst


def _flat_sizes(problem: Problem) -> dict[str, Any]:
    return {
        "workloads": [{"workload": str(item), "weight": item.weight} for item in problem.workloads],
        "dynamic": [
            {"size": item.name, "low": item.low, "high": item.high, "step": item.step} for item in problem.dynamic
        ],
    }


def _print_sizes(console: Console, problem: Problem) -> None:
    """What the problem is wanted for, where it says so."""
    shares = "; ".join(f"{item} (weight {share:.2g})" for item, share in problem.workload_shares)
    ranges = "; ".join(map(str, problem.dynamic))
    for text in filter(None, (shares and f"workloads: {shares}", ranges and f"any size: {ranges}")):
        console.print(Padding(escape(text), (0, 0, 0, _INDENT)), style="dim", highlight=False)
