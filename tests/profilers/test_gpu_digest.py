"""The digest on a GPU: the true limiter first, in few words, whatever the kernels are called."""

from __future__ import annotations

import csv
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.profilers import digest, ncu
from kforge.profilers._gpu_causes import NAMES
from kforge.types import ErrorNorm, Outcome, Profile, Verdict
from planted import LIMITERS, table, tables

pytestmark = pytest.mark.pure

VERDICT = Verdict(Outcome.CORRECT, "fine", errors=(ErrorNorm("natural", 0.0, 1e-4, 0.0),), custom_share=1.0)
LETTERS_A_TOKEN = 3
MOST_TOKENS = 1500


def made(*profiles, previous=None, without=()):
    return digest.digest(profiles, VERDICT, previous, without)


def names(found):
    return [signal.name for signal in found.signals]


def words(found, name):
    return next(signal.words for signal in found.signals if signal.name == name)


def renamed(text, old, new="k"):
    return text.replace(f'"{old}(', f'"{new}(')


def roofline(**metrics):
    base = {"bound/memory": 1.0, "roofline_share": 0.3, "headroom": 3.0, "floor_ns": 1e5, "launch_ns": 900.0}
    return Profile("roofline", base | metrics)


def product(allowed, kind):
    """Where a 2048 x 2048 matrix product stands."""
    work = {"flops": 2.0 * 2048**3, "intensity": 512.0, "bytes_min": 3 * 2048.0**2 * 2, "matrix_share": 1.0}
    return roofline(**work, tensor_allowed=allowed, **{f"arithmetic/{kind}": 1.0})


def trace(**metrics):
    base = {"busy_ns": 5e5, "launches": 1.0, "idle_share": 0.01, "library_share": 0.0, "copy_share": 0.0}
    return Profile("torch_trace", base | metrics)


# -- the planted bottlenecks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", LIMITERS)
def test_the_true_limiter_is_named_first_and_not_by_the_kernels_name(kernel):
    found = made(ncu.profile_of(renamed(table(kernel), kernel)))
    assert names(found)[0] == "limiter"
    assert words(found, "limiter").split()[0] == LIMITERS[kernel]
    assert "`k`" in words(found, "limiter") or kernel == "tiny"


@pytest.mark.parametrize("kernel", LIMITERS)
def test_what_else_is_known_does_not_hide_the_limiter(kernel):
    others = (
        trace(launches=20.0, busy_ns=4.5e4) if kernel == "tiny" else trace(),
        product(1.0, "float16") if kernel == "no_tensor_cores" else roofline(matrix_share=0.0, intensity=0.25),
        Profile("sass", {"load_bits": 32.0, "registers": 40.0}),
    )
    found = made(ncu.profile_of(table(kernel)), *others)
    assert words(found, "limiter").split()[0] == LIMITERS[kernel]
    assert len(found.text) / LETTERS_A_TOKEN <= MOST_TOKENS


