"""Where runners come from: a zygote process held at a sandbox level, started again if it dies."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import IO

from kforge import registry
from kforge.errors import HarnessError, PlatformFault
from kforge.platforms._method_fault import platform_method
from kforge.platforms.base import Platform
from kforge.types import Limits
from kforge.worker.judge.runner_handle import RunnerHandle, acknowledge
from kforge.worker.judge.stage import make_stage
from kforge.worker.protocol.base import request_to_wire
from kforge.worker.protocol.keeper import ForkRunner
from kforge.worker.sandbox import bubblewrap
from kforge.worker.sandbox.private import TEMPORARY
from kforge.worker.sandbox.view import make_view
from kforge.worker.wire import Channel, PeerError

STEADY = {
    "GOMP_SPINCOUNT": "2000",
    "KMP_BLOCKTIME": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "KINETO_LOG_LEVEL": "99",
}
"""Environment of every runner, baselines included."""

_START_SECONDS = 120.0
_FORK_SECONDS = 60.0


class RunnerPool:
    """Forks runners of one platform at one sandbox level. Close it to end everything it started."""

    def __init__(
        self,
        platform: str,
        level: str,
        environment: dict[str, str] | None = None,
        device: int = 0,
        blind: bool = False,
        warm_imports: tuple[str, ...] = (),
    ) -> None:
        """`blind` runners see no device: they can build, and nothing else. `warm_imports`: modules beside the
        platform's that all runners are forked with.
        """
        self.level = level
        self._warm_imports = warm_imports
        self._device = device
        self._blind = blind
        self._platform: Platform = registry.load("platforms", platform)
        self._platform_name = self._platform.name
        self._extra_environment = environment or {}
        with platform_method(self._platform_name, "device_files"):
            nodes = () if blind else self._platform.device_files()
        with platform_method(self._platform_name, "folders"):
            folders = self._platform.folders()
        self._stage = make_stage(self._platform)
        self._scratch = Path(tempfile.mkdtemp(prefix="kforge-zygote-"))
        self._view = make_view(self._stage, folders, nodes)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log: IO[bytes] | None = None
        self._ready = False
        self._turn = threading.RLock()
        self._closed = False
        self._runners: weakref.WeakSet[RunnerHandle] = weakref.WeakSet()
        self._listing = threading.Lock()

    def spawn(self, limits: Limits, address_space: bool = True) -> RunnerHandle:
        """A fresh runner; the zygote is started, or started again, if need be.

        `address_space`: whether its limit of memory bounds its addresses, too, where the platform allows it.
        """
        reason = ""
        for _attempt in range(3):
            with self._turn:
                if self._closed:
                    raise HarnessError("the judge is closed")
                channel = self._warm_channel()
                try:
                    runner = self._fork(channel, limits, address_space)
                    with self._listing:
                        self._runners.add(runner)
                    return runner
                except PeerError as error:
                    reason = str(error)
                    self._stop_zygote()
        raise HarnessError(f"no runner could be started at sandbox level {self.level}: {reason}")

    def spawn_bounded(self, limits: Limits, set_bytes: int, address_space: bool = True) -> RunnerHandle:
        """A fresh runner for a candidate: its memory is looked at too, beyond a few sets of inputs and outputs."""
        runner = self.spawn(limits, address_space)
        runner.trusted = False
        runner.limit_memory(allowance(limits, self.level)["memory_bytes"], set_bytes)
        return runner

    def launch(self) -> None:
        """Start the zygote if there is none, without waiting until it is ready."""
        with self._turn:
            if self._closed:
                raise HarnessError("the judge is closed")
            if self._process is None or self._process.poll() is not None:
                self._stop_zygote()
                self._start_zygote()

    def known_folders(self) -> tuple[str, ...]:
        """Where native code that is not a candidate's own comes from, each with a closing slash."""
        folders = {path for pair in self._view.shown for path in pair} | {link for _, link in self._view.links}
        return tuple(path.rstrip("/") + "/" for path in folders if path != "/")

    def build_facts(self) -> tuple[str, ...]:
        """What a build depends on beside its source: compilers, targets, where it is made."""
        own = self._platform.environment(self._device)
        return (self.level, own.get("TORCH_CUDA_ARCH_LIST", ""), *self._platform.compilers().values())

    def close(self) -> None:
        """End everything the pool started, runners in use included."""
        self._closed = True
        with self._listing:
            runners = list(self._runners)
        for runner in runners:
            runner.kill()
        self._stop_zygote()
        shutil.rmtree(self._stage, ignore_errors=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _fork(self, channel: Channel, limits: Limits, address_space: bool) -> RunnerHandle:
        home = "/tmp/runner"
        if self.level == "process":
            home = tempfile.mkdtemp(prefix="runner-", dir=self._scratch)
        numbers = allowance(limits, self.level)
        request = ForkRunner(
            platform=self._platform_name,
            home=home,
            environment=self._environment(home),
            memory_bytes=numbers["memory_bytes"],
            address_space=(address_space and self._platform.address_space_limited) or self._blind,
            file_bytes=numbers["file_bytes"],
            processes=numbers["processes"],
            nice=10 if self._blind else 0,
            # A device's driver may need what no kernel does.
            stoppable=self._platform.device == "cpu",
            kept=tuple(inside for _, inside in self._view.shown if inside.startswith(TEMPORARY)),
        )
        ours, theirs = Channel.pair()
        keeper_ours, keeper_theirs = Channel.pair()
        handle = RunnerHandle(ours, keeper_ours, home if self.level == "process" else "")
        try:
            try:
                channel.send(request_to_wire(request), (theirs.fileno(), keeper_theirs.fileno()))
            finally:
                theirs.close()
                keeper_theirs.close()
            handle.greet(_FORK_SECONDS)
        except (PeerError, PlatformFault):
            handle.kill()
            raise
        return handle

    def _environment(self, home: str) -> dict[str, str]:
        folders = {os.path.dirname(path) for path in map(shutil.which, ("g++", "clang++", "ninja")) if path}
        path = [os.path.join(sys.prefix, "bin"), *sorted(folders), "/usr/local/bin", "/usr/bin", "/bin"]
        with platform_method(self._platform_name, "environment"):
            own = self._platform.environment(self._device)
        path += [folder for folder in own.pop("PATH", "").split(":") if folder]
        if self._blind:
            own["CUDA_VISIBLE_DEVICES"] = ""
            # Builders must not take the processors from who launches kernels to be timed.
            own["MAX_JOBS"] = str(max(1, (os.cpu_count() or 1) // 4))
        return {
            "PATH": ":".join(dict.fromkeys(path)),
            "HOME": home,
            "TMPDIR": home,
            "USER": "kforge",
            "LOGNAME": "kforge",
            "LANG": "C.UTF-8",
            "KFORGE_BUILD_DIR": f"{home}/build",
            "TORCH_EXTENSIONS_DIR": f"{home}/torch_extensions",
            "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
            "TRITON_CACHE_DIR": f"{home}/triton",
            # A profile is then of the very choice that was timed.
            "TRITON_CACHE_AUTOTUNING": "1",
            **own,
            **self._extra_environment,
        }

    def _warm_channel(self) -> Channel:
        self.launch()
        assert self._channel is not None
        if not self._ready:
            self._await_zygote(self._channel)
        return self._channel

    def _start_zygote(self) -> None:
        ours, theirs = Channel.pair()
        root = tempfile.mkdtemp(prefix="root-", dir=self._scratch)
        start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from kforge.worker.runner.zygote import main; "
        python = [sys.executable, "-I", "-B", "-W", "ignore", "-c", start + "sys.exit(main(sys.argv[1:]))"]
        inner = [*python, str(self._stage), str(theirs.fileno()), self.level, root, self._platform_name]
        inner += self._warm_imports
        command = bubblewrap.command(self._view, inner) if self.level == "bubblewrap" else inner
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  the zygote writes to it as long as it lives
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env=_bare_environment(),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._process, self._channel, self._ready = process, ours, False
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(self._view)).encode())
            process.stdin.close()

    def _await_zygote(self, channel: Channel) -> None:
        problem = ""
        try:
            acknowledge(channel.receive(_START_SECONDS)[0])
        except PlatformFault:
            self._stop_zygote()
            raise
        except PeerError as error:
            problem = str(error)
        if problem:
            assert self._log is not None
            self._log.seek(0)
            log_lines = self._log.read().decode(errors="replace").strip().splitlines()[-5:]
            self._stop_zygote()
            raise HarnessError(
                f"the zygote did not start at sandbox level {self.level}: {problem} {' | '.join(log_lines)}"
            )
        self._ready = True

    def _stop_zygote(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None


def allowance(limits: Limits, level: str) -> dict[str, int]:
    """The limits as numbers for this machine."""
    memory = limits.memory_bytes
    if not memory:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    processes = limits.processes or 512 + 8 * (os.cpu_count() or 1)
    if level == "process":
        # Without a namespace the kernel counts all of the user's processes.
        processes += 4096
    return {"memory_bytes": memory, "file_bytes": limits.file_bytes, "processes": processes}


def _bare_environment() -> dict[str, str]:
    """The zygote's environment, with nothing of ours: no keys, no paths.

    What is set makes both sides of a measurement steady, and is the same for both: idle OpenMP threads stop spinning
    after a moment, freed memory is kept for the next call rather than returned to the kernel, and BLAS starts no
    threads in the zygote, since threads do not survive a fork.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "OMP_NUM_THREADS") if name in os.environ}
    # A name for the user: torch asks for one, and in the view there is no list of users.
    named = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "kforge", "LOGNAME": "kforge"}
    # The zygote must not talk to a GPU: neither CUDA nor its monitor survives a fork. Runners are told which is theirs.
    unseen = {"CUDA_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return {**named, **unseen, "OPENBLAS_NUM_THREADS": "1", **STEADY, **kept}
