"""Whose code did the work, as far as sampled program counters can tell."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.worker.judge import elementary_functions
from kforge.worker.judge.code_samples import CodeSamples, is_library_work
from kforge.worker.protocol.keeper import ThreadPlace

pytestmark = pytest.mark.pure


def samples(own: int, library: int) -> CodeSamples:
    return CodeSamples(own, Counter({"libtorch_cpu.so": library}), own + library, library)


def places(threads: dict[str, int]) -> list[ThreadPlace]:
    return [ThreadPlace(file, 0) for file, count in threads.items() for _ in range(count)]


def test_a_library_behind_a_kernel_that_claims_everything() -> None:
    assert is_library_work(samples(own=3, library=57), in_operators=0.05)


def test_operators_of_torch_account_for_their_own_work() -> None:
    """Most of the call is an operator's: a share known from one call leaves no room to see more in samples."""
    assert not is_library_work(samples(own=1, library=60), in_operators=0.9)
    assert not is_library_work(samples(own=12, library=48), in_operators=0.6)


def test_few_moments_say_nothing() -> None:
    assert not is_library_work(samples(own=0, library=11), in_operators=0.0)


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0, 1), st.floats(0, 1))
def test_more_work_in_operators_never_makes_a_suspect(own: int, library: int, one: float, two: float) -> None:
    found = samples(own, library)
    assert is_library_work(found, min(one, two)) >= is_library_work(found, max(one, two))


def test_the_programs_own_files_and_those_that_serve_whoever_calls_them_are_told_apart() -> None:
    found = CodeSamples()
    known = ("/usr/", "/venv/torch/")
    found.add(
        places({"/tmp/kernel.so": 2, "": 1, "/usr/lib/libgomp.so.1": 5, "/usr/lib/libopenblas.so": 4, "[waiting]": 9}),
        known,
    )
    assert (found.own, dict(found.libraries)) == (3, {"libopenblas.so": 4})


def test_functions_of_the_systems_mathematics_are_a_kernels_own_work() -> None:
    """A recurrence of hyperbolic tangents is in libm most of the time, and torch only draws its initial state."""
    found = CodeSamples()
    found.add(
        places({"/tmp/kernel.so": 6, "/usr/lib/libm.so.6": 40, "/venv/torch/libtorch_cpu.so": 13}), ("/usr/", "/venv/")
    )
    assert found.own == 46
    assert not is_library_work(found, in_operators=0.1)


def test_a_kernel_that_moves_memory_or_waits_is_not_taken_for_the_little_that_torch_does() -> None:
    """What operators take of a call is time; a share of the moments in which something computes is not."""
    for rest in ("/usr/lib/libc.so.6", "[waiting]"):
        found = CodeSamples()
        for file in [rest] * 80 + ["/venv/torch/libtorch_cpu.so"] * 15:
            found.add(places({file: 1}), ("/usr/", "/venv/"))
        assert found.library_share() == 1.0
        assert not is_library_work(found, in_operators=0.1)


def test_functions_of_torchs_headers_are_a_kernels_own_work_and_the_rest_of_torch_is_not() -> None:
    """`at::vec` calls functions that lie in torch's library, beside its operators."""
    library = elementary_functions.torch_library()
    ranges = elementary_functions.function_ranges(library)
    if not ranges:
        pytest.skip("this build of torch exports no elementary functions")
    found = CodeSamples()
    inside, outside = ranges[len(ranges) // 2][0], ranges[-1][1]
    found.add([ThreadPlace(library, inside)] * 7 + [ThreadPlace(library, outside)] * 2, (os.path.dirname(library),))
    assert (found.own, dict(found.libraries)) == (7, {"libtorch_cpu.so": 2})


@pytest.mark.toolchain
def test_only_torchs_own_library_has_elementary_functions(tmp_path: Path) -> None:
    """A library elsewhere may call its functions what it likes."""
    source, library = tmp_path / "own.c", tmp_path / "libtorch_cpu.so"
    source.write_text("int helper(int x) { return x + 1; }\nint Sleef_tanhf8_u10(int x) { return x * x; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    ((start, end),) = elementary_functions.function_ranges(str(library))
    code = library.read_bytes()[start:end]
    assert code.endswith(b"\xc3") if platform.machine() == "x86_64" else code.endswith(bytes.fromhex("c0035fd6"))
    assert not elementary_functions.is_elementary(str(library), start)


def test_what_is_no_library_has_no_elementary_functions(tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("text", b"words"), ("cut", b"\x7fELF\x02\x01" + b"\xff" * 70)):
        (tmp_path / name).write_bytes(content)
        assert elementary_functions.function_ranges(str(tmp_path / name)) == ()
    assert elementary_functions.function_ranges(str(tmp_path / "absent")) == ()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12), st.integers(-2, 75))
def test_a_place_is_in_merged_ranges_if_it_is_in_one_of_them(spans: list[tuple[int, int]], place: int) -> None:
    ranges = [(start, start + size) for start, size in spans]
    merged = elementary_functions.merge_ranges(ranges)
    assert elementary_functions.contains(merged, place) == any(start <= place < end for start, end in ranges)
