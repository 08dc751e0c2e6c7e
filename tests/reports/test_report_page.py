"""The report's page in a real browser: clicked through, attacked, printed, on a phone and on a desk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import makers
import study_maker
import trial_makers
from browser_driver import Browser, browser
from conditions import wait_until
from kforge.profilers import _browser
from kforge.reports.changes import apply_edits, edits
from kforge.reports.details import unpack
from kforge.reports.findings import find
from kforge.reports.page import page
from kforge.types import Candidate, Cell, Recommendation, Study, Verdict
from study_maker import Shape

pytestmark = [
    pytest.mark.pure,
    pytest.mark.skipif(not _browser.find(), reason="tier browser: no Chromium (apt-get install chromium)"),
]
WIDTHS = (375, 768, 1440)
MANY = ("a", "b+c", "d", "a name that is much too long for a chart", "e", "f")
SHAPES = {
    "one": Shape(problems=1, configurations=("only",), odd=False),
    "six": Shape(problems=3, configurations=MANY, platforms=("cuda", "metal")),
    "emulated": Shape(problems=4, emulated=True, priced=False),
    "nothing correct": Shape(problems=4, chance=0.0, priced=False),
    "empty": Shape(problems=0, odd=False),
}  # fmt: skip
EVIL = "</script></textarea><img src=x onerror='window.ran=1'><script>window.ran=2</script>\"'>&amp;{{ 7*7 }}"
SHOWN = "!document.getElementById('detail').hidden"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def study() -> Study:
    return study_maker.study(Shape(problems=12))


@pytest.fixture(scope="module")
def address(study: Study, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("report") / "report.html", study)


def write(file: Path, study: Study) -> str:
    file.write_text(page(find(study)), encoding="utf-8")
    return file.as_uri()


def complaints(chromium: Browser) -> list[Any]:
    """What the page logged, threw or was refused."""
    chromium.run("1")
    kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    return [said for said in chromium.heard if said.get("method") in kinds]


def text(chromium: Browser, selector: str) -> str:
    return str(chromium.run(f"document.querySelector({json.dumps(selector)}).textContent"))


def visible(chromium: Browser, selector: str) -> int:
    return int(
        chromium.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.getClientRects().length).length"
        )
    )


# -- clicking through --------------------------------------------------------------------------------------------------


def test_a_problem_opens_with_all_that_is_known_of_it(chromium: Browser, study: Study, address: str) -> None:
    chromium.resize(1440, 900)
    chromium.open(address)
    trial = next(trial for trial in study.trials if trial.best and trial.best.move.parent)
    chromium.click(f"a[href='#problem={trial.cell.problem}']")
    chromium.wait_for(SHOWN)
    assert text(chromium, "#detail-title").startswith(trial.cell.problem)
    assert visible(chromium, ".panel") == 1
    assert visible(chromium, ".panel .timeline > li") == len(trial.history)
    assert trial.best is not None
    assert trial.best.candidate is not None
    assert text(chromium, ".panel pre.program") == trial.best.candidate.source + "\n"
    assert trial.source in text(chromium, "#detail .inner > pre.program")
    assert "95 %" in text(chromium, ".panel .facts")
    assert complaints(chromium) == []


def test_what_an_attempt_changed_is_shown_as_a_difference(chromium: Browser, study: Study, address: str) -> None:
    trial = next(trial for trial in study.trials if len(trial.history) > 1)
    chromium.open(f"{address}#problem={trial.cell.problem}")
    chromium.wait_for(SHOWN)
    chromium.run(
        "document.querySelectorAll('#panel-0 .timeline > li:nth-child(2) details').forEach((e) => { e.open = true })"
    )
    chromium.wait_for("document.querySelector('#panel-0 .timeline > li:nth-child(2) pre.change')")
    first, second = (attempt.candidate for attempt in trial.history[:2])
    assert first is not None
    assert second is not None
    made = edits(first.source, second.source)
    added = [line for _, _, lines in made for line in lines]
    shown = chromium.run(
        "[...document.querySelectorAll('#panel-0 .timeline > li:nth-child(2) .add')].map((e) => e.textContent)"
    )
    assert shown == [f"+ {line}\n" for line in added]
    assert apply_edits(first.source, made) == second.source


def test_tabs_show_the_other_configurations(chromium: Browser, study: Study, address: str) -> None:
    problem = study.trials[0].cell.problem
    chromium.open(f"{address}#problem={problem}&at=1")
    chromium.wait_for(SHOWN)
    assert text(chromium, "[role=tab][aria-selected=true]").startswith("iterative+profiling")
    chromium.click("#tab-0")
    assert text(chromium, "[role=tab][aria-selected=true]").startswith("iterative ·")
    assert chromium.run("document.querySelector('#panel-1').hidden && !document.querySelector('#panel-0').hidden")
    chromium.press("ArrowRight")
    assert chromium.run("document.activeElement.id") == "tab-1"


def test_the_keyboard_is_enough(chromium: Browser, study: Study, address: str) -> None:
    chromium.open(address)
    chromium.run("document.querySelector('#table tbody a').focus()")
    chromium.press("Enter")
    chromium.wait_for(SHOWN)
    assert chromium.run("document.activeElement.id") == "detail-title"
    assert chromium.run("document.getElementById('report').inert")
    chromium.press("Escape")
    assert not chromium.run(SHOWN)
    assert chromium.run("document.activeElement.textContent") == study.trials[0].cell.problem
    assert "problem=" not in chromium.run("location.hash")


def test_behind_an_open_problem_nothing_can_be_reached(chromium: Browser, study: Study, address: str) -> None:
    chromium.open(f"{address}#problem={study.trials[0].cell.problem}")
    chromium.wait_for(SHOWN)
    behind = "[...document.querySelectorAll('a, button, input, select')].filter((e) => !e.closest('#detail, [inert]'))"
    assert chromium.run(f"{behind}.map((e) => e.outerHTML)") == []
    chromium.open(address)
    chromium.press("Tab")
    assert chromium.run("document.activeElement.className") == "skip"


def test_a_problem_shows_its_workloads(chromium: Browser, tmp_path: Path) -> None:
    trial = trial_makers.judged("p1", makers.by_workload({"ROWS = 1": 0.5, f"ROWS = {EVIL}": 8.0}))
    chromium.resize(360, 740)
    chromium.open(f"{write(tmp_path / 'workloads.html', Study('s', (trial,)))}#problem=p1")
    chromium.wait_for(SHOWN)
    cells = "[...row.children].map((cell) => cell.textContent)"
    rows = f"[...document.querySelectorAll('.panel > .scroll > table tr')].map((row) => {cells})"
    assert chromium.run(rows) == [
        ["workload", "weight", "speedup", "against best", "own code"],
        ["ROWS = 1", "0.5", "0.50 (0.49 to 0.51)", "0.40", "90 %"],
        [f"ROWS = {EVIL}", "0.5", "8.00 (7.84 to 8.16)", "6.40", "80 %"],
    ]
    assert chromium.run("document.documentElement.scrollWidth <= innerWidth")
    assert complaints(chromium) == []


def test_one_trial_alone_has_no_tab(chromium: Browser, tmp_path: Path) -> None:
    made = study_maker.study(SHAPES["one"])
    chromium.open(f"{write(tmp_path / 'one.html', made)}#problem={made.trials[0].cell.problem}")
    chromium.wait_for(SHOWN)
    assert visible(chromium, ".panel") == 1
    assert chromium.run("document.querySelectorAll('#detail [role=tab], #detail [role=tabpanel]').length") == 0
    named = "[...document.querySelectorAll('[aria-labelledby]')].map((e) => e.getAttribute('aria-labelledby'))"
    assert chromium.run(f"{named}.filter((id) => !document.getElementById(id))") == []


def test_a_page_without_a_clipboard_says_so(chromium: Browser, study: Study, address: str) -> None:
    problem = next(trial.cell.problem for trial in study.trials if trial.best)
    chromium.open(f"{address}#problem={problem}")
    chromium.wait_for(SHOWN)
    chromium.run("Object.defineProperty(navigator, 'clipboard', { value: undefined }); 0")
    chromium.run("document.querySelector('.copy').click()")
    assert text(chromium, ".copy") == "The browser does not allow it"
    assert complaints(chromium) == []


def test_an_address_of_no_problem_says_so(chromium: Browser, study: Study, address: str) -> None:
    chromium.open(f"{address}#problem=<b>nosuch")
    assert not chromium.run(SHOWN)
    assert "called “<b>nosuch”" in text(chromium, "#missing")
    assert visible(chromium, "#missing") == 1
    chromium.run(f"location.hash = 'problem={study.trials[0].cell.problem}'")
    chromium.wait_for(SHOWN)
    assert chromium.run("document.getElementById('missing').hidden")
    chromium.run("location.hash = 'problem=gone'")
    chromium.wait_for("document.getElementById('missing').textContent.includes('“gone”')")
    assert not chromium.run(SHOWN)
    chromium.open(f"{address}#summary")
    assert visible(chromium, "#missing") == 0
    assert complaints(chromium) == []


def test_a_text_over_several_lines_is_one_text(chromium: Browser, study: Study, tmp_path: Path) -> None:
    program = "\n".join((
        '"""for the record',
        "",
        'it is not a "class" \\"""',
        'import""" if x else \'for\'',
        "# \"\"\" no text, for it is a comment",
        'def f(): return """in one line""" + ""',
        "source = r\'\'\'",
        'static const int """ x; // for',
        "\'\'\'",
        "return",
    ))  # fmt: skip
    trial = next(trial for trial in study.trials if trial.best)
    file = write(tmp_path / "text.html", replace(study, trials=(replace(trial, source=program),)))
    chromium.open(f"{file}#problem={trial.cell.problem}")
    chromium.wait_for(SHOWN)
    assert text(chromium, "#detail .inner > pre.program") == program + "\n"
    inside = "[...document.querySelectorAll('#detail .inner > pre.program {}')].map((e) => e.textContent)"
    assert chromium.run(inside.format(".k")) == ["if", "else", "def", "return", "return"]
    assert chromium.run(inside.format(".c")) == ['# """ no text, for it is a comment']
    assert chromium.run(inside.format(".t")) == [
        '"""for the record',
        'it is not a "class" \\"""',
        'import"""',
        "'for'",
        '"""in one line"""',
        '""',
        "'''",
        'static const int """ x; // for',
        "'''",
    ]


