"""Instruments driven by script: a trace opened, its window put in place, pictures taken of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kforge.types import Image

WIDTH, HEIGHT = 1456, 768
"""The window's size in points; a picture is brought down to this width in pixels."""
_LEFT, _TOP = 40, 40
_ZOOM_STEPS = 4
_SECONDS = 120.0
_CURES = (
    (("-1743", "not authorized", "not authorised"), "Automation"),
    (("-1719", "-25211", "assistive access", "accessibility"), "Accessibility"),
    (("could not create image",), "Screen & System Audio Recording"),
)

_OPEN = f"""on run argv
  tell application "Instruments"
    activate
    open POSIX file (item 1 of argv)
  end tell
  tell application "System Events" to tell process "Instruments"
    repeat 60 times
      if exists window 1 then exit repeat
      delay 0.5
    end repeat
    set position of window 1 to {{{_LEFT}, {_TOP}}}
    set size of window 1 to {{{WIDTH}, {HEIGHT}}}
    delay 4
    set {{x, y}} to position of window 1
    set {{w, h}} to size of window 1
  end tell
  return (x as text) & "," & (y as text) & "," & (w as text) & "," & (h as text)
end run"""
"""Opens the trace, waits for its window and says where that is."""

_ZOOM = f"""tell application "Instruments" to activate
tell application "System Events"
  repeat {_ZOOM_STEPS} times
    keystroke "+" using {{command down}}
    delay 0.3
  end repeat
  delay 1
end tell"""

_CLOSE = """tell application "Instruments" to activate
tell application "System Events" to keystroke "w" using {command down}"""


class NotDriven(Exception):
    """The window could not be shown or captured; the message says why."""


def pictures(trace: Path, home: Path) -> tuple[Image, ...]:
    """The trace's window as it opens, and zoomed in; NotDriven if there is none to capture."""
    place = _script(_OPEN, str(trace)).strip()
    try:
        x, y, width, height = (int(float(number)) for number in place.split(","))
    except ValueError:
        raise NotDriven(f"Instruments' window was not found (it said {place[:80]!r})") from None
    region = f"{x},{y},{width},{height}"
    try:
        whole = _capture(region, home / "overview.png")
        _script(_ZOOM)
        return whole, _capture(region, home / "zoom.png")
    finally:
        try:
            _script(_CLOSE)
        except NotDriven:
            # A window that stays open is no reason to lose its pictures.
            pass


def _script(text: str, *arguments: str) -> str:
    return _run(["osascript", "-e", text, *arguments])


def _capture(region: str, target: Path) -> Image:
    output = _run(["screencapture", "-x", "-t", "png", "-R", region, str(target)])
    if not target.is_file():
        raise NotDriven(f"screencapture wrote no picture: {_explain(output)}")
    # A Mac's screen has two or three pixels to a point.
    _run(["sips", "--resampleHeightWidthMax", str(WIDTH), str(target)])
    data = target.read_bytes()
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise NotDriven("screencapture wrote something that is no picture")
    return Image("image/png", data)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise NotDriven(f"{command[0]} is not there: pictures of Instruments are taken on macOS only") from None
    except subprocess.TimeoutExpired:
        raise NotDriven(
            f"{command[0]} did not end within {_SECONDS:.0f} s (is somebody logged in at the screen?)"
        ) from None
    if done.returncode:
        raise NotDriven(f"{command[0]} failed (status {done.returncode}): {_explain(done.stderr or done.stdout)}")
    return done.stdout


def _explain(output: str) -> str:
    """The last line of an output, and which permission is missing where that is the reason."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "it said nothing"
    pane = next((pane for marks, pane in _CURES if any(word in output.lower() for word in marks)), "")
    cure = f"; allow the terminal in System Settings > Privacy & Security > {pane}" if pane else ""
    return last + cure
