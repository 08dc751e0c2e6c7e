"""`xctrace`: a running process recorded into a trace, and tables exported out of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kforge.profilers.base import NothingSeen

TEMPLATE = "Metal System Trace"
SECONDS = 4
"""How long is recorded."""
_STARTED = "Starting recording"
_START_SECONDS = 20.0
_END_SECONDS = 180.0
_EXPORT_SECONDS = 180.0
_POLL_SECONDS = 0.05
_CURES = (
    ("not permitted", "allow it with: sudo DevToolsSecurity -enable"),
    ("developer mode", "allow it with: sudo DevToolsSecurity -enable"),
    ("xcode-select", "point it at Xcode: sudo xcode-select --switch /Applications/Xcode.app"),
    ("license", "accept Xcode's licence: sudo xcodebuild -license accept"),
)


def record(process_id: int, home: Path, meanwhile: Callable[[], None]) -> Path:
    """A trace of what the process does `meanwhile`; NothingSeen if xctrace makes none."""
    trace, log = home / "kforge.trace", home / "xctrace.txt"
    command = ["xcrun", "xctrace", "record", "--template", TEMPLATE, "--attach", str(process_id)]
    command += ["--time-limit", f"{SECONDS}s", "--output", str(trace), "--no-prompt"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        _wait_for_start(process, log)
        meanwhile()
        status = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        raise NothingSeen(f"xctrace record did not end within {_END_SECONDS:.0f} s") from None
    finally:
        process.kill()
        process.wait()
    if not trace.exists():
        raise NothingSeen(f"xctrace record made no trace (status {status}): {_explain(log)}")
    return trace


def contents(trace: Path, home: Path) -> str:
    """The trace's table of contents, as XML."""
    return _export(trace, home, ["--toc"])


def table(trace: Path, home: Path, schema: str) -> str:
    """One table of the trace's first run, as XML."""
    return _export(trace, home, ["--xpath", f'/trace-toc/run[@number="1"]/data/table[@schema="{schema}"]'])


def _wait_for_start(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if _STARTED in log.read_text(encoding="utf-8", errors="replace"):
            return
        time.sleep(_POLL_SECONDS)


def _export(trace: Path, home: Path, what: list[str]) -> str:
    out, log = home / "export.xml", home / "export.txt"
    command = ["xcrun", "xctrace", "export", "--input", str(trace), *what]
    with out.open("wb") as file, log.open("wb") as errors:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=errors, timeout=_EXPORT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NothingSeen(f"xctrace export did not end within {_EXPORT_SECONDS:.0f} s") from None
    text = out.read_text(encoding="utf-8", errors="replace")
    # Some versions write the whole table and then crash: what they wrote counts.
    if not text.strip():
        raise NothingSeen(f"xctrace export gave nothing (status {done.returncode}): {_explain(log)}")
    return text


def _explain(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cure = next((cure for word, cure in _CURES if word in text.lower()), "")
    return (lines[-1][:300] if lines else "it said nothing") + (f"; {cure}" if cure else "")
