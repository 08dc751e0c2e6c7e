"""Tensors in memory that judge and runner both map.

The judge makes an `Arena` (sealed, so that the other side cannot shrink it under the judge), lays tensors out in it,
and sends the descriptor; the runner maps it and sees the same bytes. Neither side ever shares an object.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import mmap
import os
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Literal

import torch

from kforge.worker.protocol.records import Spec

_ALIGN = 512
_FENCE = 64
"""Bytes at least between the end of a tensor and the next one."""
POISON = 0xFF
"""Of floating numbers, NaN."""
_GUARD = 1 << 20
"""Bytes without any access around a guarded tensor; they take up addresses and no memory."""
_VECTOR = 64
"""What torch's own tensors are aligned to, and so what vector instructions may count on."""
Side = Literal["start", "end"]
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 0x0001, 0x0002, 0x0004, 0x0010


class ArenaLayout:
    """Places tensors one after another; `size` is what the arena must hold."""

    def __init__(self, guarded: Side | None = None) -> None:
        """`guarded`: which side of each tensor touches bytes that nobody may access.

        A tensor begins at a multiple of 64 all the same: its end may be up to 63 bytes away from them.
        """
        self._guarded = guarded
        self.size = 0
        self.fences: list[tuple[int, int]] = []
        """Bytes beside each tensor that belong to none, from where to where."""
        self.guards: list[tuple[int, int]] = []
        """Bytes, in whole pages, that nobody may access."""
        self._tensors: list[tuple[int, int]] = []

    def place(self, tensor: torch.Tensor) -> Spec:
        """Room for a tensor like this one, its strides kept where they do not overlap."""
        dense = span(tensor.shape, tensor.stride()) == tensor.numel()
        stride = tensor.stride() if dense else _contiguous_stride(tensor.shape)
        nbytes = tensor.numel() * tensor.element_size()
        start = self._place_between_guards(nbytes) if self._guarded else self._place_before_fence(nbytes)
        self._tensors.append((start, start + nbytes))
        return Spec(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(stride), start)

    def _place_before_fence(self, nbytes: int) -> int:
        start, self.size = self.size, self.size + _round_up(nbytes + _FENCE, _ALIGN)
        self.fences.append((start + nbytes, self.size))
        return start

    def _place_between_guards(self, nbytes: int) -> int:
        if not self.size:
            self._add_guard()
        first, end = self.size, self.size + _round_up(max(nbytes, 1), mmap.PAGESIZE)
        start = first if self._guarded == "start" else end - _round_up(nbytes, _VECTOR)
        self.fences += [(first, start), (start + nbytes, end)]
        self.size = end
        self._add_guard()
        return start

    def _add_guard(self) -> None:
        self.guards.append((self.size, self.size + _GUARD))
        self.size += _GUARD

    def neighbour(self, offset: int) -> tuple[int, str]:
        """The tensor that a byte outside of all of them is nearest to, by its number, and how it lies to that one."""
        ends = [(offset - stop, number, "behind the end of") for number, (_, stop) in enumerate(self._tensors)]
        before = "before the start of"
        starts = [(start - 1 - offset, number, before) for number, (start, _) in enumerate(self._tensors)]
        _, number, where = min(item for item in ends + starts if item[0] >= 0)
        return number, where


class Arena:
    """A block of shared memory. The side that made it owns it; the other maps its descriptor, which becomes its own."""

    def __init__(self, fd: int, size: int, read_only: bool = False) -> None:
        self.fd = fd
        self.size = size
        self._close = weakref.finalize(self, os.close, fd)
        self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE)
        self._is_guarded = False
        self._bytes = self._view(size, 0)

    @classmethod
    def create(cls, size: int) -> Arena:
        size = max(size, mmap.PAGESIZE)
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("kforge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
            os.ftruncate(fd, size)
        return cls(fd, size)

    def seal_against_others(self) -> None:
        """From now on nobody else can map this for writing; the mapping made here stays as it is."""
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE | _SEAL_SEAL)

    def _view(self, size: int, offset: int) -> torch.Tensor:
        with warnings.catch_warnings():
            # torch says that a read-only buffer should not be written to. Indeed.
            warnings.simplefilter("ignore")
            return torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset)

    def poison(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        """NaN in these bytes, or everywhere: whoever reads past the end of a tensor laid into it shows it."""
        for start, stop in spans or [(0, self.size)]:
            self._bytes[start:stop].fill_(POISON)

    def changed_poison(self, spans: Iterable[tuple[int, int]]) -> int | None:
        """The first of these bytes that is not as `poison` left it; None if all are."""
        for start, stop in spans:
            changed = self._bytes[start:stop] != POISON
            if bool(changed.any()):
                return start + int(changed.nonzero()[0])
        return None

    def protect(self, spans: Sequence[tuple[int, int]]) -> None:
        """From now on this process can access none of these bytes, which are whole pages; left where that fails."""
        self._is_guarded = bool(spans)
        if sys.platform == "linux":
            libc = ctypes.CDLL(None)
            for start, stop in spans:
                libc.mprotect(ctypes.c_void_p(self.address + start), ctypes.c_size_t(stop - start), 0)

    @property
    def address(self) -> int:
        """Where it begins in this process."""
        return self._bytes.data_ptr()

    def tensor(self, spec: Spec) -> torch.Tensor:
        """The tensor at that place: a view of the shared bytes."""
        dtype = named_dtype(spec.dtype)
        count = 1
        for length in spec.shape:
            count *= length
        if count == 0:
            return torch.empty(spec.shape, dtype=dtype)
        nbytes = count * dtype.itemsize
        if self._is_guarded:
            # A storage of its own: who copies a tensor with its storage touches nothing else.
            flat = self._view(nbytes, spec.offset)
        else:
            flat = self._bytes[spec.offset : spec.offset + nbytes]
        return flat.view(dtype).as_strided(spec.shape, spec.stride)

    def close(self) -> None:
        """Drop the descriptor, if nobody did; the mapping goes when the last tensor on it does."""
        self._close()
        self.fd = -1


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def named_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype is called {name!r}")
    return dtype


def tensor_hash(tensor: torch.Tensor) -> str:
    """A hash of a tensor's values in logical order: equal for equal values, whatever the strides."""
    data = tensor.detach().cpu().contiguous()
    if not data.numel():
        return "empty"
    size = data.numel() * data.element_size()
    return hashlib.sha256((ctypes.c_char * size).from_address(data.data_ptr())).hexdigest()[:32]


def span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements lie between the first and the last; equals numel for a dense tensor."""
    if any(length == 0 for length in shape):
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def _contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride: list[int] = []
    step = 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    return tuple(reversed(stride))
