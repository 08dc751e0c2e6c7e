"""`kforge platform new` and `kforge platform check`, and their options. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make a platform of your own, and see whether one keeps its contract.", no_args_is_help=True)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What it will be called: small letters, digits and _.")],
    source: Annotated[str, typer.Option("--from", help="The platform it begins as a copy of.")] = "opencl",
    into: Annotated[Path, typer.Option(help="Where the folder is made.")] = Path(),
) -> None:
    """A folder for a new platform: a copy of another that is ready to be checked, changed and installed.

    Exit status: 0 made, 2 a name or a folder that is taken or cannot be used.
    """
    from kforge.cli import platform_new as command

    raise typer.Exit(command.run(name, source, into))


@app.command()
def check(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Platforms, or the folders of some (mine, ./mine).")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each platform.")] = False,
) -> None:
    """Does a platform keep its contract? Its example must be judged correct, and each way to fail be told apart.

    Exit status: 0 every clause is kept (what this machine lacks is skipped by name), 1 one is broken, 2 no such
    platform.
    """
    from kforge.cli import platform_check as command

    raise typer.Exit(command.run(names, as_json))
