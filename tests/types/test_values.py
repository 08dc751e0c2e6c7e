"""Values: JSON both ways, and verdicts that contradict themselves cannot be made."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge import jsonable
from kforge.errors import WireError
from kforge.run.result import RunResult
from kforge.types import (
    Attempt,
    AxisLength,
    BaselineTime,
    Candidate,
    Cell,
    Donor,
    DynamicSize,
    ErrorNorm,
    Evidence,
    Intent,
    Job,
    Limits,
    Move,
    Outcome,
    Problem,
    Profile,
    Report,
    RunSpec,
    Settings,
    Study,
    TimeLimit,
    Timing,
    Trial,
    Verdict,
    Workload,
    WorkloadResult,
)

pytestmark = pytest.mark.pure

text = st.text(max_size=30)
floats = st.floats(allow_nan=False)
positive = st.floats(min_value=1e-3, max_value=1e3)
words = st.lists(text, max_size=3).map(tuple)
records = st.dictionaries(text, text, max_size=3)
finite = st.floats(allow_nan=False, allow_infinity=False)
constants = st.one_of(st.integers(), finite, st.booleans(), text, st.none(), st.lists(st.integers(), max_size=3))

workloads = st.builds(
    Workload,
    constants=st.dictionaries(text, constants, max_size=2),
    inputs=st.integers(0, 9),
    lengths=st.lists(st.builds(AxisLength, st.integers(0, 3), st.integers(0, 3), st.integers(1, 99)), max_size=2).map(
        tuple
    ),
    weight=positive,
    name=text,
)
dynamic_sizes = st.builds(
    DynamicSize,
    name=text,
    low=st.integers(1, 9),
    high=st.integers(9, 99),
    axes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple),
)
problems = st.builds(
    Problem,
    name=text,
    source=text,
    level=st.none() | st.integers(1, 4),
    number=st.none() | st.integers(1, 100),
    path=text,
    sizes=st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.dictionaries(text, constants, max_size=2), max_size=2),
    tolerances=st.dictionaries(text, floats, max_size=2),
    workloads=st.lists(workloads, max_size=2).map(tuple),
    dynamic=st.lists(dynamic_sizes, max_size=2).map(tuple),
    selected=st.none() | workloads,
)
candidates = st.builds(Candidate, source=text, platform=text, parent=st.none() | text, name=text)
settings_ = st.builds(
    Settings,
    baseline=st.sampled_from(["eager", "compile", "best"]),
    policy=st.sampled_from(["strict", "hybrid", "any"]),
    seeds=st.integers(1, 1000),
    timing_seconds=st.floats(0, 100),
    seed=st.none() | st.integers(0, 2**60),
    limits=st.builds(Limits, build_seconds=positive, memory_bytes=st.integers(0, 2**50)),
)


@st.composite
def timings(draw):
    middle = draw(positive)
    return Timing(
        baseline=draw(st.sampled_from(["eager", "compile"])),
        speedup=middle,
        interval=(middle * draw(st.floats(0.5, 1)), middle * draw(st.floats(1, 2))),
        speedup_vs_best=draw(st.none() | positive),
        candidate_ns=tuple(draw(st.lists(positive, max_size=4))),
        baseline_ns=tuple(draw(st.lists(positive, max_size=4))),
        calls_per_block=draw(st.integers(1, 64)),
        checked_calls=draw(st.integers(0, 100)),
        baselines=(BaselineTime("eager", 1.0), BaselineTime("compile", draw(st.none() | positive), draw(text))),
        peak_bytes=(draw(st.integers(0, 2**40)), 0),
        conditions=draw(records),
        flags=draw(words),
        limit=draw(st.none() | st.builds(TimeLimit, positive, text)),
    )


evidences = st.builds(
    Evidence,
    problem=problems,
    candidate=candidates,
    settings=settings_,
    device=records,
    versions=records,
    distributions=words,
    parameters=words,
    operators=words,
    native=words,
    unchecked=words,
    seconds=st.dictionaries(text, floats, max_size=3),
    held_out=words,
)
norms = st.builds(ErrorNorm, distribution=text, norm=floats, norm_limit=floats, worst=floats, workload=text)
results = st.builds(
    WorkloadResult,
    workload=text,
    weight=positive,
    checked_calls=st.integers(0, 9),
    timing=st.none() | timings(),
    custom_share=st.none() | st.floats(0, 1),
)


@st.composite
def verdicts(draw):
    outcome = draw(st.sampled_from(Outcome))
    correct = outcome is Outcome.CORRECT
    return Verdict(
        outcome=outcome,
        detail=draw(text.filter(bool)),
        rule="some_rule" if outcome is Outcome.REJECTED else "",
        errors=tuple(draw(st.lists(norms, min_size=1 if correct else 0, max_size=2))),
        timing=draw(st.none() | timings()) if correct else None,
        workloads=tuple(draw(st.lists(results, max_size=2))) if correct else (),
        custom_share=draw(st.none() | st.floats(0, 1)),
        degenerate=draw(words),
        sandbox=draw(text),
        notes=draw(words),
        evidence=draw(st.none() | evidences),
    )


reports = st.builds(Report, job=text, problem=text, candidate=text, platform=text, verdict=verdicts())
jobs = st.builds(Job, id=text, problem=problems, candidate=candidates, settings=settings_)


@given(st.one_of(problems, candidates, settings_, verdicts(), reports, jobs))
def test_everything_that_crosses_a_process_comes_back_equal(value):
    wire = json.loads(json.dumps(jsonable.encode(value), allow_nan=False))
    assert jsonable.decode(type(value), wire) == value


def test_floats_json_has_no_word_for():
    wire = json.dumps(jsonable.encode(ErrorNorm("natural", math.inf, -math.inf, math.nan)), allow_nan=False)
    back = jsonable.decode(ErrorNorm, json.loads(wire))
    assert back.norm == math.inf
    assert back.norm_limit == -math.inf
    assert math.isnan(back.worst)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"name": "x"}, "source"),
        ({"name": 3, "source": ""}, "Problem.name: expected str"),
        ({"name": "x", "source": "", "nmae": 1}, "unknown field 'nmae'"),
        ([], "expected an object"),
    ],
)
def test_a_record_that_does_not_fit_names_the_field(data, says):
    with pytest.raises(WireError, match=says):
        jsonable.decode(Problem, data)


def test_settings_out_of_range_do_not_come_in_by_the_wire():
    with pytest.raises(WireError, match="seeds"):
        jsonable.decode(Settings, {"seeds": 0})


GOOD = {"errors": (ErrorNorm("natural", 0.0, 1e-4, 0.0),)}


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": Outcome.CORRECT, "detail": "fine"},
        {"outcome": Outcome.CORRECT, "detail": "", **GOOD},
        {"outcome": Outcome.CORRECT, "detail": "fine", "rule": "network", **GOOD},
        {"outcome": Outcome.REJECTED, "detail": "no rule"},
        {"outcome": Outcome.MISMATCH, "detail": "x", "rule": "network"},
        {"outcome": Outcome.MISMATCH, "detail": "x", "timing": Timing("eager", 2.0, (1.9, 2.1), None, (), (), 1, 1)},
    ],
)
def test_incoherent_verdicts_cannot_be_constructed(fields):
    with pytest.raises(ValueError, match=r"verdict|rule"):
        Verdict(**fields)


def test_a_speedup_lies_within_its_interval():
    with pytest.raises(ValueError, match="outside its interval"):
        Timing("eager", 3.0, (1.0, 2.0), None, (), (), 1, 1)


def test_no_record_shows_the_texts_and_samples_that_it_holds():
    source = "a line of a program\n" * 5000
    problem, candidate = Problem("2_softmax", source, level=1), Candidate(source)
    timing = Timing("eager", 1.66, (1.43, 1.9), None, (1.0,) * 500, (1.66,) * 500, 5, 3)
    evidence = Evidence(problem, candidate, Settings(), *[{"x": source}] * 2, *[(source,)] * 5, seconds={})
    verdict = Verdict(Outcome.CORRECT, "fine", timing=timing, evidence=evidence, **GOOD)
    attempt = Attempt(Move(0, 2, Intent.OPTIMISE, 1), candidate, verdict, notes=(source,))
    report = Report("0.2", problem.name, candidate.id, "cpu", verdict, (Profile("perf", text=source),))
    request = RunSpec(problem, reference=source, donor=Donor(source))
    records = (problem, candidate, timing, evidence, verdict, attempt, report, request, Job("0.2", problem, candidate))
    assert max(len(repr(record)) for record in records) < 1000
    trial = Trial(Cell(problem.key, problem.id, "cpu", "a"), history=(attempt,), source=source)
    for record in (*records, RunResult("run", request, (attempt,) * 5), trial, Study("s", (trial,))):
        assert source[:40] not in repr(record)
        assert type(record).__name__ in repr(record)
    assert repr(problem) == f"<Problem level1/2_softmax ({problem.id}), 5000 lines>"
    assert repr(attempt) == ("<Attempt 1.2 optimise: <Verdict correct: 1.66x, 1.43 to 1.90 against eager>>")
    wrong = Verdict(Outcome.MISMATCH, "the output: 3 elements are wrong")
    assert repr(wrong) == "<Verdict mismatch: the output: 3 elements are wrong>"


def test_a_speedup_against_another_baseline_is_one_against_eager():
    baselines = (BaselineTime("eager", 1.0), BaselineTime("compile", 2.0), BaselineTime("tf32", None))
    beside = {
        name: Timing(name, 0.7, (0.6, 0.8), None, (), (), 1, 1, baselines) for name in ("eager", "compile", "tf32")
    }
    assert str(beside["eager"].against_eager) == "0.70x, 0.60 to 0.80"
    assert str(beside["compile"].against_eager) == "1.40x, 1.20 to 1.60"
    assert beside["tf32"].against_eager is None


def test_a_win_on_a_degenerate_problem_never_counts():
    sound = Verdict(Outcome.CORRECT, "fine", **GOOD)
    odd = Verdict(Outcome.CORRECT, "fine", degenerate=("near-constant: zero everywhere",), **GOOD)
    assert sound.counts
    assert not odd.counts


# -- the score against the limit -----------------------------------------------------------------------------------


def scored(speedup: float, eager_ns: float, limit_ns: float) -> Timing:
    limit = TimeLimit(limit_ns, "counted")
    return Timing("eager", speedup, (speedup, speedup), None, (eager_ns / speedup,), (eager_ns,), 1, 1, limit=limit)


def test_the_score_by_hand() -> None:
    assert scored(1.0, 100.0, 20.0).score == pytest.approx(0.5)
    assert scored(5.0, 100.0, 20.0).score == 1.0
    assert scored(50.0, 100.0, 20.0).score == 1.0
    # 1 / (1 + (50 - 20) / (100 - 20))
    assert scored(2.0, 100.0, 20.0).score == pytest.approx(8 / 11)
    assert scored(0.5, 100.0, 20.0).score == pytest.approx(8 / 26)
    text = scored(2.0, 100.0, 20.0).score_text
    assert text == "0.73 (1 = the machine's limit, 0.5 = eager; limit 20 ns: counted)"


@given(positive, positive, positive)
def test_a_score_is_sensible_for_any_times(speedup: float, eager_ns: float, limit_ns: float) -> None:
    score = scored(speedup, eager_ns, limit_ns).score
    assert score is not None
    assert 0 < score <= 1
    assert (score >= 0.5 - 1e-9) if speedup >= 1 else (score <= 0.5 + 1e-9)
    assert scored(1.0, eager_ns, limit_ns).score == pytest.approx(0.5)
    assert scored(speedup * 1.1, eager_ns, limit_ns).score >= score - 1e-9
    time_ns = eager_ns / speedup
    if limit_ns <= 0.95 * eager_ns and time_ns >= limit_ns:
        assert score == pytest.approx(1 / (1 + (time_ns - limit_ns) / (eager_ns - limit_ns)), rel=1e-6)


def test_no_score_without_a_limit_or_without_times() -> None:
    untimed = Timing("eager", 2.0, (1.9, 2.1), None, (), (), 1, 1, limit=TimeLimit(20.0, "counted"))
    other = Timing("tf32", 2.0, (1.9, 2.1), None, (1.0,), (2.0,), 1, 1, limit=TimeLimit(20.0, "counted"))
    without = Timing("eager", 2.0, (1.9, 2.1), None, (1.0,), (2.0,), 1, 1)
    assert [item.score for item in (untimed, other, without)] == [None] * 3
    assert without.score_text == ""
    for nothing in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="is none"):
            TimeLimit(nothing, "counted")


def test_a_record_from_before_there_were_limits_is_read() -> None:
    timing = scored(2.0, 100.0, 20.0)
    data = jsonable.encode(timing)
    assert jsonable.decode(Timing, data) == timing
    del data["limit"]
    assert jsonable.decode(Timing, data).limit is None
