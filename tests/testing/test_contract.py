"""The contract of platforms: KForge's own keep it, broken ones are found out, and a new one begins by keeping it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kforge import registry
from kforge.cli.platform_commands import app
from kforge.cli.platform_new import make
from kforge.errors import PlatformFault, UnknownPlugin, UsageError
from kforge.platforms.base import Platform
from kforge.types import Candidate, Outcome, Settings

pytest.importorskip("torch")

from kforge.testing import CLAUSES, Broken, ClauseState, Contract, broken_variants
from kforge.worker.judge.judge import Judge

PLATFORMS = [
    pytest.param("cpu", marks=pytest.mark.toolchain),
    pytest.param("opencl", marks=pytest.mark.cpu),
    pytest.param("metal", marks=pytest.mark.toolchain),
    pytest.param("cuda emulated", marks=pytest.mark.toolchain),
    pytest.param("cuda", marks=pytest.mark.accelerator),
    pytest.param("triton", marks=pytest.mark.accelerator),
]
ON_PAPER = ("name", "absence", "facts", "guide", "example")


@pytest.fixture(scope="module")
def contract(request: pytest.FixtureRequest) -> Iterator[Contract]:
    name, _, emulated = request.param.partition(" ")
    if emulated and not registry.load("platforms", name).emulated:
        pytest.skip(f"platform {name} is not emulated on this machine")
    with Contract(name) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _known_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that one test names are unknown to the next."""
    monkeypatch.setattr(registry, "_by_path", {})


@pytest.mark.parametrize("contract", PLATFORMS, indirect=True)
@pytest.mark.parametrize("clause", CLAUSES)
def test_a_platform_keeps_its_contract(contract: Contract, clause: str) -> None:
    finding = contract.finding(clause)
    if finding.mark is ClauseState.SKIPPED:
        pytest.skip(finding.said)
    assert finding.mark is ClauseState.KEPT, finding.said
    assert finding.said


@pytest.mark.cpu
@pytest.mark.parametrize("name", registry.names("platforms"))
@pytest.mark.parametrize("clause", ON_PAPER)
def test_what_needs_no_device_is_kept_everywhere(name: str, clause: str) -> None:
    finding = Contract(name).finding(clause)
    assert finding.mark is ClauseState.KEPT, finding.said


# -- platforms that break it --------------------------------------------------------------------------------------

_PLATFORM = """
from kforge.platforms.base import Platform


class Odd(Platform):
    name = "{name}"
{members}


PLUGIN = Odd()
"""


def platform_folder(place: Path, members: str = "", name: str = "") -> Path:
    """A platform with the members given, and the guide and example of `cpu`."""
    home = registry.load("platforms", "cpu").home()
    place.mkdir()
    (place / "__init__.py").touch()
    (place / "platform.py").write_text(_PLATFORM.format(name=name or place.name, members=members or "    pass"))
    (place / "guide.md").write_text("# Odd\n\nThe processor: $processor.\n" + "It is odd in many ways. " * 5)
    (place / "example").mkdir()
    for file in ("reference.py", "candidate.py"):
        (place / "example" / file).write_text((home / "example" / file).read_text())
    return place


_FACTS = "    def facts(self, number=0):\n        return {facts}\n"
_ABSENT = "    def unavailable_reason(self):\n        {code}\n"


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("clause", "members", "says"),
    [
        ("facts", _FACTS.format(facts="{'cores': 8}"), "cores is 8: say it in words"),
        ("facts", _FACTS.format(facts="{'two words': 'a'}"), "keys that are single words"),
        ("facts", _FACTS.format(facts="{'driver': 'one\\ntwo'}"), "on one line"),
        ("facts", "", "facts is empty"),
        (
            "facts",
            "    terms = {'barrier': 'this | that'}\n",
            "say it in a few words without |",
        ),
        ("guide", _FACTS.format(facts="{'cores': 'eight'}"), "asks for $processor, which facts() does not name"),
        ("absence", _ABSENT.format(code="return 'nothing here'"), "in parentheses, the cure"),
        ("absence", _ABSENT.format(code="return None"), "give a str"),
        ("absence", _ABSENT.format(code="import torch; return ''"), "fails with ModuleNotFoundError"),
        ("absence", _ABSENT.format(code="raise OSError('no bus')"), "it raised OSError: no bus"),
        ("name", "    device_class = 'abacus'", "cpu, gpu, emulator"),
        ("name", "    profilers = ('sundial',)", "no profiler is called 'sundial'"),
        ("name", "    baselines = ('compile',)", "leaves out eager"),
        ("name", "    emulated = True", "a time measured on an emulator means nothing"),
        ("example", "    device_class = 'emulator'", "has no sizes for an emulator"),
        ("runners", "    def folders(self):\n        return ('/',)", "never the whole disk"),
        ("runners", "    def environment(self, number=0):\n        return {'A': 1}", "must be words: 'A' is not"),
    ],
)
def test_a_broken_clause_says_what_to_do(tmp_path: Path, clause: str, members: str, says: str) -> None:
    finding = Contract(platform_folder(tmp_path / "odd", members)).finding(clause)
    assert finding.mark is ClauseState.BROKEN
    assert says in finding.said


