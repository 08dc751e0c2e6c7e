"""A launch as whoever watches a program sees it: in checked mode or not, and what it was given and wrote."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from kforge.emulation import fake_device, kernel_launch, native_build, storage_marks

UNREAD, UNFED = "unread", "unfed"
"""How kernels may have no part in a result: nothing of it comes from what they wrote, or they were given nothing."""
_checked = False
_unchecked = 0
_call = 0
_tracing = False
_fed_sources: set[str] = set()


def set_checked(yes: bool) -> None:
    """Have launches checked from now on, or not: a checked one is slower, and every access is looked at."""
    global _checked, _unchecked
    if fake_device.is_judged_code():
        raise kernel_launch.KernelFault("checked mode is not the program's to switch on or off")
    _checked, _unchecked = yes, 0


def is_checked() -> bool:
    """Whether launches are checked."""
    return _checked


def unchecked_launches() -> int:
    """The number of launches that were not checked since `set_checked` was called."""
    return _unchecked


def launch(
    built: Callable[[bool], native_build.Built],
    order: kernel_launch.LaunchRequest,
    source: str,
    storages: Iterable[Any],
) -> None:
    """Run a kernel on memory of these storages."""
    global _unchecked
    _unchecked += not _checked
    distinct = list({id(storage): storage for storage in storages}.values())
    before = [_sum(storage) for storage in distinct] if _tracing else []
    kernel_launch.launch(built(_checked), replace(order, checked=_checked), source)
    if _tracing:
        written = [storage for storage, sum in zip(distinct, before, strict=True) if _sum(storage) != sum]
        _note(source, distinct, written)


def begin_dataflow_trace(tensors: Iterable[torch.Tensor]) -> None:
    """Begin to trace a call that works on these tensors."""
    global _tracing, _call
    _tracing, _call = True, _call + 1
    _fed_sources.clear()
    for tensor in tensors:
        storage = storage_marks.storage_of(tensor)
        if storage is not None:
            storage_marks.mark_for(storage).fed = _call


def end_dataflow_trace(tensors: Iterable[torch.Tensor]) -> str:
    """End the trace of a call that gave these tensors; empty where a kernel worked on what the call was given, and they
    hold something of that.
    """
    global _tracing
    _tracing = False
    marks = [mark for mark in map(storage_marks.mark_of, map(storage_marks.storage_of, tensors)) if mark is not None]
    if any(mark.worked == _call for mark in marks):
        return ""
    return UNFED if any(mark.made == _call for mark in marks) else UNREAD


def _note(source: str, inputs: list[Any], written: list[Any]) -> None:
    marks = [storage_marks.mark_for(storage) for storage in inputs]
    fed = source in _fed_sources or any(mark.fed == _call or mark.worked == _call for mark in marks)
    if fed:
        # Kernels of one source may hand things on in variables of their own.
        _fed_sources.add(source)
    for storage in written:
        mark = storage_marks.mark_for(storage)
        mark.take(marks)
        mark.made = _call
        if fed:
            mark.worked = _call


def _sum(storage: Any) -> int:
    size = storage.nbytes()
    return zlib.crc32((ctypes.c_char * size).from_address(storage.data_ptr())) if size else 0
