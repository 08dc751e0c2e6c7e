"""A program in a process of its own, behind a tool: how it ended, what it said, and which files come back."""

from __future__ import annotations

import base64
import io
import os
import sys
import tarfile
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import makers
from conditions import PATIENCE, wait_until
from faults import program
from kforge import Candidate, Problem, Settings, registry
from kforge.profilers.base import NothingSeen, Profiler, StandaloneRun
from kforge.types import Job, Outcome, Profile
from kforge.worker.judge import profiling_context
from kforge.worker.judge.profiling_context import CandidateContext
from kforge.worker.judge.standalone import standalone_request
from kforge.worker.process_files import thread_states
from kforge.worker.runner import standalone

UNTIMED = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
BEHIND = ("sh", "-c", 'echo "tool in {home}"; "$@"; echo "ended with $?"', "sh")


@pytest.fixture
def alone(judge: Any, scale_relu: Any) -> Any:
    def alone(
        source: str,
        command: tuple[str, ...] = ("env",),
        files: tuple[str, ...] = (),
        seconds: float = 60.0,
        problem: Problem = scale_relu,
        takes_turns: bool = False,
    ) -> StandaloneRun:
        session = judge.session(problem, UNTIMED)
        runner_pool, platform = judge._launch_runner_pool(UNTIMED), registry.load("platforms", "cpu")
        candidate = Candidate(source)
        shop = CandidateContext(
            session, candidate, UNTIMED, makers.verdict(1.5), platform, runner_pool, judge._trusted, judge.lease
        )
        shop._tool = Profiler()
        shop._tool.alone = takes_turns
        return shop.standalone(command, files, seconds)

    return alone


LEAVES = """
print(x.shape, x.stride(), x.dtype, x.is_contiguous())
calls = globals().setdefault("calls", [])
calls.append(float(x.std()))
with open("seen.txt", "w") as file:
    file.write(" ".join(map(str, calls)))
if len(calls) == 1:
    os.makedirs("more")
    for name in ("one.txt", "two.txt", "three.bin"):
        open("more/" + name, "w").write(name)
    os.symlink("/etc/passwd", "more/outside.txt")
    os.symlink("/nowhere", "more/dangling.txt")
    os.symlink("/etc", "elsewhere")
"""


@pytest.mark.toolchain
def test_how_it_ended_what_it_said_and_what_it_left(alone: Any) -> None:
    """Three calls are made, of which the last is the one to look at, on inputs like the problem's."""
    done = alone(program(forward=LEAVES), BEHIND, ("seen.txt", "more/*.txt", "elsewhere/passwd", "none/*"))
    lines = done.output.splitlines()
    assert done.status == 0
    assert lines[0].startswith("tool in /")
    assert lines[0].endswith("/solo")
    assert lines[1:4] == ["torch.Size([512, 1024]) (1024, 1) torch.float32 True"] * 3
    assert lines[4] == "ended with 0"
    assert set(done.files) == {"seen.txt", "more/one.txt", "more/two.txt"}
    assert done.files["more/two.txt"] == b"two.txt"
    deviations = [float(word) for word in done.files["seen.txt"].split()]
    assert deviations == pytest.approx([1.0] * 3, abs=0.02)
    assert 0 < done.seconds < 60


@pytest.mark.toolchain
def test_timed_blocks_before_it_leave_the_inputs_unchanged(judge: Any, scale_relu: Any) -> None:
    """A tool looks at what the problem draws, not at what was last made of it for a timed block."""
    timed_inputs = judge.session(scale_relu, UNTIMED).timed_inputs
    timed_inputs.unchanged_sets()
    drawn = [tensor.clone() for tensors in timed_inputs.sets().tensors for tensor in tensors]
    timed_inputs.refresh()
    assert not any(map(torch.equal, drawn, [t for tensors in timed_inputs.sets().tensors for t in tensors]))
    assert all(map(torch.equal, drawn, [t for tensors in timed_inputs.unchanged_sets().tensors for t in tensors]))


@pytest.mark.toolchain
def test_what_it_raises_is_among_the_errors(alone: Any) -> None:
    done = alone(program(init="raise ValueError('no good')"))
    assert done.status == 1
    assert "ValueError: no good" in done.errors
    assert done.files == {}


