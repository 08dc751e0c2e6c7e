"""The bundled suite: what is in it, that its documentation names it all, and that every declared input counts."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kforge import registry
from kforge.problems import find
from kforge.types import Problem, Settings

PROBLEMS = find("bundled")
PAGE = Path(__file__).parents[2] / "docs" / "problems.md"
OPERATIONS = {
    *("elementwise", "reduction", "scan", "softmax", "norm", "matmul"),
    *("convolution", "pooling", "loss", "attention", "embedding", "sorting"),
}
LEAST_MOVED = 2e-3
"""Of the output's own spread: well above what a judge takes for rounding."""
MOST_BYTES = 2.5e9


def title(problem: Problem) -> str:
    return f"level{problem.level}/{problem.name}"


def rows() -> list[list[str]]:
    """The table of the page: problem, family, what it is."""
    section = PAGE.read_text(encoding="utf-8").partition("## The bundled suite")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `level")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# -- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_there_are_enough_in_three_levels_numbered_without_holes():
    assert len(PROBLEMS) >= 45
    counts = Counter(problem.level for problem in PROBLEMS)
    assert set(counts) == {1, 2, 3}
    for level, count in counts.items():
        numbers = [problem.number for problem in PROBLEMS if problem.level == level]
        assert numbers == list(range(1, count + 1)), f"level{level}: {numbers}"


@pytest.mark.pure
def test_no_two_share_a_name_or_a_text():
    stems = Counter(problem.name.partition("_")[2] for problem in PROBLEMS)
    assert [name for name, count in stems.items() if count > 1] == []
    assert len({problem.id for problem in PROBLEMS}) == len(PROBLEMS)


@pytest.mark.pure
@pytest.mark.parametrize("problem", PROBLEMS, ids=title)
def test_each_is_smaller_on_a_cpu_and_on_an_emulator(problem: Problem):
    standing = {
        node.targets[0].id: node.value.value
        for node in ast.parse(problem.source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for device_class in ("cpu", "emulator"):
        sizes = problem.sizes[device_class]
        assert set(sizes) <= set(standing), device_class
        assert all(value <= standing[name] for name, value in sizes.items()), device_class
        assert sizes != {name: standing[name] for name in sizes}, device_class


@pytest.mark.pure
def test_the_page_names_them_all_in_order_with_their_own_words():
    words = [(ast.get_docstring(ast.parse(problem.source)) or "").removesuffix(".") for problem in PROBLEMS]
    assert [(row[0], row[2]) for row in rows()] == [
        (f"`{title(problem)}`", text) for problem, text in zip(PROBLEMS, words, strict=True)
    ]
    assert all(words)


@pytest.mark.pure
def test_every_family_of_operations_is_there():
    families = {level: {row[1] for row in rows() if row[0].startswith(f"`level{level}/")} for level in (1, 2, 3)}
    assert families == {1: OPERATIONS, 2: {"fusion"}, 3: {"network"}}


# -- the audit, which test_evaluate.py asks for the sizes of a cpu ---------------------------------------------------


@pytest.mark.toolchain
@pytest.mark.slow
def test_the_sizes_of_an_emulator_are_sound():
    from kforge.worker.judge.judge import Judge

    if not registry.load("platforms", "metal").emulated:
        pytest.skip("platform metal has its hardware here")
    with Judge("metal") as judge:
        found = {title(problem): judge.session(problem, Settings()).cases.degenerate for problem in PROBLEMS}
    assert {name: reasons for name, reasons in found.items() if reasons} == {}


# -- what the audit does not ask -------------------------------------------------------------------------------------


def loaded(problem: Problem, device_class: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(problem.sized_source(device_class), problem.path, "exec"), namespace)
    return namespace


@pytest.mark.cpu
@pytest.mark.parametrize("problem", PROBLEMS, ids=title)
def test_every_input_counts_under_every_distribution(problem: Problem):
    """Otherwise a kernel that leaves it out would pass there."""
    import torch

    from kforge.worker import trees
    from kforge.worker.judge import distributions

    def output(arguments: list[Any]) -> Any:
        with torch.no_grad():
            return torch.cat([tensor.double().reshape(-1) for tensor in trees.pack(model(*arguments))[1]])

    def drawn(seed: int, name: str) -> list[Any]:
        torch.manual_seed(seed)
        return distributions.apply(name, namespace["get_inputs"](), seed)

    namespace = loaded(problem, "emulator")
    torch.manual_seed(0)
    model = namespace["Model"](*namespace["get_init_inputs"]())
    # Extremes are not meant to leave every output finite.
    for name in (name for name in problem.distributions if name != distributions.EXTREMES):
        arguments, fresh = drawn(1, name), drawn(2, name)
        before = output(arguments)
        assert bool(torch.isfinite(before).all()), name
        for number, value in enumerate(fresh):
            after = output([*arguments[:number], value, *arguments[number + 1 :]])
            moved = float((after - before).std() / before.std())
            assert moved > LEAST_MOVED, f"{name}: fresh values of input {number} move the output by {moved:.1e}"


@pytest.mark.cpu
@pytest.mark.parametrize("problem", PROBLEMS, ids=title)
def test_the_size_for_a_gpu_runs_and_fits(problem: Problem):
    """Shapes alone, on torch's device without memory."""
    import torch

    from kforge.worker import trees

    namespace = loaded(problem, "gpu")
    with torch.device("meta"), torch.no_grad():
        model = namespace["Model"](*namespace["get_init_inputs"]())
        arguments = namespace["get_inputs"]()
        held = [*trees.pack(arguments)[1], *trees.pack(model(*arguments))[1], *model.state_dict().values()]
    assert sum(tensor.numel() * tensor.element_size() for tensor in held) < MOST_BYTES