@pytest.mark.cpu
def test_where_it_is_absent_programs_are_skipped_by_name(tmp_path: Path) -> None:
    absent = _ABSENT.format(code="return 'no odd device (buy an odd device)'")
    contract = Contract(platform_folder(tmp_path / "odd", absent + _FACTS.format(facts="{}")))
    found = {finding.clause: finding for finding in contract.findings()}
    assert list(found) == list(CLAUSES)
    assert {name for name in CLAUSES if found[name].mark is ClauseState.KEPT} == set(ON_PAPER)
    assert found["correct"].mark is ClauseState.SKIPPED
    assert found["correct"].said == "platform odd: no odd device (buy an odd device)"


@pytest.mark.toolchain
def test_an_example_that_is_wrong_and_a_variant_that_is_right_are_found_out(tmp_path: Path) -> None:
    folder = platform_folder(tmp_path / "odd", _FACTS.format(facts="{'processor': 'odd'}"))
    program = folder / "example" / "candidate.py"
    honest = program.read_text()
    program.write_text(honest.replace("? v :", "? 2 * v :"))
    (folder / "example" / "broken").mkdir()
    (folder / "example" / "broken" / "mismatch.py").write_text(honest)
    with Contract(folder) as contract:
        found = {name: contract.finding(name) for name in ("correct", "time", "profilers", "mismatch", "rejected")}
    assert found["correct"].said.startswith("the example is not correct but mismatch")
    assert found["mismatch"].said.startswith("a program that must be mismatch is correct")
    assert found["rejected"].mark is ClauseState.KEPT
    assert [found[name].mark for name in ("correct", "time", "profilers", "mismatch")] == [ClauseState.BROKEN] * 4


@pytest.mark.cpu
def test_what_is_no_platform_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnknownPlugin, match=r"no platform is called 'abacus'; there are: .*cpu"):
        Contract("abacus")
    with pytest.raises(UnknownPlugin, match=r"there is no __init__.py and no platform.py in it"):
        Contract(tmp_path)
    with pytest.raises(UsageError, match="calls itself 'even': set its name to 'odd'"):
        Contract(platform_folder(tmp_path / "odd", name="even"))
    with pytest.raises(UnknownPlugin, match="none of KForge's own"):
        Contract(platform_folder(tmp_path / "cpu"))
    (platform_folder(tmp_path / "torn") / "platform.py").write_text("PLUGIN = (")
    with pytest.raises(UsageError, match="cannot be loaded: SyntaxError"):
        Contract(tmp_path / "torn")
    (platform_folder(tmp_path / "bare") / "platform.py").write_text("PLUGIN = 3")
    with pytest.raises(UsageError, match=r"make it an instance of a kforge.platforms.base.Platform"):
        Contract(tmp_path / "bare")
    with pytest.raises(UsageError, match="the contract has no clause 'beauty'"):
        Contract("cpu").finding("beauty")


_RAISES = """
    def facts(self, number=0):
        return {{"processor": "odd"}}

    def {method}:
        return self.adapter.name
"""


@pytest.mark.cpu
@pytest.mark.parametrize("method", ["enter_runner(self)", "stopwatch(self)", "enter_judge(self, number)"])
def test_what_a_platform_raises_is_told_once_with_its_place(tmp_path: Path, method: str) -> None:
    name = method.partition("(")[0]
    folder = platform_folder(tmp_path / "odd", _RAISES.format(method=method))
    done = command("check", folder, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)["clauses"]
    (broken,) = [item for item in found if item["mark"] == "broken"]
    first, *trace = broken["said"].splitlines()
    assert first == f"platform odd: {name} raised AttributeError: 'Odd' object has no attribute 'adapter'"
    assert any("platform.py" in line and f"in {name}" in line for line in trace)
    assert any("return self.adapter.name" in line for line in trace)
    later = [item for item in found if item["mark"] == "skipped"]
    assert {item["said"] for item in later} == {f"the platform raised an error: see {broken['clause']}"}
    assert [item["clause"] for item in later] == list(CLAUSES)[list(CLAUSES).index(broken["clause"]) + 1 :]
    shown = command("check", folder)
    assert shown.stdout.count(f"{name} raised") == 1
    assert "absent" not in shown.stdout


@pytest.mark.cpu
def test_a_judge_says_which_method_of_a_platform_raised(tmp_path: Path, scale_relu: Any) -> None:
    members = "    def environment(self, number=0):\n        return {'ACME': self.adapter}\n"
    registry.load("platforms", str(platform_folder(tmp_path / "odd", members)))
    with Judge("odd") as judge, pytest.raises(PlatformFault, match="platform odd: environment raised AttributeError"):
        judge.evaluate(scale_relu, Candidate("class ModelNew: pass", "odd"), Settings(timing_seconds=0))


