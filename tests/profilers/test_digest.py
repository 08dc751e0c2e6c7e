"""The digest: few signals, the important ones, and what changed; whatever the numbers are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import jsonable
from kforge.profilers import digest
from kforge.profilers._format import cut
from kforge.types import ErrorNorm, Image, Outcome, Profile, Report, Timing, Verdict

pytestmark = pytest.mark.pure

VERDICT = Verdict(Outcome.CORRECT, "fine", errors=(ErrorNorm("natural", 0.0, 1e-4, 0.0),), custom_share=0.5)
TOOLS = ("torch_profiler", "roofline", "compiler_remarks", "perf", "other")
NAMES = (
    *("custom_share", "library_share", "overhead_share", "operator_calls", "allocated_bytes", "share/aten::mm"),
    *("share/", "roofline_share", "bound/memory", "bound/", "headroom", "floor_ns", "bytes_min", "output_bytes"),
    *("achieved_gbs", "ceiling_gbs", "unvectorised_loops", "vectorised_loops", "vector_bytes", "not known"),
    "instructions_per_cycle",
)
profiles = st.builds(
    Profile,
    st.sampled_from(TOOLS),
    st.dictionaries(st.sampled_from(NAMES), st.floats() | st.floats(0, 10), max_size=len(NAMES)),
    st.text(max_size=200) | st.just("not vectorised: a.cpp:3 `for`: why"),
    absent=st.sampled_from(("", "", "gone fishing")),
)


def roofline(**metrics):
    base = {"roofline_share": 0.3, "bound/memory": 1.0, "headroom": 3.1, "floor_ns": 2e5}
    return Profile("roofline", {**base, "achieved_gbs": 3.0, "ceiling_gbs": 10.0, "output_bytes": 4096.0} | metrics)


def operators(**metrics):
    shares = {"custom_share": 0.6, "library_share": 0.31, "overhead_share": 0.09}
    return Profile("torch_profiler", shares | metrics)


def loops(*sources, start=4, reason="why"):
    lines = [f"not vectorised: k.cpp:{start + number} `{source}`: {reason}" for number, source in enumerate(sources)]
    return Profile("compiler_remarks", {"unvectorised_loops": float(len(sources))}, "\n".join(lines))


def timed(speedup):
    interval = (0.9 * speedup, 1.1 * speedup)
    measured = Timing("eager", speedup, interval, None, (100.0,), (100.0 * speedup,), 5, 5)
    return replace(VERDICT, timing=measured)


def names(made):
    return [signal.name for signal in made.signals]


def signal(made, name):
    return next(item for item in made.signals if item.name == name)


@settings(max_examples=150, deadline=None)
@given(st.lists(profiles, max_size=5).map(tuple), st.lists(profiles, max_size=5).map(tuple))
def test_any_numbers_give_a_short_digest_and_always_the_same_one(before, now):
    previous = digest.digest(before, VERDICT)
    made = digest.digest(now, VERDICT, previous)
    assert made == digest.digest(now, VERDICT, previous)
    assert len(made.signals) <= digest.LIMIT
    assert len(set(names(made))) == len(made.signals)
    assert all(item.words and len(item.words) <= 700 for item in made.signals)
    assert all(item.change != "new" for item in made.signals)
    assert all(item.value is None or item.value >= 0 for item in made.signals)
    json.dumps(jsonable.encode(made), allow_nan=False)


@given(st.lists(profiles, max_size=4).map(tuple), st.sampled_from(sorted(digest.RULES)))
def test_a_rule_can_be_switched_off(given_profiles, name):
    assert name not in names(digest.digest(given_profiles, VERDICT, without=(name,)))


def test_the_machine_comes_first_and_the_bound_is_the_first_word():
    made = digest.digest((operators(), roofline(roofline_share=0.5, headroom=2.0)), VERDICT)
    assert names(made)[:3] == ["bound", "roofline_share", "headroom"]
    assert signal(made, "bound").words.startswith("memory bound")
    assert made.value("roofline_share") == 0.5
    assert "3 of 10 GB/s" in signal(made, "roofline_share").words


def test_far_from_the_ceiling_the_loops_come_first_and_the_bound_says_so():
    made = digest.digest((operators(), roofline(), loops("for (;;)", "while (x)")), VERDICT)
    assert names(made)[:2] == ["unvectorised_loops", "bound"]
    assert signal(made, "bound").words == "memory sets the least time, and the program is far from it"
    near = digest.digest((operators(), roofline(roofline_share=0.5), loops("for (;;)", "while (x)")), VERDICT)
    assert names(near)[0] == "bound"


def test_what_is_trivial_is_left_out():
    made = digest.digest((operators(library_share=0.01, overhead_share=0.02, custom_share=0.97),), VERDICT)
    assert names(made) == ["custom_share"]
    made = digest.digest((operators(library_share=0.0, overhead_share=0.005, custom_share=0.995),), VERDICT)
    assert names(made) == []


def test_loops_are_named_with_their_line_and_reason():
    lines = [f"not vectorised: k.cpp:{n} `for (...)`: reason {n}" for n in (4, 9, 12, 30)]
    lines[1] = "sum in order: k.cpp:9 `for (...)`: vectorised, but in order: `#pragma omp simd` allows more"
    remarks = Profile("compiler_remarks", {"unvectorised_loops": 4.0}, "\n".join(["compiled with: -O3", *lines]))
    words = signal(digest.digest((remarks,), VERDICT), "unvectorised_loops").words
    assert words.startswith("4 loops work one element at a time: k.cpp:4 ")
    assert "k.cpp:9 `for (...)`: vectorised, but in order: `#pragma omp simd` allows more;" in words
    assert "reason 12" in words
    assert "k.cpp:30" not in words


def test_a_long_loop_keeps_its_reason_and_whole_words():
    source = "for (long column = 0; column < number_of_columns_in_a_row; ++column) total = total + row[column] * weight"
    words = signal(digest.digest((loops(*[source] * 3, reason="why it is so"),), VERDICT), "unvectorised_loops").words
    assert words.count("why it is so") == 3
    assert words.count("`") == 6
    assert "`for (long column = 0; column < ...`" in words


@given(st.text("ab `.", max_size=80), st.integers(12, 60))
def test_a_cut_text_is_short_and_its_backticks_are_closed(text, most):
    made = cut(text, most)
    assert len(made) <= most
    if len(text.strip()) > most:
        assert made.endswith(" ...")
        assert made.count("`") % 2 == 0


def test_traffic_is_what_lies_between_operators():
    least = roofline(bytes_min=8192.0)
    made = digest.digest((least, operators(allocated_bytes=4096.0 * 3)), VERDICT)
    assert made.value("bytes_ratio") == 3.0
    assert digest.digest((least, operators(allocated_bytes=4096.0)), VERDICT).value("bytes_ratio") is None


def test_a_change_says_what_was_and_what_is():
    first = digest.digest((operators(), roofline()), VERDICT)
    faster = roofline(roofline_share=0.64, headroom=1.5)
    second = digest.digest((operators(library_share=0.0, operator_calls=9.0), faster), VERDICT, first)
    assert signal(second, "roofline_share").change == "was 30 %, now 64 %"
    assert signal(second, "bound").change == "unchanged"
    assert signal(second, "custom_share").change == ""
    assert signal(second, "operator_calls").change == ""
    gone = signal(second, "library_share")
    assert (gone.value, gone.change) == (None, "gone")
    assert gone.words == "torch's own operators take next to no time now (they took 31 %)"
    third = digest.digest((operators(library_share=0.0), faster), VERDICT, second)
    assert "library_share" not in names(third)


@pytest.mark.parametrize(
    ("speedup", "share", "says"),
    [
        (2.0, 0.6, "was 30 %, now 60 %"),
        (1.2, 0.2, ""),
        (0.8, 0.4, ""),
        (1.02, 0.5, ""),
        (1.08, 0.28, ""),
        (1.0, 0.3, ""),
    ],
)
def test_a_change_that_the_speedup_contradicts_is_left_out(speedup, share, says):
    first = digest.digest((roofline(),), timed(1.0))
    second = digest.digest((roofline(roofline_share=share, headroom=0.93 / share),), timed(speedup), first)
    assert signal(second, "roofline_share").change == says
    assert bool(signal(second, "headroom").change) == bool(says)


def test_loops_are_compared_by_their_text():
    first = digest.digest((loops("for (a)", "for (b)"),), VERDICT)
    moved = loops("for (a)", "for (b)", start=70)
    assert signal(digest.digest((moved,), VERDICT, first), "unvectorised_loops").change == ""
    other = digest.digest((loops("for (a)", "for (c)"),), VERDICT, first)
    assert signal(other, "unvectorised_loops").change == "other loops than before"
    fewer = digest.digest((loops("for (a)"),), VERDICT, first)
    assert signal(fewer, "unvectorised_loops").change == "was 2, now 1"
    none = digest.digest((Profile("compiler_remarks", {"unvectorised_loops": 0.0}),), VERDICT, first)
    assert signal(none, "unvectorised_loops").words == "no loop runs one element at a time any more (there were 2)"


def test_a_bound_that_changed_is_named():
    first = digest.digest((roofline(),), VERDICT)
    metrics = {name: value for name, value in roofline().metrics.items() if not name.startswith("bound/")}
    second = digest.digest((Profile("roofline", {**metrics, "bound/compute": 1.0}),), VERDICT, first)
    assert signal(second, "bound").change == "was memory, now compute"


def test_a_tool_that_did_not_run_makes_nothing_go_away():
    first = digest.digest((operators(), roofline()), VERDICT)
    second = digest.digest((replace(operators(), absent="lost"), roofline()), VERDICT, first)
    assert all(item.change != "gone" for item in second.signals)


def test_images_are_gathered_and_survive_a_report():
    picture = Image("image/png", bytes(range(256)))
    profile = Profile("window", {"frames": 2.0}, "text", (picture, picture))
    report = Report("job", "problem", "candidate", "cpu", VERDICT, (profile, Profile("other", absent="none")))
    back = jsonable.decode(Report, json.loads(json.dumps(jsonable.encode(report))))
    assert back == report
    assert digest.images(back.profiles) == (picture, picture)
    assert digest.images((replace(profile, absent="lost"),)) == ()
