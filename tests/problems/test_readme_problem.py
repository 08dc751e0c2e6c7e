"""The problem that the README shows is one that can be forged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kforge.types import Problem, Settings

README = Path(__file__).parents[2] / "README.md"


def problem_of_readme() -> Problem:
    """The first block of Python after its name."""
    text = README.read_text(encoding="utf-8").partition("`my_problem.py`")[2]
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return Problem.from_source(block[1], "my_problem")


@pytest.mark.pure
def test_it_has_the_format_of_a_problem_and_a_command_that_forges_it() -> None:
    assert len(problem_of_readme().source.splitlines()) < 20
    assert "kforge forge my_problem.py" in README.read_text(encoding="utf-8")


@pytest.mark.cpu
def test_it_is_sound(judge: Any) -> None:
    assert judge.session(problem_of_readme(), Settings(compile_baseline=False)).cases.degenerate == ()
