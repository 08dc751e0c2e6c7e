"""The emulator's runtime: lanes that part and meet, barriers, groups, memory, faults, and what comes after a fault."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kforge.emulation import metal  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault, LaunchRequest, launch  # noqa: E402

pytestmark = pytest.mark.toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
ONE = "device float* y [[buffer(0)]], uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]"
TWO = f"device const float* x [[buffer(1)]], {ONE}"
BOTH = pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    yield
    metal.set_checked(False)


@functools.cache
def library(source: str) -> Any:
    return metal.compile_shader(source)


def kernel(body: str, parameters: str = ONE, before: str = "") -> str:
    return f"{HEAD}{before}kernel void k({parameters}) {{\n{body}\n}}\n"


def run(source: str, *arguments: Any, threads: Any = 64, group: Any = 64, checked: bool = True) -> None:
    metal.set_checked(checked)
    library(source).k(*arguments, threads=threads, group_size=group)


def fault(source: str, *arguments: Any, **how: Any) -> str:
    with pytest.raises(KernelFault) as caught:
        run(source, *arguments, **how)
    return str(caught.value)


def filled(body: str, parameters: str = ONE, **how: Any) -> list[float]:
    y = torch.full((how.pop("size", 64),), -1.0)
    run(kernel(body, parameters, how.pop("before", "")), y, *how.pop("given", ()), **how)
    return list(y.tolist())


# -- lanes that part and meet -------------------------------------------------------------------------------------


@BOTH
def test_a_sum_in_one_branch_is_of_the_lanes_in_it(checked: bool) -> None:
    body = "if (t % 3 == 0) y[i] = simd_sum(1.0f);\nelse y[i] = simd_sum(100.0f);"

    got = filled(body, checked=checked)

    thirds = [sum(lane % 3 == 0 for lane in range(first, first + 32)) for first in (0, 32)]
    assert got == [float(thirds[i // 32] if i % 3 == 0 else 100 * (32 - thirds[i // 32])) for i in range(64)]


@BOTH
def test_lanes_that_left_a_loop_take_no_part_in_it(checked: bool) -> None:
    body = "float n = 0;\nfor (uint k = 0; k <= t % 32; ++k) n += simd_sum(1.0f);\ny[i] = n;"

    assert filled(body, checked=checked) == [float(sum(32 - k for k in range(i % 32 + 1))) for i in range(64)]


@BOTH
def test_lanes_meet_again_behind_a_branch(checked: bool) -> None:
    body = "float v = 1;\nif (t % 32 < 5) v = simd_sum(1.0f);\ny[i] = simd_sum(v);"

    assert filled(body, checked=checked) == [5 * 5 + 27.0] * 64


@BOTH
def test_lanes_that_returned_take_no_part(checked: bool) -> None:
    body = "if (t % 32 >= 20) return;\ny[i] = simd_sum(1.0f);"

    assert filled(body, checked=checked) == [20.0 if i % 32 < 20 else -1.0 for i in range(64)]


@BOTH
def test_a_break_and_a_continue_part_lanes(checked: bool) -> None:
    body = """
    float n = 0;
    for (uint k = 0; k < 4; ++k) {
        if (k == t % 4) continue;
        if (k == 3 && t >= 32) break;
        n += simd_sum(1.0f);
    }
    y[i] = n;"""

    got = filled(body, checked=checked)

    assert got[:32] == [72.0] * 32
    assert got[32:] == [float(24 * sum(k != i % 4 for k in range(3))) for i in range(32)]


def test_a_shuffle_from_a_lane_elsewhere_is_a_fault() -> None:
    text = fault(kernel("if (t < 8) y[i] = simd_shuffle(float(t), 9);"), torch.zeros(64), checked=False)

    assert "a lane that does not take part" in text
    assert "simd_shuffle(float(t), 9)" in text


@BOTH
def test_a_neighbour_that_takes_no_part_has_no_number(checked: bool) -> None:
    """Whoever does not look at it is right."""
    body = "if (t % 32 < 8) { float v = simd_shuffle_down(1.0f, 4), w = simd_shuffle_up(1.0f, 1); y[i] = v + w; }"

    got = filled(body, checked=checked)

    assert [number == number for number in got[:8]] == [True] * 4 + [False] * 4
    assert got[:4] == [2.0] * 4


def test_a_broadcast_from_a_lane_there_is_none_of_is_a_fault() -> None:
    assert "does not take part" in fault(kernel("y[i] = simd_broadcast(1.0f, 30);"), torch.zeros(8), threads=8, group=8)


@BOTH
def test_shuffles_and_votes(checked: bool) -> None:
    body = """
    uint lane = t % 32;
    float v = float(lane);
    float down = simd_shuffle_down(v, 1), up = simd_shuffle_up(v, 2), other = simd_shuffle_xor(v, 5);
    float turned = simd_shuffle_rotate_down(v, 3), filled = simd_shuffle_and_fill_down(v, -v, 4);
    bool odd = lane & 1;
    y[i] = (lane == 31 || down == v + 1) && (lane < 2 || up == v - 2) && other == float(lane ^ 5)
        && turned == float((lane + 3) % 32) && filled == (lane < 28 ? v + 4 : -float((lane + 4) % 32))
        && uint(ulong(simd_ballot(odd))) == 0xAAAAAAAAu && simd_any(odd) && !simd_all(odd)
        && simd_prefix_exclusive_sum(1.0f) == v && simd_prefix_inclusive_sum(1.0f) == v + 1
        && simd_is_first() == (lane == 0) && simd_broadcast_first(v) == 0 && simd_max(v) == 31
        && quad_sum(1.0f) == 4 && quad_broadcast(v, 2) == float((lane & ~3u) + 2);"""

    assert filled(body, checked=checked) == [1.0] * 64


def test_a_matrix_of_a_simd_group_needs_all_its_lanes() -> None:
    body = "simdgroup_float8x8 m; if (t < 16) simdgroup_load(m, y);"

    assert "not all 32 lanes" in fault(kernel(body), torch.zeros(64), threads=32, group=32)


# -- barriers and groups ------------------------------------------------------------------------------------------


@BOTH
def test_barriers_in_loops(checked: bool) -> None:
    body = """
    threadgroup float s[256];
    s[t] = float(t);
    for (uint d = 128; d > 0; d /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < d) s[t] += s[t + d];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = s[0];"""

    assert filled(body, size=512, threads=512, group=256, checked=checked) == [255 * 128.0] * 512


@BOTH
def test_edge_groups_are_smaller(checked: bool) -> None:
    more = (
        ", uint n [[threads_per_threadgroup]], uint full [[dispatch_threads_per_threadgroup]], "
        "uint g [[threadgroups_per_grid]], uint lanes [[simdgroups_per_threadgroup]]"
    )
    body = "y[i] = float(n * 100000 + full * 1000 + g * 10 + lanes);"

    got = filled(body, ONE + more, size=150, threads=150, group=64, checked=checked)

    assert got == [6464032.0] * 128 + [2264031.0] * 22


@BOTH
def test_grids_of_three_dimensions(checked: bool) -> None:
    parameters = (
        "device int* y [[buffer(0)]], uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]], "
        "uint3 g [[threadgroup_position_in_grid]], uint3 t [[thread_position_in_threadgroup]], "
        "uint k [[thread_index_in_threadgroup]], uint3 s [[threads_per_threadgroup]]"
    )
    body = """
    bool right = all(p == g * uint3(4, 2, 2) + t) && k == (t.z * s.y + t.y) * s.x + t.x;
    y[(p.z * n.y + p.y) * n.x + p.x] = right ? int(p.x + 100 * p.y + 10000 * p.z) : -1;"""
    y = torch.full((5, 3, 7), -2, dtype=torch.int32)

    run(kernel(body, parameters), y, threads=(7, 3, 5), group=(4, 2, 2), checked=checked)

    z, j, x = torch.meshgrid(torch.arange(5), torch.arange(3), torch.arange(7), indexing="ij")
    assert torch.equal(y, (x + 100 * j + 10000 * z).int())


def test_a_flat_group_of_1024_threads_is_the_largest() -> None:
    assert filled("y[i] = float(t);", size=1024, threads=1024, group=1024) == [float(i) for i in range(1024)]
    assert "33 x 32 x 1 = 1056 threads; 1024 are allowed" in fault(
        kernel("y[i] = 1;"), torch.zeros(64), threads=(64, 64), group=(33, 32)
    )


@pytest.mark.parametrize(
    ("threads", "group"),
    [((64, 1), 64), (64, (8, 8)), (-1, 8), (64, 0), ((1, 1, 1, 1), (1,) * 4), (64.0, 64), ("64", 64), (2**32 + 6, 64)],
)
def test_grids_that_make_no_sense(threads: Any, group: Any) -> None:
    fault(kernel("y[i] = 1;"), torch.zeros(64), threads=threads, group=group)


def test_sizes_may_be_any_whole_numbers() -> None:
    size = torch.arange(65).numpy()[64]

    assert filled("y[i] = 1;", threads=size, group=(size,)) == [1.0] * 64


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"most_groups": (9, 3, 9)}, "4 groups in y; 3 are allowed there"),
        ({"most_group": (9, 9, 1)}, "a group of 2 threads in z; 1 are allowed there"),
    ],
)
def test_a_language_may_have_limits_of_its_own(limits: dict[str, Any], found: str) -> None:
    order = LaunchRequest("k", "kforge_kernel_0", {}, (4, 8, 4), (2, 2, 2), **limits)

    with pytest.raises(KernelFault, match=found):
        launch(library(kernel("y[i] = 1;"))._build(False), order)


def test_32_kib_of_group_memory_and_no_byte_more() -> None:
    fits = "threadgroup float a[4096]; threadgroup float b[4096]; a[t] = 1; b[t] = a[t]; y[i] = b[t];"
    large = fits.replace("b[4096]", "b[4097]")

    assert filled(fits) == [1.0] * 64
    text = fault(kernel(large), torch.zeros(64), checked=False)
    assert "32772 bytes, and it may have 32768" in text
    elsewhere = "if (i > 64) { threadgroup float a[9000]; a[t] = 1; y[i] = a[t]; }"
    assert "36000 bytes, and it may have 32768" in fault(kernel(elsewhere), torch.zeros(64), checked=False)


def test_divergent_barriers_say_who_waits() -> None:
    one = "if (t < 40) threadgroup_barrier(mem_flags::mem_none);"
    two = "if (t < 40) threadgroup_barrier(mem_flags::mem_none);\nelse threadgroup_barrier(mem_flags::mem_none);"

    alone = fault(kernel(one), torch.zeros(64), checked=False)
    apart = fault(kernel(two), torch.zeros(64), checked=False)

    assert "threads 0 to 39 of a group of 64 wait at the barrier in line 4, and the other 24 have returned" in alone
    assert "threads 0 to 39 of a group of 64 wait at the barrier in line 4, and thread 40 at the one in line 5" in apart
    beside = fault(kernel(two.replace("\n", " ")), torch.zeros(64), checked=False)
    assert (
        "threads 0 to 39 of a group of 64 wait at one barrier in line 4, and thread 40 at another one in that" in beside
    )


# -- races --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    {
        "a vector written, a component read": (
            "threadgroup float4 s[64]; threadgroup float* f = (threadgroup float*)s; s[t] = float4(t);\n"
            "if (t > 0) y[i] = f[4 * t - 3];",
            "race: it reads the group's memory",
        ),
        "halves of one word": (
            "threadgroup half2 s[64]; threadgroup half* h = (threadgroup half*)s; s[t] = half2(1.0h);\n"
            "if (t > 40) y[i] = h[2 * t - 65];",
            "race: it reads the group's memory",
        ),
        "read, then written by another": (
            "threadgroup float s[64]; s[t] = 1; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "y[i] = s[(t + 1) % 64]; s[t] = 2;",
            "race: it writes the group's memory",
        ),
        "a barrier for lanes is none for the group": (
            "threadgroup float s[64]; s[t] = 1; simdgroup_barrier(mem_flags::mem_threadgroup);\ny[i] = s[t ^ 32];",
            "the group's memory",
        ),
        "a group reads, another reads and writes": (
            "if (i < 64) y[i] = y[i + 64]; else y[i] += 1;",
            "a thread of another group",
        ),
        "two groups": ("y[t] += 1;", "a thread of another group"),
        "added to atomically, read plainly": (
            "threadgroup atomic_uint n; threadgroup uint* p = (threadgroup uint*)&n; *p = 0;\n"
            "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
            "atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed); y[i] = *p;",
            "race: it atomically changes the group's memory that thread 0 of its group read",
        ),
        "cleared plainly, added to atomically": (
            "threadgroup atomic_uint n; threadgroup uint* p = (threadgroup uint*)&n; if (t == 0) *p = 0;\n"
            "atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);",
            "race: it atomically changes the group's memory that thread 0 of its group wrote",
        ),
        "a total over groups, read plainly": (
            "atomic_fetch_add_explicit((device atomic_float*)y, 1.0f, memory_order_relaxed);\n"
            "if (i == 127) y[64] = y[0];",
            "race: it reads device memory that a thread of another group atomically changed",
        ),
    }.values(),
)
def test_races_are_found(body: str, found: str) -> None:
    y = torch.zeros(128)

    assert found in fault(kernel(body), y, threads=128)


@pytest.mark.parametrize(
    "body",
    [
        "threadgroup uchar s[64]; s[t] = uchar(t); y[i] = s[t];",
        "threadgroup half s[64]; s[t] = half(t); y[i] = s[t];",
        "threadgroup float flag; flag = 1; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = flag;",
        "threadgroup float s[64]; s[t] = t; simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[t ^ 1];",
        """threadgroup float s[64]; s[t] = 1; simdgroup_barrier(mem_flags::mem_threadgroup);
        float v = s[t ^ 1]; simdgroup_barrier(mem_flags::mem_threadgroup); s[t] += v; y[i] = s[t];""",
        """y[i] = t; threadgroup_barrier(mem_flags::mem_device); float v = y[i ^ 1];
        threadgroup_barrier(mem_flags::mem_device); y[i] = v;""",
        """threadgroup atomic_uint n; threadgroup uint* p = (threadgroup uint*)&n; if (t == 0) *p = 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = *p;""",
        """threadgroup atomic_int n; threadgroup int* p = (threadgroup int*)&n; if (t == 0) *p = 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (*p < int(t)) atomic_fetch_max_explicit(&n, int(t), memory_order_relaxed);""",
        "threadgroup float flag; y[i] = 1; flag = 1;",
    ],
    ids=[
        "bytes",
        "halves",
        "the same value by all",
        "lanes",
        "lanes, read and written again",
        "device memory",
        "atomics, a barrier, a plain read",
        "a look before an atomic maximum",
        "the same value by all, last of all",
    ],
)
def test_what_is_in_order_is_no_race(body: str) -> None:
    filled(body, size=128, threads=128)


@pytest.mark.parametrize(
    "barrier",
    [
        "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)",
        "simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)",
    ],
)
def test_no_race_however_many_barriers_there_were(barrier: str) -> None:
    body = f"""threadgroup float s[2];
    s[t] = t; y[i] = 1;
    for (uint k = 0; k < 16384; ++k) {barrier};
    float v = s[1 - t] + y[i ^ 1];
    {barrier};
    y[i] = v;"""

    assert filled(body, size=4, threads=4, group=2) == [2.0, 1.0, 2.0, 1.0]


TICKET = """
    y[g] = 1;
    {fence};
    if (atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed) == 7) {{
        float sum = 0;
        for (uint k = 0; k < 8; ++k) sum += y[k];
        y[8] = sum;
    }}"""
TICKETS = "device float* y, device atomic_uint* ticket, uint g [[threadgroup_position_in_grid]]"


@pytest.mark.parametrize(
    "fence",
    [
        "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device)",
        "threadgroup_barrier(mem_flags::mem_device)",
    ],
)
def test_the_last_group_sees_what_the_others_left(fence: str) -> None:
    y, ticket = torch.zeros(9), torch.zeros(1, dtype=torch.int32)

    run(kernel(TICKET.format(fence=fence), TICKETS), y, ticket, threads=8, group=1)

    assert y[8] == 8


def test_a_ticket_of_every_thread_orders_those_of_one_group_too() -> None:
    body = """
    y[i] = 1;
    atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    if (atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed) == 127) {
        float sum = 0;
        for (uint k = 0; k < 128; ++k) sum += y[k];
        y[128] = sum;
    }"""
    y, ticket = torch.zeros(129), torch.zeros(1, dtype=torch.int32)

    run(kernel(body, TICKETS + ", uint i [[thread_position_in_grid]]"), y, ticket, threads=128)

    assert y[128] == 128


@pytest.mark.parametrize("fence", ["", "threadgroup_barrier(mem_flags::mem_threadgroup)"])
def test_a_ticket_without_a_fence_is_a_race(fence: str) -> None:
    source = kernel(TICKET.format(fence=fence), TICKETS)

    text = fault(source, torch.zeros(9), torch.zeros(1, dtype=torch.int32), threads=8, group=1)

    assert "race: it reads device memory that a thread of another group wrote" in text
    assert "sum += y[k]" in text


def test_the_fast_mode_runs_threads_the_other_way_round() -> None:
    """So that a program whose numbers depend on the order gives two of them."""
    body = """threadgroup atomic_uint n;
    if (t == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);
    atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = atomic_load_explicit(&n, memory_order_relaxed);"""

    assert filled(body) == [64.0] * 64
    assert filled(body, checked=False) == [1.0] * 64


# -- memory -------------------------------------------------------------------------------------------------------


def test_the_same_tensor_twice_is_one_memory() -> None:
    y = torch.arange(64.0)

    run(kernel("y[i] = x[i] * 2;", TWO), y, y)

    assert torch.equal(y, torch.arange(64.0) * 2)


@BOTH
def test_a_view_is_bound_from_its_offset_on(checked: bool) -> None:
    whole = torch.zeros(100)
    view = whole[20:84]

    run(kernel("y[i] = float(i + 1);"), view, checked=checked)

    assert torch.equal(whole, torch.cat([torch.zeros(20), torch.arange(1.0, 65), torch.zeros(16)]))


def test_two_views_of_a_storage_may_overlap() -> None:
    whole = torch.arange(65.0)

    text = fault(kernel("y[i] = x[i];", TWO), whole[:64], whole[1:])

    assert "race" in text


def test_strides_are_ignored() -> None:
    x = torch.arange(64.0).view(8, 8)
    y = torch.zeros(64)

    run(kernel("y[i] = x[i];", TWO), y, x.t())

    assert torch.equal(y, x.flatten())


@BOTH
def test_nothing_to_do(checked: bool) -> None:
    empty = torch.empty(0)

    metal.set_checked(checked)
    library(kernel("y[i] = 1;")).k(empty)
    run(kernel("if (x[0] > 0) y[i] = 1;", TWO), torch.zeros(4), torch.ones(1), threads=0, group=4, checked=checked)


def test_a_buffer_without_bytes_may_be_bound_and_not_read() -> None:
    assert filled("y[i] = 1;", TWO, given=(torch.empty(0),)) == [1.0] * 64
    assert "which has 0 bytes" in fault(kernel("y[i] = x[i];", TWO), torch.zeros(64), torch.empty(0))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y[i + 1] = 1;", "right past the end of buffer 0 (`y`), which has 256 bytes"),
        ("y[i + 3] = 1;", "out of bounds: right past the end of buffer 0 (`y`)"),
        ("y[int(i) - 2] = 1;", "8 bytes before the start of buffer 0 (`y`)"),
        ("y[i * 100000] = 1;", "past the end of buffer 0"),
        ("float a[4]; a[t] = 1; y[i] = a[0];", "index 4 of an array"),
        ("float4 v = 0; v[t] = 1; y[i] = v.x + v[t];", "component 4 of a vector"),
        ("threadgroup float4 v[64]; v[t][t / 8] = 1;", "component 4 of a vector"),
        ("threadgroup float s[8]; threadgroup float* p = s; p[t] = 1;", "outside the group's shared variables"),
        ("threadgroup float s[64]; y[i] = s[t];", "uninitialised"),
        ("device float* p = nullptr; *p = 1;", "null pointer"),
    ],
)
def test_out_of_bounds_with_the_line(body: str, found: str) -> None:
    text = fault(kernel(body), torch.zeros(64))

    assert found in text
    assert "line 4" in text
    assert f"4 | {body}" in text


def test_the_fast_mode_sees_what_leaves_a_buffer_far_behind() -> None:
    assert "past the end of buffer 0" in fault(kernel("y[i + 10000] = 1;"), torch.zeros(64), checked=False)


def test_a_fault_leaves_the_tensors_as_they_were() -> None:
    y = torch.zeros(64)

    fault(kernel("y[i + 1] = 1;"), y)

    assert torch.equal(y, torch.zeros(64))


@BOTH
def test_private_memory_beyond_a_stack(checked: bool) -> None:
    body = "float a[200000]; for (uint k = 0; k < 200000; k += 1000) a[k + t] = float(k);\ny[i] = a[t * 1000];"

    assert "private memory is more than its stack of 256 KiB" in fault(kernel(body), torch.zeros(64), checked=checked)


@BOTH
def test_private_arrays_of_some_size(checked: bool) -> None:
    body = """float a[8192];
    for (uint k = 0; k < 8192; ++k) a[k] = float(k);
    threadgroup_barrier(mem_flags::mem_none);
    y[i] = a[t * 100];"""

    assert filled(body, checked=checked) == [float(i * 100) for i in range(64)]


@BOTH
def test_division_by_zero(checked: bool) -> None:
    body = "int n = int(y[i]); y[i] = float(7 / n);"

    assert "line 4: an integer was divided by zero" in fault(kernel(body), torch.zeros(64), checked=checked)


@BOTH
def test_atomics_under_contention(checked: bool) -> None:
    parameters = (
        "device atomic_int* sums [[buffer(0)]], device atomic_float* total [[buffer(1)]], "
        "device atomic_uint* most [[buffer(2)]], uint i [[thread_position_in_grid]]"
    )
    body = """
    atomic_fetch_add_explicit(&sums[i % 3], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(total, 0.5f, memory_order_relaxed);
    atomic_fetch_max_explicit(most, i, memory_order_relaxed);
    int seen = atomic_load_explicit(&sums[3], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(
        &sums[3], &seen, seen + 2, memory_order_relaxed, memory_order_relaxed)) {}"""
    sums, total, most = torch.zeros(4, dtype=torch.int32), torch.zeros(1), torch.zeros(1, dtype=torch.int32)

    run(kernel(body, parameters), sums, total, most, threads=30000, group=256, checked=checked)

    assert sums.tolist() == [10000, 10000, 10000, 60000]
    assert total.item() == 15000.0
    assert most.item() == 29999


# -- many launches, and launches after a fault --------------------------------------------------------------------


@BOTH
def test_a_good_launch_after_each_fault(checked: bool) -> None:
    good = kernel(
        "threadgroup float s[64]; s[t] = i; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[63 - t];"
    )
    bad = [
        "threadgroup float s[9000]; s[t] = 1;",
        "y[i + 100000] = 1;",
        "if (t < 3) threadgroup_barrier(mem_flags::mem_none);",
        "if (t == 1) y[i] = simd_shuffle(1.0f, 2);",
    ]
    for body in bad:
        fault(kernel(body), torch.zeros(256), threads=256, checked=checked)
        y = torch.zeros(256)
        run(good, y, threads=256, checked=checked)
        assert torch.equal(y, torch.arange(256.0).view(4, 64).flip(1).flatten())


def test_many_launches_leave_nothing_behind() -> None:
    source = kernel("threadgroup float s[64]; s[t] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] += s[t];")
    y = torch.zeros(1 << 12)
    for number in range(100):
        run(source, y, threads=1 << 12, checked=number % 2 == 0)
    threads, before = threading.active_count(), _maps()
    for number in range(300):
        run(source, y, threads=1 << 12, checked=number % 2 == 0)
    gc.collect()

    assert torch.equal(y, torch.full((1 << 12,), 400.0))
    assert threading.active_count() == threads
    assert _maps() - before < 100
    assert len(os.listdir("/proc/self/task")) <= threads + torch.get_num_threads() + 8


def _maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


@BOTH
def test_launches_from_several_threads_take_turns(checked: bool) -> None:
    source = kernel(
        "threadgroup float s[64]; s[t] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] += s[63 - t];"
    )
    metal.set_checked(checked)
    tensors = [torch.zeros(4096) for _ in range(4)]

    def work(y: Any) -> None:
        for _ in range(5):
            library(source).k(y, threads=4096, group_size=64)

    library(source).k(torch.zeros(64), threads=64, group_size=64)
    workers = [threading.Thread(target=work, args=(y,)) for y in tensors]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert all(torch.equal(y, torch.full((4096,), 5.0)) for y in tensors)


def test_an_endless_loop_can_be_killed() -> None:
    source = kernel("while (y[0] >= 0) { y[i] = y[i] + 1 > 5 ? 0 : y[i] + 1; }")
    y = torch.zeros(64)
    library(source)
    child = os.fork()
    if not child:
        run(source, y, checked=False)
        os._exit(0)
    time.sleep(0.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_a_number_that_does_not_fit_its_cast_is_a_sentence() -> None:
    library = metal.compile_shader("kernel void f(device int* y, constant int& n) { y[0] = n; }")
    y = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(KernelFault, match=r"argument 1: 5000000000 does not fit int32"):
        library.f(y, 5_000_000_000, threads=1, arg_casts="int32")
