"""Which sandbox levels exist on this machine, found by trying them, and why the others do not."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys

from kforge.errors import HarnessError, SandboxUnavailable
from kforge.worker.sandbox import namespace_probe

LEVELS = ("bubblewrap", "unshare", "process")
"""Strongest first."""

_PROBE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from kforge.worker.sandbox import namespace_probe; "
    "sys.exit(namespace_probe.main())"
)


@functools.cache
def unavailable_reason(level: str) -> str:
    """Why the level cannot be had here, with the cure; empty if it can."""
    if level == "process":
        return ""
    if sys.platform != "linux":
        return "needs Linux namespaces"
    if level == "bubblewrap":
        if shutil.which("bwrap") is None:
            return "bwrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)"
        trial = ["bwrap", "--ro-bind", "/", "/", "--unshare-net", "--bind", "/proc", "/proc", "--dev", "/dev", "true"]
        if os.geteuid() != 0:
            trial.insert(1, "--unshare-user")
        reason = _failure(trial)
        if reason:
            return f"bwrap cannot make a sandbox here: {reason}"
    reason = _refusal()
    if reason:
        return f"namespaces for each runner are refused: {reason} (sysctl kernel.unprivileged_userns_clone=1 may help)"
    return ""


def choose(wanted: str) -> str:
    """The level to use: the strongest there is for "auto", else the named one or SandboxUnavailable."""
    if wanted == "auto":
        return next(level for level in LEVELS if not unavailable_reason(level))
    if wanted not in LEVELS:
        raise SandboxUnavailable(f"no sandbox level is called {wanted!r}; there are: auto, {', '.join(LEVELS)}")
    reason = unavailable_reason(wanted)
    if reason:
        raise SandboxUnavailable(f"sandbox level {wanted}: {reason}")
    return wanted


def shortcomings(level: str) -> tuple[str, ...]:
    """What this level does not hold, for the evidence record."""
    if level != "process":
        return ()
    return (
        "sandbox: plain process only; the candidate could read the user's files",
        "sandbox: plain process only; the candidate could signal other processes of this user",
        "sandbox: plain process only; the network was not cut off by the kernel",
    )


def _failure(command: list[str]) -> str:
    """Empty if the command succeeds; else the last line it complained with."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else _last_line(done)


def _refusal() -> str:
    """Why the kernel refuses namespaces; empty if it does not.

    HarnessError where the trial itself is at fault: that must not pass for a machine without namespaces, on which
    programs run less well confined.
    """
    command = [sys.executable, "-I", "-c", _PROBE, _package_root()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired as error:
        return str(error)
    if done.returncode == -signal.SIGSYS:
        return "a filter of system calls kills whoever asks for them"
    if done.returncode not in (0, namespace_probe.REFUSED):
        raise HarnessError(f"the trial of the sandbox failed (a fault of KForge's):\n{done.stderr.strip()}")
    return "" if done.returncode == 0 else _last_line(done)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
