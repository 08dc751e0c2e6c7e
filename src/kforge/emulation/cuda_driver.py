"""What programs ask of cuda.bindings.driver beside cuda.core: a kernel's dynamic shared memory beyond 48 KiB."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Any, Protocol

_NAME = "cuda.bindings.driver"


class Attribute(enum.IntEnum):
    """CUfunction_attribute."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9


class DriverResult(enum.IntEnum):
    """CUresult."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_INVALID_HANDLE = 400


class HandledKernel(Protocol):
    """A kernel, as its handle knows it."""

    def allow_dynamic(self, size: int) -> bool:
        """Let launches ask for so many bytes; whether a block can have them."""


def module(handles: Mapping[int, HandledKernel]) -> types.ModuleType:
    """The stand-in for the module; a handle is a number that names a kernel."""

    def set_attribute(attribute: int, value: int, handle: Any) -> tuple[DriverResult]:
        kernel = handles.get(int(handle))
        if kernel is None:
            return (DriverResult.CUDA_ERROR_INVALID_HANDLE,)
        wanted = attribute == Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if wanted and not kernel.allow_dynamic(int(value)):
            return (DriverResult.CUDA_ERROR_INVALID_VALUE,)
        return (DriverResult.CUDA_SUCCESS,)

    def set_kernel_attribute(attrib: int, val: int, kernel: Any, dev: Any) -> tuple[DriverResult]:
        return set_attribute(attrib, val, kernel)

    def set_function_attribute(hfunc: Any, attrib: int, value: int) -> tuple[DriverResult]:
        return set_attribute(attrib, value, hfunc)

    def refuse_absent(name: str) -> Any:
        raise AttributeError(f"{_NAME}.{name} is not emulated")

    made = types.ModuleType(_NAME)
    made.CUfunction_attribute = Attribute  # type: ignore[attr-defined]
    made.CUresult = DriverResult  # type: ignore[attr-defined]
    made.cuKernelSetAttribute = set_kernel_attribute  # type: ignore[attr-defined]
    made.cuFuncSetAttribute = set_function_attribute  # type: ignore[attr-defined]
    made.__getattr__ = refuse_absent  # type: ignore[method-assign]
    return made
