"""Programs that build for long: built once, apart from the device, and found built by the runner."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import faults
from conditions import PATIENCE, wait_until
from kforge import Candidate, Outcome, Settings
from kforge.platforms.cpu.platform import Cpu
from kforge.types import Limits, Verdict
from kforge.worker.judge import builds as building
from kforge.worker.judge.builds import BuildFailed, BuildRefused, Builds
from kforge.worker.judge.runner_handle import ProgramError
from kforge.worker.judge.runner_pool import RunnerPool
from kforge.worker.protocol.base import Acknowledged, PeerRequest, RaisedError
from kforge.worker.protocol.program import PackBuild, StandaloneAnswer

UNTIMED = Settings(compile_baseline=False, timing_seconds=0, seeds=1)

PROGRAM = '''
# Builds as load_inline does: into a folder of its own, unless what it makes is there already.
import ctypes, os, subprocess
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* x, const float* s, float* y, long rows, long columns, float slope) {{
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {{
            float v = x[r * columns + c];
            y[r * columns + c] = (v > 0 ? v : slope * v) * s[c];
        }}
}}
{more}
"""
folder = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "leaky")
found = os.path.exists(folder + "/k.so")
if not found:
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/k.cpp", "w") as file:
        file.write(SOURCE)
    command = ["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("Error building extension 'leaky': " + done.stderr)
{after}
kernel = ctypes.CDLL(folder + "/k.so").run
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_float]


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        if not found:
            raise RuntimeError("nothing was built beforehand")
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], self.slope)
        return y
