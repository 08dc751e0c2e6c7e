"""What a third party adds works like KForge's own: a package with entry points, installed beside it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import installed_package
import kforge
import makers
from kforge import registry
from kforge.agents import concepts, dialects
from kforge.errors import PluginAbsent, UnknownPlugin, UsageError
from kforge.execution import executor_names
from kforge.execution.factory import open_executor
from kforge.models.factory import open_model
from kforge.profilers import digest
from kforge.run.context import RunEnvironment
from kforge.spec.experiment_file import read_experiment
from kforge.spec.judging_platform import check_platform, judging_platform, target_of
from kforge.spec.run_spec import ResumeOptions
from kforge.types import Message, ModelSettings, Profile, Prompt

CODE = """
import asyncio
import json
from pathlib import Path

from kforge.errors import UsageError
from kforge.execution.base import ExecutorPlugin, ReportAwaited
from kforge.models.base import ModelPlugin
from kforge.platforms.base import Dialect, Platform
from kforge.profilers.base import Profiler, SignalRule
from kforge.search.refine import Refine
from kforge.types import Completion, ErrorNorm, Outcome, Report, Signal, Timing, Verdict

PROGRAM = "import torch.nn as nn\\n\\n\\nclass ModelNew(nn.Module):\\n    def forward(self, x):\\n        return %s\\n"


class Echo:
    def __init__(self, argument, settings):
        self.name, self.argument, self.settings = f"echo:{argument}", argument, settings

    async def complete(self, prompt):
        advice = json.dumps({"recommendation": "Fuse.", "evidence": "two passes"})
        program = PROGRAM % (self.argument + prompt.sample.replace(".", ""))
        return Completion(advice if prompt.purpose == "analyse" else f"```python\\n{program}```", self.name)

    async def close(self):
        pass


class EchoPlugin(ModelPlugin):
    name, form, what = "echo", "echo:WORD", "a word"

    def open(self, argument, settings):
        return Echo(argument, settings)


class Absent(ModelPlugin):
    name = "absent"

    def unavailable_reason(self):
        return "its client is not installed (pip install absent)"


class Cluster:
    def __init__(self, where, platform):
        self.where, self.platform, self.machine = where, platform, asyncio.Lock()

    async def run(self, job, tell):
        if not (self.where / "open").exists():
            raise ReportAwaited("the cluster sleeps")
        timing = Timing("eager", 2.0, (1.9, 2.1), 1.6, (1.0,), (2.0,), 5, 3)
        verdict = Verdict(Outcome.CORRECT, "fine", errors=(ErrorNorm("natural", 0.0, 1e-4, 0.0),), timing=timing)
        return Report(job.id, job.problem.name, job.candidate.id, job.candidate.platform, verdict)

    async def close(self):
        pass


class ClusterPlugin(ExecutorPlugin):
    name, form, what = "cluster", "cluster:DIR", "a cluster"
    leaves_jobs = True

    def open(self, argument, platform):
        return Cluster(Path(argument), platform)

    def canonical(self, argument):
        if not argument:
            raise UsageError("cluster: which one?")
        return str(Path(argument).absolute())

    def check(self, argument, platform):
        if not Path(argument).is_dir():
            raise UsageError(f"there is no cluster in {argument}")

    def facts(self, argument, platform):
        return {"processor": "a hundred abacuses"} if platform == "cpu" else {}


class Beads(Profiler):
    name, what = "beads", "beads that moved"
    rules = (
        SignalRule(
            "stuck_beads",
            lambda facts: _stuck(facts.number("beads", "stuck", 1.0)),
            unit="share",
            gone="no bead is stuck any more ({was} were)",
        ),
        SignalRule("broken_rule", lambda facts: 1 / 0),
        SignalRule("speedup", lambda facts: (9.0, Signal("speedup", "not theirs to say"))),
    )

    def unavailable_reason(self):
        return ""


def _stuck(share):
    return (3.9, Signal("stuck", f"{share:.0%} of the beads are stuck", share)) if share else None


class Abacus(Platform):
    name = "abacus"
    dialect = Dialect(language="beads", marks=r"\\bslide_bead\\b", suffixes=(".abc",))
    terms = {"kernel": "rod, `slide_bead`", "barrier": "none", "wire": "wire"}


class Greedy(Refine):
    name = "greedy"


model, absent, executor, profiler, platform, search = (
    EchoPlugin(), Absent(), ClusterPlugin(), Beads(), Abacus(), Greedy()
)
number = 3
"""
POINTS = {
    "models": "echo = their_plugins:model\nabsent = their_plugins:absent",
    "executors": "cluster = their_plugins:executor",
    "profilers": "beads = their_plugins:profiler",
    "platforms": "abacus = their_plugins:platform",
    "search": "greedy = their_plugins:search",
}
PROBLEM = Path(__file__).parent / "catalogue" / "problems" / "scale_relu.py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the package is installed, for the length of a test."""
    folder = installed_package.install(tmp_path / "site", CODE, POINTS)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("their_plugins", None)


