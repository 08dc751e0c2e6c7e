"""`kforge profile` and its options. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kforge.cli.completion import platform_names, profiler_names
from kforge.cli.shared_options import BACKWARD, DTYPE


def profile(
    problem: Annotated[str, typer.Argument(help="Problem file (KernelBench format), or bundled:level1/1.")],
    candidate: Annotated[Path, typer.Argument(help="Candidate file: defines class ModelNew.")],
    platform: Annotated[str, typer.Option(autocompletion=platform_names, help="Platform to run on.")] = "cpu",
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    profiler: Annotated[
        list[str],
        typer.Option(
            autocompletion=profiler_names,
            help="What looks at it (kforge doctor lists them), such as trace-view or 'screenshot:COMMAND'; several may "
            "be named. Default: the platform's own.",
        ),
    ] = [],  # noqa: B006  typer copies it
    out: Annotated[
        Path | None, typer.Option(help="Folder for pictures and the tools' own files. Default: a fresh one.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the trace's page, or the pictures, to look at.")] = False,
    devices: Annotated[str, typer.Option(help="Number of the device to run on. Default: the first.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Where does this kernel's time go? It is judged first; only a correct one is looked at.

    Exit status: 0 at least one profiler saw something, 1 the candidate is not correct or nothing was seen, 2 a usage or
    harness error.
    """
    from kforge.cli import profile as command
    from kforge.spec.run_spec import make_spec

    # The speedup is not the question here: a short measurement, for the shares.
    options = {
        "dtype": dtype,
        "backward": backward,
        "compile_baseline": False,
        "timing_seconds": 0.2,
        "seeds": 2,
        "profilers": tuple(profiler) or None,
        "executor": f"local:{devices}" if devices else "local",
    }
    spec = make_spec(problem, platform, options=options)
    raise typer.Exit(command.run(spec, candidate, command.ProfileOutput(out, show, as_json)))
