"""The problem file format: what is missing is named with file and line; sizes follow into derived constants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge import Problem, kernelbench
from kforge.errors import ProblemError, UsageError
from kforge.problems import find

pytestmark = pytest.mark.pure

GOOD = """import torch
import torch.nn as nn

N = 64
M = N * 2  # derived


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()

    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(N, M)]


def get_init_inputs():
    return [N]
"""


def test_a_good_file_is_read(tmp_path):
    folder = tmp_path / "level2"
    folder.mkdir()
    (folder / "17_scale.py").write_text(GOOD)
    problem = Problem.from_file(folder / "17_scale.py")
    assert (problem.name, problem.level, problem.number) == ("17_scale", 2, 17)


@pytest.mark.parametrize(
    ("change", "says", "line"),
    [
        (("class Model(", "class Modle("), "no class `Model`; it defines Modle", 21),
        (("def forward", "def froward"), "no method `forward`", 8),
        (("def get_inputs", "def get_input"), "no function `get_inputs", 21),
        (("def get_init_inputs", "def get_init"), "no function `get_init_inputs", 21),
        (("return x * 2", "return x *"), "not valid Python", 13),
        (("class Model(nn.Module)", "class Model"), "must derive from torch.nn.Module", 8),
        (("N = 64", "KFORGE = {'sizes': {'cpu': {'Q': 1}}}"), "'Q', which is no module-level constant", 4),
        (("N = 64", "N = 64\nKFORGE = {'sizes': {'cpu': {'N': 1e999}}}"), "which is no size", 5),
        (("N = 64", "N = 1; KFORGE = {'sizes': {'tpu': {}}}"), "device classes are cpu, gpu, emulator", 4),
        (("N = 64", "N = 1; KFORGE = {'size': {}}"), "no key 'size'", 4),
        (("N = 64", "N = 1; KFORGE = dict(sizes={})"), "must be a literal dict", 4),
        (("N = 64", "N = 1; KFORGE = {'distributions': ['odd']}"), "known: natural", 4),
    ],
)
def test_a_bad_file_names_itself_the_line_and_the_fault(tmp_path, change, says, line):
    path = tmp_path / "bad.py"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ProblemError, match=r"bad.py") as caught:
        Problem.from_file(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}:")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ProblemError, match="No such file"):
        Problem.from_file(tmp_path / "nowhere.py")


def test_sizes_reach_derived_constants():
    source = GOOD.replace("M = N * 2", 'M = N * 2\nKFORGE = {"sizes": {"cpu": {"N": 8}}}')
    problem = Problem.from_source(source)
    namespace: dict[str, object] = {}
    head = problem.sized_source("cpu").split("class Model")[0]
    exec(head.replace("import torch.nn as nn", "").replace("import torch", ""), namespace)
    assert (namespace["N"], namespace["M"]) == (8, 16)
    assert problem.sized_source("gpu") == source


values = st.one_of(
    st.integers(-(10**9), 10**9), st.booleans(), st.text(max_size=5), st.lists(st.integers(), max_size=4)
)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=5), st.data())
def test_overrides_replace_their_constants_and_nothing_else(pairs, data):
    lines, wanted = [], {}
    for index, (old, new) in enumerate(pairs):
        spread = "(\n    {!r}\n)" if data.draw(st.booleans()) else "{!r}"
        lines.append(f"C{index} = {spread.format(old)}  # constant {index}")
        if data.draw(st.booleans()):
            wanted[f"C{index}"] = new
    lines.append("TOTAL = [" + ", ".join(f"C{index}" for index in range(len(pairs))) + "]")
    source = "\n".join(lines) + "\n"
    changed = kernelbench.with_sizes(source, wanted)
    namespace: dict[str, object] = {}
    exec(changed, namespace)
    expected = [wanted.get(f"C{index}", old) for index, (old, _) in enumerate(pairs)]
    assert namespace["TOTAL"] == expected
    assert len(changed.splitlines()) == len(source.splitlines())


def test_a_folder_is_ordered_by_level_and_number(tmp_path):
    for place in ("level2/1_a.py", "level1/10_b.py", "level1/9_c.py"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(GOOD)
    assert [problem.name for problem in find(tmp_path)] == ["9_c", "10_b", "1_a"]


def test_the_bundled_suite_has_three_levels():
    problems = find("bundled")
    assert len(problems) >= 12
    assert {problem.level for problem in problems} == {1, 2, 3}
    assert find("bundled:level1/1")[0].number == 1
    with pytest.raises(UsageError, match="no bundled problem"):
        find("bundled:level9/1")


def test_every_bundled_problem_has_sizes_for_cpu_and_emulator():
    for problem in find("bundled"):
        for device_class in ("cpu", "emulator"):
            assert problem.sizes.get(device_class), f"{problem.name}: no sizes for {device_class}"
            kernelbench.check(problem.sized_source(device_class), problem.path)
