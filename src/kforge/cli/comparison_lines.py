"""A comparison of two configurations, in a terminal."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.markup import escape

from kforge.metrics.comparison_text import comparison_sentences
from kforge.metrics.records import Comparison


def print_comparison(console: Console, comparison: Comparison) -> None:
    """The two sides' names, then a sentence for each question."""
    console.print(
        f"[bold]A[/] {escape(comparison.a)}   [bold]B[/] {escape(comparison.b)}",
        highlight=False,
        soft_wrap=not console.is_terminal,
    )
    for line in comparison_sentences(comparison):
        print_hanging(console, line)


def print_hanging(console: Console, line: str, style: str = "") -> None:
    """A long line: broken between words and indented where a person reads it, whole where a program does."""
    text = textwrap.fill(line, console.width, subsequent_indent="  ") if console.is_terminal else line
    console.print(escape(text), style=style, highlight=False, soft_wrap=True)
