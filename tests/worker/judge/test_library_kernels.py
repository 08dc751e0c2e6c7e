"""Whose kernel is it: those that a loaded library's file names are the library's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.worker.judge.integrity import Observation
from kforge.worker.judge.library_kernels import mark_library_kernels
from kforge.worker.protocol.records import ObservedKernel

pytestmark = pytest.mark.pure

PIXELS = "void pictures::detail::ForEachPixel<float, 1>(Image<float>, float)"


def observed(*names: str) -> Observation:
    return Observation((), True, names, tuple(ObservedKernel(name, "own", 1000) for name in names))


@pytest.fixture
def library(tmp_path: Path) -> str:
    path = tmp_path / "libpictures.so.1"
    path.write_bytes(
        b"\x7fELF\0_ZN8pictures6detail12ForEachPixelIfLi1EEEv5ImageIfEf\0_ZN38_GLOBAL__N__12ab_9_file_cu_34cd9LookAside\0plain_name\0"
    )
    return str(path)


def test_a_kernel_that_a_loaded_library_holds_is_the_librarys(library: str) -> None:
    found = mark_library_kernels(observed(PIXELS, "relu"), (library,), ())
    assert [kernel.whose for kernel in found.kernels] == ["library", "own"]
    assert found.native == ("relu",)
    for name in ("plain_name", "void (anonymous namespace)::LookAside(float*)"):
        assert mark_library_kernels(observed(name), (library,), ()).native == ()


def test_a_library_that_the_reference_has_too_changes_nothing(library: str) -> None:
    assert mark_library_kernels(observed(PIXELS), (library,), (library,)).native == (PIXELS,)


def test_a_part_of_a_name_is_not_the_name(library: str) -> None:
    names = ("plain", "ForEachPixel(float*)x", "void ForEachPixels<float>(float)", "void plain_name(float*)")
    assert mark_library_kernels(observed(*names), (library,), ()).native == names


def test_compilers_compute_nothing(tmp_path: Path) -> None:
    path = tmp_path / "libnvrtc.so.13"
    path.write_bytes(b"\0some_kernel\0")
    assert mark_library_kernels(observed("some_kernel"), (str(path),), ()).native == ("some_kernel",)
