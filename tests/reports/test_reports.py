"""What a report says, before a browser shows it: findings, tables, Markdown, what was left out, how charts are laid."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import itertools
import math
import re
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import makers
import study_maker
import trial_makers
from kforge.metrics.cost import cost
from kforge.metrics.records import Mean
from kforge.reports import number_format, pictures
from kforge.reports.changes import apply_edits, edits
from kforge.reports.charts.cost import PRICES
from kforge.reports.charts.scales import Log, around
from kforge.reports.charts.svg import Drawing, spread
from kforge.reports.circumstances import circumstances
from kforge.reports.configurations import as_toml, configuration_texts
from kforge.reports.details import problem_details, unpack
from kforge.reports.findings import StudyFindings, find
from kforge.reports.left_out import find_omissions
from kforge.reports.markdown import markdown, plain
from kforge.reports.page import TEMPLATE, page
from kforge.reports.table import COLUMNS, csv_text
from kforge.types import Attempt, Candidate, Cell, Configuration, Intent, Outcome, Study, Trial, Usage, Verdict
from kforge.visible_text import visible
from study_maker import Shape

pytestmark = pytest.mark.pure
EVIL = "a|b <script>x</script> **bold** [l](http://x) `code`\n# head\n| row |"


@pytest.fixture(scope="module")
def findings() -> StudyFindings:
    return find(study_maker.study(Shape(problems=12, sessions=2)))


# -- findings ----------------------------------------------------------------------------------------------------------


def test_each_configuration_is_compared_with_the_first_of_its_platform() -> None:
    shape = Shape(problems=3, configurations=("a", "b", "c"), platforms=("metal", "cuda"), iterations=2, odd=False)
    found = find(study_maker.study(shape))
    sides = {(comparison.a, comparison.b) for comparison in found.comparisons}
    assert sides == {(f"a on {place}", f"{name} on {place}") for place in ("cuda", "metal") for name in ("b", "c")}
    asked = {comparison.questions for comparison in found.comparisons}
    assert asked == {sum(len(comparison.differences) for comparison in found.comparisons)}
    assert [(summary.platform, summary.configuration) for summary in found.summaries][:2] == [
        ("metal", "a"),
        ("metal", "b"),
    ]


def test_one_configuration_is_compared_with_nothing() -> None:
    assert find(study_maker.study(Shape(problems=2, configurations=("a",), iterations=1))).comparisons == ()


def test_an_empty_study_has_a_report_that_says_so() -> None:
    found = find(Study("nothing yet", ()))
    assert "No trial is in this report" in markdown(found)
    assert "No trial is in this report" in page(found)
    assert csv_text(found).splitlines() == [",".join(COLUMNS)]


# -- programs ----------------------------------------------------------------------------------------------------------

lines = some.lists(some.sampled_from(["a", "b", "", "    c", "d d"]), max_size=12).map("\n".join)


@given(lines, lines)
@settings(max_examples=80, deadline=None)
def test_edits_make_the_parent_into_the_child(parent: str, child: str) -> None:
    made = edits(parent, child)
    assert apply_edits(parent, made) == child
    assert (made == []) == (parent == child)


def program(attempts: list[dict[str, Any]], place: int) -> str | None:
    """As the page puts it together."""
    one = attempts[place]
    if one["program"] is None or one["base"] is None:
        return one["program"]
    parent = program(attempts, one["base"])
    assert parent is not None
    return apply_edits(parent, one["program"])


def test_every_program_can_be_had_from_the_details(findings: StudyFindings) -> None:
    for trial in findings.study.trials:
        found = problem_details(trial.cell.problem, [trial])["trials"][0]
        wanted = [attempt.candidate.source if attempt.candidate else None for attempt in trial.history]
        assert [program(found["attempts"], place) for place in range(len(wanted))] == wanted
        assert (found["best"] is None) == (trial.best is None)


def test_a_program_whose_parent_had_none_is_carried_whole() -> None:
    trial = study_maker.study(Shape(problems=1, configurations=("a",), odd=False)).trials[0]
    move = replace(trial.history[1].move, intent=Intent.REPAIR, parent=9)
    history = (trial.history[0], replace(trial.history[1], move=move, candidate=Candidate("whole")))
    found = problem_details("p", [replace(trial, history=history)])["trials"][0]["attempts"]
    assert (found[1]["base"], found[1]["program"]) == (None, "whole")


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_trial(findings: StudyFindings) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(findings))))
    assert len(rows) == len(findings.study.trials)
    for read, trial in zip(rows, findings.study.trials, strict=True):
        assert read["problem"] == trial.cell.problem
        assert int(read["attempts"]) == len(trial.history)
        assert (read["outcome"] == "") == (trial.verdict is None)
        if trial.verdict and trial.verdict.interval:
            assert float(read["speedup"]) == pytest.approx(trial.verdict.speedup, rel=1e-5)
            assert float(read["low"]) == pytest.approx(trial.verdict.interval[0], rel=1e-5)
            assert read["baseline"] == "eager"
        else:
            assert read["speedup"] == read["low"] == ""
        assert float(read["dollars"]) == pytest.approx(trial.usage.dollars, rel=1e-5)


def test_an_unknown_price_is_an_empty_cell_and_no_zero(findings: StudyFindings) -> None:
    trial = findings.study.trials[0]
    study = replace(findings.study, trials=(replace(trial, usage=replace(trial.usage, unpriced=1)),))
    assert next(csv.DictReader(io.StringIO(csv_text(replace(findings, study=study)))))["dollars"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(findings: StudyFindings, start: str) -> None:
    trial = replace(findings.study.trials[0], reason=f"{start}HYPERLINK(1)")
    text = csv_text(replace(findings, study=replace(findings.study, trials=(trial,))))
    assert next(csv.DictReader(io.StringIO(text, newline="")))["reason"] == f"'{visible(start)}HYPERLINK(1)"


def test_the_table_knows_of_flaws_what_the_figures_know(findings: StudyFindings) -> None:
    trial = next(trial for trial in findings.study.trials if trial.best)
    assert trial.verdict is not None
    flawed = replace(trial, degenerate=("constant",), confirmation=replace(trial.verdict, degenerate=("zero",)))
    found = find(replace(findings.study, trials=(flawed,)))
    assert next(csv.DictReader(io.StringIO(csv_text(found))))["degenerate"] == "constant; zero"
    assert found.summaries[0].degenerate == {trial.cell.problem: "constant; zero"}
    assert "degenerate: constant; zero" in page(found)
    notes = problem_details("p", [flawed])["trials"][0]["verdict"]["notes"]
    assert notes[:2] == ["degenerate: constant", "degenerate: zero"]


def test_markdown_tells_fast_p_comparisons_and_machines(findings: StudyFindings) -> None:
    text = markdown(findings)
    for words in (
        "p = 0.8",
        "fast\\_p against eager",
        "## Comparisons",
        "Xeon 8581C",
        "8fa4fd6",
        "d90f138+",
        "degenerate",
    ):
        assert words in text
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) >= 5
    for found in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in found.splitlines()}) == 1


def test_what_was_reached_after_so_many_programs_is_told_where_there_are_several() -> None:
    wrong = Outcome.MISMATCH
    longer = (trial_makers.trial("p1", wrong, 2.0, 3.0), trial_makers.trial("p2", 1.2))
    several = find(Study("x", longer))
    text = markdown(several)
    assert re.search(r"\| a \| correct \| 50 % .* \| 100 % .* \| 100 % ", text)
    assert re.search(r"\| a \| mean vs eager \| 1.20 \| 1.55 .* \| 1.90 ", text)
    assert 'id="reached"' in page(several)
    once = find(Study("x", (trial_makers.trial("p1", 2.0),)))
    assert "After so many programs" not in markdown(once) + page(once)


def test_the_same_program_on_both_sides_is_told_in_every_form() -> None:
    made = [
        trial_makers.trial(
            f"p{number}", 1.0 + factor * number, configuration=name, program="one text" if number == 3 else name
        )
        for name, factor in (("a", 1.0), ("b", 1.5))
        for number in range(1, 6)
    ]
    found = find(Study("s", tuple(made), configurations=(Configuration("a"), Configuration("b"))))
    said = "Both sides have the same program on 1 problem (p3)"
    assert said in plain_text(markdown(found))
    assert said in page(found)
    assert "p3: the same program" in page(found)
    assert "faster on 4 of 5 problems, the same program on 1" in page(found)


def test_which_figures_are_of_a_confirmation_is_told() -> None:
    made = [
        trial_makers.trial("p1", 1.84, 1.66, confirmation=makers.verdict(1.21)),
        trial_makers.trial("p2", 1.5),
    ]
    note = "1 winner was judged once more, on fresh inputs: the figures are of that confirmation."
    confirmed, alone = (find(Study("s", tuple(trials))) for trials in (made, made[1:]))
    for form in (markdown, page):
        assert note in form(confirmed)
        assert "judged once more, on fresh inputs" not in form(alone)


def test_whether_two_hosts_agree_is_told() -> None:
    def judged_on(host: str, verdict: Verdict) -> Verdict:
        evidence = makers.evidence(host)
        return replace(verdict, evidence=evidence)

    def twice(key: str, first: Verdict, second: Verdict) -> Trial:
        made = trial_makers.trial(key, 1.5, confirmation=judged_on("gpu2", second))
        attempts = tuple(replace(attempt, verdict=judged_on("gpu1", first)) for attempt in made.history)
        return replace(made, history=attempts)

    made = [
        twice("p1", makers.verdict(1.5), makers.verdict(1.51)),
        twice("p2", makers.verdict(1.5), makers.verdict(1.1)),
        twice("p3", makers.verdict(1.5), makers.contended(1.1)),
    ]
    note = "3 of them on another device than the first time. Both measurements agree for 1 of 2, and do not for p2."
    found = find(Study("s", tuple(made)))
    for form in (markdown, page):
        assert note in plain_text(form(found))
    facts = dict(problem_details("p2", [made[1]])["trials"][0]["verdict"]["facts"])
    assert facts["both judgements"].endswith("judged once more on gpu2, another host than gpu1, the two do not agree")


def test_trials_from_several_models_of_device_are_told() -> None:
    def judged_on(key: str, gpu: str) -> Trial:
        made = trial_makers.trial(key, 1.5)
        evidence = replace(makers.evidence(), device={"gpu": gpu})
        verdict = replace(makers.verdict(1.5), evidence=evidence)
        return replace(made, history=tuple(replace(attempt, verdict=verdict) for attempt in made.history))

    trials = (judged_on("p1", "an A100"), judged_on("p2", "an H200"), judged_on("p3", "an H200"))
    for form in (markdown, page):
        text = plain_text(form(find(Study("s", trials))))
        assert "Different hardware: of cpu, 1 trial on an A100, 2 trials on an H200." in text
        assert "Different hardware" not in form(find(Study("s", trials[1:])))


def plain_text(text: str) -> str:
    return text.replace("\\", "")


def test_nothing_that_others_wrote_is_markup(findings: StudyFindings) -> None:
    trial = findings.study.trials[0]
    cell = Cell(EVIL, trial.cell.problem_id, "cpu", EVIL)
    text = markdown(
        find(replace(findings.study, name=EVIL, trials=(replace(trial, cell=cell),), left_out={EVIL: EVIL}))
    )
    assert plain(EVIL) in text
    assert "<script>" not in text
    assert not re.search(r"(?<!\\)(\*\*bold|`code|\[l\])", text)
    assert "\n# head" not in text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("__init__", r"\_\_init\_\_"), ("_a_b_", r"\_a_b\_"), ("level1/3_layer_norm", "level1/3_layer_norm")],
)
def test_underscores_mean_nothing(text: str, wanted: str) -> None:
    assert plain(text) == wanted


def test_a_name_that_is_no_text_has_an_address(findings: StudyFindings) -> None:
    trial = findings.study.trials[0]
    named = replace(trial, cell=replace(trial.cell, problem="a\udc80b"))
    assert "#problem=a%3Fb" in page(find(replace(findings.study, trials=(named,))))


# -- configurations ----------------------------------------------------------------------------------------------------

values = some.recursive(
    some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(some.characters(codec="utf-8")),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text('a b."', max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values)
@settings(max_examples=80, deadline=None)
def test_an_option_is_spelled_so_that_toml_reads_it_back(value: Any) -> None:
    assert tomllib.loads(f"value = {as_toml(value)}")["value"] == value


def test_a_report_says_what_each_configuration_is(findings: StudyFindings) -> None:
    made = (
        Configuration("iterative", ("builtin",)),
        Configuration("iterative+profiling", ("a:x", "b:y"), {"profiling": "text", "reference": True, "sizes": [1, 2]}),
        Configuration("not run", options={"iterations": 3}),
    )
    found = replace(findings, study=replace(findings.study, configurations=(*made, made[0])))
    assert [(way.name, way.series, way.options) for way in configuration_texts(found)] == [
        ("iterative", 0, ()),
        ("iterative+profiling", 1, ('profiling = "text"', "reference = true", "sizes = [1, 2]")),
        ("not run", None, ("iterations = 3",)),
    ]
    assert "| iterative | builtin | all as by default |\n" in markdown(found)
    assert '| iterative+profiling | a:x, b:y | profiling = "text", reference = true, sizes = \\[1, 2\\] |' in markdown(
        found
    )
    assert "<code>profiling = &#34;text&#34;</code><code>reference = true</code>" in page(found)
    bare = replace(findings, study=replace(findings.study, configurations=()))
    assert "## Configurations" not in markdown(bare)
    assert 'id="configurations"' not in page(bare)


def test_what_a_configuration_says_is_no_markup(findings: StudyFindings) -> None:
    made = (Configuration(EVIL, (EVIL,), {EVIL: EVIL, "list": [EVIL]}),)
    found = replace(findings, study=replace(findings.study, configurations=made))
    line = next(line for line in markdown(found).splitlines() if line.startswith("| a"))
    assert len(re.findall(r"(?<!\\)\|", line)) == 4
    assert "<script>x" not in markdown(found) + page(found)
    assert page(found).count("&lt;script&gt;x") >= 5


# -- what to beware of -------------------------------------------------------------------------------------------------


def test_what_is_left_out_is_told_once_with_its_reason(findings: StudyFindings) -> None:
    found = {omission.kind: omission for omission in find_omissions(findings)}
    assert list(found) == ["filtered", "unfinished", "unusable", "degenerate"]
    assert found["degenerate"].reasons[0].why == "the output does not depend on its inputs"
    assert found["degenerate"].reasons[0].where == ()
    assert found["unusable"].problems == 1


def test_what_holds_for_one_configuration_only_names_it(findings: StudyFindings) -> None:
    first, second = findings.summaries
    changed = replace(findings, summaries=(replace(first, unconfirmed={"p": "mismatch", "q": "mismatch"}), second))
    found = next(omission for omission in find_omissions(changed) if omission.kind == "unconfirmed")
    assert [(reason.why, reason.problems, reason.where) for reason in found.reasons] == [
        ("mismatch", ("p", "q"), ("iterative",))
    ]


def test_sittings_share_what_they_share_and_differ_in_the_rest(findings: StudyFindings) -> None:
    where = circumstances(findings.study)
    assert where.differing == ("KForge commit",)
    assert "Xeon 8581C" in [fact.value for fact in where.shared]
    assert [fact.value for sat in where.sessions for fact in sat.own] == ["8fa4fd6", "d90f138+"]
    assert sum(sat.trials for sat in where.sessions) == sum(
        trial.session is not None for trial in findings.study.trials
    )
    assert "Sessions differ in KForge commit" in page(findings)


def test_a_sitting_in_which_nothing_was_done_makes_no_difference(findings: StudyFindings) -> None:
    trials = tuple(replace(trial, session=0) for trial in findings.study.trials)
    where = circumstances(replace(findings.study, trials=trials))
    assert where.differing == ()
    assert "8fa4fd6" in [fact.value for fact in where.shared]
    assert [[fact.value for fact in sat.own] for sat in where.sessions] == [[], ["d90f138+"]]


def test_programs_without_a_time_are_told() -> None:
    study = study_maker.study(Shape(problems=4, configurations=("a",), iterations=1, chance=1.0, odd=False))
    first, second, *others = study.trials
    bare = [replace(trial, history=(_bare(trial.history[0]),)) for trial in (first, second)]
    one = markdown(find(replace(study, trials=(bare[0], second, *others))))
    wanted = "1 correct program without a time against eager PyTorch and the fastest baseline; above p = 0 it counts as"
    assert wanted in one
    assert "2 correct programs without a time" in markdown(find(replace(study, trials=(*bare, *others))))
    assert "without a time" not in markdown(find(study))


def test_wins_within_the_noise_are_told_and_marked() -> None:
    study = study_maker.study(Shape(problems=5, configurations=("a",), iterations=1, chance=1.0, odd=False))
    ends = [(1.5, 1.4, 1.6), (1.02, 0.98, 1.06), (1.01, 1.0, 1.02), (0.99, 0.9, 1.1), (1.01, 0.9, 1.1)]
    trials = [
        replace(trial, history=(_measured(trial.history[0], *end),))
        for trial, end in zip(study.trials, ends, strict=True)
    ]
    # What does not count is neither told nor marked.
    trials[4] = replace(trials[4], degenerate=("constant",))
    found = find(replace(study, trials=tuple(trials)))
    words = "a: 2 of 3 programs counted as faster than eager have an interval that contains 1"
    assert words in markdown(found)
    assert words in page(found)
    assert page(found).count(">not sure</i>") == 2
    assert "1.02 (0.98–1.06, not sure)" in markdown(found)
    sure = find(replace(study, trials=tuple(trials[::3])))
    assert "not sure" not in markdown(sure)
    assert "not sure</i>" not in page(sure)
    one = find(replace(study, trials=tuple(trials[:2])))
    assert "1 of 2 programs counted as faster than eager has an interval that contains 1: it may" in markdown(one)


def _measured(attempt: Attempt, speedup: float, low: float, high: float) -> Attempt:
    assert attempt.verdict.timing is not None
    timing = replace(attempt.verdict.timing, speedup=speedup, interval=(low, high))
    return replace(attempt, verdict=replace(attempt.verdict, timing=timing))


def _bare(attempt: Attempt) -> Attempt:
    return replace(attempt, verdict=replace(attempt.verdict, timing=None))


def test_who_has_no_correct_program_stands_at_0_beside_the_others() -> None:
    made = study_maker.study(Shape(problems=5, configurations=("a", "b"), chance=1.0, odd=False))
    wrong = study_maker.study(Shape(problems=1, chance=0.0, odd=False)).trials[0].history
    trials = tuple(replace(trial, history=wrong) if trial.cell.configuration == "b" else trial for trial in made.trials)
    found = find(replace(made, trials=trials))
    text = markdown(found)
    assert re.search(r"## fast\\_p against eager.*\n\| b \| 0 % \(0 to \d+\) \|", text, re.DOTALL)
    assert "b 0 % correct, 0 % (0 to" in str(pictures.curves(found)[0].drawing)
    drawn = {figure.kind: str(figure.drawing) for figure in pictures.costs(found)}
    assert all(re.search(r", b \S+( \S+)* for 0 %", drawn[kind]) for kind in ("dollars", "tokens", "time"))
    # Where nobody has a time, there is nothing to stand beside.
    alone = find(replace(made, trials=tuple(replace(trial, history=wrong) for trial in made.trials)))
    assert pictures.curves(alone) == []
    assert "## fast" not in markdown(alone)


def test_a_problem_that_was_not_begun_cost_nothing(findings: StudyFindings) -> None:
    summary = findings.summaries[0]
    half = replace(summary, problems=("p", "q"), unfinished={}, unusable={}, degenerate={}, seconds=60.0)
    prices = {price.name: price.per_problem for price in PRICES}
    assert prices["time"](half) == 30.0
    assert prices["time"](replace(half, unfinished={"r": "new", "s": "new"})) == 30.0
    assert prices["time"](replace(half, unfinished={"r": "new", "s": "stopped: interrupted"})) == 20.0


def test_who_cost_nothing_is_named_under_the_chart() -> None:
    made = study_maker.study(Shape(problems=4, configurations=("a", "b"), odd=False))
    trials = tuple(
        replace(trial, usage=replace(trial.usage, dollars=0.0)) if trial.cell.configuration == "b" else trial
        for trial in made.trials
    )
    notes = {figure.kind: figure.note for figure in pictures.costs(find(replace(made, trials=trials)))}
    assert notes["dollars"].startswith("Cost nothing, so not drawn: b, ")
    assert notes["tokens"] == notes["time"] == ""
    assert "Cost nothing, so not drawn: b, " in page(find(replace(made, trials=trials)))


def test_emulated_trials_are_marked_and_have_no_speedup_columns() -> None:
    text = page(find(study_maker.study(Shape(problems=3, emulated=True, configurations=("a",)))))
    assert "Emulated: a." in text
    assert '<span class="mark">emulated</span>' in text
    assert 'id="fast"' not in text
    assert 'data-column="speedup"' not in text


def test_scores_stand_beside_fast_p_wherever_they_are_known() -> None:
    trials = (
        trial_makers.judged("p1", trial_makers.scored(2.0, 20.0)),
        trial_makers.trial("p2", Outcome.MISMATCH),
        trial_makers.judged("p3", trial_makers.scored(5.0, 20.0)),
    )
    found = find(Study("s", trials, configurations=(Configuration("a"),)))
    text = markdown(found)
    assert re.search(r"\| mean vs best \| score \|", text)
    assert "| 0.58 (" in text
    assert "Score: mean over problems" in text
    html = page(found)
    assert '<th scope="col" rowspan="2" class="number">score</th>' in html
    assert 'data-column="score"' in html
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [(row["score"], row["limit"]) for row in rows] == [
        ("0.727273", "traffic: a made-up amount"),
        ("", ""),
        ("1", "traffic: a made-up amount"),
    ]
    facts = dict(problem_details("p1", [trials[0]])["trials"][0]["verdict"]["facts"])
    assert facts["score"] == ("0.73 (1 = the machine's limit, 0.5 = eager; limit 20 ns: traffic: a made-up amount)")


def test_reports_without_scores_have_no_column_for_them(findings: StudyFindings) -> None:
    assert "| score |" not in markdown(findings)
    assert 'data-column="score"' not in page(findings)


# -- the page's file ---------------------------------------------------------------------------------------------------


def test_the_policy_names_exactly_our_script_and_style(findings: StudyFindings) -> None:
    text = page(findings)
    for tag, file in (("script", "script.js"), ("style", "style.css")):
        own = (TEMPLATE / file).read_text(encoding="utf-8")
        assert f"<{tag}>{own}</{tag}>" in text
        mark = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{mark}&#39;" in text
    assert "default-src &#39;none&#39;" in text


def test_the_page_refers_to_nothing_outside(findings: StudyFindings) -> None:
    text = page(findings)
    assert {link[:1] for link in re.findall(r'\b(?:src|href)="([^"]*)"', text)} == {"#"}
    assert not re.search(r"<(?:link|img|iframe|object|embed)\b", text)
    assert not re.search(r"@import|url\(", text)
    assert " style=" not in text, "the policy refuses style attributes"
    piece = re.search(r'data-problem="level1/1_softmax">([^<]+)<', text)
    assert piece is not None
    assert unpack(piece[1])["problem"] == "level1/1_softmax"


# -- charts and words --------------------------------------------------------------------------------------------------


@given(some.lists(some.floats(0, 100), min_size=1, max_size=6))
def test_labels_keep_their_distance_and_stay_inside(wanted: list[float]) -> None:
    placed = sorted(spread(wanted, 15.0, 0.0, 100.0))
    assert all(b - a >= 15.0 - 1e-6 for a, b in itertools.pairwise(placed))
    assert placed[-1] <= 100.0 + 1e-6
    assert placed[0] >= -1e-6


@given(some.lists(some.floats(1e-3, 1e5), min_size=1, max_size=5))
def test_an_axis_holds_its_values_and_has_marks(values: list[float]) -> None:
    low, high = around(values)
    axis = Log(low, high, 0.0, 100.0)
    assert all(0 <= axis(value) <= 100 for value in values)
    assert len(axis.ticks()) <= 7
    assert all(low * 0.99 <= mark <= high * 1.01 for mark in axis.ticks())


def test_small_effects_have_marks() -> None:
    assert Log(*around([0.95, 1.1, 1.0], 1.08, 1.1), 0.0, 100.0).ticks() == pytest.approx([0.9, 1.0, 1.1])


def test_what_a_chart_says_is_escaped() -> None:
    drawing = Drawing(10, 10, '"><script>')
    drawing.label((0, 0), "<b>" * 20, "name", 5)
    drawing.dot((0, 0), 1, "dot", "<i>", '"x"')
    assert not re.search(r"<(?:script|b|i)>", str(drawing.finish()))


@pytest.mark.parametrize("dark", [False, True])
def test_no_configuration_looks_like_a_state_or_another_configuration(dark: bool) -> None:
    style = (TEMPLATE / "style.css").read_text(encoding="utf-8").split(":root")[2 if dark else 1]
    colours = {name: _seen(value) for name, value in re.findall(r"--(\w+): #(\w{6});", style.split("}")[0])}
    numbers = [colours[f"s{place}"] for place in range(pictures.COLOURS)]
    states = [colours[name] for name in number_format.STATES]
    assert min(math.dist(one, state) for one in numbers for state in states) > 0.15
    assert min(math.dist(a, b) for a, b in itertools.combinations(numbers, 2)) > 0.09
    # The first four, which most studies have, differ even where there is no colour at all.
    assert min(abs(a[0] - b[0]) for a, b in itertools.combinations(numbers[:4], 2)) > 0.05


def _seen(colour: str) -> tuple[float, float, float]:
    """Lightness and two hues in Oklab (Ottosson 2020), where distance is about what an eye sees."""
    shares = (int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4))
    r, g, b = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (number_format.times(0.987), "0.99"),
        (number_format.times(12.34), "12.3"),
        (number_format.times(None), "–"),
        (number_format.percent(0.625), "62 %"),
        (number_format.percent(249 / 250), "99.6 %"),
        (number_format.percent(1 / 250), "0.4 %"),
        (number_format.percent(0.9999), ">99.9 %"),
        (number_format.percent(1.0), "100 %"),
        (number_format.percent(0.0), "0 %"),
        (number_format.mean(Mean(1.5, 1.4, 1.6, 9)), "1.50 (1.40 to 1.60)"),
        (number_format.mean(Mean(1.0, 1.0, 1.0, 9)), "1.00"),
        (number_format.money(0.0031), "$0.0031"),
        (number_format.money(0), "$0.00"),
        (number_format.money(1e-6), "<$0.0001"),
        (number_format.amount(999), "999"),
        (number_format.amount(999_600), "1M"),
        (number_format.amount(4130), "4.13k"),
        (number_format.seconds(0.42), "0.4 s"),
        (number_format.seconds(119.6), "2 min"),
        (number_format.seconds(3725), "1 h 02 min"),
    ],
)
def test_numbers_as_they_are_read(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_seeds_and_winners_that_did_not_hold_are_told_apart() -> None:
    study = study_maker.study(Shape(problems=2, configurations=("a",), chance=1.0, odd=False))
    wrong = study_maker.study(Shape(problems=1, chance=0.0, odd=False)).trials[0].history[0].verdict
    again = [replace(trial, cell=replace(trial.cell, seed=1), confirmation=wrong) for trial in study.trials]
    found = find(replace(study, trials=(*study.trials, *again)))
    text = page(found)
    assert 'data-column="seed"' in text
    assert text.count('<span class="mark">not confirmed</span>') == 2
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [(row["seed"], row["confirmed"]) for row in rows] == [("0", ""), ("0", ""), ("1", "no"), ("1", "no")]
    assert {row["outcome"] for row in rows[2:]} == {wrong.outcome.value}
    assert [omission.kind for omission in find_omissions(found)] == ["unconfirmed"]
    assert "each with 2 seeds" in text


def test_a_reply_without_a_program_is_an_attempt_without_one() -> None:
    trial = study_maker.study(Shape(problems=1, configurations=("a",), odd=False)).trials[0]
    empty = Verdict(Outcome.GENERATION_FAILURE, "the reply holds no program")
    history = (replace(trial.history[0], candidate=None, verdict=empty), trial.history[1])
    found = problem_details("p", [replace(trial, history=history)])["trials"][0]["attempts"]
    assert found[0]["program"] is None
    assert found[1]["base"] is None
    assert trial.history[1].candidate is not None
    assert found[1]["program"] == trial.history[1].candidate.source


# -- workloads ---------------------------------------------------------------------------------------------------------


def test_each_workload_is_in_every_form_of_a_report() -> None:
    both = makers.by_workload({"ROWS = 1|2": 0.5, "ROWS = 4096": 8.0})
    evidence = replace(study_maker.EVIDENCE, held_out=("ROWS = 97",))
    trials = (trial_makers.judged("p1", replace(both, evidence=evidence)), trial_makers.trial("p2", 3.0))
    found = find(Study("s", trials, configurations=(Configuration("a"),)))
    text = markdown(found)
    assert "## Workloads" in text
    assert "| p1 | a | ROWS = 1\\|2 | 0.5 | 0.50 (0.49 to 0.51) | 0.40 | 90 % |" in text
    assert "| p1 | a | ROWS = 4096 | 0.5 | 8.00 (7.84 to 8.16) | 6.40 | 80 % |" in text
    assert "| p2 |" not in text.split("## Workloads")[1].split("## ")[0]
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [row["workloads"] for row in rows] == [
        "ROWS = 1|2: 0.50 (0.49 to 0.51); ROWS = 4096: 8.00 (7.84 to 8.16)",
        "",
    ]
    verdict = problem_details("p1", [trials[0]])["trials"][0]["verdict"]
    assert verdict["workloads"] == [
        ["workload", "weight", "speedup", "against best", "own code"],
        ["ROWS = 1|2", "0.5", "0.50 (0.49 to 0.51)", "0.40", "90 %"],
        ["ROWS = 4096", "0.5", "8.00 (7.84 to 8.16)", "6.40", "80 %"],
    ]
    facts = dict(verdict["facts"])
    assert facts["held-out sizes"] == "ROWS = 97"
    assert facts["measured"].startswith("on 2 workloads, geometric mean by weight")
    assert problem_details("p2", [trials[1]])["trials"][0]["verdict"]["workloads"] == []


def test_reports_without_workloads_do_not_speak_of_them(findings: StudyFindings) -> None:
    assert "## Workloads" not in markdown(findings)


# -- what it cost ------------------------------------------------------------------------------------------------------


def test_what_a_problem_cost_is_in_every_form_of_a_report() -> None:
    made = trial_makers.trial("p1", 1.5, 2.0, usage=Usage(2, 3000, 1200))
    evidence = replace(study_maker.EVIDENCE, seconds={"check": 1.25, "time": 2.0})
    history = [
        replace(
            attempt,
            verdict=replace(attempt.verdict, evidence=evidence),
            seconds={"model": 30.0, "judge": 9.0},
            judging={"verdict": 4.0, "profiles": 5.0, "device": 6.5},
        )
        for attempt in made.history
    ]
    again = replace(history[1], move=replace(history[1].move, step=3))
    study = Study("s", (replace(made, history=(*history, again)),), configurations=(Configuration("a"),))
    spent = cost(study.trials[0])
    assert (spent.programs, spent.phases) == (3, {"check": 2.5, "time": 4.0}), "what was not judged again took no time"
    assert (spent.profile_seconds, spent.device_seconds, spent.model_seconds) == (10.0, 13.0, 90.0)
    found = find(study)
    line = "| p1 | a | 3 | 2 | 3k | 1.2k | 1 min 30 s | 2.5 s | 4.0 s | 10 s | 13 s |"
    assert line in markdown(found)
    assert "What each problem cost" in page(found)
    (row,) = csv.DictReader(io.StringIO(csv_text(found)))
    assert (row["profile_seconds"], row["device_seconds"]) == ("10", "13")
