"""Suites: where problems come from, what they are called, which are wanted, and what becomes of bad files."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ProblemError, UsageError
from kforge.problems.selection import NotInSuite, Selection, SuiteEntry, choose, matches, missing_on
from kforge.problems.suites import open_suite
from kforge.types import Problem

pytestmark = pytest.mark.pure

PLAIN = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return BODY


def get_inputs():
    return [torch.rand(8, 8)]


def get_init_inputs():
    return []
"""
HUGGING_FACE = """\
import torch
from transformers import AutoConfig, AutoModelForCausalLM

class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.net = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        return self.net(x).logits

name = "somebody/some-model"
config = AutoConfig.from_pretrained(name)
words = config.vocab_size
length = min(config.max_position_embeddings, 32)

def get_inputs():
    return [torch.randint(0, words, (4, length))]

def get_init_inputs():
    return [name, config]
"""
GPT = "level4/2_somebody-some-model-2.7B_bs4_seq32"


def problem(body: str = "x + 1") -> str:
    return PLAIN.replace("BODY", body)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in KernelBench's shape."""
    levels = {1: (1, 2, 10, 23), 2: (1, 5), 3: (7,)}
    files = {
        f"KernelBench/level{level}/{number}_op{number}_.py": problem(f"x * {level} + {number}")
        for level, numbers in levels.items()
        for number in numbers
    }
    files[f"KernelBench/{GPT}.py"] = HUGGING_FACE
    files["KernelBench/level1/notes.txt"] = "no problem"
    files["scripts/generate.py"] = "print('no problem either')\n"
    return write(tmp_path / "checkout", files)


ALL = [
    "level1/1_op1_",
    "level1/2_op2_",
    "level1/10_op10_",
    "level1/23_op23_",
    "level2/1_op1_",
    "level2/5_op5_",
    "level3/7_op7_",
]


@pytest.mark.parametrize(
    ("inner", "keys"),
    [("", ALL), ("KernelBench", ALL), ("KernelBench/level1", ALL[:4]), ("KernelBench/level3", ALL[6:])],
)
def test_a_checkout_is_found_from_each_of_its_folders(checkout: Path, inner: str, keys: list[str]) -> None:
    suite = open_suite([f"kernelbench:{checkout / inner}"])
    assert list(suite.problems) == keys
    assert suite.left_out == {}
    first = suite.problems[keys[0]]
    assert keys[0] == f"level{first.level}/{first.name}"
    assert first.number == int(first.name.split("_")[0])


def test_the_level_of_large_models_is_read_only_where_it_is_asked_for(checkout: Path) -> None:
    place = f"kernelbench:{checkout}"
    assert GPT not in open_suite([place], here=False).problems
    by_level = open_suite([place], Selection(levels=(3, 4)), here=False)
    assert list(by_level.problems) == [ALL[6], GPT]
    assert by_level.problems[GPT].number == 2
    assert list(open_suite([place], Selection(only=("4/2",)), here=False).problems) == [GPT]
    assert list(open_suite([f"{place}/KernelBench/level4"], here=False).problems) == [GPT]


def test_a_package_that_is_missing_leaves_out_what_needs_it(checkout: Path) -> None:
    text = HUGGING_FACE.replace("from transformers", "from no_such_package.parts")
    (checkout / f"KernelBench/{GPT}.py").write_text(text)
    suite = open_suite([f"kernelbench:{checkout}"], Selection(levels=(1, 4)))
    assert list(suite.problems) == ALL[:4]
    assert suite.left_out == {GPT: "imports no_such_package: not installed here (pip install no_such_package)"}
    with pytest.raises(UsageError, match=r"no problem is left; 1 cannot be used.*\n.*pip install no_such_package"):
        open_suite([f"kernelbench:{checkout}"], Selection(levels=(4,)))
    assert GPT in open_suite([f"kernelbench:{checkout}"], Selection(levels=(4,)), here=False).problems


