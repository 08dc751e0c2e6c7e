"""The commands of experiments and their options: bench, report, compare. Nothing heavy is imported here."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from kforge.cli.completion import platform_names
from kforge.cli.shared_options import BACKWARD, CACHE, CONCURRENCY, DTYPE, PER_MINUTE, STORE

_NAMES = (
    "An experiment: its name, its id, the beginning of its id, or 'last'; runs of kforge forge may be named as well."
)


class ProfilingChoice(enum.StrEnum):
    none = "none"
    text = "text"
    image = "image"


def bench(
    context: typer.Context,
    experiment: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="An experiment file (TOML). Without one, the options say what to do."),
    ] = None,
    suite: Annotated[
        list[str],
        typer.Option(
            help="Problems: bundled, kernelbench:PATH, flashinfer:PATH, sol:PATH, folders, files. Several may be named."
        ),
    ] = [],  # noqa: B006  typer copies it
    levels: Annotated[str, typer.Option(help="Only these levels, as in 1,2.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many problems, in order.")] = None,
    draw: Annotated[
        int | None, typer.Option(help="With --limit: problems drawn with this seed, not the first.")
    ] = None,
    only: Annotated[
        list[str], typer.Option(help="Only these problems: level1/23, 1/23, or a pattern such as 'level2/*norm*'.")
    ] = [],  # noqa: B006
    without: Annotated[
        list[str], typer.Option(help="Not these; or a filter: metal (what torch cannot do on Apple's GPUs).")
    ] = [],  # noqa: B006
    platform: Annotated[
        list[str], typer.Option(autocompletion=platform_names, help="Platforms. Default: cpu. Several may be named.")
    ] = [],  # noqa: B006
    model: Annotated[
        list[str],
        typer.Option(help="Who writes; the matrix is taken over all that are named. Default: builtin (offline)."),
    ] = [],  # noqa: B006
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    preset: Annotated[
        list[str], typer.Option(help="Configurations with a name; --presets lists them. Default: iterative.")
    ] = [],  # noqa: B006
    iterations: Annotated[int | None, typer.Option(min=1, help="Programs per chain at most.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Independent chains.")] = None,
    reference: Annotated[str, typer.Option(help="A reference implementation: a platform, inductor, or a file.")] = "",
    profiling: Annotated[ProfilingChoice | None, typer.Option(help="What the analyst is shown.")] = None,
    style: Annotated[str, typer.Option(help="Prompt style: structured or plain.")] = "",
    setting: Annotated[
        list[str],
        typer.Option("--set", help="Any other option of kforge forge, as NAME=VALUE: --set temperature=0.2."),
    ] = [],  # noqa: B006
    seeds: Annotated[str, typer.Option(help="Forge everything once for each, as in 0,1,2.")] = "",
    budget: Annotated[float | None, typer.Option(min=0, help="Dollars that everything together may cost.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=0, help="The same in tokens.")] = None,
    confirm: Annotated[
        bool | None,
        typer.Option(
            "--confirm/--no-confirm",
            help="Judge a winner that was chosen among several once more, and count that. Default: yes.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="What the experiment is called. Default: from what it does.")] = "",
    executor: Annotated[
        str, typer.Option(help="Who judges: local (local:0,1 names devices), bundle:DIR, dask:ADDRESS.")
    ] = "",
    parallel: Annotated[
        int, typer.Option(min=0, help="Cells in hand at once, for each platform on a cluster; 0: what suits.")
    ] = 0,
    cache: Annotated[str, CACHE] = "",
    concurrency: Annotated[int, CONCURRENCY] = 8,
    per_minute: Annotated[int | None, PER_MINUTE] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; without it, the same command goes on where it stopped.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets and what they are for.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments in the store, newest first.")] = False,
    html: Annotated[Optional[Path], typer.Option(help="Write the report to this file at the end.")] = None,  # noqa: UP045
    store: Annotated[str, STORE] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Forge many problems in several ways, and say what came of it.

    The same command goes on after Ctrl-C, a crash or a dead provider: what is finished is not done again.

    Exit status: 0 every cell was worked on to its end, 1 some could not be, 2 a usage or harness error, 3 jobs wait in
    the bundle.
    """
    from kforge.cli import bench_spec
    from kforge.spec.experiment_options import ExperimentOptions

    if presets:
        raise typer.Exit(bench_spec.list_presets())
    if listing:
        from kforge.cli import bench_list

        raise typer.Exit(bench_list.run(store, as_json))
    if experiment is not None:
        made = bench_spec.experiment_in_file(experiment, limit, _typed_options(context))
    else:
        defaults = {
            "iterations": iterations,
            "samples": samples,
            "reference": reference or None,
            "profiling": profiling.value if profiling else None,
            "style": style or None,
            "dtype": dtype or None,
            "backward": backward or None,
        }
        options = ExperimentOptions(
            places=tuple(suite),
            name=name,
            choice=bench_spec.selection(levels, limit, only, without, draw),
            platforms=tuple(platform) or ("cpu",),
            models=tuple(model) or ("builtin",),
            presets=tuple(preset),
            defaults={**defaults, **bench_spec.settings(setting)},
            seeds=bench_spec.whole_numbers(seeds, "--seeds") or (0,),
            budget=budget,
            budget_tokens=budget_tokens,
            executor=executor or "local",
            confirm=confirm is not False,
        )
        made = bench_spec.experiment_of(options)

    from kforge.cli import bench as command
    from kforge.run.model_pool import ModelAccess

    if dry_run:
        raise typer.Exit(command.dry_run(made, store, parallel, fresh))
    access = ModelAccess(cache, "", concurrency, per_minute)
    output = command.BenchOutput(store, parallel, fresh, as_json, html)
    offline_by_default = experiment is None and not model
    raise typer.Exit(command.run(made, access, output, offline_by_default))