def test_previous_and_next_follow_the_table(chromium: Browser, study: Study, address: str) -> None:
    problems = list(dict.fromkeys(trial.cell.problem for trial in study.trials))
    chromium.open(f"{address}#problem={problems[1]}")
    chromium.wait_for(SHOWN)
    chromium.run("[...document.querySelectorAll('.bar-top button')].find((e) => e.textContent === 'Next').click()")
    chromium.wait_for(f"document.getElementById('detail-title').textContent.startsWith({json.dumps(problems[2])})")


def test_switches_show_one_of_the_drawn_charts(chromium: Browser, address: str) -> None:
    chromium.open(address)
    for section, name, kinds in (
        ("fast", "against", ("eager", "best")),
        ("speedups", "beside", ("eager", "best")),
        ("states", "by", ("reached", "own")),
        ("cost", "paid", ("dollars", "tokens", "time")),
    ):
        for kind in kinds:
            chromium.click(f"#{section} label:has(input[name={name}][value={kind}])")
            assert chromium.run(f"document.querySelector('input[name={name}]:checked').value") == kind
            for other in kinds:
                assert bool(visible(chromium, f"#{section} figure.{other} svg")) == (other == kind), (section, kind)


def test_the_table_is_searched_filtered_and_sorted(chromium: Browser, study: Study, address: str) -> None:
    chromium.open(address)
    chromium.run("document.getElementById('search').focus()")
    chromium.type("softmax")
    wanted = sum("softmax" in trial.cell.problem for trial in study.trials)
    assert visible(chromium, "#table tbody tr") == wanted
    assert text(chromium, "#count").startswith(f"{wanted} of {len(study.trials)}")
    chromium.run("document.getElementById('search').value = ''")
    for name, value, fits in (
        ("level", "2", sum(trial.level == 2 for trial in study.trials)),
        ("configuration", "iterative", sum(trial.cell.configuration == "iterative" for trial in study.trials)),
        ("state", "none", sum(trial.verdict is None for trial in study.trials)),
    ):
        script = "const e = document.getElementById('filter-{}'); e.value = '{}'; e.dispatchEvent(new Event('change'));"
        chromium.run(f"{{ {script.format(name, value)} }}")
        assert visible(chromium, "#table tbody tr") == fits
        chromium.run(f"{{ {script.format(name, '')} }}")
    chromium.click("th[data-column=speedup] button")
    values = (
        "[...document.querySelectorAll('#table tbody tr')].map((r) => r.cells[3].dataset.v).filter(Boolean).map(Number)"
    )
    falling = chromium.run(values)
    assert len(falling) > 4
    assert falling == sorted(falling, reverse=True)
    assert chromium.run("document.querySelector('th[data-column=speedup]').getAttribute('aria-sort')") == "descending"
    chromium.click("th[data-column=speedup] button")
    assert chromium.run(values) == sorted(falling)


