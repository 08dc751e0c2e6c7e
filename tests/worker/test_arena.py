"""Tensors between pages that nobody may access: where they lie, and what an access there is called."""

from __future__ import annotations

import mmap
import os
import signal
import sys

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kforge.worker.arena import Arena, ArenaLayout, Side  # noqa: E402
from kforge.worker.runner.fault_record import FaultRecord  # noqa: E402

pytestmark = pytest.mark.cpu

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64)
tensors = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 40), max_size=3)), min_size=1, max_size=4
).map(lambda described: [torch.zeros(shape, dtype=dtype) for dtype, shape in described])
linux = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected on Linux only")


@settings(max_examples=60, deadline=None)
@given(tensors, st.sampled_from(("start", "end")))
def test_every_byte_is_a_tensor_a_fence_or_a_guard(made: list[torch.Tensor], side: Side) -> None:
    layout = ArenaLayout(side)
    specs = [layout.place(tensor) for tensor in made]
    spans = [(spec.offset, spec.offset + tensor.nbytes) for spec, tensor in zip(specs, made, strict=True)]
    parts = sorted(span for span in [*spans, *layout.fences, *layout.guards] if span[0] < span[1])
    assert [0, *(stop for _, stop in parts)] == [*(start for start, _ in parts), layout.size]
    for (start, stop), tensor in zip(spans, made, strict=True):
        assert start % 64 == 0, "vectors of 64 bytes may be aligned"
        if tensor.numel() and side == "start":
            assert any(end == start for _, end in layout.guards)
        elif tensor.numel():
            assert any(stop <= begin < stop + 64 for begin, _ in layout.guards)
    assert all(start % mmap.PAGESIZE == stop % mmap.PAGESIZE == 0 for start, stop in layout.guards)


def test_a_place_outside_is_told_by_the_tensor_it_is_nearest_to() -> None:
    layout = ArenaLayout("end")
    first, second = (layout.place(torch.zeros(100)) for _ in range(2))
    assert layout.neighbour(first.offset - 1) == (0, "before the start of")
    assert layout.neighbour(first.offset + 400) == (0, "behind the end of")
    assert layout.neighbour(first.offset + 400_000) == (0, "behind the end of")
    assert layout.neighbour(second.offset - 400_000) == (1, "before the start of")


@pytest.mark.parametrize("side", ["start", "end"])
def test_a_guarded_tensor_has_a_storage_of_its_own(side: Side) -> None:
    layout = ArenaLayout(side)
    specs = [layout.place(torch.zeros(10, 3)) for _ in range(2)]
    arena = Arena.create(layout.size)
    arena.poison(layout.fences)
    fences = arena._bytes
    arena.protect(layout.guards)
    one, two = (arena.tensor(spec) for spec in specs)
    assert (two.storage_offset(), two.untyped_storage().nbytes()) == (0, 120)
    one.fill_(1.0)
    assert not two.any()
    assert arena.changed_poison(layout.fences) is None
    fences[specs[1].offset + 120] = 0
    assert arena.changed_poison(layout.fences) == specs[1].offset + 120


@linux
@pytest.mark.parametrize(("side", "step"), [("start", -1), ("end", 64)])
def test_an_access_to_a_guard_ends_the_process_and_is_written_down(side: Side, step: int) -> None:
    layout = ArenaLayout(side)
    spec = layout.place(torch.zeros(16))
    arena = Arena.create(layout.size)
    record = FaultRecord()
    child = os.fork()
    if child == 0:
        arena.protect(layout.guards)
        record.install()
        record.note_inputs(arena.address)
        arena._map[spec.offset + step]
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
    assert record.offset() == spec.offset + step


def test_without_a_fault_nothing_is_written_down() -> None:
    record = FaultRecord()
    assert record.offset() is None
    record.note_inputs(4096)
    assert record.offset() is None