@pytest.mark.toolchain
def test_the_tools_status_is_the_one_that_counts(alone: Any) -> None:
    done = alone(program(), ("sh", "-c", "echo found; echo badly >&2; exit 86", "sh"))
    assert (done.status, done.output, done.errors) == (86, "found\n", "badly\n")


@pytest.mark.toolchain
def test_after_the_time_limit_it_is_killed(alone: Any) -> None:
    done = alone(program(), ("sh", "-c", "echo begun; sleep 600; echo late", "sh"), seconds=5.0)
    assert done.status == -9
    assert done.output == "begun\n"
    assert 5 <= done.seconds < 5 + PATIENCE


@pytest.mark.toolchain
def test_what_cannot_be_run_is_said_in_words(alone: Any) -> None:
    with pytest.raises(NothingSeen, match=r"could not be run by itself: it raised FileNotFoundError: .*no-such-tool"):
        alone(program(), ("no-such-tool",))
    source = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, t):\n        super().__init__()\n"
        "        self.t = t\n    def forward(self, x):\n        return x + self.t\n"
        "def get_inputs():\n    return [torch.randn(8)]\ndef get_init_inputs():\n    return [torch.randn(8)]\n"
    )
    with pytest.raises(NothingSeen, match="takes tensors to be constructed"):
        alone(program(), problem=Problem.from_source(source))


# -- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.cpu
def test_what_the_tool_started_is_killed_with_it(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 600 & echo $! > {home}/begun; wait", "sh")
    answer = standalone.run(str(tmp_path), "cpu", standalone_request("", command, 5.0, ("begun",)), [], [])
    assert (answer.status, list(answer.files)) == (-9, ["begun"])
    child = int((tmp_path / "solo" / "begun").read_text())

    def has_ended() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        states = thread_states(child).values()
        return bool(states) and {"Z", "X"}.issuperset(states)

    wait_until(has_ended, "what the tool started is gone")


@pytest.mark.cpu
def test_only_plain_files_of_the_folder_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, outside = tmp_path / "solo", tmp_path / "outside"
    for place in (folder / "cubins", outside):
        place.mkdir(parents=True)
    (outside / "secret.cubin").write_bytes(b"secret")
    (folder / "cubins" / "k.cubin").write_bytes(b"kernel")
    (folder / "cubins" / "folder.cubin").mkdir()
    os.mkfifo(folder / "cubins" / "pipe.cubin")
    os.symlink(outside / "secret.cubin", folder / "cubins" / "link.cubin")
    os.symlink(outside / "missing", folder / "cubins" / "dangling.cubin")
    os.symlink(outside, folder / "linked")
    found = standalone._collect(str(folder), ["cubins/*.cubin", "linked/*.cubin", "../outside/*"])
    assert {name: base64.b64decode(data) for name, data in found.items()} == {"cubins/k.cubin": b"kernel"}
    monkeypatch.setattr(standalone, "_MOST_FILES", 5)
    assert standalone._collect(str(folder), ["cubins/*.cubin"]) == {}


@pytest.mark.cpu
def test_what_was_built_is_packed_and_laid_out_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "torch_extensions" / "k").mkdir(parents=True)
    second.mkdir()
    (first / "torch_extensions" / "k" / "k.so").write_bytes(b"code")
    (first / "secret.txt").write_text("not built")
    archive = tmp_path / "archive"
    archive.write_bytes(standalone.pack(str(first)))
    standalone.unpack(str(second), os.open(archive, os.O_RDONLY), archive.stat().st_size)
    assert [path.name for path in second.iterdir()] == ["torch_extensions"]
    assert (second / "torch_extensions" / "k" / "k.so").read_bytes() == b"code"
    assert standalone.pack(str(tmp_path / "empty")) == b""