def test_a_dot_opens_its_problem(chromium: Browser, address: str) -> None:
    chromium.open(address)
    problem = chromium.run("document.querySelector('#speedups figure.eager [data-open]').getAttribute('data-open')")
    chromium.click("#speedups figure.eager [data-open]")
    chromium.wait_for(SHOWN)
    assert text(chromium, "#detail-title").startswith(problem)


def test_without_scripts_everything_but_the_details_is_there(chromium: Browser, study: Study, address: str) -> None:
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(address)
        assert visible(chromium, "#fast figure.eager svg") == 1
        assert visible(chromium, "#table tbody tr") == len(study.trials)
        assert visible(chromium, ".filters") == 0
        assert "need JavaScript" in text(chromium, "noscript")
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)


# -- what others wrote -------------------------------------------------------------------------------------------------


def hostile(study: Study) -> Study:
    """The same with a script in everything that others write."""
    trials = []
    for trial in study.trials:
        history = tuple(
            replace(
                attempt,
                model=EVIL,
                candidate=Candidate(f"# {EVIL}\n{attempt.candidate.source}") if attempt.candidate else None,
                recommendation=Recommendation(EVIL, EVIL),
                verdict=_spoken(attempt.verdict),
                notes=(EVIL,),
            )
            for attempt in trial.history
        )
        cell = Cell(
            f"{trial.cell.problem} {EVIL}",
            trial.cell.problem_id,
            trial.cell.platform,
            f"{trial.cell.configuration} {EVIL}",
        )
        trials.append(replace(trial, cell=cell, source=EVIL, reason=EVIL, run=EVIL, history=history))
    sessions = tuple(replace(session, command=EVIL, machine={EVIL: EVIL}) for session in study.sessions)
    ways = tuple(replace(item, models=(EVIL,), options={EVIL: EVIL, "list": [EVIL]}) for item in study.configurations)
    others = {"name": EVIL, "configurations": ways, "suite": EVIL, "left_out": {EVIL: EVIL}, "notes": (EVIL,)}
    return replace(study, trials=tuple(trials), sessions=sessions, **others)


