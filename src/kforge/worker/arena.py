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
import tempfile
import warnings
import weakref

import torch

from kforge.worker.protocol.records import Spec

_ALIGN = 512
_FENCE = 64
"""Bytes at least between the end of a tensor and the next one."""
POISON = 0xFF
"""Of floating numbers, NaN."""
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 0x0001, 0x0002, 0x0004, 0x0010


class ArenaLayout:
    """Places tensors one after another; `size` is what the arena must hold."""

    def __init__(self) -> None:
        self.size = 0
        self.fences: list[tuple[int, int]] = []
        """Bytes behind each tensor that belong to none, from where to where."""

    def place(self, tensor: torch.Tensor) -> Spec:
        """Room for a tensor like this one, its strides kept where they do not overlap."""
        dense = span(tensor.shape, tensor.stride()) == tensor.numel()
        stride = tensor.stride() if dense else _contiguous_stride(tensor.shape)
        spec = Spec(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(stride), self.size)
        nbytes = tensor.numel() * tensor.element_size()
        start, self.size = self.size, self.size + -(-(nbytes + _FENCE) // _ALIGN) * _ALIGN
        self.fences.append((start + nbytes, self.size))
        return spec


class Arena:
    """A block of shared memory. The side that made it owns it; the other maps its descriptor, which becomes its own."""

    def __init__(self, fd: int, size: int, read_only: bool = False) -> None:
        self.fd = fd
        self.size = size
        self._close = weakref.finalize(self, os.close, fd)
        self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE)
        with warnings.catch_warnings():
            # torch says that a read-only buffer should not be written to. Indeed.
            warnings.simplefilter("ignore")
            self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

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

    def poison(self) -> None:
        """NaN everywhere, so that whoever reads past the end of a tensor laid into it shows it."""
        self._bytes.fill_(POISON)

    def holds_poison(self, spans: list[tuple[int, int]]) -> bool:
        """Whether these bytes are as `poison` left them."""
        return all(bool((self._bytes[start:stop] == POISON).all()) for start, stop in spans)

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
        flat = self._bytes[spec.offset : spec.offset + nbytes].view(dtype)
        return flat.as_strided(spec.shape, spec.stride)

    def close(self) -> None:
        """Drop the descriptor, if nobody did; the mapping goes when the last tensor on it does."""
        self._close()
        self.fd = -1


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
