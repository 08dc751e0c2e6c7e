"""`kforge audit`: is the problem itself sound?"""

from __future__ import annotations

import json
import sys

from rich.markup import escape

from kforge.cli.screen import Screen
from kforge.errors import KForgeError
from kforge.problems import find
from kforge.types import ProblemForm, Settings
from kforge.worker.judge.judge import Judge


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
                print(
                    json.dumps(
                        {"problem": name, "degenerate": reasons, "eager_seconds": seconds, "error": error or None}
                    )
                )
                sys.stdout.flush()
            elif error:
                console.print(f"[red]unusable[/]    {escape(error)}", highlight=False)
            elif reasons:
                console.print(f"[yellow]degenerate[/]  {escape(name)}", highlight=False)
                for reason in reasons:
                    console.print(f"            {escape(reason)}", highlight=False)
            else:
                console.print(f"[green]sound[/]       {escape(name)}", highlight=False)
    return worst