def test_bad_files_are_left_out_with_the_line_and_the_rest_goes_on(checkout: Path) -> None:
    level = checkout / "KernelBench/level1"
    (level / "4_broken.py").write_text("import torch\nclass Model(:\n")
    (level / "5_empty.py").write_text("")
    (level / "6_latin.py").write_bytes("x = 'é'\n".encode("latin-1"))
    (level / "7_half.py").write_text(problem().split("def get_init_inputs")[0])
    suite = open_suite([f"kernelbench:{checkout}"])
    assert list(suite.problems) == ALL
    assert list(suite.left_out) == ["level1/4_broken", "level1/5_empty", "level1/6_latin", "level1/7_half"]
    assert suite.left_out["level1/4_broken"].startswith("line 2: not valid Python")
    assert "no class `Model`" in suite.left_out["level1/5_empty"]
    assert "is not UTF-8 text" in suite.left_out["level1/6_latin"]
    assert "get_init_inputs" in suite.left_out["level1/7_half"]
    assert "level1/4_broken" not in open_suite([f"kernelbench:{checkout}"], Selection(levels=(2,))).left_out
    with pytest.raises(ProblemError, match=r"4_broken\.py:2: not valid Python"):
        open_suite([str(level / "4_broken.py")])


def test_folders_files_and_suites_together_have_keys_of_their_own(checkout: Path, tmp_path: Path) -> None:
    mine = write(
        tmp_path / "mine",
        {
            "relu.py": problem("x.relu()"),
            "old/relu.py": problem("x.clamp(min=0)"),
            "old/tanh.py": problem("x.tanh()"),
            "level1/1_op1_.py": problem("x - 1"),
            "_helper.py": "",
        },
    )
    places = [f"kernelbench:{checkout / 'KernelBench/level1'}", str(mine), str(mine / "old" / "tanh.py")]
    suite = open_suite(places)
    assert list(suite.problems) == [
        "KernelBench/level1/1_op1_",
        *ALL[1:4],
        "mine/level1/1_op1_",
        "old/relu",
        "mine/relu",
        "tanh",
    ]
    assert "clamp" in suite.problems["old/relu"].source
    assert suite.name == ", ".join(places)
    assert open_suite([*places, "bundled"]).name.endswith("and 1 more")


def test_relative_places_start_in_the_folder_that_is_given(checkout: Path) -> None:
    suite = open_suite(["kernelbench:..", "level1"], Selection(), checkout / "KernelBench")
    assert list(suite.problems) == ALL
    assert suite.name == "kernelbench:.., level1"


def test_bundled_problems_by_level_and_number() -> None:
    everything = open_suite(["bundled"])
    assert {item.level for item in everything.problems.values()} == {1, 2, 3}
    level = open_suite(["bundled:level2"])
    assert list(level.problems) == [key for key in everything.problems if key.startswith("level2/")]
    assert list(open_suite(["bundled:level2/1"]).problems) == list(level.problems)[:1]


@pytest.mark.parametrize(
    ("choice", "keys"),
    [
        (Selection(levels=(2, 3)), ALL[4:]),
        (Selection(only=("level1/23", "2/5")), [ALL[3], ALL[5]]),
        (Selection(only=("level2/*",)), ALL[4:6]),
        (Selection(only=("level3", "1_op1_")), [ALL[0], ALL[4], ALL[6]]),
        (Selection(only=("*op1*",), without=("1/10",)), [ALL[0], ALL[4]]),
        (Selection(limit=1), ALL[:1]),
        (Selection(limit=4), [*ALL[:2], ALL[4], ALL[6]]),
        (Selection(limit=3, levels=(1, 2)), [*ALL[:2], ALL[4]]),
        (Selection(limit=3, without=("level1/1",)), [ALL[1], ALL[4], ALL[6]]),
        (Selection(limit=99), ALL),
    ],
)
def test_what_is_chosen(checkout: Path, choice: Selection, keys: list[str]) -> None:
    suite = open_suite([f"kernelbench:{checkout}"], choice)
    assert list(suite.problems) == keys
    for key, reason in suite.left_out.items():
        assert key not in keys
        assert reason == f"not wanted: without {choice.without[0]}"
    assert bool(suite.left_out) == bool(choice.without)


