"""Device memory that judge and runner both map: CUDA's virtual memory, handed over as a file descriptor.

The judge makes a block and sends the descriptor over the channel; the runner maps it, read-only where it is told to,
and sees the same bytes. Nothing is copied. It works across namespaces, where handles that name a process do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import weakref
from typing import Any

import torch

from kforge.errors import HarnessError
from kforge.worker.arena import POISON, Spec, named_dtype

_PINNED, _ON_DEVICE, _POSIX_DESCRIPTOR = 1, 1, 1
_READ, _READ_WRITE = 1, 3
_OUT_OF_MEMORY = 2


class DeviceMemoryFull(MemoryError):
    """The device has no room for what is asked."""


class NotShareable(HarnessError):
    """This driver cannot hand device memory to another process."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("unused", ctypes.c_void_p),
        ("flags", _AllocationFlags),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _Bytes:
    """A range of device memory as torch takes it; torch keeps this object for as long as a tensor lies on it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class DeviceArena:
    """A block of device memory, with the face of `arena.Arena`. Unmapped when the last tensor on it is gone."""

    def __init__(self, fd: int, size: int, address: int, device: int) -> None:
        self.fd = fd
        self.size = size
        self._close = weakref.finalize(self, os.close, fd)
        owner = _Bytes(address, size)
        release = weakref.finalize(owner, _unmap, address, size, device)
        release.atexit = False
        self._bytes = torch.as_tensor(owner, device=f"cuda:{device}")

    @classmethod
    def create(cls, size: int, device: int = 0) -> DeviceArena:
        """Room for `size` bytes on a device, with a descriptor to hand over."""
        properties = _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, device), None, _AllocationFlags())
        size = _rounded(max(size, 1), properties)
        handle = ctypes.c_uint64()

        def make() -> int:
            return int(
                _driver().cuMemCreate(
                    ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0)
                )
            )

        _current(device)
        status = make()
        if status == _OUT_OF_MEMORY:
            torch.cuda.empty_cache()
            status = make()
        if status == _OUT_OF_MEMORY:
            raise DeviceMemoryFull(f"the device has no room for {size >> 20} MiB more")
        _check(status, "cuMemCreate")
        try:
            fd = ctypes.c_int()
            _check(
                _driver().cuMemExportToShareableHandle(ctypes.byref(fd), handle, _POSIX_DESCRIPTOR, ctypes.c_uint64(0)),
                "cuMemExportToShareableHandle",
            )
            os.set_inheritable(fd.value, False)
            try:
                address = _map(handle, size, device, _READ_WRITE)
            except BaseException:
                os.close(fd.value)
                raise
        finally:
            # The mapping and the descriptor keep the memory.
            _driver().cuMemRelease(handle)
        return cls(fd.value, size, address, device)

    @classmethod
    def attach(cls, fd: int, size: int, read_only: bool) -> DeviceArena:
        """The block behind a descriptor that another process sent."""
        _current(0)
        handle = ctypes.c_uint64()
        _check(
            _driver().cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_DESCRIPTOR),
            "cuMemImportFromShareableHandle",
        )
        try:
            address = _map(handle, size, 0, _READ if read_only else _READ_WRITE)
        finally:
            _driver().cuMemRelease(handle)
        return cls(fd, size, address, 0)

    def poison(self) -> None:
        """NaN everywhere, so that whoever reads past the end of a tensor laid into it shows it."""
        self._bytes.fill_(POISON)

    def holds_poison(self, spans: list[tuple[int, int]]) -> bool:
        """Whether these bytes are as `poison` left them."""
        return all(bool((self._bytes[start:stop] == POISON).all()) for start, stop in spans)

    def seal_against_others(self) -> None:
        """Nothing to do: who maps it is told how, and the judge looks whether the contents are still its own."""

    def tensor(self, spec: Spec) -> torch.Tensor:
        """The tensor at that place: a view of the shared bytes."""
        dtype = named_dtype(spec.dtype)
        count = 1
        for length in spec.shape:
            count *= length
        if count == 0:
            return torch.empty(spec.shape, dtype=dtype, device=self._bytes.device)
        flat = self._bytes[spec.offset : spec.offset + count * dtype.itemsize].view(dtype)
        return flat.as_strided(spec.shape, spec.stride)

    def close(self) -> None:
        """Drop the descriptor, if nobody did; the mapping goes when the last tensor on it does."""
        self._close()
        self.fd = -1


@functools.cache
def absent_because(device: int = 0) -> str:
    """Why a device's memory cannot be shared here; empty if it can. Tries it once."""
    try:
        DeviceArena.create(1, device).close()
    except (NotShareable, OSError, AttributeError) as error:
        return str(error) or type(error).__name__
    return ""


def _current(device: int) -> None:
    """Make torch's context the calling thread's."""
    torch.empty(1, device=f"cuda:{device}")
    torch.cuda.set_device(device)


def _rounded(size: int, properties: _Properties) -> int:
    step = ctypes.c_size_t()
    _current(properties.location.id)
    status = _driver().cuMemGetAllocationGranularity(ctypes.byref(step), ctypes.byref(properties), 0)
    _check(status, "cuMemGetAllocationGranularity")
    return -(-size // step.value) * step.value


def _map(handle: Any, size: int, device: int, access: int) -> int:
    address, length, zero = ctypes.c_uint64(), ctypes.c_size_t(size), ctypes.c_uint64(0)
    _check(
        _driver().cuMemAddressReserve(ctypes.byref(address), length, ctypes.c_size_t(0), zero, zero),
        "cuMemAddressReserve",
    )
    try:
        _check(_driver().cuMemMap(address, length, ctypes.c_size_t(0), handle, zero), "cuMemMap")
    except BaseException:
        _driver().cuMemAddressFree(address, length)
        raise
    wanted = _Access(_Location(_ON_DEVICE, device), access)
    try:
        _check(_driver().cuMemSetAccess(address, length, ctypes.byref(wanted), ctypes.c_size_t(1)), "cuMemSetAccess")
    except BaseException:
        _driver().cuMemUnmap(address, length)
        _driver().cuMemAddressFree(address, length)
        raise
    return address.value


def _unmap(address: int, size: int, device: int) -> None:
    if sys.is_finalizing():
        return
    with contextlib.suppress(Exception):
        # Work that still uses it must be done first.
        torch.cuda.synchronize(device)
    _driver().cuMemUnmap(ctypes.c_uint64(address), ctypes.c_size_t(size))
    _driver().cuMemAddressFree(ctypes.c_uint64(address), ctypes.c_size_t(size))


def _check(status: int, what: str) -> None:
    if status == _OUT_OF_MEMORY:
        raise DeviceMemoryFull("the device is out of memory")
    if status:
        raise NotShareable(f"{what} gives error {status}")
