"""torch.mps as programs for a Mac use it, on the processor: `compile_shader`, and tensors that say they are on "mps".

The calling convention is torch's: argument i is buffer i; a tensor binds its storage from its offset on, whatever its
strides; an int is passed as int64, a float as float32, a list as an array, and `arg_casts` narrows; `threads` counts
threads, by default as many as the first tensor has elements.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kforge.emulation import fake_device, launch_trace, native_build, torch_mps, torch_patches
from kforge.emulation.entries import entry_of
from kforge.emulation.fake_device import FakeDevice
from kforge.emulation.kernel_launch import Buffer, KernelFault, LaunchRequest, pad_to_three, sizes
from kforge.emulation.launch_trace import set_checked as set_checked
from kforge.emulation.msl_source import MslKernelSource, translate, without_includes
from kforge.emulation.tokens import SourceError

_DEFINITIONS = ("__METAL__=1", "__METAL_VERSION__=320", "__METAL_MACOS__=1", "__APPLE__=1")
_NAME = "kernel.metal"
_WHOLE_VECTOR = 16
"""Bytes of a vector that must be aligned: some processors read shorter ones from anywhere."""
_CASTS = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "fp16": "e",
    "fp32": "f",
}


class ShaderLibrary:
    """What `compile_shader` gives: each kernel is an attribute."""

    __slots__ = ("__weakref__", "_built", "_folder", "_kernels", "_source", "_translation")

    def __init__(self, source: str) -> None:
        self._source = source
        self._folder = native_build.folder_of(self)
        try:
            native_build.refuse_empty(source)
            ready = native_build.preprocess(without_includes(source), _NAME, _DEFINITIONS)
            self._translation = translate(ready)
            self._built: dict[bool, native_build.Built] = {}
            # A source that does not compile is found now, as on a Mac.
            self._build(launch_trace.is_checked())
        except SourceError as error:
            raise SyntaxError(f"{_NAME}: {error}") from None
        except native_build.CompilerRefused as error:
            raise SyntaxError(f"the compiler refused the Metal source:\n{error}") from None
        self._kernels = {kernel.name: (number, kernel) for number, kernel in enumerate(self._translation.kernels)}
        if not self._kernels:
            raise SyntaxError(f"{_NAME}: there is no kernel function in it")

    def __getattr__(self, name: str) -> MetalKernel:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._kernels:
            known = ", ".join(self._kernels)
            raise AttributeError(f"there is no kernel `{name}` in the Metal source; there are: {known}")
        number, kernel = self._kernels[name]
        return MetalKernel(self, number, kernel)

    def __dir__(self) -> list[str]:
        return list(self._kernels)

    def _build(self, checked: bool) -> native_build.Built:
        if checked not in self._built:
            self._built[checked] = native_build.build(self._translation.text, "msl.h", self._folder, checked)
        return self._built[checked]


class MetalKernel:
    """One kernel, called with its arguments."""

    __slots__ = ("_kernel", "_library", "_number")
    max_threads_per_threadgroup = 1024
    thread_execution_width = 32
    static_thread_group_memory_length = 0

    def __init__(self, library: ShaderLibrary, number: int, kernel: MslKernelSource) -> None:
        self._library = library
        self._number = number
        self._kernel = kernel

    def __call__(
        self,
        *arguments: Any,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | dict[int, str] | None = None,
    ) -> None:
        name, wanted = self._kernel.name, self._kernel.buffers
        for number, argument in enumerate(arguments):
            odd = (
                fake_device.host_memory_fault(argument.untyped_storage()) if isinstance(argument, torch.Tensor) else ""
            )
            if odd:
                raise KernelFault(f"{name}: argument {number} (`{wanted.get(number, '')}`) {odd}")
        held: list[Any] = []
        buffers = {
            number: _buffer(number, argument, _cast(arg_casts, number), held)
            for number, argument in enumerate(arguments)
        }
        missing = sorted(set(wanted) - set(buffers))
        if missing:
            unbound = ", ".join(f"{number} (`{wanted[number]}`)" for number in missing)
            raise KernelFault(
                f"{name}: nothing is bound to buffer {unbound}: it was called with {len(buffers)} arguments"
            )
        strange = sorted(set(buffers) - set(wanted))
        if strange:
            raise KernelFault(
                f"{name}: argument {strange[0]} is for buffer {strange[0]}, which the kernel does not have; it has "
                f"{', '.join(f'{number} (`{word}`)' for number, word in sorted(wanted.items())) or 'none'}"
            )
        grid = sizes(threads if threads is not None else _default_threads(arguments, name), f"{name}: threads")
        group = sizes(group_size, f"{name}: group_size") if group_size is not None else (min(1024, max(1, grid[0])),)
        if group_size is not None and len(group) != len(grid):
            raise KernelFault(f"{name}: threads has {len(grid)} sizes and group_size {len(group)}")
        entry, sizes_of = entry_of(self._number), (pad_to_three(grid), pad_to_three(group))
        order = LaunchRequest(name, entry, buffers, *sizes_of, least_alignment=_WHOLE_VECTOR, names=wanted)
        storages = [argument.untyped_storage() for argument in arguments if isinstance(argument, torch.Tensor)]
        launch_trace.launch(self._library._build, order, self._library._source, storages)


def compile_shader(source: str) -> ShaderLibrary:
    """Compile Metal's language, in place of `torch.mps.compile_shader`."""
    return ShaderLibrary(source)