def _spoken(verdict: Verdict) -> Verdict:
    return replace(verdict, detail=f"{EVIL}\n{EVIL}", notes=(EVIL,), rule=EVIL if verdict.rule else "")


def test_what_others_wrote_is_text_and_never_runs(chromium: Browser, study: Study, tmp_path: Path) -> None:
    chromium.open(write(tmp_path / "evil.html", hostile(study)))
    chromium.run("document.querySelector('#table tbody a').click()")
    chromium.wait_for(SHOWN)
    chromium.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
    chromium.wait_for("document.querySelector('#detail pre.change')")
    for place in (
        "h1",
        "#detail-title",
        ".panel .timeline",
        ".panel pre.program",
        "#detail pre.said",
        "#left-out",
        "header .facts",
        "#configurations tbody td",
    ):
        assert EVIL in text(chromium, place), place
    assert chromium.run("document.querySelectorAll('img, iframe, object').length") == 0
    assert chromium.run("document.querySelectorAll('script:not([data-problem])').length") == 1
    assert chromium.run("typeof window.ran") == "undefined"
    asked = [said for said in chromium.heard if said.get("method") == "Network.requestWillBeSent"]
    assert {said["params"]["request"]["url"].split("#")[0] for said in asked} <= {(tmp_path / "evil.html").as_uri()}
    assert complaints(chromium) == []