'''


def program(more: str = "", after: str = "") -> Candidate:
    return Candidate(PROGRAM.format(more=more, after=after))


class Watched:
    """A judge that builds apart, into a cache of its own, and what it started."""

    def __init__(self, judge: Any, cache: Path) -> None:
        self.judge = judge
        self.cache = cache
        self.built: list[str] = []
        """Sources that were built."""
        self.spawned: list[bool] = []
        """For each runner of a candidate: whether it was one that only builds."""

    def archives(self) -> list[Path]:
        return sorted(self.cache.glob("kforge/builds/*.tar.gz"))

    def forget(self) -> None:
        self.built.clear()
        self.spawned.clear()


@pytest.fixture(scope="module")
def apart(judge: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched = Watched(judge, tmp_path_factory.mktemp("cache"))
    build, spawn = Builds._build, RunnerPool.spawn

    def counted_build(self: Builds, candidate: Candidate, settings: Settings) -> bytes:
        watched.built.append(candidate.source)
        return build(self, candidate, settings)

    def counted_spawn(self: RunnerPool, *arguments: Any) -> Any:
        if self is not judge._trusted:
            watched.spawned.append(self._blind)
        return spawn(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(watched.cache))
        patch.setattr(Cpu, "builds_apart", True)
        patch.setattr(Builds, "_build", counted_build)
        patch.setattr(RunnerPool, "spawn", counted_spawn)
        patch.setattr(judge, "_builders", {})
        yield watched


@pytest.mark.toolchain
def test_a_program_is_built_once_and_found_built(apart: Watched, scale_relu: Any) -> None:
    apart.forget()
    verdict = apart.judge.evaluate(scale_relu, program(), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert apart.spawned == [True, False]
    (archive,) = apart.archives()
    assert archive.stat().st_size > 1000
    assert verdict.evidence.seconds["build"] > 0
    again = apart.judge.evaluate(scale_relu, program(), UNTIMED)
    assert again.outcome is Outcome.CORRECT, again.detail
    assert apart.spawned == [True, False, False], "the second time it comes from the cache"
    assert len(apart.built) == 1
    assert apart.archives() == [archive]
    other = apart.judge.evaluate(scale_relu, program(more="// another source"), UNTIMED)
    assert other.outcome is Outcome.CORRECT, other.detail
    assert len(apart.archives()) == 2
    assert len(set(apart.built)) == len(apart.built) == 2


@pytest.mark.toolchain
def test_what_builds_in_no_time_is_not_built_apart(apart: Watched, scale_relu: Any, honest: Candidate) -> None:
    apart.forget()
    before = apart.archives()
    verdict = apart.judge.evaluate(scale_relu, honest, UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert apart.built == []
    assert apart.spawned == [False]
    assert apart.archives() == before


@pytest.mark.toolchain
def test_a_compiler_that_refuses_is_asked_once(apart: Watched, scale_relu: Any) -> None:
    apart.forget()
    before = apart.archives()
    wrong = program(more="int f() { return undefined_name; }\nint g() { return another_name; }")
    verdict = apart.judge.evaluate(scale_relu, wrong, UNTIMED)
    assert verdict.outcome is Outcome.COMPILATION_FAILURE
    first = verdict.detail.splitlines()[1]
    assert "k.cpp:9:18: error: " in first
    assert "undefined_name" in first
    assert "another_name" in verdict.detail
    assert apart.spawned == [True], "it was built again to be judged"
    assert apart.archives() == before


@pytest.mark.toolchain
def test_a_build_that_does_not_end_is_broken_off_and_not_kept(apart: Watched, scale_relu: Any) -> None:
    """Half a build, with its lock, would keep every later runner waiting."""
    apart.forget()
    before = apart.archives()
    endless = program(after="open(folder + '/lock', 'w').close()\nwhile True: pass")
    settings = replace(UNTIMED, limits=Limits(build_seconds=2.0))
    verdict = apart.judge.evaluate(scale_relu, endless, settings)
    assert verdict.outcome is Outcome.COMPILATION_FAILURE
    assert "building took longer than 2 s" in verdict.detail
    assert apart.spawned == [True]
    assert apart.archives() == before


@pytest.mark.toolchain
def test_a_library_whose_bytes_it_wrote_itself_is_no_build(apart: Watched, scale_relu: Any) -> None:
    apart.forget()
    before = apart.archives()
    copied = "data = open(folder + '/k.so', 'rb').read()\nopen(folder + '/mine.so', 'wb').write(data)"
    verdict = apart.judge.evaluate(scale_relu, program(after=copied), UNTIMED)
    assert (verdict.outcome, verdict.rule) == (Outcome.REJECTED, "embedded_binary")
    assert "mine.so" in verdict.detail
    assert apart.spawned == [True]
    assert apart.archives() == before


# -- the parts -------------------------------------------------------------------------------------------------------


class Scripted(Builds):
    """Builds whose runner answers as told, without one."""

    def __init__(self, folder: Path, answer: dict[str, Any], packed: bytes | None = b"archive") -> None:
        self.asked: list[str] = []

        def ask(request: PeerRequest[Any], seconds: float, fds: tuple[int, ...] = ()) -> Any:
            self.asked.append(request.operation)
            if not isinstance(request, PackBuild):
                return StandaloneAnswer(output="", **answer)
            if packed is None:
                raise ProgramError("pack", RaisedError("PermissionError", "no"), [])
            os.write(fds[0], packed)
            return Acknowledged()

        runner = SimpleNamespace(ask=ask, limit_memory=lambda *limits: None, end=lambda: self.asked.append("end"))
        runner_pool: Any = SimpleNamespace(
            spawn_bounded=lambda limits, set_bytes: runner, level="process", build_facts=lambda: ("13.0",)
        )
        super().__init__(runner_pool, folder)


CANDIDATE = Candidate("# load_inline")
SAID = "Traceback\nRuntimeError: Error building extension 'k': k.cpp:1:1: error: no"


@pytest.mark.cpu
def test_a_build_that_fails_says_what_the_compiler_said(tmp_path: Path) -> None:
    builds = Scripted(tmp_path, {"status": 1, "errors": SAID, "seconds": 1.0})
    with pytest.raises(BuildFailed, match=r"k\.cpp:1:1: error: no"):
        builds.archive(CANDIDATE, UNTIMED)
    assert builds.asked == ["run_standalone", "end"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cpu
@pytest.mark.parametrize(
    "answer",
    [
        {"status": 0, "errors": SAID, "seconds": 1.0},
        {"status": 1, "errors": "RuntimeError: No CUDA GPUs are available", "seconds": 1.0},
    ],
    ids=["another way was found", "no device in sight"],
)
def test_what_was_built_counts_whatever_else_was_said(tmp_path: Path, answer: dict[str, Any]) -> None:
    assert Scripted(tmp_path, answer).archive(CANDIDATE, UNTIMED).rstrip(b"\0") == b"archive"


@pytest.mark.cpu
def test_what_a_killed_build_left_is_not_kept(tmp_path: Path) -> None:
    builds = Scripted(tmp_path, {"status": -9, "errors": "", "seconds": 1.0})
    assert builds.archive(CANDIDATE, UNTIMED) == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cpu
def test_what_broke_a_rule_while_it_was_built_is_refused(tmp_path: Path) -> None:
    def answer(findings: Any) -> dict[str, Any]:
        data = base64.b64encode(json.dumps(findings).encode()).decode()
        return {"status": 0, "errors": "", "seconds": 1.0, "files": {"findings.json": data}}

    found = [["embedded_binary", "it wrote k.so itself"]]
    with pytest.raises(BuildRefused, match=r"it wrote k\.so itself") as caught:
        Scripted(tmp_path, answer(found)).archive(CANDIDATE, UNTIMED)
    assert caught.value.rule == "embedded_binary"
    assert list(tmp_path.iterdir()) == []
    assert Scripted(tmp_path, answer([])).archive(CANDIDATE, UNTIMED).rstrip(b"\0") == b"archive"


@pytest.mark.cpu
def test_what_cannot_be_packed_is_built_where_it_runs(tmp_path: Path) -> None:
    builds = Scripted(tmp_path, {"status": 0, "errors": "", "seconds": 1.0}, None)
    assert builds.archive(CANDIDATE, UNTIMED) == b""
    assert builds.asked == ["run_standalone", "pack_build", "end"]


@pytest.mark.cpu
def test_what_is_not_slow_is_not_built(tmp_path: Path) -> None:
    builds = Scripted(tmp_path, {"status": 0, "errors": "", "seconds": 1.0})
    assert builds.archive(Candidate("# nothing of note, and preload_inlined"), UNTIMED) == b""
    assert builds.asked == []


@pytest.mark.cpu
def test_a_build_is_kept_for_the_same_source_and_tools_only(tmp_path: Path) -> None:
    made = {"status": 0, "errors": "", "seconds": 1.0}
    assert Scripted(tmp_path, made, b"first").archive(CANDIDATE, UNTIMED).rstrip(b"\0") == b"first"
    assert Scripted(tmp_path, made, b"second").archive(CANDIDATE, UNTIMED).rstrip(b"\0") == b"first"
    assert (
        Scripted(tmp_path, made, b"third").archive(Candidate("# load_inline twice"), UNTIMED).rstrip(b"\0") == b"third"
    )
    newer = Scripted(tmp_path, made, b"fourth")
    newer._runner_pool.build_facts = lambda: ("13.1",)  # type: ignore[method-assign]
    assert newer.archive(CANDIDATE, UNTIMED).rstrip(b"\0") == b"fourth"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.cpu
def test_the_oldest_archives_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_KEPT_BYTES", 250)
    builds = Scripted(tmp_path, {"status": 0, "errors": "", "seconds": 1.0})
    for age, name in enumerate(("one", "two", "three")):
        builds._keep(tmp_path / f"{name}.tar.gz", b"x" * 100)
        os.utime(tmp_path / f"{name}.tar.gz", (1000 + age, 1000 + age))
        if age == 1:
            assert len(list(tmp_path.iterdir())) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"two.tar.gz", "three.tar.gz"}


@pytest.mark.cpu
def test_what_is_used_is_not_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"status": 0, "errors": "", "seconds": 1.0}
    Scripted(tmp_path, made, b"x" * 100).archive(CANDIDATE, UNTIMED)
    (used,) = tmp_path.iterdir()
    Scripted(tmp_path, made, b"y" * 100).archive(Candidate("# load_inline, unused"), UNTIMED)
    for age, path in enumerate([used, *(tmp_path.glob("*.tar.gz"))]):
        os.utime(path, (1000 + age, 1000 + age))
    os.utime(used, (999, 999))
    Scripted(tmp_path, made).archive(CANDIDATE, UNTIMED)
    monkeypatch.setattr(building, "_KEPT_BYTES", 250)
    Scripted(tmp_path, made, b"z" * 100).archive(Candidate("# load_inline, new"), UNTIMED)
    assert used.exists()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.cpu
def test_a_folder_that_cannot_be_written_only_costs_the_next_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    builds = Scripted(tmp_path / "file" / "builds", {"status": 0, "errors": "", "seconds": 1.0})
    assert builds.archive(CANDIDATE, UNTIMED) == builds.archive(CANDIDATE, UNTIMED)
    assert builds.asked.count("run_standalone") == 2


SLOW_FIRST_CALL = """
import time
if not hasattr(self, "compiled"):
    time.sleep(1.5)
    self.compiled = True
"""


@pytest.mark.toolchain
def test_a_program_that_compiles_when_called_does_so_before_it_has_the_device(apart: Watched, scale_relu: Any) -> None:
    judge = apart.judge
    judge._close_idle_sessions(0)
    judge.session(scale_relu, UNTIMED)
    said: list[str] = []
    ends: list[Verdict] = []
    slow = Candidate(faults.program(top="# compiled by triton", forward=SLOW_FIRST_CALL))

    def evaluate() -> None:
        ends.append(judge.evaluate(scale_relu, slow, UNTIMED, said.append))

    worker = threading.Thread(target=evaluate)
    with judge.lease.hold():
        worker.start()
        wait_until(lambda: "waiting for the device" in said, "it waits for the device")
    worker.join(PATIENCE)
    (verdict,) = ends
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.evidence is not None
    assert verdict.evidence.seconds["compile"] >= 1.5
    judge._close_idle_sessions(0)


@pytest.mark.toolchain
def test_what_the_call_for_compiling_raises_is_said_as_of_any_other(apart: Watched, scale_relu: Any) -> None:
    judge = apart.judge
    judge._close_idle_sessions(0)
    broken = faults.program(top="# compiled by triton", forward="raise ValueError('no such kernel')")
    verdict = judge.evaluate(scale_relu, Candidate(broken), UNTIMED)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    assert "ValueError in forward: no such kernel" in verdict.detail
    judge._close_idle_sessions(0)


SLOW_IN_OTHER_CALLS = """
import time
if tuple(x.shape) != {shape}:
    time.sleep(1.5)
"""


@pytest.mark.toolchain
def test_calls_it_was_not_made_for_are_tried_while_others_have_the_device(
    apart: Watched, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = apart.judge
    judge._close_idle_sessions(0)
    session = judge.session(scale_relu, UNTIMED)
    shape = tuple(session.cases.reference.inputs(0)[0].shape)
    slow = Candidate(faults.program(forward=SLOW_IN_OTHER_CALLS.format(shape=shape)))
    said: list[str] = []
    ends: list[Verdict] = []
    held, lend = threading.Event(), judge.lease.lend

    @contextlib.contextmanager
    def lend_to_another() -> Iterator[None]:
        with lend():
            if "trying calls it was not made for" in said:
                held.wait(PATIENCE)
            yield

    monkeypatch.setattr(judge.lease, "lend", lend_to_another)
    worker = threading.Thread(
        target=lambda: ends.append(judge.evaluate(scale_relu, slow, UNTIMED, said.append)), daemon=True
    )
    worker.start()
    wait_until(lambda: "trying calls it was not made for" in said, "it is called otherwise")
    with judge.lease.hold():
        held.set()
        assert not ends, "the device was held until the end"
    worker.join(PATIENCE)
    (verdict,) = ends
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert any("another batch size" in line for line in verdict.generality)
    judge._close_idle_sessions(0)


TUNED_ANEW = """
import os, time
folder = os.environ["TRITON_CACHE_DIR"] + "/k"
if not hasattr(self, "called"):
    self.called = True
    if os.path.exists(folder + "/k.autotune.json"):
        raise ValueError("chosen elsewhere")
    if os.path.exists(folder + "/k.cubin"):
        self.compiled = open(folder + "/k.cubin").read()
    os.makedirs(folder, exist_ok=True)
    for name in ("k.cubin", "k.autotune.json"):
        open(folder + "/" + name, "w").write(str(os.getpid()))
"""


@pytest.mark.toolchain
def test_a_program_that_tunes_itself_compiles_in_a_runner_of_its_own_and_chooses_later(
    apart: Watched, scale_relu: Any
) -> None:
    judge = apart.judge
    judge._close_idle_sessions(0)
    apart.forget()
    checked = "\nif not hasattr(self, 'compiled') and len(os.listdir(folder)) > 2:\n    raise ValueError('not kept')"
    tuned = Candidate(faults.program(top="# triton, autotune", forward=TUNED_ANEW + checked))
    verdict = judge.evaluate(scale_relu, tuned, UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert len(apart.spawned) == 2, "one to compile, one to be judged"
    broken = faults.program(top="# triton, autotune", forward="raise ValueError('no such kernel')")
    verdict = judge.evaluate(scale_relu, Candidate(broken), UNTIMED)
    assert "ValueError in forward: no such kernel" in verdict.detail
    judge._close_idle_sessions(0)


WRITES_A_LIBRARY = """
import os
folder = os.path.dirname(os.environ["TRITON_CACHE_DIR"]) + "/{folder}"
os.makedirs(folder, exist_ok=True)
open(folder + "/k.so", "wb").write(bytes(64))
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("folder", ["torch_extensions", "triton"])
def test_a_library_that_a_program_wrote_itself_is_not_handed_on(apart: Watched, scale_relu: Any, folder: str) -> None:
    judge = apart.judge
    judge._close_idle_sessions(0)
    source = faults.program(top="# triton, autotune", forward=WRITES_A_LIBRARY.format(folder=folder))
    verdict = judge.evaluate(scale_relu, Candidate(source), UNTIMED)
    assert verdict.outcome is Outcome.REJECTED, verdict.detail
    assert verdict.rule == "embedded_binary"
    judge._close_idle_sessions(0)