def _buffer(number: int, argument: Any, cast: str, held: list[Any]) -> Buffer:
    if isinstance(argument, torch.Tensor):
        storage = argument.untyped_storage()
        held.append(storage)
        return Buffer(storage.data_ptr(), storage.nbytes(), int(argument.storage_offset()) * argument.element_size())
    data = _pack(argument, cast, number)
    kept = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    held.append(kept)
    return Buffer(kept.data_ptr(), len(data), 0)


def _pack(argument: Any, cast: str, number: int) -> bytes:
    values = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    out = b""
    for value in values:
        if isinstance(value, bool):
            out += struct.pack("<?" if not cast else f"<{_CASTS[cast]}", value)
        elif isinstance(value, int):
            code = _CASTS[cast or "int64"]
            try:
                out += struct.pack(f"<{code}", float(value) if code in "ef" else value)
            except (struct.error, OverflowError):
                raise KernelFault(f"argument {number}: {value} does not fit {cast or 'int64'}") from None
        elif isinstance(value, float):
            code = _CASTS[cast or "fp32"]
            out += struct.pack(f"<{code}", value if code in "ef" else int(value))
        else:
            raise TypeError(f"argument {number} is a {type(value).__name__}: a kernel takes tensors, numbers and lists")
    return out


def _cast(casts: str | dict[int, str] | None, number: int) -> str:
    wanted = casts if isinstance(casts, str) else (casts or {}).get(number, "")
    if wanted and wanted not in _CASTS:
        raise KernelFault(f"arg_casts: {wanted!r} is no type to cast to; there are {', '.join(_CASTS)}")
    return wanted


def _default_threads(arguments: Sequence[Any], name: str) -> int:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument.numel()
    raise KernelFault(f"{name}: threads must be given where no argument is a tensor")


# -- in place of the real ones ---------------------------------------------------------------------------------------


def surroundings(judged: bool = True) -> FakeDevice:
    """Inside, there is a device "mps"; what a judged program makes without saying where is on the host, as on a Mac."""
    return FakeDevice("mps", judged=judged)


def install() -> None:
    """Let torch.mps be the emulator, for the rest of this process."""
    torch_patches.install(_patches())


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """`install` and the surroundings for a block, with "mps" as the default device."""
    with torch_patches.installed(_patches()), surroundings(judged=False):
        yield


def _patches() -> torch_patches.Patches:
    return {**torch_mps.patches(), (torch.mps, "compile_shader"): compile_shader}
