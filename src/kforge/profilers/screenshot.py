"""`screenshot:COMMAND`: pictures from any tool, made by a command of the user's.

The command is split like a shell would split it, and no shell runs it. It finds in its environment

    KFORGE_OUT          a folder: every PNG and JPEG file that it leaves there is a picture, in the order of the names
    KFORGE_TRACE        a Chrome trace of a few calls of the candidate; not set if none could be made
    KFORGE_CANDIDATE    the candidate's source file
    KFORGE_PROBLEM      the problem's source file
    KFORGE_PLATFORM     the platform's name

What it prints is the text of the profile. It runs outside the sandbox, as the user, without the keys of models.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from kforge.profilers import _trace_events
from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Image, Profile

_CALLS = 3
_SECONDS = 120.0
_SUFFIXES = (".png", ".jpg", ".jpeg")
_MARKS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))
_MOST_PICTURES, _MOST_BYTES, _MOST_TEXT = 8, 4 << 20, 10_000
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_USAGE = "it names no command: write screenshot:COMMAND, for example 'screenshot:python take_pictures.py'"


class Screenshot(Profiler):
    name = "screenshot"
    what = "pictures made by a command of yours: screenshot:COMMAND"
    probe_file = "_window_probe.py"
    pictures = True

    def __init__(self, command: str = "") -> None:
        self.command = command

    def with_argument(self, argument: str) -> Screenshot:
        """A profiler of this kind for the command behind the colon."""
        return Screenshot(argument)

    def unavailable_reason(self) -> str:
        try:
            arguments = shlex.split(self.command)
        except ValueError as error:
            return f"screenshot:{self.command}: {error}"
        if not arguments:
            return _USAGE
        return "" if shutil.which(arguments[0]) else f"screenshot: there is no program {arguments[0]!r} on this machine"

    def collect(self, context: ProfilingContext) -> Profile:
        with tempfile.TemporaryDirectory(prefix="kforge-screenshot-") as folder:
            home = Path(folder)
            (home / "out").mkdir()
            notes: list[str] = []
            output = run(shlex.split(self.command), home, {**_safe_environment(), **_facts(context, home, notes)})
            images, problems = read_pictures(home / "out")
        if not images:
            raise NothingSeen(
                f"the command left no picture in $KFORGE_OUT{': ' + '; '.join(problems) if problems else ''}"
                f"{'; it said: ' + output.strip()[-200:] if output.strip() else ''}"
            )
        return Profile(
            self.name, {"pictures": float(len(images))}, "\n".join([output.strip(), *notes, *problems]), images
        )


def _facts(context: ProfilingContext, home: Path, notes: list[str]) -> dict[str, str]:
    """The variables that the command reads, and the files behind them."""
    facts = {"KFORGE_OUT": str(home / "out"), "KFORGE_PLATFORM": context.platform.name}
    evidence = context.verdict.evidence
    sources = {"PROBLEM": context.problem.source, "CANDIDATE": evidence.candidate.source if evidence else ""}
    for name, source in sources.items():
        if source:
            path = home / f"{name.lower()}.py"
            path.write_text(source, encoding="utf-8")
            facts[f"KFORGE_{name}"] = str(path)
    try:
        reply = context.ask({"calls": _CALLS, "device": context.platform.device})
        events = _trace_events.unpack(base64.b64decode(str(reply["trace"]), validate=True))
        (home / "trace.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
        facts["KFORGE_TRACE"] = str(home / "trace.json")
    except (NothingSeen, ValueError, KeyError, TypeError) as error:
        notes.append(f"there was no trace for the command: {str(error)[:200]}")
    return facts


def _safe_environment() -> dict[str, str]:
    """This process's environment without what looks like a secret."""
    return {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRET)}


def run(command: list[str], home: Path, environment: dict[str, str]) -> str:
    """Run the command and return what it printed; NothingSeen if it fails, or takes longer than it may."""
    with (home / "said").open("w+b") as output, (home / "errors").open("w+b") as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise NothingSeen(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            status = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            raise NothingSeen(f"the command did not end within {_SECONDS:.0f} s") from None
        finally:
            # What it left running ends with it.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        errors.seek(0)
        last = errors.read()[-2000:].decode(errors="replace").strip().rpartition("\n")[2]
        if status:
            raise NothingSeen(f"the command failed (status {status}): {last[:300] or 'it said nothing'}")
        output.seek(0)
        return output.read(_MOST_TEXT).decode(errors="replace")


def read_pictures(folder: Path) -> tuple[tuple[Image, ...], list[str]]:
    """The pictures in a folder, in the order of their names, and what is wrong with the rest."""
    images: list[Image] = []
    problems = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        if path.stat().st_size > _MOST_BYTES:
            problems.append(f"{path.name} is left out: more than {_MOST_BYTES >> 20} MiB")
            continue
        data = path.read_bytes()
        kind = next((kind for mark, kind in _MARKS if data.startswith(mark)), "")
        if not kind:
            problems.append(f"{path.name} is left out: it is no PNG or JPEG file")
        elif len(images) == _MOST_PICTURES:
            problems.append(f"{path.name} is left out: at most {_MOST_PICTURES} pictures are kept")
        else:
            images.append(Image(kind, data))
    return tuple(images), problems


PLUGIN = Screenshot()
