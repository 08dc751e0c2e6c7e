"""Job bundles: a folder that carries jobs to another machine and reports back, and a run that waits for them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bundle_maker
import kforge
import makers
from kforge.errors import PluginAbsent, UsageError, WireError
from kforge.execution.null import NullExecutor
from kforge.models.scripted import Scripted
from kforge.platforms.cpu.platform import Cpu
from kforge.platforms.cuda import platform as cuda_platform
from kforge.spec.judging_platform import check_platform, judging_platform, target_of
from kforge.store.store import Store
from kforge.types import (
    Artefact,
    Candidate,
    Image,
    Job,
    Outcome,
    Problem,
    Profile,
    Prompt,
    Report,
    Settings,
)
from kforge.worker import bundle_folder
from kforge.worker.bundle_folder import EMULATED, PYTHON, BundleFolder

HERE = Path(__file__).parents[1]
SOURCE = HERE.parent / "src" / "kforge"
PROBLEM = HERE / "catalogue/problems/scale_relu.py"
KERNEL = (HERE / "catalogue/benign/example_style.py").read_text()
ADVICE = json.dumps({"recommendation": "Fuse the loops.", "evidence": "two passes over memory"})
JOB = Job("0.1", Problem("sample", "class Model: ...", path="/here/sample.py"), Candidate("class ModelNew: ..."))


@pytest.fixture
def folder(tmp_path: Path) -> BundleFolder:
    return BundleFolder(tmp_path / "bundle")


# -- the folder


@pytest.mark.pure
class TestFolder:
    def test_a_job_comes_back_as_it_was_put(self, folder: BundleFolder) -> None:
        job = replace(JOB, settings=Settings(baseline="best", profilers=("roofline",)))
        folder.put(job)
        (found,) = bundle_maker.packed(folder)
        assert replace(found, id=job.id) == job
        assert (folder.path / "jobs" / f"{found.id}.json").exists()
        assert "python -m kforge.worker --bundle" in (folder.path / "README.txt").read_text()

    def test_equal_jobs_are_one_and_what_decides_the_verdict_tells_others_apart(self, folder: BundleFolder) -> None:
        same = replace(
            JOB,
            id="3.2",
            problem=replace(JOB.problem, path="/elsewhere/sample.py"),
            candidate=replace(JOB.candidate, parent="ffff", name="x"),
        )
        others = [
            replace(JOB, settings=Settings(seeds=9)),
            replace(JOB, candidate=Candidate("class ModelNew: pass")),
            replace(JOB, candidate=replace(JOB.candidate, platform="abacus")),
            replace(JOB, problem=replace(JOB.problem, tolerances={"float32": 0.5})),
        ]
        assert folder.name(same) == folder.name(JOB)
        assert len({folder.name(job) for job in [JOB, *others]}) == 5
        for job in [JOB, same, *others]:
            folder.put(job)
        assert len(bundle_maker.packed(folder)) == folder.waiting_count() == 5

    def test_a_report_is_about_the_job_as_it_was_asked(self, folder: BundleFolder) -> None:
        pictures = (Image("image/png", b"\x89PNG\x00\xff"),)
        raw = (Artefact("counters.csv", "text/csv", bytes(range(256)) * 100),)
        profile = Profile("ncu", {"share": 0.5}, "text", pictures, raw=raw)
        asked = replace(JOB, settings=Settings(profilers=("ncu",)))
        folder.put(asked)
        (there,) = bundle_maker.packed(folder)
        moved = replace(there, problem=replace(there.problem, path="/moved/sample.py"))
        bundle_maker.write(folder, bundle_maker.report_on(moved, 1.5, (profile,)))
        found = folder.report(asked)
        assert found is not None
        assert found.verdict.evidence is not None
        assert (found.job, found.verdict.speedup, found.profiles) == (JOB.id, 1.5, (profile,))
        assert (found.verdict.evidence.problem, found.verdict.evidence.candidate) == (JOB.problem, JOB.candidate)
        assert found.verdict.evidence.device == {"processor": "elsewhere"}

    def test_who_wants_fewer_profiles_of_a_program_has_the_verdict_of_who_wants_more(
        self, folder: BundleFolder
    ) -> None:
        plain, some = JOB, replace(JOB, settings=Settings(profilers=("ncu",)), profile_above=2.0)
        other = replace(JOB, settings=Settings(profilers=("roofline", "ncu")), profile_above=1.5)
        for job in (plain, some, other, plain):
            folder.put(job)
        (there,) = bundle_maker.packed(folder)
        assert (set(there.settings.profilers), there.profile_above) == ({"ncu", "roofline"}, 1.5)
        seen = tuple(Profile(name, text="seen") for name in there.settings.profilers)
        took = {"verdict": 5.0, "profiles": 9.0, "device": 7.0, "device for profiles": 3.0, "ncu": 6.0, "roofline": 2.0}
        bundle_maker.write(folder, replace(bundle_maker.report_on(there, 2.7, seen), seconds=took))
        for job in (plain, some, other):
            found = folder.report(job)
            assert found is not None
            assert found.verdict.evidence is not None
            assert replace(found.verdict.evidence.settings, seed=None) == job.settings
            assert {profile.tool for profile in found.profiles} == set(job.settings.profilers)
            assert {"ncu", "roofline"} & set(found.seconds) == set(job.settings.profilers)
        plainly = folder.report(plain)
        assert plainly is not None
        assert plainly.seconds == {"verdict": 5.0, "profiles": 0.0, "device": 4.0}
        assert folder.waiting_count() == 0

    @pytest.mark.parametrize(
        ("result", "above", "counts"), [(1.7, 0.0, False), (1.7, 9.0, True), (Outcome.MISMATCH, 0.0, True)]
    )
    def test_a_program_that_was_not_profiled_is_judged_again_for_who_would_read_that(
        self, folder: BundleFolder, result: float | Outcome, above: float, counts: bool
    ) -> None:
        folder.put(JOB)
        bundle_maker.write(folder, bundle_maker.report_on(bundle_maker.packed(folder)[0], result))
        wanting = replace(JOB, settings=Settings(profilers=("ncu",)), profile_above=above)
        folder.put(wanting)
        assert folder.has_report(JOB)
        assert folder.has_report(wanting) == counts
        assert folder.waiting_count() == (0 if counts else 1)

    def test_a_program_too_slow_to_be_profiled_for_one_is_judged_again_for_another(self, folder: BundleFolder) -> None:
        fast = replace(JOB, settings=Settings(profilers=("ncu",)), profile_above=9.0)
        folder.put(fast)
        bundle_maker.write(folder, bundle_maker.report_on(bundle_maker.packed(folder)[0], 1.7))
        assert folder.has_report(fast)
        with pytest.raises(WireError, match="did not need its profile by ncu"):
            folder.report(replace(fast, profile_above=0.0))

    def test_profilers_are_known_in_either_spelling_and_by_what_they_are_given(self, folder: BundleFolder) -> None:
        names = ("trace-view", "screenshot:python a.py", "screenshot:python b.py")
        one = replace(JOB, settings=Settings(profilers=names))
        other = replace(JOB, settings=Settings(profilers=("trace_view", names[2])))
        folder.put(one)
        folder.put(other)
        (there,) = bundle_maker.packed(folder)
        assert len(there.settings.profilers) == 3
        seen = tuple(Profile(name.partition(":")[0].replace("-", "_"), text=name) for name in there.settings.profilers)
        bundle_maker.write(folder, bundle_maker.report_on(there, 1.7, seen))
        for job in (one, other):
            found = folder.report(job)
            assert found is not None
            wanted = [name.replace("-", "_") for name in job.settings.profilers]
            assert [profile.text.replace("-", "_") for profile in found.profiles] == wanted

    def test_a_job_of_an_earlier_version_is_said_to_be_one(self, folder: BundleFolder) -> None:
        folder.put(JOB)
        path = next((folder.path / "jobs").glob("*.json"))
        name = bundle_folder._identity(json.loads(path.read_text())["job"], ())
        path.rename(path.with_name(f"{name}.json"))
        (said,) = folder.jobs()
        assert isinstance(said, str)
        assert "earlier version" in said

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda job: replace(job, candidate=Candidate("class ModelNew: x")), "another program"),
            (lambda job: replace(job, problem=replace(job.problem, source="class Model: x")), "another problem"),
            (lambda job: replace(job, settings=replace(job.settings, policy="any")), "other settings"),
        ],
    )
    def test_a_report_on_something_else_does_not_count(self, folder: BundleFolder, change: Any, says: str) -> None:
        folder.put(JOB)
        (job,) = bundle_maker.packed(folder)
        bundle_maker.write(folder, bundle_maker.report_on(change(job), 9.0))
        with pytest.raises(WireError, match=says):
            folder.report(JOB)
        assert folder.waiting_count() == 1
        bundle_maker.write(folder, bundle_maker.report_on(job, 1.5))
        assert folder.waiting_count() == 0

    @pytest.mark.parametrize("damage", [b"", b'{"job": "x"', b"[]", b'{"job": 3}', b"\xff\xfe"])
    def test_a_damaged_report_does_not_count(self, folder: BundleFolder, damage: bytes) -> None:
        folder.put(JOB)
        path = bundle_maker.write(folder, bundle_maker.report_on(bundle_maker.packed(folder)[0], 1.5))
        path.write_bytes(damage)
        with pytest.raises(WireError, match="damaged"):
            folder.report(JOB)
        assert folder.waiting_count() == 1

    def test_a_damaged_job_is_a_sentence_and_the_others_are_read(self, folder: BundleFolder) -> None:
        other = replace(JOB, settings=Settings(seeds=9))
        for job in (JOB, other):
            folder.put(job)
        path = folder.path / "jobs" / f"{folder.name(JOB)}.json"
        whole = path.read_bytes()
        for damage in (whole[:-40], b"{}", b"[1]", whole.replace(b"ModelNew", b"ModelOld")):
            path.write_bytes(damage)
            found = list(folder.jobs())
            words = [item for item in found if isinstance(item, str)]
            assert len(words) == 1
            assert path.name in words[0]
            assert "damaged" in words[0]
            assert len(found) == 2
        folder.put(JOB)
        assert path.read_bytes() == whole, "it is written again"

    def test_what_a_killed_process_left_half_written_is_not_seen(self, folder: BundleFolder) -> None:
        folder.put(JOB)
        folder.reports.mkdir()
        for place in ("jobs", "reports"):
            (folder.path / place / f".{folder.name(JOB)[:16]}.0a1b2c3d").write_text("{")
        assert len(bundle_maker.packed(folder)) == folder.waiting_count() == 1

    def test_what_is_no_bundle_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "full").mkdir()
        (tmp_path / "full/thesis.tex").write_text("")
        (tmp_path / "newer").mkdir()
        (tmp_path / "newer/bundle.json").write_text('{"format": 99}')
        before = sorted(tmp_path.rglob("*"))
        for name, says in (("file", "a bundle is a folder"), ("full", "other things"), ("newer", "format 99")):
            with pytest.raises(UsageError, match=says):
                BundleFolder(tmp_path / name).check()
        BundleFolder(tmp_path / "new").check()
        assert sorted(tmp_path.rglob("*")) == before

    def test_facts_of_several_machines_are_kept_apart(self, folder: BundleFolder) -> None:
        folder.set_facts({"cuda": {"device": "H200"}})
        folder.set_facts({"cpu": {"cores": "16"}})
        assert folder.facts("cuda") == {"device": "H200"}
        assert folder.facts("cpu") == {"cores": "16"}
        assert folder.facts("metal") == {}
        (folder.path / "machine.json").write_text("{")
        assert folder.facts("cuda") == {}
        folder.check()


@pytest.mark.pure
def test_a_bundle_asks_nothing_of_this_machine(
    folder: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cpu, "unavailable_reason", lambda _: "no compiler anywhere")
    monkeypatch.setattr(Cpu, "facts", lambda _, number=0: pytest.fail("this machine was looked at"))
    with pytest.raises(PluginAbsent):
        check_platform("cpu")
    name = f"bundle:{folder.path}"
    check_platform("cpu", name)
    unknown = target_of("cpu", name).guide
    assert "unknown cores" in unknown
    assert "has not been described" in unknown
    folder.set_facts({"cpu": {"cores": "44"}})
    guide = target_of("cpu", name).guide
    assert "44 cores" in guide
    assert "has not been described" not in guide
    assert "$" not in guide.split("\n- ")[0]
    with pytest.raises(UsageError, match="bundle:DIR"):
        check_platform("cpu", "carrier-pigeon")


@pytest.mark.pure
def test_hardware_that_is_not_here_may_be_there(folder: BundleFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_platform, "PLUGIN", cuda_platform.EmulatedCuda())
    name = f"bundle:{folder.path}"
    here, there = target_of("cuda"), target_of("cuda", name)
    assert (here.device_class, here.verified_as) == ("gpu", "emulator")
    assert (there.device_class, there.verified_as) == ("gpu", "")
    assert judging_platform("cuda").profilers == ()
    assert judging_platform("cuda", name).profilers == cuda_platform.Cuda().profilers
    folder.set_facts({"cuda": {"processor": "an emulator", EMULATED: "yes"}})
    assert target_of("cuda", name).verified_as == "emulator"
    assert judging_platform("cuda", name).profilers == ()


# -- a run that waits


def always(prompt: Prompt) -> str:
    return ADVICE if prompt.purpose == "analyse" else makers.reply(f"x + {prompt.sample.replace('.', '')}")


def place(tmp_path: Path, model: Any, name: str = "store", executor: Any = None) -> Any:
    from kforge.run.context import RunEnvironment
    from kforge.run.model_pool import ModelAccess

    return RunEnvironment(str(tmp_path / name), ModelAccess(models={"scripted": model}), executor=executor)


def forge(problem: Any, where: Any, folder: BundleFolder, **options: Any) -> Any:
    return kforge.forge(problem, "cpu", "scripted", where, executor=f"bundle:{folder.path}", **options)


def scripted() -> Scripted:
    return Scripted(always)


def state(tmp_path: Path) -> tuple[str, str]:
    with Store.open(tmp_path / "store") as store:
        found = store.run("last")
        return found.state, found.reason


RESULTS = (Outcome.COMPILATION_FAILURE, 1.5, 1.2, 2.0)


@pytest.mark.cpu
def test_a_run_by_bundle_is_the_run_it_would_have_been_here(
    tmp_path: Path, folder: BundleFolder, scale_relu: Any
) -> None:
    left = list(RESULTS)

    class Here(NullExecutor):
        async def run(self, job: Job, tell: Any) -> Report:
            return bundle_maker.report_on(job, left.pop(0))

    executor = Here(lambda job: pytest.fail("its reports are whole"))
    local = kforge.forge(scale_relu, "cpu", "scripted", place(tmp_path, scripted(), "local", executor), iterations=4)
    model = scripted()
    where = place(tmp_path, model)
    result = forge(scale_relu, where, folder, iterations=4)
    for result_of_round in RESULTS:
        assert result.waiting
        assert not result.stops[0].final
        assert state(tmp_path) == ("waiting", f"reports are awaited in {folder.path}")
        asked = len(model.asked)
        again = kforge.resume("last", where)
        assert again.waiting
        assert len(model.asked) == asked, "nothing is asked while a report is missing"
        assert again.history == result.history
        assert bundle_maker.work(folder, [result_of_round]) == 1, "one job is open"
        result = kforge.resume("last", where)
    assert not result.waiting
    assert state(tmp_path)[0] == "finished"
    assert [prompt.text for prompt in model.asked if prompt.purpose == "analyse"]
    timeless = [replace(attempt, seconds={}) for attempt in result.history]
    assert timeless == [replace(attempt, seconds={}) for attempt in local.history]
    assert result.source == local.source
    assert bundle_maker.work(folder, []) == 0, "no job is left over"


@pytest.mark.cpu
def test_chains_whose_reports_are_there_go_on_and_the_others_wait(
    tmp_path: Path, folder: BundleFolder, scale_relu: Any
) -> None:
    model = scripted()
    where = place(tmp_path, model)
    forge(scale_relu, where, folder, samples=3, iterations=2, analyst_model="none")
    assert folder.waiting_count() == 3
    bundle_maker.work(folder, [1.5], some=1)
    result = kforge.resume("last", where)
    assert len(result.history) == 1
    assert len(model.asked) == 4
    assert folder.waiting_count() == 3
    assert result.waiting
    while bundle_maker.work(folder, [1.5] * 3):
        result = kforge.resume("last", where)
    assert sorted((item.move.chain, item.move.step) for item in result.history) == [
        (chain, step) for chain in range(3) for step in (1, 2)
    ]
    assert len(model.asked) == 6
    assert not result.waiting


@pytest.mark.cpu
def test_what_is_wrong_with_a_report_is_said_and_its_job_stays_open(
    tmp_path: Path, folder: BundleFolder, scale_relu: Any
) -> None:
    where = place(tmp_path, scripted())
    forge(scale_relu, where, folder, samples=3, iterations=1)
    first, second, third = bundle_maker.packed(folder)
    bundle_maker.write(folder, bundle_maker.report_on(first, 1.5)).write_bytes(b'{"job": ')
    folder.set_error(second, "the device fell off the bus")
    bundle_maker.write(folder, bundle_maker.report_on(third, 1.7))
    result = kforge.resume("last", where)
    assert [item.speedup for item in result.history] == [1.7]
    said = {stop.words for stop in result.stops if stop.reason == "waiting"}
    assert len(said) == 2
    assert any(first.id in words and "damaged" in words and "stays open" in words for words in said)
    assert any(second.id in words and "fell off the bus" in words for words in said)
    assert "fell off the bus" in state(tmp_path)[1]
    assert folder.waiting_count() == 2
    bundle_maker.work(folder, [1.1, 1.2])
    folder.set_error(second, "")
    assert not kforge.resume("last", where).waiting


@pytest.mark.cpu
def test_two_runs_share_a_folder_and_an_equal_job_is_judged_once(
    tmp_path: Path, folder: BundleFolder, scale_relu: Any
) -> None:
    first = forge(scale_relu, place(tmp_path, scripted()), folder, iterations=1)
    other = replace(scale_relu, name="other", source=scale_relu.source + "\n# another problem\n")
    second = forge(other, place(tmp_path, scripted()), folder, iterations=1)
    third = forge(scale_relu, place(tmp_path, scripted()), folder, iterations=1)
    assert bundle_maker.work(folder, [1.3, 1.3]) == 2
    for run in (first, second, third):
        done = kforge.resume(run.run, place(tmp_path, scripted()))
        assert [item.speedup for item in done.history] == [1.3]
        assert done.best.verdict.evidence.problem == run.spec.problem


@pytest.mark.cpu
def test_a_target_reached_elsewhere_ends_a_chain_that_waits(
    tmp_path: Path, folder: BundleFolder, scale_relu: Any
) -> None:
    where = place(tmp_path, scripted())
    forge(scale_relu, where, folder, samples=2, iterations=3, target_speedup=2.0)
    bundle_maker.work(folder, [3.0], some=1)
    kforge.resume("last", where)
    result = kforge.resume("last", where)
    assert {stop.reason for stop in result.stops} == {"target"}
    assert state(tmp_path)[0] == "finished"


@pytest.mark.cpu
def test_a_folder_that_was_moved_is_named_again(tmp_path: Path, folder: BundleFolder, scale_relu: Any) -> None:
    from kforge.spec.run_spec import ResumeOptions

    where = place(tmp_path, scripted())
    forge(scale_relu, where, folder, iterations=1)
    bundle_maker.work(folder, [1.5])
    moved = folder.path.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="carrier-pigeon"):
        kforge.resume("last", where, ResumeOptions(executor="carrier-pigeon"))
    result = kforge.resume("last", where, ResumeOptions(executor=f"bundle:{moved}"))
    assert result.best.speedup == 1.5
    assert result.spec.executor == f"bundle:{moved}"


# -- live modules


def live_problem() -> Problem:
    import torch

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(64) + 0.5)

        def forward(self, x: Any) -> Any:
            return torch.relu(x) * self.weight

    return Problem.from_module(Doubled(), [torch.randn(256, 64)])


@pytest.mark.cpu
def test_a_live_module_travels_with_its_job(tmp_path: Path, folder: BundleFolder) -> None:
    problem = live_problem()
    where = place(tmp_path, scripted())
    forge(problem, where, folder, iterations=1)
    carried = folder.path.rename(tmp_path / "elsewhere")
    (job,) = bundle_maker.packed(BundleFolder(carried))
    assert Path(job.problem.payload).parent == carried / "files"
    assert Path(job.problem.payload).read_bytes() == Path(problem.payload).read_bytes()
    assert str(carried) not in (carried / "jobs" / f"{job.id}.json").read_text()
    bundle_maker.write(BundleFolder(carried), bundle_maker.report_on(job, 1.5))
    carried.rename(folder.path)
    result = kforge.resume("last", where)
    assert result.best.verdict.evidence.problem == problem


@pytest.mark.cpu
def test_a_live_module_that_could_not_be_read_is_not_loaded(
    folder: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kforge.worker.bundle_work import OpenJobs

    folder.put(Job("0.1", live_problem(), Candidate("class ModelNew: ...")))
    path = next((folder.path / "jobs").iterdir())
    data = json.loads(path.read_text())
    assert data["python"] == PYTHON
    path.write_text(json.dumps({**data, "python": "3.7"}))
    (done,) = OpenJobs(folder).carry_out(lambda _: None)
    assert done.report is None
    assert "Python 3.7" in done.error
    assert folder.error(done.job) == done.error
    path.write_text(json.dumps(data))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (done,) = OpenJobs(folder).carry_out(lambda _: None)
    assert "cloudpickle" in done.error


# -- kill -9

KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/worker"]
import test_bundles as t
from pathlib import Path
tmp = Path({tmp!r})
folder = t.BundleFolder(tmp / "bundle")
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if {when!r} == "before":
    t.BundleFolder.put = die
else:
    put = t.BundleFolder.put
    t.BundleFolder.put = lambda *a: (put(*a), die())
t.forge(t.Problem.from_file(t.PROBLEM), t.place(tmp, t.scripted()), folder, iterations=1)
"""


