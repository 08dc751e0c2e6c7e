"""Calls of CUDA's driver that torch does not offer: memory that processes share, and words that streams wait for.

Blocks of virtual memory are handed over as file descriptors. That works across namespaces, where handles that name a
process do not.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import torch

from kforge.errors import HarnessError

READ, READ_WRITE = 1, 3
_PINNED, _ON_DEVICE, _POSIX_DESCRIPTOR = 1, 1, 1
_OUT_OF_MEMORY = 2
_MAPPED = 2
_AT_LEAST = 0


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


@functools.cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def check(status: int, what: str) -> None:
    """Raise what a driver's answer says."""
    if status == _OUT_OF_MEMORY:
        raise DeviceMemoryFull("the device is out of memory")
    if status:
        raise NotShareable(f"{what} gives error {status}")


def make_current(device: int) -> None:
    """Make torch's context the calling thread's."""
    torch.empty(1, device=f"cuda:{device}")
    torch.cuda.set_device(device)


# -- blocks of memory --------------------------------------------------------------------------------------------------


def create_block(size: int, device: int) -> tuple[int, int]:
    """Create a block of at least so many bytes, which can be handed over: (handle, size)."""
    properties = _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, device), None, _AllocationFlags())
    step, handle = ctypes.c_size_t(), ctypes.c_uint64()
    make_current(device)
    status = driver().cuMemGetAllocationGranularity(ctypes.byref(step), ctypes.byref(properties), 0)
    check(status, "cuMemGetAllocationGranularity")
    size = -(-max(size, 1) // step.value) * step.value

    def make() -> int:
        arguments = (ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_uint64(0))
        return int(driver().cuMemCreate(*arguments))

    status = make()
    if status == _OUT_OF_MEMORY:
        torch.cuda.empty_cache()
        status = make()
    if status == _OUT_OF_MEMORY:
        raise DeviceMemoryFull(f"the device has no room for {size >> 20} MiB more")
    check(status, "cuMemCreate")
    return handle.value, size


def export_block(handle: int) -> int:
    """Make a descriptor by which another process finds a block."""
    fd = ctypes.c_int()
    arguments = (ctypes.byref(fd), ctypes.c_uint64(handle), _POSIX_DESCRIPTOR, ctypes.c_uint64(0))
    check(driver().cuMemExportToShareableHandle(*arguments), "cuMemExportToShareableHandle")
    os.set_inheritable(fd.value, False)
    return fd.value


def import_block(fd: int) -> int:
    """Import the block behind a descriptor that another process sent; its handle."""
    handle = ctypes.c_uint64()
    arguments = (ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_DESCRIPTOR)
    check(driver().cuMemImportFromShareableHandle(*arguments), "cuMemImportFromShareableHandle")
    return handle.value


def release_block(handle: int) -> None:
    """Give up a handle; mappings and descriptors keep the memory."""
    driver().cuMemRelease(ctypes.c_uint64(handle))


def is_on_device(handle: int, device: int) -> bool:
    """Whether a block is ordinary memory of this device."""
    properties = _Properties()
    status = driver().cuMemGetAllocationPropertiesFromHandle(ctypes.byref(properties), ctypes.c_uint64(handle))
    return not status and (properties.type, properties.location.type, properties.location.id) == (
        _PINNED,
        _ON_DEVICE,
        device,
    )


def block_at(address: int) -> tuple[int, int, int] | None:
    """(handle, first address, size) of the block that is mapped at an address; None where it is no such memory.

    The handle is to be released.
    """
    handle, base, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    if driver().cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)):
        return None
    if driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)):
        release_block(handle.value)
        return None
    return handle.value, base.value, size.value


def reserve_addresses(size: int) -> int:
    """Reserve so many addresses, which nothing else gets; the first of them."""
    address, none = ctypes.c_uint64(), ctypes.c_uint64(0)
    arguments = (ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), none, none)
    check(driver().cuMemAddressReserve(*arguments), "cuMemAddressReserve")
    return address.value


def free_addresses(address: int, size: int) -> None:
    driver().cuMemAddressFree(ctypes.c_uint64(address), ctypes.c_size_t(size))


def map_at(address: int, handle: int, size: int, device: int, access: int) -> None:
    """Put a block at reserved addresses; the driver takes no other size than the block's own."""
    place, length, none = ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.c_uint64(0)
    check(driver().cuMemMap(place, length, ctypes.c_size_t(0), ctypes.c_uint64(handle), none), "cuMemMap")
    wanted = _Access(_Location(_ON_DEVICE, device), access)
    try:
        check(driver().cuMemSetAccess(place, length, ctypes.byref(wanted), ctypes.c_size_t(1)), "cuMemSetAccess")
    except BaseException:
        unmap_at(address, size)
        raise


def unmap_at(address: int, size: int) -> None:
    driver().cuMemUnmap(ctypes.c_uint64(address), ctypes.c_size_t(size))


# -- words that streams wait for ---------------------------------------------------------------------------------------


def wait_for_word(stream: int, address: int, value: int) -> None:
    """What the stream is given next waits until the word at this address has come as far as `value`."""
    arguments = (ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value), ctypes.c_uint(_AT_LEAST))
    check(driver().cuStreamWaitValue32_v2(*arguments), "cuStreamWaitValue32")


def write_word(stream: int, address: int, value: int) -> None:
    """Set a word once everything before it on the stream is done."""
    arguments = (ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value), ctypes.c_uint(0))
    check(driver().cuStreamWriteValue32_v2(*arguments), "cuStreamWriteValue32")


def host_memory(kind: Any) -> Any:
    """A value of this ctypes kind, zero, in memory of the host that the device reads and writes at the same address."""
    place = ctypes.c_void_p()
    check(driver().cuMemHostAlloc(ctypes.byref(place), ctypes.c_size_t(ctypes.sizeof(kind)), _MAPPED), "cuMemHostAlloc")
    value = kind.from_address(place.value or 0)
    value.value = 0
    return value