def broken(site: Path, monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Install another package: kind -> its entry point."""
    other = installed_package.install(site.parent / "other", "1 / 0\n", points, "their_mistakes")
    monkeypatch.syspath_prepend(other)


# -- the registry ---------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_every_kind_has_entry_points(site: Path) -> None:
    for kind, points in POINTS.items():
        for line in points.splitlines():
            name = line.partition(" ")[0]
            assert name in registry.names(kind)
            assert registry.load(kind, name).name == name


@pytest.mark.pure
@pytest.mark.parametrize(
    ("kind", "point", "says"),
    [
        ("platforms", "odd = their_plugins:number", r"platform odd \(their_plugins:number\) is 3: make it an instance"),
        ("platforms", "odd = their_plugins:Abacus", "is <class .*Abacus'>: make it an instance of a kforge.platforms"),
        ("profilers", "odd = their_plugins:platform", "make it an instance of a kforge.profilers.base.Profiler"),
        ("search", "odd = their_plugins:profiler", "make it an instance of a kforge.search.base.Search"),
        ("models", "odd = their_plugins:model", "model odd .* calls itself 'echo': set its name to 'odd'"),
        ("executors", "odd = their_plugins:nothing", "executor odd .* cannot be loaded: AttributeError"),
        ("executors", "odd = nowhere:PLUGIN", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("models", "odd = their_mistakes:PLUGIN", "cannot be loaded: ZeroDivisionError"),
    ],
)
def test_what_is_not_of_its_kind_is_refused_in_a_sentence(
    site: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, point: str, says: str
) -> None:
    broken(site, monkeypatch, **{kind: point})
    assert "odd" in registry.names(kind)
    with pytest.raises(UnknownPlugin, match=says):
        registry.load(kind, "odd")


@pytest.mark.pure
def test_doctor_lists_them_and_says_what_is_wrong_with_a_broken_one(
    site: Path, monkeypatch: pytest.MonkeyPatch, kforge_here: Any
) -> None:
    broken(site, monkeypatch, models="odd = their_mistakes:PLUGIN", platforms="bent = their_plugins:number")
    listed = json.loads(kforge_here("doctor", "--json").stdout)
    assert listed["models"]["echo"] == {"absent": "", "detail": "a word"}
    assert listed["models"]["absent"]["absent"] == "its client is not installed (pip install absent)"
    assert "ZeroDivisionError" in listed["models"]["odd"]["absent"]
    assert "make it an instance" in listed["platforms"]["bent"]["absent"]
    assert listed["executors"]["cluster"]["detail"] == "a cluster"
    assert listed["profilers"]["beads"]["detail"] == "beads that moved"
    assert "greedy" in listed["search"]


# -- models and executors -------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_a_model_is_opened_with_what_stands_behind_the_colon(site: Path) -> None:
    settings = ModelSettings(temperature=0.5)
    model: Any = open_model("echo:one:two", settings)
    assert (model.name, model.argument, model.settings) == ("echo:one:two", "one:two", settings)
    assert "x1" in asyncio.run(open_model("echo:x").complete(Prompt((Message("user", "?"),), sample="1"))).text
    with pytest.raises(PluginAbsent, match=r"model absent: its client is not installed \(pip install absent\)"):
        open_model("absent:x")
    with pytest.raises(UsageError, match=r"echo:WORD +a word"):
        open_model("echo")


@pytest.mark.pure
def test_an_executor_says_what_its_argument_is(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert executor_names.whole_name("cluster:c") == f"cluster:{tmp_path / 'c'}"
    assert executor_names.folder_of("cluster:c") is None
    assert not executor_names.judges_here("cluster:c")
    assert executor_names.leaves_jobs("cluster:c")
    assert not executor_names.leaves_jobs("not_installed:here"), "a report on it can still be read"
    opened: Any = open_executor("cluster:c", "cpu")
    assert (opened.where, opened.platform) == (tmp_path / "c", "cpu")
    with pytest.raises(UsageError, match="which one"):
        executor_names.whole_name("cluster")
    with pytest.raises(UsageError, match=r"no executor is called 'klaster:c'; there are: .*local, cluster:DIR"):
        open_executor("klaster:c", "cpu")


@pytest.mark.pure
def test_an_executor_elsewhere_is_asked_for_its_machine(site: Path, tmp_path: Path) -> None:
    name = f"cluster:{tmp_path}"
    assert judging_platform("cpu", name).facts()["processor"] == "a hundred abacuses"
    assert "a hundred abacuses" in target_of("cpu", name).guide
    assert not judging_platform("cuda", name).emulated, "the hardware need not be here"
    assert "unknown" in target_of("cuda", name).guide
    chosen = target_of("cpu", name, facts={"processor": "an abacus of its own"}).guide
    assert "an abacus of its own" in chosen
    assert "hundred" not in chosen
    assert "has not been described" in target_of("cpu", name, facts={}).guide, "of what was chosen nothing is known"
    check_platform("cuda", name)
    with pytest.raises(UsageError, match="there is no cluster in"):
        check_platform("cuda", f"cluster:{tmp_path / 'nowhere'}")


@pytest.mark.cpu
def test_a_run_in_python(site: Path, tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    where = RunEnvironment(str(tmp_path / "store"))
    options: dict[str, Any] = {"executor": f"cluster:{tmp_path}", "search": "greedy", "iterations": 2}
    result = kforge.forge(str(PROBLEM), "cpu", "echo:x", where, **options)
    assert result.spec.models == ("echo:x",)
    assert [attempt.verdict.speedup for attempt in result.history] == [2.0, 2.0]


@pytest.mark.cpu
def test_a_run_on_the_command_line_that_waits_for_its_reports(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kforge_here: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    words = ["forge", PROBLEM, "--model", "echo:x", "--executor", "cluster:far", "--iterations", 1]
    done = kforge_here(*words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"jobs wait for their reports from cluster:{tmp_path / 'far'}" in " ".join(done.stdout.split())
    assert "kforge resume" in done.stdout
    (tmp_path / "far" / "open").touch()
    result = kforge.resume("last", RunEnvironment(str(tmp_path / ".kforge")), ResumeOptions())
    assert [attempt.verdict.speedup for attempt in result.history] == [2.0]


@pytest.mark.pure
def test_an_experiment_file_names_them(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'name = "theirs"\nsuite = "bundled"\nlimit = 1\nmodels = ["echo:x"]\nexecutor = "{}"\n'
    file = tmp_path / "theirs.toml"
    file.write_text(text.format("cluster:far"))
    experiment = read_experiment(file)
    assert experiment.executor == f"cluster:{tmp_path / 'far'}"
    assert {name for item in experiment.configurations for name in item.models} == {"echo:x"}
    file.write_text(text.format("cluster"))
    with pytest.raises(UsageError, match="which one"):
        read_experiment(file)


# -- signals, terms and marks ---------------------------------------------------------------------------------------


@pytest.mark.pure
def test_a_profiler_brings_signals_of_its_own(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    def made(share: float, previous: Any = None) -> Any:
        return digest.digest((Profile("beads", {"stuck": share}),), makers.verdict(1.5), previous)

    first = made(0.5)
    listed = {signal.name: signal for signal in first.signals}
    assert first.signals[0].name == "stuck_beads", "the rule's name, and its weight"
    assert "ZeroDivisionError" in caplog.text, "a rule that breaks is left out, and that is said"
    assert "broken_rule" not in listed
    assert listed["speedup"].words.startswith("1.50x"), "KForge's own signals stay its own"
    later = {signal.name: signal for signal in made(0.25, first).signals}
    assert later["stuck_beads"].change == "was 50 %, now 25 %"
    end = {signal.name: signal for signal in made(0.0, first).signals}
    assert end["stuck_beads"].words == "no bead is stuck any more (50 % were)"
    assert "stuck_beads" not in [each.name for each in digest.digest((), makers.verdict(1.5), first).signals]


@pytest.mark.pure
def test_a_profile_of_a_tool_that_is_not_installed_here_is_digested(tmp_path: Path) -> None:
    for name in ("beads", str(tmp_path), "../beads"):
        assert digest.digest((Profile(name, {"stuck": 0.5}),), makers.verdict(1.5)).signals


@pytest.mark.pure
def test_a_platform_brings_its_terms(site: Path) -> None:
    pairs = concepts.concept_pairs("cuda", "abacus")
    assert [pair.here for pair in pairs] == ["rod, `slide_bead`", "none"], "in the table's order"
    assert pairs[1].there == "`__syncthreads()`"
    assert not concepts.concept_pairs("abacus", "not_installed")


@pytest.mark.pure
def test_a_platform_brings_the_marks_of_its_dialect(site: Path) -> None:
    assert dialects.platform_of("slide_bead(3)") == "abacus"
    assert dialects.language_of("slide_bead(3)") == "beads"
    assert dialects.language_of("", "k.abc") == "beads"
    assert dialects.platform_of("slide_bead(3); __syncthreads();") == "", "of two platforms is of none"


@pytest.mark.pure
def test_a_copy_of_a_platform_takes_nothing_from_its_original(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = registry.load("platforms", "abacus")
    marks = replace(registry.load("platforms", "opencl").dialect, language="mine")
    monkeypatch.setattr(type(plugin), "dialect", marks)
    assert dialects.platform_of("__kernel void k() {}") == "opencl"