@pytest.mark.cpu
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="such a Python always has a filter for archives")
def test_a_python_without_filters_for_archives_lays_out_plain_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    archive, home = tmp_path / "archive", tmp_path / "home"
    home.mkdir()
    with tarfile.open(archive, "w:gz") as made:
        for name in ("torch_extensions/k.so", "../outside.txt", "/tmp/kforge-outside.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            made.addfile(member, io.BytesIO(b"code"))
        link = tarfile.TarInfo("torch_extensions/passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    standalone.unpack(str(home), os.open(archive, os.O_RDONLY), archive.stat().st_size)
    assert [path.name for path in home.rglob("*")] == ["torch_extensions", "k.so"]
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.cpu
@given(st.integers(1_600_000_000_000_000_000, 2_100_000_000_000_000_000), st.integers(0, 3_000_000_000))
def test_nothing_built_is_newer_when_it_is_laid_out_again(made: int, later: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second, archive = (Path(folder) / name for name in ("first", "second", "archive"))
        (first / "torch_extensions").mkdir(parents=True)
        second.mkdir()
        for name, moment in (("k.o", made), ("k.so", made + later)):
            (first / "torch_extensions" / name).write_bytes(b"code")
            os.utime(first / "torch_extensions" / name, ns=(moment, moment))
        archive.write_bytes(standalone.pack(str(first)))
        standalone.unpack(str(second), os.open(archive, os.O_RDONLY), archive.stat().st_size)
        found = [(second / "torch_extensions" / name).stat().st_mtime_ns for name in ("k.o", "k.so")]
    assert found[0] <= made
    assert found[1] <= made + later
    assert found[0] <= found[1]


@pytest.mark.cpu
def test_of_much_output_the_end_is_kept(tmp_path: Path) -> None:
    with open(tmp_path / "said", "w+b") as file:
        file.write(b"x" * 1000 + b"the end")
        assert standalone._tail(file, 10) == "xxxthe end"


@pytest.mark.toolchain
def test_a_program_that_takes_turns_has_the_device_for_its_calls_alone(judge: Any, alone: Any) -> None:
    held = judge.lease.busy_seconds
    released: list[float] = []

    def hold() -> None:
        with judge.lease.hold():
            holding.set()
            time.sleep(4.0)
            released.append(time.time())

    holding = threading.Event()
    other = threading.Timer(1.5, hold)
    other.start()
    noted = program(init="import time", forward="import time; open('called.txt', 'a').write(f'{time.time()} ')")
    slow = noted.replace("import time", "import time; time.sleep(2.0)", 1)
    done = alone(slow, files=("called.txt",), takes_turns=True)
    other.join()
    assert done.status == 0
    calls = [float(word) for word in done.files["called.txt"].split()]
    assert len(calls) == 3
    assert calls[1] >= released[0], "it waits for whoever has the device"
    assert judge.lease.busy_seconds - held >= 4.0
    with judge.lease.hold():
        pass


@pytest.mark.toolchain
@pytest.mark.parametrize("late", ["init", "forward"])
def test_a_program_that_never_comes_to_an_end_loses_its_turn(judge: Any, alone: Any, late: str) -> None:
    began = time.monotonic()
    with pytest.raises(NothingSeen, match="could not be run by itself"):
        alone(program(**{late: "import time; time.sleep(600)"}), seconds=8.0, takes_turns=True)
    assert time.monotonic() - began < 60
    with judge.lease.hold():
        pass


@pytest.mark.toolchain
def test_a_program_that_ends_before_its_turn_says_why(judge: Any, alone: Any) -> None:
    done = alone(program(init="raise ValueError('no good')"), takes_turns=True)
    assert done.status == 1
    assert "ValueError: no good" in done.errors
    with judge.lease.hold():
        pass


@pytest.mark.toolchain
def test_what_a_tool_does_after_the_calls_is_done_without_the_device(judge: Any, alone: Any) -> None:
    held = judge.lease.busy_seconds
    done = alone(program(), ("sh", "-c", '"$@"; sleep 3', "sh"), takes_turns=True)
    assert done.status == 0
    assert done.seconds >= 3.0
    assert judge.lease.busy_seconds - held < 3.0


@pytest.mark.toolchain
def test_a_tool_that_goes_on_for_ever_after_the_calls_is_ended(alone: Any) -> None:
    with pytest.raises(NothingSeen, match="could not be run by itself"):
        alone(program(), ("sh", "-c", '"$@"; sleep 600', "sh"), seconds=6.0, takes_turns=True)


class Together(Profiler):
    """One of several tools that run the program alone and are there at once."""

    alone = True

    def __init__(self, name: str, there: threading.Barrier) -> None:
        self.name = name
        self._there = there

    def collect(self, context: Any) -> Profile:
        self._there.wait(60)
        done = context.standalone(("env",), seconds=60.0)
        return Profile(self.name, text=f"status {done.status}, after {', '.join(context.earlier)}")


class Before(Profiler):
    name = "before"

    def collect(self, context: Any) -> Profile:
        return Profile("before", text="seen")


class Broken(Profiler):
    name = "broken"
    alone = True

    def collect(self, context: Any) -> Profile:
        raise RuntimeError("no good")


@pytest.mark.toolchain
def test_tools_that_run_the_program_alone_do_so_side_by_side(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = threading.Barrier(2)
    tools = {"one": Together("one", there), "before": Before(), "two": Together("two", there), "broken": Broken()}
    monkeypatch.setattr(profiling_context, "_find_profiler", lambda name: tools.get(name, "not here"))
    names = ("one", "before", "absent", "two", "broken")
    settings = replace(UNTIMED, profilers=names)
    job = Job("job", scale_relu, Candidate(program()), settings)
    report = judge.report(job)
    assert [profile.tool for profile in report.profiles] == list(names)
    texts = {profile.tool: profile.text or profile.absent for profile in report.profiles}
    assert texts["one"] == texts["two"] == "status 0, after before"
    assert (texts["before"], texts["absent"]) == ("seen", "not here")
    assert "no good" in texts["broken"]
    assert {"one", "before", "two", "broken"} <= set(report.seconds)
    took = report.seconds
    assert 0 < took["device for profiles"] < took["device"] < took["verdict"] + took["profiles"]


@pytest.mark.toolchain
def test_a_tool_may_be_asked_for_in_another_spelling(judge: Any, scale_relu: Any, monkeypatch: Any) -> None:
    class MyTool(Broken):
        name = "my_tool"

    monkeypatch.setattr(profiling_context, "_find_profiler", lambda name: MyTool())
    report = judge.report(Job("job", scale_relu, Candidate(program()), replace(UNTIMED, profilers=("my-tool",))))
    assert report.verdict.outcome is Outcome.CORRECT
    assert [profile.tool for profile in report.profiles] == ["my_tool"]


@pytest.mark.toolchain
def test_where_memory_is_short_one_tool_goes_after_another(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    class Counting(Profiler):
        alone = True

        def __init__(self, name: str) -> None:
            self.name = name

        def collect(self, context: Any) -> Profile:
            at_once.append(1)
            assert len(at_once) == 1
            with context.lease.hold():
                time.sleep(0.3)
            at_once.pop()
            return Profile(self.name, text="seen")

    monkeypatch.setattr(profiling_context, "_find_profiler", Counting)
    monkeypatch.setattr(type(judge._device), "is_scarce", lambda device, size: True)
    report = judge.report(Job("job", scale_relu, Candidate(program()), replace(UNTIMED, profilers=("one", "two"))))
    assert [profile.text for profile in report.profiles] == ["seen", "seen"]
    assert report.seconds["device for profiles"] < report.seconds["profiles"]


@pytest.mark.toolchain
def test_an_interrupt_does_not_wait_for_the_tools(judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Long(Together):
        def collect(self, context: Any) -> Profile:
            context.standalone(("sh", "-c", "sleep 100", "sh"), seconds=200.0)
            return Profile(self.name)

    class Interrupted(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            time.sleep(2)
            raise KeyboardInterrupt

    there = threading.Barrier(1)
    monkeypatch.setattr(profiling_context, "_find_profiler", lambda name: Long(name, there))
    monkeypatch.setattr(profiling_context, "threading", SimpleNamespace(Thread=Interrupted))
    job = Job("job", scale_relu, Candidate(program()), replace(UNTIMED, profilers=("one", "two")))
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        judge.report(job)
    assert time.monotonic() - before < 60
    for thread in threading.enumerate():
        if isinstance(thread, Interrupted):
            threading.Thread.join(thread, 20)
            assert not thread.is_alive(), "its program was killed"


@pytest.mark.toolchain
def test_a_profiled_program_leaves_memory_to_others(
    judge: Any, scale_relu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[float] = []
    monkeypatch.setattr(profiling_context, "_find_profiler", lambda name: Before())
    monkeypatch.setattr(judge._admission, "lower_share", lambda visit, part: parts.append(part))
    for names in ((), ("before",)):
        judge.report(Job("job", scale_relu, Candidate(program()), replace(UNTIMED, profilers=names)))
    assert len(parts) == 1
    assert 0 < parts[0] < 1
