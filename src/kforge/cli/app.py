"""`kforge`: the commands and their options. Nothing heavy is imported here."""

from __future__ import annotations

import enum
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from kforge.cli import bench_commands, cluster_commands, forge_commands, platform_commands, profile_command
from kforge.cli.completion import platform_names
from kforge.cli.option_groups import GroupedCommand
from kforge.cli.shared_options import BACKWARD, DTYPE
from kforge.errors import KForgeError
from kforge.visible_text import visible

app = typer.Typer(
    name="kforge",
    help="Faster drop-in modules for PyTorch, with numbers you can believe.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class BaselineChoice(enum.StrEnum):
    eager = "eager"
    tf32 = "tf32"
    compile = "compile"
    compile_tf32 = "compile_tf32"
    autotune = "autotune"
    best = "best"


class PolicyChoice(enum.StrEnum):
    strict = "strict"
    hybrid = "hybrid"
    any = "any"


class SandboxChoice(enum.StrEnum):
    auto = "auto"
    bubblewrap = "bubblewrap"
    unshare = "unshare"
    process = "process"


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(importlib.metadata.version("kforge-kernels"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Faster drop-in modules for PyTorch, with numbers you can believe."""


@app.command(cls=GroupedCommand)
def evaluate(
    problem: Annotated[
        Optional[str], typer.Argument(help="Problem file (KernelBench format), or bundled:level1/1.")  # noqa: UP045
    ] = None,
    candidate: Annotated[Optional[Path], typer.Argument(help="Candidate file: defines class ModelNew.")] = None,  # noqa: UP045
    platform: Annotated[str, typer.Option(autocompletion=platform_names, help="Platform to judge on.")] = "cpu",
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    baseline: Annotated[
        BaselineChoice, typer.Option(help="What `speedup` is measured against.")
    ] = BaselineChoice.eager,
    compile_baseline: Annotated[
        bool, typer.Option(help="Build and time torch.compile too; without it there is no speedup_vs_best.")
    ] = True,
    autotune_baseline: Annotated[
        bool, typer.Option(help="Build and time torch.compile's max-autotune mode too: minutes, once per problem.")
    ] = False,
    policy: Annotated[
        PolicyChoice,
        typer.Option(help="strict: no torch compute; hybrid: library calls reported, custom code required; any."),
    ] = PolicyChoice.hybrid,
    precision: Annotated[
        str, typer.Option(help="Lowest precision allowed: float16, bfloat16, tf32. Default: the problem's.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many freshly drawn inputs are checked.")] = 5,
    timing_seconds: Annotated[float, typer.Option(min=0, help="Time for the measurement; 0 leaves timing out.")] = 0.5,
    sandbox: Annotated[
        SandboxChoice, typer.Option(help="Sandbox level to require; auto takes the strongest.")
    ] = SandboxChoice.auto,
    sanitize: Annotated[
        bool, typer.Option(help="A correct candidate must also pass the platform's memory and race checkers (GPU).")
    ] = False,
    devices: Annotated[
        str, typer.Option(help="Numbers of the devices to judge on, as in 0 or 0,1. Default: the first; --jobs: all.")
    ] = "",
    builders: Annotated[
        int, typer.Option(min=0, help="With --jobs: programs in hand at once for each device; 0: what suits.")
    ] = 0,
    build_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for import, compilation and construction.")
    ] = 180,
    call_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for a call, beyond what the reference needs.")
    ] = 30,
    memory: Annotated[
        float, typer.Option(min=0, help="GiB a candidate may use; 0: three quarters of the machine's.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    evidence: Annotated[Optional[Path], typer.Option(help="Write the evidence record to this file.")] = None,  # noqa: UP045
    jobs: Annotated[
        Path | None, typer.Option(help="JSON Lines file of jobs, instead of problem and candidate.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the reports of --jobs; finished jobs are skipped.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Re-run an evidence record; says whether its claim holds, does not, or cannot be told."),
    ] = None,
) -> None:
    """Is this kernel correct, and how much faster is it really?

    Exit status: 0 correct, 1 any other verdict, 2 a usage or harness error. With --replay: 0 the claim holds, 1 it does
    not, 3 it cannot be told from these times.
    """
    from kforge.cli import evaluate as command
    from kforge.types import Limits, ProblemForm, Settings
    from kforge.worker.device_selection import DeviceSelection, device_numbers

    show = command.VerdictOutput(as_json, evidence)
    limits = Limits(build_seconds=build_timeout, call_seconds=call_timeout, memory_bytes=int(memory * (1 << 30)))
    try:
        form = ProblemForm(dtype, backward)
        settings = Settings(
            baseline=baseline.value,
            compile_baseline=compile_baseline,
            autotune_baseline=autotune_baseline,
            policy=policy.value,
            precision=precision,
            seeds=seeds,
            timing_seconds=timing_seconds,
            sandbox=sandbox.value,
            sanitize=sanitize,
            limits=limits,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    selection = DeviceSelection(device_numbers(devices), builders)
    if replay is not None:
        code = command.replay(replay, show, selection, problem or "")
    elif jobs is not None:
        if out is None:
            raise typer.BadParameter("--jobs needs --out DIR")
        code = command.batch(jobs, out, platform, settings, show, selection, form)
    elif problem is None or candidate is None:
        raise typer.BadParameter("name a problem and a candidate, or --jobs FILE --out DIR, or --replay FILE")
    else:
        code = command.single(problem, candidate, platform, settings, show, selection, form)
    raise typer.Exit(code)


for _command in (
    forge_commands.forge,
    forge_commands.resume,
    forge_commands.runs,
    forge_commands.show,
    forge_commands.export,
    forge_commands.verify,
    forge_commands.prompt,
    bench_commands.bench,
    bench_commands.report,
    bench_commands.compare,
    profile_command.profile,
    cluster_commands.worker,
    cluster_commands.cluster,
):
    app.command(cls=GroupedCommand)(_command)
app.add_typer(platform_commands.app, name="platform")


@app.command()
def audit(
    place: Annotated[str, typer.Argument(help="Problem file, folder of them, or 'bundled'.")],
    platform: Annotated[str, typer.Option(autocompletion=platform_names, help="Whose sizes to use.")] = "cpu",
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per problem.")] = False,
) -> None:
    """Is the problem itself sound? Names what is degenerate about it.

    Exit status: 0 all sound, 1 some degenerate, 2 a problem that cannot be used.
    """
    from kforge.cli import audit as command
    from kforge.types import ProblemForm

    try:
        form = ProblemForm(dtype, backward)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(command.run(place, platform, as_json, form))


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Which platforms, compilers, profilers, sandbox levels and models exist here, and why others do not."""
    from kforge.cli import doctor as command

    raise typer.Exit(command.run(as_json))


def main() -> Any:
    try:
        app()
    except KForgeError as error:
        print(f"kforge: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
    except Exception:
        print(visible(traceback.format_exc()), file=sys.stderr)
        print("kforge: internal error, please report it", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("kforge: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