# -- broken variants ----------------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize("name", registry.names("platforms"))
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_variant_of_every_example_is_another_program(name: str, outcome: Outcome) -> None:
    platform = registry.load("platforms", name)
    text = broken_variants.variant(platform, outcome)
    compile(text, "candidate", "exec")
    assert (text == platform.example()[1]) == (outcome is Outcome.CORRECT)


@pytest.mark.pure
def test_a_kernel_under_a_decorator_is_spoilt_where_it_stands() -> None:
    text = broken_variants.break_kernels(registry.load("platforms", "triton").example()[1], Path("mine.py"))
    body = text.partition("@triton.jit")[2]
    assert body.splitlines()[2].strip() == "kforge_unknown_name = kforge_unknown_name_too"


@pytest.mark.pure
def test_an_example_without_a_kernel_to_be_seen_needs_a_variant_of_its_own() -> None:
    with pytest.raises(Broken, match=r"write a program that does not compile to .*mine.py"):
        broken_variants.break_kernels("import kernels\n\n\nclass ModelNew:\n    '''a\nb\nc\nd'''\n", Path("mine.py"))


# -- commands -----------------------------------------------------------------------------------------------------


def command(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.pure
@pytest.mark.parametrize("source", registry.names("platforms"))
def test_a_new_platform_is_a_copy_under_another_name(tmp_path: Path, source: str) -> None:
    folder = make("of_mine", source, tmp_path)
    platform: Platform = registry.load("platforms", str(folder))
    assert platform.name == "of_mine"
    assert type(platform).__name__ in ("OfMine", "EmulatedOfMine")
    assert f'name = "{source}"' not in (folder / "platform.py").read_text()
    assert platform.home() == folder
    assert platform.example() == registry.load("platforms", source).example()
    assert registry.load("platforms", "of_mine") is platform
    entry = 'of_mine = "kforge_of_mine.platform:PLUGIN"'
    assert entry in (folder / "pyproject.toml").read_text()
    compile((folder / "tests" / "test_contract.py").read_text(), "test_contract.py", "exec")


@pytest.mark.cpu
def test_a_new_platform_brings_a_test_that_can_fail(tmp_path: Path) -> None:
    folder = make("mine", "cpu", tmp_path)
    (folder / "guide.md").write_text("Too short.")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "facts or guide", str(folder)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "guide.md says next to nothing" in done.stdout


@pytest.mark.pure
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["Mine"], "cannot be called 'Mine'"),
        (["class"], "cannot be called 'class'"),
        (["cpu"], "there is a platform called cpu already"),
        (["mine", "--from", "abacus"], "no platform is called 'abacus'"),
        (["taken"], "is there already"),
        (["mine", "--into", "taken"], "cannot be made"),
    ],
)
def test_a_new_platform_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: Any, words: Any, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").touch()
    done = command("new", *words)
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


@pytest.mark.cpu
def test_check_prints_a_line_for_each_clause(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    absent = _ABSENT.format(code="return 'no odd device (buy an odd device)'")
    platform_folder(tmp_path / "odd", absent + _FACTS.format(facts="{}"))
    done = command("check", "odd")
    assert done.exit_code == 0
    assert "as far as it can be told here, the contract is kept: 5 kept, 13 skipped" in done.stdout
    assert all(clause in done.stdout for clause in CLAUSES)


@pytest.mark.cpu
def test_check_ends_with_1_where_a_clause_is_broken(tmp_path: Path) -> None:
    absent = _ABSENT.format(code="return 'gone'")
    folder = platform_folder(tmp_path / "odd", absent)
    done = command("check", folder, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["platform"] == "odd"
    assert found["absent"] == "gone"
    assert {"clause": "facts", "mark": "kept", "said": "none where it is absent"} in found["clauses"]
    assert [item["clause"] for item in found["clauses"] if item["mark"] == "broken"] == ["absence"]


@pytest.mark.cpu
def test_check_says_that_a_name_is_the_installed_platform_and_not_the_folder_here(
    tmp_path: Path, monkeypatch: Any
) -> None:
    absent = _ABSENT.format(code="return 'no odd device (buy {kind} odd device)'") + _FACTS.format(facts="{}")
    (tmp_path / "installed").mkdir()
    registry.load("platforms", str(platform_folder(tmp_path / "installed" / "odd", absent.replace("{kind}", "one"))))
    platform_folder(tmp_path / "odd", absent.replace("{kind}", "another"))
    monkeypatch.chdir(tmp_path)
    named = command("check", "odd")
    assert "buy one odd device" in named.stdout
    assert "odd is the platform of that name that is installed, not the folder ./odd" in named.stderr
    assert "kforge platform check ./odd" in named.stderr
    by_path = command("check", "./odd")
    assert "buy another odd device" in by_path.stdout
    assert "note:" not in by_path.stderr
