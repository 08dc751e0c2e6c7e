"""`kforge worker` and `kforge cluster`, and their options. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kforge.cli.completion import platform_names

_TLS = typer.Option(help="Folder of the cluster's certificates. Default: what KFORGE_CLUSTER_TLS names.")
_INSECURE = typer.Option("--insecure", help="Plain TCP beyond this machine: others may read along and give orders.")


def worker(
    scheduler: Annotated[str, typer.Option(help="The scheduler's address, as in tls://head:8786.")],
    platforms: Annotated[
        str, typer.Option(autocompletion=platform_names, help="What to judge for, as in cuda,triton.")
    ] = "cpu",
    devices: Annotated[str, typer.Option(help="Numbers of the devices to judge on, as in 0,1. Default: all.")] = "",
    builders: Annotated[int, typer.Option(min=0, help="Programs in hand at once for each device; 0: what suits.")] = 0,
    tls: Annotated[Path | None, _TLS] = None,
    insecure: Annotated[bool, _INSECURE] = False,
    name: Annotated[str, typer.Option(help="What it is called. Default: its host and process.")] = "",
) -> None:
    """Judge on this machine for whoever asks through a cluster.

    Ctrl-C finishes what is in hand and hands the rest back; once more ends at once. It waits for a scheduler that is
    not there, and comes back to one that was restarted.

    Exit status: 0 stopped, 2 a usage error or a platform that cannot be used here, 130 broken off.
    """
    from kforge.cluster.__main__ import WorkerOptions, run_worker

    options = WorkerOptions(scheduler, platforms, devices, builders, tls, insecure, name)
    raise typer.Exit(run_worker(options, _say))


def cluster(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS | start | certificates",
            help="A scheduler's address, to see who is there; start, to be one; certificates, to make them.",
        ),
    ],
    place: Annotated[
        str,
        typer.Argument(help="After start: the address, as in tls://head:8786. After certificates: a new folder."),
    ] = "",
    tls: Annotated[Path | None, _TLS] = None,
    insecure: Annotated[bool, _INSECURE] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """A cluster: who is there and what waits, its scheduler, its certificates.

    Exit status: 0, 2 for an address where no scheduler answers, and for usage errors.
    """
    from kforge.cli import cluster as command

    if what == "certificates":
        raise typer.Exit(command.certificates(_required(place, "a new folder, as in certificates DIR")))
    if what == "start":
        from kforge.cluster.__main__ import run_scheduler

        address = _required(place, "this machine's address, as in start tls://head:8786")
        raise typer.Exit(run_scheduler(address, tls, insecure, _say))
    if place:
        raise typer.BadParameter(f"{place}: an address stands alone")
    raise typer.Exit(command.show(what, tls, insecure, as_json))


def _required(place: str, what: str) -> str:
    if not place:
        raise typer.BadParameter(f"name {what}")
    return place


def _say(words: str) -> None:
    from kforge.visible_text import visible

    print(visible(words), flush=True)
