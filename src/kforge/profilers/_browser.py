"""Chromium without a window: a page of ours becomes pictures."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from kforge.types import Image

WIDTH, HEIGHT = 1456, 768
"""A picture's size: one that hosted models read as it is, without scaling it down first."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_APPLICATIONS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
_CURE = (
    "no Chromium was found (Debian: apt-get install chromium; Fedora: dnf install chromium; macOS: Google Chrome or "
    "Chromium in /Applications; elsewhere any Chrome, Chromium or Edge on the PATH)"
)
_SECONDS = 180.0
"""Long: on a busy machine one was seen to take more than 60."""
_QUIET = (
    "--headless=new",
    "--disable-gpu",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--password-store=basic",
    "--use-mock-keychain",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_NO_OWN_SANDBOX = "--no-sandbox"
_SANDBOX_WORDS = "sandbox"


class NoPicture(Exception):
    """The browser took no picture; the message says why."""


def find() -> str:
    """Where a Chromium is; empty if nowhere."""
    program = next((path for name in _NAMES if (path := shutil.which(name))), "")
    if not program and sys.platform == "darwin":
        program = next((path for path in _APPLICATIONS if os.access(path, os.X_OK)), "")
    return program


def unavailable_reason() -> str:
    """Why no picture can be taken here, with the cure; empty if one can."""
    return "" if find() else _CURE


def pictures(page: str, fragments: list[str], size: tuple[int, int] = (WIDTH, HEIGHT)) -> tuple[Image, ...]:
    """The page at each of the fragments (what follows # in its address); NoPicture if it cannot be shown."""
    program = find()
    if not program:
        raise NoPicture(_CURE)
    with tempfile.TemporaryDirectory(prefix="kforge-browser-") as folder:
        home = Path(folder)
        file = home / "page.html"
        file.write_text(page, encoding="utf-8")
        images = []
        for number, fragment in enumerate(fragments):
            target = home / f"{number}.png"
            _take(program, home, f"{file.as_uri()}#{fragment}", target, size)
            images.append(Image("image/png", target.read_bytes()))
        return tuple(images)


def _take(program: str, home: Path, address: str, target: Path, size: tuple[int, int]) -> None:
    options = [
        *_QUIET,
        f"--user-data-dir={home / 'profile'}",
        f"--window-size={size[0]},{size[1]}",
        f"--screenshot={target}",
    ]
    # Chromium cannot fence itself in as root; the page is ours and holds checked data only.
    own = [_NO_OWN_SANDBOX] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    output = _run([program, *options, *own, address], home)
    if not target.is_file() and not own and _SANDBOX_WORDS in output.lower():
        output = _run([program, *options, _NO_OWN_SANDBOX, address], home)
    if not target.is_file() or not target.read_bytes().startswith(b"\x89PNG\r\n\x1a\n"):
        lines = [line.strip() for line in output.splitlines() if line.strip() and "dbus" not in line]
        raise NoPicture(f"{program} took no picture: {lines[-1][:300] if lines else 'it said nothing'}")


def _run(command: list[str], home: Path) -> str:
    """Run the program and return its output; NoPicture if it does not start or does not end."""
    with (home / "said").open("w+b") as output:
        try:
            # A group of its own: its helpers end with it.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(home),
                start_new_session=True,
            )
        except OSError as error:
            raise NoPicture(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            raise NoPicture(f"{command[0]} took no picture within {_SECONDS:.0f} s") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        output.seek(0)
        return output.read(100_000).decode(errors="replace")


def _environment(home: Path) -> dict[str, str]:
    """The browser's environment: no keys, no bus, a home of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "FONTCONFIG_PATH") if name in os.environ}
    return {**kept, "HOME": str(home), "TMPDIR": str(home), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