@pytest.mark.parametrize("kernel", LIMITERS)
def test_the_digest_is_the_same_whatever_the_order_of_the_columns_and_whatever_else_was_counted(kernel):
    rows = list(csv.reader(line for line in table(kernel).splitlines() if line.startswith('"')))
    order = list(range(1, len(rows[0])))
    random.Random(7).shuffle(order)
    shuffled = io.StringIO()
    writer = csv.writer(shuffled, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for number, row in enumerate(rows):
        extra = {0: ["device__attribute_clock_rate", "foo__bar.sum"], 1: ["", "byte"]}.get(number, ["7", "7"])
        writer.writerow([row[0], *(row[column] for column in order), *extra])
    assert made(ncu.profile_of(shuffled.getvalue())) == made(ncu.profile_of(table(kernel)))


def test_hundreds_of_columns_become_a_few_numbers_within_what_a_profile_may_hold():
    for kernel in LIMITERS:
        profile = ncu.profile_of(table(kernel))
        assert len(table(kernel).splitlines()[4].split('","')) > 400
        assert len(profile.metrics) <= 64
        assert not any("device__" in name for name in profile.metrics)
        assert profile.raw[0].data.decode() == table(kernel)


# -- several kernels ---------------------------------------------------------------------------------------------------


def test_kernels_are_weighed_by_time_and_named():
    found = made(ncu.profile_of(tables("memory_bound", "uncoalesced", "tiny")))
    assert words(found, "limiter").startswith("uncoalesced global loads limit `uncoalesced`")
    assert "`uncoalesced` is 48 % of the device's time" in words(found, "limiter")
    assert words(found, "unit").startswith("also: memory limits `memory_bound`")
    longer = made(ncu.profile_of(tables("atomics", "memory_bound", "uncoalesced")))
    assert words(longer, "limiter").startswith("atomics limit `atomics`")
    assert "`atomics` 87 %" in words(longer, "kernel_list")


def test_a_cause_gathers_weight_over_the_kernels_it_holds_back():
    once = made(ncu.profile_of(tables("spilling", "memory_bound")))
    assert words(once, "limiter").startswith("spilling limits `spilling`")
    rows = "\n".join(renamed(rows_of("memory_bound"), "memory_bound", name) for name in "abc")
    thrice = made(ncu.profile_of(f"{table('spilling').rstrip()}\n{rows}"))
    assert words(thrice, "limiter").startswith("memory limits `a`")
    assert "also: spilling limits" in words(thrice, "spilling")


def rows_of(kernel):
    return "\n".join(line for line in table(kernel).splitlines() if line.startswith('"') and line[1].isdigit())


def test_a_kernel_whose_numbers_were_cut_is_not_judged():
    whole = ncu.profile_of(tables("atomics", "bank_conflicts")).metrics
    assert "bank_conflicts" in names(made(Profile("ncu", whole)))
    some = dict(list(whole.items())[: len(whole) - 5])
    found = made(Profile("ncu", some))
    assert words(found, "limiter").startswith("atomics")
    assert "bank_conflicts" not in names(found)


def test_more_launches_than_are_looked_at_are_said():
    found = made(ncu.profile_of(table("tiny")), roofline(bytes_min=1.0))
    assert words(found, "kernel_list").startswith("the first 20 launches")
    assert "traffic" not in names(found)
    assert "traffic_ratio" not in names(found)


# -- tensor cores ------------------------------------------------------------------------------------------------------


def test_tensor_cores_are_missed_only_where_the_problem_allows_them():
    profile = ncu.profile_of(table("no_tensor_cores"))
    found = made(profile, product(1.0, "bfloat16"))
    assert words(found, "limiter").startswith(
        "tensor-cores stay idle in `no_tensor_cores`: the matrix product of bfloat16"
    )
    exact = made(profile, product(0.0, "float32"))
    assert "tensor_cores" not in names(exact)
    assert words(exact, "limiter").startswith("L1-cache and shared-memory accesses limit")
    thin = made(profile, Profile("roofline", product(1.0, "float16").metrics | {"intensity": 1.0}))
    assert not words(thin, "limiter").startswith("tensor")
    assert "tensor_cores" not in names(thin)


def test_a_product_that_uses_them_is_not_accused():
    metrics = dict(ncu.profile_of(table("no_tensor_cores")).metrics)
    metrics["1/tensor_share"] = 0.6
    found = made(Profile("ncu", metrics), product(1.0, "float16"))
    assert "tensor" not in words(found, "limiter").split()[0]


# -- traffic, launches, occupancy --------------------------------------------------------------------------------------


def test_traffic_is_held_against_what_the_problem_needs():
    profile = ncu.profile_of(table("memory_bound"))
    moved = profile.metrics["dram_bytes"]
    near = made(profile, roofline(bytes_min=moved / 1.02))
    assert words(near, "limiter").startswith("memory limits")
    assert "1 times" in words(near, "traffic_ratio")
    far = made(profile, roofline(bytes_min=moved / 4))
    assert words(far, "limiter").startswith("traffic limits the call: 4.0 times the bytes")
    assert "memory limits" in words(far, "unit")


def test_gaps_between_kernels_count_as_launching():
    profile = ncu.profile_of(table("memory_bound"))
    assert words(made(profile, trace(idle_share=0.07)), "launch_share").startswith("the device idles 7 %")
    found = made(profile, trace(idle_share=0.8, launches=40.0))
    assert words(found, "limiter").startswith("launches limit the call: 40 kernels")
    alone = made(trace(idle_share=0.0, launches=1.0, busy_ns=2000.0))
    assert "its one kernel takes 2 µs, where a launch alone costs" in words(alone, "limiter")


def test_occupancy_stalls_and_units_are_told():
    found = made(ncu.profile_of(table("low_occupancy_registers")))
    assert words(found, "occupancy_reached").startswith("occupancy of `low_occupancy_registers` is 12 % of the warps")
    assert "registers (176 a thread, 256 threads a block) allow 12 %" in words(found, "occupancy_reached")
    assert "global or local memory (long_scoreboard) 99 %" in words(
        made(ncu.profile_of(table("memory_bound"))), "stalls"
    )
    assert "SM 9 %, L1 and shared memory 27 %, L2 88 %, DRAM 82 %" in words(
        made(ncu.profile_of(table("memory_bound"))), "units"
    )
    few = made(ncu.profile_of(table("uncoalesced")))
    assert "its 512 blocks are too few" in words(few, "occupancy_reached")


# -- switching off, changes, size --------------------------------------------------------------------------------------


def test_a_cause_switched_off_is_named_nowhere():
    profile = ncu.profile_of(table("uncoalesced"))
    found = made(profile, without=("uncoalesced",))
    assert "uncoalesced" not in names(found)
    assert words(found, "limiter").startswith("L1-cache")
    assert "limiter" not in names(made(profile, without=("limiter",)))
    assert words(made(profile, without=("limiter",)), "uncoalesced").startswith("uncoalesced global loads")
    assert not {"limiter", *NAMES} & set(names(made(profile, without=NAMES)))


@pytest.mark.parametrize("kernel", ["spilling", "tiny", "no_tensor_cores"])
def test_every_rule_can_be_switched_off(kernel):
    for rule in digest.RULES:
        assert rule not in names(made(ncu.profile_of(table(kernel)), trace(), roofline(bytes_min=1e6), without=(rule,)))


def test_the_limiter_says_what_it_was_before():
    before = made(ncu.profile_of(table("uncoalesced")))
    after = made(ncu.profile_of(table("memory_bound")), previous=before)
    assert after.signals[0].change == "was uncoalesced, now memory"
    same = made(ncu.profile_of(table("memory_bound")), previous=after)
    assert same.signals[0].change == "unchanged"
    units = next(signal for signal in after.signals if signal.name == "units")
    assert units.change == "was 96 %, now 88 %"


def test_a_cause_that_becomes_the_limiter_is_not_gone_and_one_that_ends_is():
    before = made(ncu.profile_of(tables("atomics", "bank_conflicts")))
    assert "bank_conflicts" in names(before)
    heavier = made(ncu.profile_of(table("bank_conflicts")), previous=before)
    assert words(heavier, "limiter").startswith("bank-conflicts")
    assert "bank_conflicts" not in names(heavier)
    ended = made(ncu.profile_of(table("memory_bound")), previous=before)
    assert "without bank conflicts now (they were 97 % of the accesses)" in words(ended, "bank_conflicts")


TOOLS = ("ncu", "torch_trace", "nsys", "sass", "roofline", "torch_profiler")
KNOWN = (
    *ncu.profile_of(tables("spilling", "tiny", "atomics")).metrics,
    *product(1.0, "float16").metrics,
    *trace().metrics,
    *("load_bits", "spill_instructions", "fp64_instructions", "stack_bytes", "share/a", "share/", "1/stall/", "cut"),
)
profiles = st.builds(
    Profile,
    st.sampled_from(TOOLS),
    st.dictionaries(st.sampled_from(KNOWN), st.floats() | st.floats(0, 2) | st.floats(0, 1e12), max_size=60),
    st.just("text"),
    absent=st.sampled_from(("", "", "", "gone fishing")),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(profiles, max_size=6).map(tuple), st.lists(profiles, max_size=6).map(tuple))
def test_any_numbers_give_a_digest_that_fits(before, now):
    previous = digest.digest(before, VERDICT)
    found = digest.digest(now, VERDICT, previous)
    assert found == digest.digest(now, VERDICT, previous)
    assert len(found.text) / LETTERS_A_TOKEN <= MOST_TOKENS
    assert len(found.signals) <= digest.GPU_LIMIT
    assert len(set(names(found))) == len(found.signals)
    assert all(signal.value is None or signal.value >= 0 for signal in found.signals)