def _typed_options(context: typer.Context) -> list[str]:
    """Options that were used and that an experiment's file has keys for."""
    names = (
        *("suite", "levels", "draw", "only", "without", "platform", "model", "preset", "seeds", "budget"),
        *("budget_tokens", "confirm", "name", "executor", "setting", "iterations", "samples", "reference"),
        *("profiling", "style", "dtype", "backward"),
    )
    used = [name for name in names if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    return ["set" if name == "setting" else name for name in used]


def report(
    names: Annotated[list[str], typer.Argument(help=_NAMES)],
    html: Annotated[Optional[Path], typer.Option(help="Write one self-contained page.")] = None,  # noqa: UP045
    markdown: Annotated[Optional[Path], typer.Option(help="Write the same as Markdown; - for the terminal.")] = None,  # noqa: UP045
    csv: Annotated[Optional[Path], typer.Option(help="Write a row for each trial; - for the terminal.")] = None,  # noqa: UP045
    records: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write every program, reply and evidence record into this folder, to be replayed."),
    ] = None,
    kernelbench: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the results into this folder as KernelBench's own scripts read them."),
    ] = None,
    problem_texts: Annotated[
        bool,
        typer.Option(
            help="Whether page and records hold the problems' own texts; a record without is replayed with its file."
        ),
    ] = True,
    store: Annotated[str, STORE] = "",
) -> None:
    """What experiments came to: correctness, fast_p, speedups, costs, every problem with its kernel.

    Without --html, --markdown, --csv, --records or --kernelbench, the Markdown is printed.
    """
    from kforge.cli import report as command

    raise typer.Exit(command.run(names, command.Files(html, markdown, csv, records, kernelbench, problem_texts), store))


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="An experiment, or EXPERIMENT:CONFIGURATION; @K behind it: as it stood after K programs of each chain."
        ),
    ],
    b: Annotated[
        str, typer.Argument(help="The other one. Left out: the configurations of A, each against the first.")
    ] = "",
    platform: Annotated[
        str, typer.Option(autocompletion=platform_names, help="Only this platform. Default: each that both have.")
    ] = "",
    store: Annotated[str, STORE] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per comparison.")] = False,
) -> None:
    """Two configurations on the same problems: who wins where, by how much, and whether that is more than chance."""
    from kforge.cli import compare as command

    raise typer.Exit(command.run(a, b, platform, store, as_json))
