"""Text of others cannot steer a terminal, nor hide in a page or a report."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from faults import program
from kforge import Candidate, Outcome, Settings, jsonable
from kforge.cli import render
from kforge.cli.screen import Screen
from kforge.types import Profile, Report, Verdict
from kforge.visible_text import visible

pytestmark = pytest.mark.pure

FORGED = "\x1b[2K\r\x1b[1Acorrect  scale_relu\x1b[8m"
TURNED = "if access_level != 'user\u202e \u2066# only admins\u2069 \u2066':"
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(
    map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)
"""Letters, marks and selectors of other categories that show nothing."""


def hidden(text: str) -> list[str]:
    return [sign for sign in text if unicodedata.category(sign) in HIDDEN and sign not in "\n\t"]


@given(st.text(st.characters()))
def test_nothing_is_hidden_in_visible_text(text: str) -> None:
    shown = visible(text)
    assert hidden(shown) == []
    assert visible(shown) == shown


def test_signs_that_show_nothing_are_written_out() -> None:
    assert [sign for sign in UNSEEN if sign in visible(f"a{sign}b")] == []


@given(st.text(st.characters(exclude_categories=tuple(HIDDEN), exclude_characters=UNSEEN)))
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text


def test_line_ends_of_windows_are_line_ends() -> None:
    assert visible("one\r\ntwo\tthree\n") == "one\ntwo\tthree\n"


def test_a_verdict_s_words_are_visible_wherever_it_comes_from() -> None:
    verdict = Verdict(Outcome.RUNTIME_ERROR, FORGED, notes=(TURNED,), hazards=(FORGED,), degenerate=(FORGED,))
    read = jsonable.decode(Verdict, {**jsonable.encode(verdict), "detail": FORGED})
    for one in (verdict, read):
        assert hidden("".join([one.detail, *one.notes, *one.hazards, *one.degenerate])) == []
    assert "\\x1b[2K" in verdict.detail
    profile = Profile("tool", text=FORGED, absent=FORGED)
    assert hidden(profile.text + profile.absent) == []


def printed(*things: Any, colours: bool = False) -> str:
    out = io.StringIO()
    screen = Screen(file=out, width=80, force_terminal=colours, color_system="standard" if colours else None)
    for thing in things:
        screen.print(thing, highlight=False)
    return out.getvalue()


def test_the_screen_obeys_only_its_own_styles() -> None:
    table = Table()
    table.add_column(FORGED)
    table.add_row(Text(FORGED))
    assert hidden(printed(FORGED, Text(TURNED), table)) == []
    styled = printed(f"[red]{FORGED}[/]", colours=True)
    assert styled.startswith("\x1b[31m\\x1b[2K")
    assert "\x1b[2K" not in styled
    assert "\r" not in styled


def test_a_verdict_is_printed_as_it_is() -> None:
    report = Report("job", f"relu{FORGED}", "id", "cpu", Verdict(Outcome.RUNTIME_ERROR, f"it raised {FORGED}"))
    out = io.StringIO()
    render.print_verdict(Screen(file=out, width=80, force_terminal=True), report)
    assert "\x1b[2K" not in out.getvalue()
    assert "\x1b[1A" not in out.getvalue()


@pytest.mark.toolchain
def test_what_a_program_raises_or_prints_does_not_reach_the_terminal(
    judge: Any, scale_relu: Any, kforge_warm: Any, tmp_path: Path
) -> None:
    raising = program(forward=f"print({TURNED!r})\nraise RuntimeError({FORGED!r})")
    verdict = judge.evaluate(scale_relu, Candidate(raising), Settings(timing_seconds=0))
    assert "correct  scale_relu" in verdict.detail
    assert hidden(verdict.detail) == []
    (tmp_path / "kernel.py").write_text(raising)
    problem = Path(__file__).parent / "catalogue/problems/scale_relu.py"
    done = kforge_warm("evaluate", problem, tmp_path / "kernel.py", "--no-compile-baseline")
    assert hidden(done.stdout + done.stderr) == []


def test_an_error_of_ours_is_visible(kforge_here: Any, tmp_path: Path) -> None:
    done = kforge_here("evaluate", tmp_path / f"none{FORGED}.py", tmp_path / "kernel.py")
    assert done.returncode == 2
    assert hidden(done.stderr) == []


def test_reports_show_what_they_hold() -> None:
    from kforge.reports.markdown import plain
    from kforge.reports.page import _environment
    from kforge.reports.table import _cell

    assert hidden(plain(FORGED) + _cell(TURNED)) == []
    page = _environment().from_string("<p>{{ words }}</p>").render(words=TURNED + "<b>")
    assert hidden(page) == []
    assert "&lt;b&gt;" in page