@functools.cache
def bundled_entries() -> list[SuiteEntry]:
    return [SuiteEntry(key, key, item.level, None, item) for key, item in open_suite(["bundled"]).problems.items()]


@given(seed=st.integers(), limit=st.integers(1, 58), without=st.sampled_from(["level1/3_*", "level2", "level3/*"]))
def test_a_draw_is_the_seeds_and_grows_with_its_limit(seed: int, limit: int, without: str) -> None:
    entries = bundled_entries()

    def drawn(choice: Selection) -> list[str]:
        return [entry.key for entry in choose(entries, choice)[0]]

    few, more = (drawn(Selection(limit=number, draw=seed)) for number in (limit, limit + 1))
    assert few == drawn(Selection(limit=limit, draw=seed))
    assert set(few) < set(more) or len(few) == len(entries)
    levels = [key.split("/")[0] for key in few]
    assert len(few) < 3 or len(set(levels)) == 3
    rest = drawn(Selection(limit=limit, draw=seed, without=(without,)))
    left = [entry for entry in entries if not matches(entry, without)]
    assert len(rest) == min(limit, len(left)), "the next ones take the place of what is left out"


def test_seeds_draw_differently() -> None:
    entries = bundled_entries()
    draws = {tuple(entry.key for entry in choose(entries, Selection(limit=9, draw=seed))[0]) for seed in range(8)}
    assert len(draws) == 8


