"""Long lines in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kforge.cli.comparison_lines import print_hanging

pytestmark = pytest.mark.pure
_LINE = "correct: A 12 of 58, B 14 of 58; " * 5 + "[not markup]"


def _printed(terminal: bool) -> list[str]:
    out = io.StringIO()
    print_hanging(Console(file=out, width=40, force_terminal=terminal, color_system=None), _LINE)
    return out.getvalue().splitlines()


def test_a_person_reads_whole_words_and_an_indent() -> None:
    lines = _printed(terminal=True)
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == _LINE


def test_a_program_reads_one_line() -> None:
    assert _printed(terminal=False) == [_LINE]