def test_the_policy_stops_a_script_that_got_in(chromium: Browser, address: str) -> None:
    chromium.open(address)
    chromium.run("document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=\"window.ran=1\">')")
    chromium.run(
        "{ const e = document.createElement('script'); e.textContent = 'window.ran = 2'; document.body.append(e) }"
    )
    chromium.run("new Promise((done) => setTimeout(done, 50))")
    assert chromium.run("typeof window.ran") == "undefined"
    assert any("Content Security Policy" in json.dumps(said) for said in complaints(chromium))


# -- widths, print, sizes ----------------------------------------------------------------------------------------------


def test_long_options_fit_a_phone(chromium: Browser, study: Study, tmp_path: Path) -> None:
    options = {"reference": "x" * 300, "prompts": ["a/" * 40] * 3, "y" * 90: True}
    ways = tuple(replace(item, models=("m" * 120, "n"), options=options) for item in study.configurations)
    chromium.resize(375, 800, mobile=True)
    chromium.open(write(tmp_path / "long.html", replace(study, configurations=ways)))
    assert chromium.run("document.documentElement.scrollWidth") <= 375
    assert chromium.run("document.querySelector('.ways').scrollWidth") <= 375
    chromium.resize(1440, 900)


@pytest.mark.parametrize("name", SHAPES)
def test_no_width_makes_the_page_scroll_sideways(chromium: Browser, name: str, tmp_path: Path) -> None:
    place = write(tmp_path / "report.html", study_maker.study(SHAPES[name]))
    for width in WIDTHS:
        chromium.resize(width, 800, mobile=width < 500)
        chromium.open(place)
        assert chromium.run("document.documentElement.scrollWidth") <= width
        if name == "empty":
            continue
        chromium.run("document.querySelector('#table tbody a').click()")
        chromium.wait_for(SHOWN)
        assert chromium.run("document.getElementById('detail').scrollWidth") <= width
    assert complaints(chromium) == []
    chromium.resize(1440, 900)


def test_print_shows_the_open_problem_on_white_paper(chromium: Browser, study: Study, address: str) -> None:
    chromium.medium("print", "dark")
    try:
        chromium.resize(688, 900)  # what A4 leaves between its margins
        chromium.open(f"{address}#problem={study.trials[0].cell.problem}")
        chromium.wait_for(SHOWN)
        assert chromium.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert visible(chromium, ".panel") == 2
        assert visible(chromium, "#fast figure.eager svg, #fast figure.best svg") == 2
        wide = (
            "[...document.querySelectorAll('svg, table, pre, .l')].filter((e) => e.getBoundingClientRect().right > 690)"
        )
        assert chromium.run(f"{wide}.map((e) => e.outerHTML.slice(0, 80))") == []
        assert chromium.pdf().startswith(b"%PDF")
    finally:
        chromium.medium()
        chromium.resize(1440, 900)


@pytest.mark.quiet
def test_a_large_study_is_small_and_opens_at_once(chromium: Browser, tmp_path: Path) -> None:
    large = study_maker.study(Shape(problems=250))
    file = tmp_path / "report.html"
    place = write(file, large)
    assert file.stat().st_size < 5_000_000

    def seconds_to_open() -> float:
        began = time.monotonic()
        chromium.open(place)
        chromium.wait_for("document.documentElement.classList.contains('scripted')")
        return time.monotonic() - began

    # Others' work may be in any one of them.
    wait_until(lambda: seconds_to_open() < 2.0, "it opens within two seconds")
    assert chromium.run("document.querySelectorAll('#table tbody tr').length") == 500
    pieces = chromium.run("[...document.querySelectorAll('script[data-problem]')].map((e) => e.textContent)")
    assert len(pieces) == 250
    trials = unpack(pieces[0])["trials"]
    assert len(trials) == 2
    assert visible(chromium, "#comparisons article") == 1
    assert any(trial["verdict"]["unchecked"] for piece in pieces[:5] for trial in unpack(piece)["trials"])