@pytest.mark.parametrize(
    ("choice", "key", "words"),
    [
        (Selection(levels=(1, 5)), "levels", "there is no level 5 in the suite; its levels are: 1, 2, 3"),
        (Selection(only=("level1/op23",)), "only", "did you mean 'level1/23_op23_'"),
        (Selection(only=("1/24",)), "only", "names no problem"),
        (Selection(without=("metall",)), "without", "did you mean 'metal'?; filters are: metal"),
        (Selection(levels=(1,), only=("2/5",)), "", "no problem is left of those that levels and only name"),
    ],
)
def test_a_word_that_names_nothing_is_an_error(checkout: Path, choice: Selection, key: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_suite([f"kernelbench:{checkout}"], choice)
    assert words in str(caught.value)
    if key:
        assert isinstance(caught.value, NotInSuite)
        assert caught.value.key == key
    with pytest.raises(ValueError, match="limit must be at least 1"):
        Selection(limit=0)
    with pytest.raises(ValueError, match="draw needs a limit"):
        Selection(draw=1)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("kernelbench:nowhere", "there is no such folder; name a checkout of KernelBench (git clone"),
        ("kernelbench:", "there is no such folder"),
        ("kernelbench:.", "there is no level1 in it"),
        ("nowhere", "there is no such file or folder; a suite is bundled"),
        ("bundled:level9", "no bundled problem is called 'level9'"),
        (".", "no .py file in it"),
    ],
)
def test_a_place_that_is_none_says_what_would_be(tmp_path: Path, place: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_suite([place], Selection(), tmp_path)
    assert words in str(caught.value)


USING = {
    "nn.MaxPool3d(2)(x)": "uses MaxPool3d,",
    "torch.nn.functional.avg_pool3d(x, 2)": "uses AvgPool3d,",
    "nn.ConvTranspose3d(1, 1, 2)(nn.MaxPool3d(2)(x))": "uses ConvTranspose3d and MaxPool3d,",
    "nn.AdaptiveAvgPool3d(2)(x)": "",
    "nn.MaxPool2d(2)(x)": "",
    "nn.ConvTranspose2d(1, 1, 2)(x)  # not ConvTranspose3d": "",
    "x.relu()": "",
}


def test_layers_that_metal_lacks_are_found_in_the_source(tmp_path: Path) -> None:
    for body, words in USING.items():
        item = Problem.from_source(problem(body))
        assert missing_on("metal", item).startswith(words), body
        assert bool(missing_on("metal", item)) == bool(words), body
        assert missing_on("cuda", item) == ""
    imported = "from torch.nn import MaxPool3d as Pool\n" + problem("Pool(2)(x)")
    assert "MaxPool3d" in missing_on("metal", Problem.from_source(imported))
    folder = write(tmp_path, {f"p{number}.py": problem(body) for number, body in enumerate(USING)})
    suite = open_suite([str(folder)], Selection(without=("metal",)))
    assert list(suite.problems) == ["p3", "p4", "p5", "p6"]
    assert list(suite.left_out) == ["p0", "p1", "p2"]
    assert all("torch has no MPS kernel for" in reason for reason in suite.left_out.values())


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_version_is_the_commit_of_the_checkout(checkout: Path, tmp_path: Path) -> None:
    place = f"kernelbench:{checkout}"
    assert open_suite([place]).version == ""

    def git(*words: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", str(checkout), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    commit = git("rev-parse", "HEAD")
    assert open_suite([place]).version == commit[:12]
    (checkout / "scripts/generate.py").write_text("changed = True\n")
    assert open_suite([place]).version == commit[:12], "what is no problem does not count"
    (checkout / "KernelBench/level1/1_op1_.py").write_text(problem("x + 7"))
    assert open_suite([place]).version == f"{commit[:12]}+"
    ignored = write(checkout / "ignored", {"one.py": problem()})
    (checkout / ".gitignore").write_text("ignored\n")
    assert open_suite([str(ignored)]).version == "", "the checkout around it does not have it"


def test_many_files_are_read_quickly(tmp_path: Path) -> None:
    text = problem() + "\n" + "\n".join(f"def step{number}(x):\n    return x * {number} + 1\n" for number in range(40))
    write(tmp_path, {f"level{level}/{number}_op.py": text for level in (1, 2, 3) for number in range(90)})
    began = time.process_time()
    assert len(open_suite([f"kernelbench:{tmp_path}"]).problems) == 270
    # Half a second of a processor; five leave room for a slow one. What others take does not count.
    assert time.process_time() - began < 5


class TestTurns:
    def test_suites_take_turns_as_levels_do(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            for number in range(3):
                (tmp_path / name / f"{number}_{name}.py").write_text(PLAIN + f"# {name} {number}\n")
        suite = open_suite([str(tmp_path / "one"), str(tmp_path / "two")], Selection(limit=2))
        assert list(suite.problems) == ["0_one", "0_two"]

    def test_capital_letters_do_not_matter(self, tmp_path: Path) -> None:
        (tmp_path / "1_Conv2D_ReLU.py").write_text(PLAIN)
        assert list(open_suite([str(tmp_path)], Selection(only=("*conv*",))).problems) == ["1_Conv2D_ReLU"]


class TestOddFiles:
    def test_two_files_that_only_their_suffix_tells_apart(self, tmp_path: Path) -> None:
        for name in ("relu.py", "relu.txt"):
            (tmp_path / name).write_text(PLAIN + f"# {name}\n")
        suite = open_suite([str(tmp_path / "relu.py"), str(tmp_path / "relu.txt")])
        assert len(suite.problems) == 2

    @pytest.mark.parametrize(
        "words",
        [
            '{"sizes": {"cpu": 3}}',
            '{"sizes": [1]}',
            '{"distributions": 5}',
            '{"tolerances": []}',
            '{"tolerances": {"float32": "low"}}',
            '{"sizes": {"cpu": {"N": {1, 2}}}}',
            '{"sizes": {3: {}}}',
        ],
    )
    def test_declarations_that_make_no_sense_leave_one_problem_out(self, tmp_path: Path, words: str) -> None:
        (tmp_path / "good.py").write_text(PLAIN)
        (tmp_path / "odd.py").write_text(f"N = 2\n{PLAIN}\nKFORGE = {words}\n")
        suite = open_suite([str(tmp_path)])
        assert list(suite.problems) == ["good"]
        assert "odd" in suite.left_out

    def test_names_that_are_no_text_can_be_printed(self, tmp_path: Path) -> None:
        try:
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.py")).write_text(PLAIN)
            (tmp_path / "²_x.py").write_text(PLAIN)
        except OSError:
            pytest.skip("this file system takes no such names")
        for key, problem in open_suite([str(tmp_path)]).problems.items():
            assert (key + problem.name).encode()
