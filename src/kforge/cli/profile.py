"""`kforge profile`: a closer look at one candidate, and its pictures as files."""

from __future__ import annotations

import asyncio
import json
import os
import platform as machine
import tempfile
import webbrowser
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from kforge.cli import render
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.execution.factory import open_executor
from kforge.profilers import _names as naming
from kforge.profilers.digest import digest
from kforge.profilers.trace_view import PAGE
from kforge.run.context import judging_settings
from kforge.spec.judging_platform import check_platform
from kforge.types import Job, Outcome, Profile, Report, RunSpec
from kforge.worker.jobs import read_candidate


@dataclass(frozen=True)
class ProfileOutput:
    """Where the answer goes."""

    out: Path | None = None
    open: bool = False
    as_json: bool = False


def run(spec: RunSpec, file: Path, show: ProfileOutput) -> int:
    """0 if something was seen, 1 if not or if the candidate is not correct."""
    check_platform(spec.platform, spec.executor)
    settings = judging_settings(spec)
    if not settings.profilers:
        raise UsageError(f"the platform {spec.platform} names no profiler of its own; name one with --profiler")
    names = tuple(dict.fromkeys(naming.plain_name(name) for name in settings.profilers))
    job = Job(file.stem, spec.problem, read_candidate(file, spec.platform), replace(settings, profilers=names))
    with Screen(stderr=True).status("judging, then profiling"):
        report = asyncio.run(_report(spec, job))
    files = _write_files(report, show)
    if show.as_json:
        print(json.dumps(_flat(report, files)))
    else:
        _print(Screen(), report, files)
    if show.open:
        _open_files(files, Screen(stderr=True))
    return 0 if any(not item.absent for item in report.profiles) else 1


async def _report(spec: RunSpec, job: Job) -> Report:
    executor = open_executor(spec.executor, spec.platform)
    try:
        return await executor.run(job, lambda _: None)
    finally:
        await executor.close()


def _write_files(report: Report, show: ProfileOutput) -> list[list[Path]]:
    """Each profile's pictures and own files, written; no folder is made where there is nothing to write."""
    if not any(profile.images or profile.raw for profile in report.profiles):
        return [[] for _ in report.profiles]
    folder = show.out or Path(tempfile.mkdtemp(prefix="kforge-profile-"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tools = [profile.tool for profile in report.profiles]
        return [
            _write(profile, folder, f"{profile.tool}-{tools[:number].count(profile.tool) + 1}".removesuffix("-1"))
            for number, profile in enumerate(report.profiles)
        ]
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None


def _write(profile: Profile, folder: Path, stem: str) -> list[Path]:
    named = {
        f"{stem}.{number}.{image.media_type.partition('/')[2]}": image.data
        for number, image in enumerate(profile.images, start=1)
    }
    named |= {f"{stem}.{Path(item.name).name}": item.data for item in profile.raw}
    for name, data in named.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in named]


def _print(console: Console, report: Report, files: list[list[Path]]) -> None:
    render.print_verdict(console, report)
    if report.verdict.outcome is not Outcome.CORRECT:
        console.print("only a correct candidate is profiled", highlight=False)
    for profile, written in zip(report.profiles, files, strict=True):
        console.print(f"\n[bold]{escape(profile.tool)}[/]", highlight=False)
        if profile.absent:
            console.print(f"[red]absent:[/] {escape(profile.absent)}", highlight=False, soft_wrap=True)
        else:
            console.print(escape(profile.text), highlight=False, soft_wrap=True)
        for path in written:
            console.print(f"  {escape(str(path))}", style="dim", highlight=False, soft_wrap=True)
    made = digest(report.profiles, report.verdict)
    if made.text:
        console.print(f"\n[bold]what matters in it[/]\n{escape(made.text)}", highlight=False, soft_wrap=True)


def _flat(report: Report, files: list[list[Path]]) -> dict[str, Any]:
    """The object `--json` prints."""
    profiles = [
        {
            "tool": profile.tool,
            "absent": profile.absent or None,
            "metrics": profile.metrics,
            "text": profile.text,
            "files": [str(path) for path in written],
        }
        for profile, written in zip(report.profiles, files, strict=True)
    ]
    return {**render.flat(report), "profiles": profiles, "digest": digest(report.profiles, report.verdict).text}


def _open_files(files: list[list[Path]], console: Console) -> None:
    """The page to look around in, or the pictures of a tool that has none, in the user's browser."""
    wanted = [path for written in files for path in _files_to_open(written)]
    if not wanted:
        console.print("there is nothing to open", highlight=False)
    for path in wanted:
        if not (_has_screen() and webbrowser.open(path.resolve().as_uri())):
            console.print(f"no browser could be started; open {escape(str(path))}", highlight=False, soft_wrap=True)


def _files_to_open(written: list[Path]) -> list[Path]:
    pages = [path for path in written if path.name.endswith(PAGE)]
    return pages or [path for path in written if path.suffix in (".png", ".jpeg")]


def _has_screen() -> bool:
    """Whether a browser would have a window; without one, some open in the terminal."""
    return machine.system() != "Linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