@pytest.mark.cpu
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_around_the_writing_of_a_job_loses_nothing(when: str, tmp_path: Path, folder: BundleFolder) -> None:
    script = KILLED.format(tests=str(HERE), tmp=str(tmp_path), when=when)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sum(1 for _ in folder.jobs()) == (when == "after")
    silent = Scripted([])
    assert kforge.resume("last", place(tmp_path, silent)).waiting
    assert bundle_maker.work(folder, [1.5]) == 1
    assert kforge.resume("last", place(tmp_path, silent)).best.speedup == 1.5
    assert silent.asked == [], "the reply was kept"


# -- a real worker, on a machine with nothing but Python, torch and a part of the source tree

BARE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"no {{name}} on this host", name=name)
sys.meta_path.insert(0, Block())
sys.argv = ["worker", *sys.argv[1:]]
import runpy, warnings
warnings.simplefilter("ignore")
runpy.run_module("kforge.worker", run_name="__main__")
"""
BLOCKED = (
    *("sqlalchemy", "alembic", "pydantic", "pydantic_ai", "pydantic_core", "typer", "click", "rich", "jinja2", "httpx"),
    *("genai_prices", "numpy", "psycopg", "hypothesis"),
)
ROOMS = ("types", "worker", "platforms", "profilers", "emulation")
FILES = (
    "__init__",
    "errors",
    "jsonable",
    "registry",
    "kernelbench",
    "live_module",
    "trace_definition",
    "whole_file",
    "visible_text",
    "cache_folder",
)


def bare_tree(tmp_path: Path) -> Path:
    """The source tree as far as a worker may need it; what runs the loop is not there."""
    tree = tmp_path / "tree"
    (tree / "kforge").mkdir(parents=True)
    for name in FILES:
        shutil.copy(SOURCE / f"{name}.py", tree / "kforge")
    for name in ROOMS:
        shutil.copytree(SOURCE / name, tree / "kforge" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def start_worker(tree: Path, *words: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BARE.format(blocked=BLOCKED), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tree), "PYTHONPATH": str(tree)},
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    said = process.communicate(timeout=600)[0]
    return process.returncode, said


def cli(tmp_path: Path, *words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kforge.cli.app", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)


def recording(path: Path, **replies: str) -> str:
    """A file for replay:FILE: slot -> program."""
    lines = [
        {"purpose": "generate", "sample": slot, "model": "m", "prompt_id": "", "prompt": "", "reply": f"```\n{text}```"}
        for slot, text in replies.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{path}"


@pytest.mark.toolchain
def test_from_the_command_line_with_a_worker_that_has_nothing_but_torch(tmp_path: Path) -> None:
    broken = KERNEL.replace('extern "C"', 'extern "C" nonsense', 1)
    model = recording(tmp_path / "recorded.jsonl", **{"0.1.1": KERNEL, "1.1.1": broken})
    words = ["forge", PROBLEM, "--model", model, "--samples", 2, "--iterations", 1]
    words += ["--no-compile-baseline", "--profiler", "none"]
    begun = cli(tmp_path, *words, "--executor", "bundle:carried")
    assert begun.returncode == 3, begun.stdout + begun.stderr
    assert f"2 jobs wait in {tmp_path / 'carried'}" in begun.stdout
    assert "kforge.worker --bundle carried" in begun.stdout
    with Store.open(tmp_path / ".kforge") as store:
        (run,) = store.runs()
    assert (run.state, run.attempts) == ("waiting", 0)
    assert f"kforge resume {run.id}" in begun.stdout

    folder = BundleFolder(tmp_path / "elsewhere")
    (tmp_path / "carried").rename(folder.path)
    module = live_problem()
    folder.put(Job("live", module, Candidate(LIVE_KERNEL), Settings(compile_baseline=False, timing_seconds=0.05)))
    tree = bare_tree(tmp_path)
    worker = start_worker(tree, "--bundle", folder.path)
    deadline = time.monotonic() + 600
    while not list(folder.reports.glob("*.json")) and time.monotonic() < deadline and worker.poll() is None:
        time.sleep(0.02)
    worker.kill()
    _, said = finished(worker)
    early = {path: path.stat().st_mtime_ns for path in folder.reports.glob("*.json")}
    assert early, said
    assert folder.waiting_count() + len(early) == 3
    code, said = finished(start_worker(tree, "--bundle", folder.path))
    assert code == 0, said
    assert folder.waiting_count() == 0, said
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in early.items()), (
        "what has a report is not judged again"
    )
    assert "cores" in folder.facts("cpu")
    live = folder.report(Job("live", module, Candidate(LIVE_KERNEL), packed_settings(folder, module)))
    assert live is not None
    assert live.verdict.outcome is Outcome.CORRECT, live.verdict.detail
    folder.path.rename(tmp_path / "carried")
    done = cli(tmp_path, "resume", "waiting", "--json")
    assert done.returncode == 0, done.stderr
    assert _gist(json.loads(done.stdout)) == [
        (1, 1, "fresh", Candidate(KERNEL).id, "correct"),
        (2, 1, "fresh", Candidate(broken).id, "compilation_failure"),
    ]


def packed_settings(folder: BundleFolder, problem: Problem) -> Settings:
    return next(job.settings for job in bundle_maker.packed(folder) if job.problem.id == problem.id)


def _gist(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("chain", "step", "intent", "candidate", "outcome")
    return sorted(tuple(attempt[name] for name in names) for attempt in result["attempts"])


LIVE_KERNEL = '''
import ctypes, subprocess, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void run(const float* x, const float* w, float* y, long rows, long columns) {
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {
            float v = x[r * columns + c];
            y[r * columns + c] = (v < 0 ? 0 : v) * w[c];
        }
}
"""
folder = tempfile.mkdtemp()
with open(folder + "/k.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
kernel = ctypes.CDLL(folder + "/k.so").run
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y
'''


def worker_main(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    """The worker's command in this process."""
    from kforge.worker.__main__ import main

    monkeypatch.setattr(sys, "argv", ["kforge.worker", *map(str, words)])
    return main()


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--bundle"),
        (["--bundle", "b", "--jobs", "x"], "belongs to --jobs"),
        (["--bundle", "b", "--sandbox", "process"], "belongs to --jobs"),
        (["--describe", "--jobs", "x", "--out", "y"], "--bundle"),
        (["--bundle", "nowhere"], "no such folder"),
        (["--bundle", "b", "--builders", "0"], "at least 1"),
        (["--bundle", "b", "--devices", "first"], "--devices"),
    ],
)
def test_a_worker_that_is_asked_nonsense_says_so(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code: Any = worker_main(monkeypatch, *words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cpu
def test_a_machine_is_described_without_judging(
    folder: BundleFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worker_main(monkeypatch, "--bundle", folder.path, "--describe") == 0
    assert folder.facts("cpu") == Cpu().facts()
    assert "cpu" in capsys.readouterr().out
    folder.check()


@pytest.mark.cpu
def test_jobs_are_handed_on_by_platform_and_what_fails_is_noted(
    folder: BundleFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kforge.worker import bundle_work
    from kforge.worker.jobs import Done

    others = [replace(JOB, candidate=Candidate(f"class ModelNew: {n}", "abacus")) for n in range(2)]
    for job in (JOB, *others):
        folder.put(job)
    (folder.path / "jobs/torn-0123456789abcdef.json").write_text("{")
    handed: list[tuple[str, int, int, tuple[int, ...]]] = []

    def run_jobs(jobs: Any, out: Path, platform: str, tell: Any, builders: int, devices: tuple[int, ...]) -> None:
        handed.append((platform, len(jobs), builders, devices))
        if platform == "abacus":
            raise PluginAbsent("platform abacus: no beads here")
        for job in jobs:
            report = bundle_maker.report_on(job, 1.5)
            out.mkdir(exist_ok=True)
            bundle_maker.write(folder, report)
            tell(Done(job, report))

    monkeypatch.setattr(bundle_work, "run_jobs", run_jobs)
    code = worker_main(monkeypatch, "--bundle", folder.path, "--builders", 4, "--devices", "0,2")
    assert code == 2
    assert sorted(handed) == [("abacus", 2, 4, (0, 2)), ("cpu", 1, 4, (0, 2))]
    said = capsys.readouterr()
    assert "torn-0123456789abcdef.json: damaged" in said.err
    assert folder.waiting_count() == 2
    assert [folder.error(job) for job in (JOB, *others)] == ["", *["platform abacus: no beads here"] * 2]
