"""The other end of the lowering process: started when first needed, started again when it has died, killed on close."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from kforge.agents.offline.recipe import LoweringRequest, LoweringResult
from kforge.errors import WireError
from kforge.jsonable import decode, encode

_KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CXX"),
    *("OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "TRITON_CACHE_DIR"),
)
_LONGEST_LINE = 64 << 20


def _environment() -> dict[str, str]:
    """What the process needs of our environment; its folder is another, so paths are made whole."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if kept.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
    return kept


class Lowering:
    """The lowering process, as its user sees it: it makes programs, one order at a time."""

    def __init__(self, timeout_seconds: float = 180.0) -> None:
        self._timeout = timeout_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._folder: Path | None = None
        self._turn = asyncio.Lock()

    async def make(self, order: LoweringRequest) -> LoweringResult:
        """The answer to an order; a crash or a time-out is a reason, and the next order gets a new process."""
        async with self._turn:
            process = await self._running_process()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(encode(order)).encode() + b"\n")
                await process.stdin.drain()
                line = await asyncio.wait_for(process.stdout.readline(), self._timeout)
            except TimeoutError:
                await self._kill()
                return LoweringResult(None, f"PyTorch's compiler did not finish within {self._timeout:.0f} seconds")
            except (ConnectionError, ValueError):
                line = b""
            except asyncio.CancelledError:
                # A half-read answer would be taken for the next order's.
                await self._kill()
                raise
            if not line:
                return LoweringResult(None, await self._death_reason())
            try:
                return decode(LoweringResult, json.loads(line))
            except (json.JSONDecodeError, WireError) as error:
                await self._kill()
                return LoweringResult(None, f"the lowering process answered nonsense: {error}")

    async def close(self) -> None:
        """End the process and remove its folder."""
        await self._kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def _running_process(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kforge-lowering-"))
        with open(self._folder / "errors", "wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-W", "ignore", "-m", "kforge.agents.offline.lowering_server"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=self._folder,
                env=_environment(),
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        return self._process

    async def _death_reason(self) -> str:
        """Why the process died, from its own last line."""
        process, folder = self._process, self._folder
        await self._kill()
        last = ""
        if folder is not None:
            lines = (folder / "errors").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = f": {lines[-1][:300]}" if lines else ""
        code = process.returncode if process else None
        return f"the lowering process ended with status {code}{last}"

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        # The pipe's transport outlives the process, and would be closed by a loop that is gone.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()
