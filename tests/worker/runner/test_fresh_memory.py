"""Memory that a program is given in a checked call: fences around it, and nothing in it that happens to be zero."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from kforge.worker.runner.fenced_memory import FencedMemory  # noqa: E402
from kforge.worker.runner.heap_poison import FILLS, poisoned_heap  # noqa: E402
from kforge.worker.runner.modes import Poison  # noqa: E402

pytestmark = pytest.mark.cpu

MAKERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty": lambda x: torch.empty(5, 7),
    "empty_like": torch.empty_like,
    "zeros": lambda x: torch.zeros(5, 7),
    "full_like": lambda x: torch.full_like(x, 2.0),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "relu": torch.relu,
    "product": lambda x: x @ x.t(),
    "second of several": lambda x: x.max(dim=1)[1],
    "another dtype": lambda x: x.to(torch.bfloat16),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("behind", [True, False])
def test_a_write_beside_any_new_tensor_is_seen(name: str, behind: bool) -> None:
    x, memory = torch.randn(5, 7), FencedMemory()
    expected = MAKERS[name](x)
    with torch.no_grad(), Poison("cpu", memory):
        made = MAKERS[name](x)
    assert (made.shape, made.stride(), made.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert (made.storage_offset(), made.untyped_storage().nbytes()) == (0, expected.nbytes)
    assert made.data_ptr() % 64 == 0
    if "empty" not in name:
        assert torch.equal(made, expected)
    assert memory.place_written() == ""
    ctypes.memset(made.data_ptr() + made.nbytes if behind else made.data_ptr() - 1, 0, 1)
    where = "behind the end of" if behind else "before the start of"
    assert memory.place_written().startswith(f"{where} a tensor of shape")


def test_a_fence_is_looked_at_when_its_tensor_is_freed_and_is_not_held_longer() -> None:
    memory = FencedMemory()
    with torch.no_grad(), Poison("cpu", memory):
        for _ in range(3):
            kept = torch.empty(100).view(10, 10)[2:]
            ctypes.memset(kept.data_ptr(), 0, 8)
        other = torch.empty(4)
    assert len(memory._blocks) == 2
    ctypes.memset(other.data_ptr() - 4, 0, 4)
    del other
    gc.collect()
    assert len(memory._blocks) == 1
    assert memory.place_written().startswith("before the start of")


def test_both_contents_of_fences_take_turns() -> None:
    memory = FencedMemory()
    behind = []
    for _ in range(2):
        memory.begin_call()
        tensor = memory.like(torch.zeros(4))
        behind.append(ctypes.c_float.from_address(tensor.data_ptr() + 16).value)
    assert sum(value != value for value in behind) == 1


def test_views_and_what_is_changed_in_place_stay_where_they_are() -> None:
    x, memory = torch.randn(4, 4), FencedMemory()
    with torch.no_grad(), Poison("cpu", memory):
        assert x.view(16).data_ptr() == x.t().data_ptr() == x.add_(1).data_ptr() == x.data_ptr()
        grown = torch.empty(8).resize_(4000).fill_(1.0)
    assert float(grown.sum()) == 4000
    assert memory.place_written() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.parametrize("size", [40, 1000, 5000, 3 << 20])
@pytest.mark.parametrize("fill", FILLS)
def test_unwritten_memory_is_filled_and_zeroed_memory_is_zero(size: int, fill: int) -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        pytest.skip("not glibc")
    libc.malloc.restype = libc.calloc.restype = ctypes.c_void_p
    libc.free.argtypes = (ctypes.c_void_p,)
    with poisoned_heap(fill):
        unwritten, zeroed = libc.malloc(ctypes.c_size_t(size)), libc.calloc(1, ctypes.c_size_t(size))
        # The first words of a small block are the allocator's own.
        assert set(ctypes.string_at(unwritten, size)[16:]) == {fill}
        assert set(ctypes.string_at(zeroed, size)) == {0}
        libc.free(unwritten)
        libc.free(zeroed)
