"""What is said of runs that wait for reports from another machine."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.markup import escape

from kforge.cli.runs import command
from kforge.execution.executor_names import folder_of
from kforge.run.result import RunResult
from kforge.store.store import Store
from kforge.worker.bundle_folder import BundleFolder

WAITING = 3
"""The exit status where jobs wait: nothing went wrong, and there is something to carry."""
ALL = "waiting"
"""Instead of a run's name: every run that waits."""


def say_what_to_do(console: Console, results: list[RunResult], store: str | Store) -> None:
    """Say how the jobs of runs that wait get their reports; nothing if none waits."""
    waiting = [result for result in results if result.waiting]
    for name in dict.fromkeys(result.spec.executor for result in waiting):
        own = [result.run for result in waiting if result.spec.executor == name]
        say_waiting(console, name, command("resume", own[0] if len(own) == 1 else ALL, store))


def say_waiting(console: Console, executor: str, go_on: str) -> None:
    """Say how the jobs of one executor get their reports, and the command that goes on then."""
    folder = folder_of(executor)
    if folder is None:
        console.print(
            f"[cyan]jobs wait[/] for their reports from {escape(executor)}. Once they are there, go on with",
            highlight=False,
            soft_wrap=True,
        )
        console.print(f"  {escape(go_on)}", highlight=False, soft_wrap=True)
        return
    count = BundleFolder(folder).waiting_count()
    jobs = f"{count} job waits" if count == 1 else f"{count} jobs wait"
    console.print(
        f"[cyan]{jobs}[/] in {escape(str(folder))}. Carry the folder to the machine with the device and run there\n"
        f"  python -m kforge.worker --bundle {escape(shlex.quote(folder.name))}\n"
        "then carry it back and go on with",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"  {escape(go_on)}", highlight=False, soft_wrap=True)


def say_unknown_machine(console: Console, executor: str, platform: str) -> None:
    """Say that prompts will know nothing of the machine over there, and what changes it."""
    folder = folder_of(executor)
    if folder is None or BundleFolder(folder).facts(platform):
        return
    where = escape(shlex.quote(folder.name))
    console.print(
        f"Nothing is known of the machine that judges, and prompts say so. `python -m kforge.worker --bundle {where} "
        "--describe` there writes machine.json, which tells them.",
        style="dim",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )
