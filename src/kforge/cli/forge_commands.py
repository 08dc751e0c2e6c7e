"""The loop's commands and their options: forge, resume, runs, show, export, prompt. Nothing heavy is imported here."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from kforge.cli.completion import platform_names, profiler_names
from kforge.cli.shared_options import BACKWARD, CACHE, CONCURRENCY, DTYPE, PER_MINUTE, STORE

_JSON = typer.Option("--json", help="Print one JSON object.")
_RUN = typer.Argument(help="A run's name, the beginning of it, or 'last'.")
_EXECUTOR_HELP = (
    "Who judges: local (this machine; local:0,1 names its devices), bundle:DIR (jobs in a folder, for a machine "
    "without a network), or dask:tls://HOST:PORT (the workers of a cluster)."
)
_REFERENCE_HELP = (
    "A reference implementation from elsewhere: a file, a platform (its best correct program for this problem in the "
    "store), or inductor (PyTorch's compiler)."
)
_POLICY = typer.Option(help="strict, hybrid or any; see kforge evaluate --help.")
_PRECISION = typer.Option(help="Lowest precision allowed. Default: the problem's.")
_RECORD = typer.Option(help="Append every exchange with a model to this file, prompts included, for replay:FILE.")


def forge(
    problem: Annotated[
        list[str], typer.Argument(help="Problem files (KernelBench format), folders, bundled, or bundled:level1/1.")
    ],
    platform: Annotated[str, typer.Option(autocompletion=platform_names, help="Platform to forge for.")] = "cpu",
    model: Annotated[
        list[str],
        typer.Option(
            help="Who writes: provider:model, 'command:CLI ...', mailbox:DIR, replay:FILE, or builtin (offline, the "
            "default). Several may be named.",
        ),
    ] = [],  # noqa: B006  typer copies it
    analyst_model: Annotated[
        str,
        typer.Option(help="Who reads profiles. Default: the writer's own model; none: nobody."),
    ] = "",
    iterations: Annotated[int, typer.Option(min=1, help="Programs per chain at most.")] = 5,
    samples: Annotated[int, typer.Option(min=1, help="Independent chains.")] = 1,
    target_speedup: Annotated[float | None, typer.Option(help="Stop when a program is surely this fast.")] = None,
    repairs: Annotated[int, typer.Option(min=1, help="Failed repairs in a row before going back to the best.")] = 2,
    plateau: Annotated[int, typer.Option(min=1, help="Stop after this many correct programs without gain.")] = 3,
    seed: Annotated[int, typer.Option(help="Tells the draws of two runs apart in a shared cache.")] = 0,
    budget: Annotated[
        float | None,
        typer.Option(min=0, help="Dollars models may cost, all problems together."),
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens models may use, all problems together.")
    ] = None,
    reference: Annotated[str, typer.Option(help=_REFERENCE_HELP)] = "",
    profiler: Annotated[
        list[str],
        typer.Option(
            autocompletion=profiler_names, help="Profilers to use (kforge doctor lists them); none: no profiling."
        ),
    ] = [],  # noqa: B006
    style: Annotated[str, typer.Option(help="Prompt style: structured or plain, or a folder in --prompts.")] = (
        "structured"
    ),
    prompts: Annotated[str, typer.Option(help="Folder of your own prompt templates.")] = "",
    prompt_tokens: Annotated[int, typer.Option(min=1000, help="Ceiling of a prompt's length.")] = 24_000,
    search: Annotated[str, typer.Option(help="How the next move is chosen.")] = "refine",
    temperature: Annotated[float | None, typer.Option(min=0, help="Default: the provider's.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Default: the provider's.")] = None,
    model_timeout: Annotated[
        float,
        typer.Option(min=1, help="Seconds for one request; a mailbox waits as long as it takes."),
    ] = 600,
    base_url: Annotated[
        str,
        typer.Option(
            help="Address of a server of your own, for ANY:NAME; OpenAI-compatible unless ANY says otherwise.",
        ),
    ] = "",
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    baseline: Annotated[
        str, typer.Option(help="What speedup means: eager, tf32, compile, compile_tf32, autotune or best.")
    ] = "eager",
    compile_baseline: Annotated[bool, typer.Option(help="Build and time torch.compile too.")] = True,
    autotune_baseline: Annotated[
        bool,
        typer.Option(
            help="Build and time torch.compile's max-autotune mode too: minutes, once per problem.",
        ),
    ] = False,
    sanitize: Annotated[
        bool,
        typer.Option(help="Correct programs must also pass the platform's memory and race checkers (GPU)."),
    ] = False,
    policy: Annotated[str, _POLICY] = "hybrid",
    precision: Annotated[str, _PRECISION] = "",
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, unshare or process.")] = "auto",
    cache: Annotated[str, CACHE] = "",
    record: Annotated[str, _RECORD] = "",
    concurrency: Annotated[int, CONCURRENCY] = 8,
    per_minute: Annotated[int | None, PER_MINUTE] = None,
    keep_prompts: Annotated[bool, typer.Option(help="Keep the text of prompts in the store too.")] = False,
    executor: Annotated[str, typer.Option(help=_EXECUTOR_HELP)] = "local",
    store: Annotated[str, STORE] = "",
    to: Annotated[Path | None, typer.Option(help="Write the best program to this file.")] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Forge a faster drop-in for a problem: write, judge, profile, advise, again.

    Without --model the offline agents do it: PyTorch's own compiler and rules, no key, no network.

    Exit status: 0 a correct program for every problem, 1 not for every one, 2 a usage or harness error, 3 jobs wait in
    the bundle.
    """
    options = {
        "analyst_model": analyst_model,
        "iterations": iterations,
        "samples": samples,
        "target_speedup": target_speedup,
        "repairs": repairs,
        "plateau": plateau,
        "seed": seed,
        "budget": budget,
        "budget_tokens": budget_tokens,
        "reference": reference,
        "profilers": _profilers(profiler),
        "style": style,
        "prompts": prompts,
        "prompt_tokens": prompt_tokens,
        "search": search,
        "temperature": temperature,
        "max_output_tokens": max_output_tokens,
        "timeout_seconds": model_timeout,
        "base_url": base_url,
        "dtype": dtype,
        "backward": backward,
        "baseline": baseline,
        "compile_baseline": compile_baseline,
        "autotune_baseline": autotune_baseline,
        "sanitize": sanitize,
        "policy": policy,
        "precision": precision,
        "sandbox": sandbox,
        "keep_prompts": keep_prompts,
        "executor": executor,
    }
    from kforge.cli import forge as command
    from kforge.run.model_pool import ModelAccess
    from kforge.spec.run_spec import make_specs

    specs = make_specs(problem, platform, model or ["builtin"], options)
    access = ModelAccess(cache, record, concurrency, per_minute)
    output = command.ForgeOutput(store, as_json, to)
    raise typer.Exit(command.run(specs, access, output, offline_by_default=not model))


def resume(
    run: Annotated[
        str,
        typer.Argument(help="A run's name, the beginning of it, 'last', or 'waiting': all that wait for reports."),
    ] = "last",
    iterations: Annotated[int | None, typer.Option(min=1, help="Programs per chain in all.")] = None,
    plateau: Annotated[int | None, typer.Option(min=1, help="Correct programs without gain before a stop.")] = None,
    target_speedup: Annotated[float | None, typer.Option(help="Stop when this is reached.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=1000, help="Ceiling of a prompt's length.")] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="Dollars in all, those spent before included.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=0, help="Tokens in all.")] = None,
    executor: Annotated[
        str | None,
        typer.Option(help=f"{_EXECUTOR_HELP} Default: as before.", show_default=False),
    ] = None,
    store: Annotated[str, STORE] = "",
    cache: Annotated[str, CACHE] = "",
    record: Annotated[str, _RECORD] = "",
    concurrency: Annotated[int, CONCURRENCY] = 8,
    per_minute: Annotated[int | None, PER_MINUTE] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Go on with a run that was broken off, or let a finished one do more.

    What was paid for is not asked for again. Reports that were carried back into the run's bundle are taken in.

    Exit status: as for kforge forge.
    """
    from kforge.cli import forge as command
    from kforge.run.context import RunEnvironment
    from kforge.run.model_pool import ModelAccess
    from kforge.spec.run_spec import ResumeOptions

    environment = RunEnvironment(store, ModelAccess(cache, record, concurrency, per_minute))
    changes = ResumeOptions(iterations, plateau, target_speedup, prompt_tokens, budget, budget_tokens, executor)
    raise typer.Exit(command.resume(run, environment, changes, command.ForgeOutput(store, as_json)))


def runs(
    problem: Annotated[
        str,
        typer.Option(help="Only those for this problem: a file, a folder, bundled..., or a name or id in the store."),
    ] = "",
    platforms: Annotated[
        bool, typer.Option("--platforms", help="Instead: which platforms have a correct program, and the best on each.")
    ] = False,
    store: Annotated[str, STORE] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many runs, newest first.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per run; with --platforms, per problem.")
    ] = False,
) -> None:
    """The runs in the store; with --platforms, which platforms have a correct program for which problem."""
    from kforge.cli import proven
    from kforge.cli import runs as command

    if platforms:
        raise typer.Exit(proven.list_platforms(store, problem, as_json))
    raise typer.Exit(command.list_runs(store, limit, as_json, problem))


def show(
    run: Annotated[str, _RUN] = "last",
    step: Annotated[str, typer.Option(help="One attempt whole: its step, or chain.step.")] = "",
    store: Annotated[str, STORE] = "",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """A run: every attempt, its verdict, and the advice it followed."""
    from kforge.cli import runs as command

    raise typer.Exit(command.show(store, run, step, as_json))


class ExportForm(enum.StrEnum):
    file = "file"
    package = "package"
    hf_kernel = "hf-kernel"
    flashinfer = "flashinfer"


class GradientChoice(enum.StrEnum):
    reference = "reference"
    error = "error"


def export(
    run: Annotated[str, _RUN] = "last",
    form: Annotated[
        ExportForm,
        typer.Option(
            "--as",
            help="file: one guarded Python file; package: a folder that pip installs and that needs no KForge; "
            "hf-kernel: a repository for Hugging Face's kernels; flashinfer: a Solution and its Traces, added to a "
            "dataset of flashinfer-bench or SOL-ExecBench.",
        ),
    ] = ExportForm.file,
    to: Annotated[
        Path | None,
        typer.Option(
            help="The file or folder to write; a package is called as its folder. Default: kernel.py, or the "
            "operator's name.",
            show_default=False,
        ),
    ] = None,
    op: Annotated[str, typer.Option(help="package: the operator's name. Default: the problem's.")] = "",
    gradients: Annotated[
        GradientChoice,
        typer.Option(help="package: what a backward pass does where none was verified: reference recomputes, error."),
    ] = GradientChoice.reference,
    licence: Annotated[str, typer.Option("--license", help="package: its licence, an SPDX name.")] = "Apache-2.0",
    with_built: Annotated[
        bool,
        typer.Option("--with-built", help="package: carry what is compiled here, for machines without a compiler."),
    ] = False,
    arch: Annotated[
        str,
        typer.Option(
            help="--with-built: other NVIDIA GPUs to compile for too, of programs that use NVRTC (sm_80,sm_100).",
            show_default=False,
        ),
    ] = "",
    evidence: Annotated[
        Path | None, typer.Option(help="Write the evidence record too, for kforge evaluate --replay.")
    ] = None,
    step: Annotated[str, typer.Option(help="Another attempt than the best: its step, or chain.step.")] = "",
    store: Annotated[str, STORE] = "",
) -> None:
    """Write the best program of a run: as a file, or as a package that can be shipped."""
    from kforge.cli import runs as command

    if form is ExportForm.file:
        raise typer.Exit(command.export(store, run, to or Path("kernel.py"), evidence, step))
    if with_built and form is not ExportForm.package:
        raise typer.BadParameter("--with-built is for --as package")
    if arch and not with_built:
        raise typer.BadParameter("--arch is for --with-built")
    architectures = tuple(part.strip() for part in arch.split(",") if part.strip())
    choice = command.PackageChoice(form.value, op, gradients.value, licence, with_built, architectures)
    raise typer.Exit(command.export_package(store, run, to, choice, step))


def verify(
    package: Annotated[Path, typer.Argument(help="The folder of a package that kforge export wrote.")],
    tests: Annotated[bool, typer.Option(help="Run the package's own tests too, if it is found correct.")] = True,
    devices: Annotated[str, typer.Option(help="The number of the device to judge on. Default: the first.")] = "",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Judge an exported package on this machine, against its own reference: what of its claim still holds?

    Exit status: 0 the claim holds, 1 it does not, 2 the package cannot be judged, 3 it cannot be told from these times.
    """
    from kforge.cli import verify as command
    from kforge.worker.device_selection import DeviceSelection, device_numbers

    raise typer.Exit(command.run(package, as_json, tests, DeviceSelection(device_numbers(devices), 0)))


def prompt(
    problem: Annotated[str, typer.Argument(help="Problem file, or bundled:level1/1.")],
    platform: Annotated[str, typer.Option(autocompletion=platform_names, help="Platform to write for.")] = "cpu",
    dtype: Annotated[str, DTYPE] = "",
    backward: Annotated[bool, BACKWARD] = False,
    reference: Annotated[str, typer.Option(help=_REFERENCE_HELP)] = "",
    policy: Annotated[str, _POLICY] = "hybrid",
    precision: Annotated[str, _PRECISION] = "",
    style: Annotated[str, typer.Option(help="Prompt style: structured or plain, or a folder in --prompts.")] = (
        "structured"
    ),
    prompts: Annotated[str, typer.Option(help="Folder of your own prompt templates.")] = "",
    prompt_tokens: Annotated[int, typer.Option(min=1000, help="Ceiling of its length.")] = 24_000,
    store: Annotated[str, typer.Option(help="Where --reference PLATFORM looks. Default: .kforge here.")] = "",
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Print exactly what would be sent to a model first."""
    from kforge.cli import prompt as command
    from kforge.spec.run_spec import make_spec

    options = {
        "dtype": dtype,
        "backward": backward,
        "reference": reference,
        "policy": policy,
        "precision": precision,
        "style": style,
        "prompts": prompts,
        "prompt_tokens": prompt_tokens,
    }
    raise typer.Exit(command.run(make_spec(problem, platform, "prompt-only", options), store, as_json))


def _profilers(named: list[str]) -> tuple[str, ...] | None:
    """None for the platform's own, empty for none."""
    if not named:
        return None
    return tuple(name for name in named if name != "none")
