"""A Chromium without a window, driven over its DevTools pipe: pages are opened, clicked, measured and photographed.

The pipe is file descriptors 3 and 4 of the browser; messages are JSON, each ended by a NUL.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kforge.profilers import _browser

SECONDS = _browser._SECONDS


class BrowserFault(Exception):
    """The browser ended, did not answer, or refused."""


class Browser:
    """One tab. What its page reports (console, refusals, loads) is kept in `heard`."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.mkdtemp(prefix="kforge-driven-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        self._process = _start(program, Path(self._home), (to_browser, from_browser))
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, ""
        self.heard: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.medium()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            said = self._next(until)
            if said.get("id") == self._number:
                if "error" in said:
                    raise BrowserFault(f"{method}: {said['error']['message']}")
                return dict(said.get("result", {}))
            self.heard.append(said)

    def open(self, address: str) -> None:
        """Wait until the page is loaded."""
        self.heard.clear()
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFault(str(answer["exceptionDetails"].get("exception", {}).get("description", answer)))
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Until the expression is true."""
        until = time.monotonic() + SECONDS
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > until:
                raise BrowserFault(f"never came true: {script}")
            time.sleep(0.01)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A key that is no letter: Enter, Escape, Tab, ArrowRight."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39}
        extra = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes[key], **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes[key])

    def type(self, text: str) -> None:
        """Into whatever has the focus."""
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def medium(self, kind: str = "", scheme: str = "light") -> None:
        """print or screen, light or dark; never with motion, which a click would miss."""
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.send("Emulation.setEmulatedMedia", media=kind, features=features)

    def picture(self, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._out)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        # Its helpers are in its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        shutil.rmtree(self._home, ignore_errors=True)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise BrowserFault(f"no answer within {SECONDS:.0f} s")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise BrowserFault("the browser ended")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))


def _start(program: str, home: Path, ends: tuple[int, int]) -> subprocess.Popen[bytes]:
    """With the two ends of the pipe as its 3 and 4."""
    own = [_browser._NO_OWN_SANDBOX] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [program, *_browser._QUIET, *own, f"--user-data-dir={home / 'profile'}", "--remote-debugging-pipe"]
    shell = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
    return subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_browser._environment(home),
        start_new_session=True,
    )


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser for the length of a `with`."""
    found = Browser(_browser.find())
    try:
        yield found
    finally:
        found.close()
