"""cuda.core as programs for NVIDIA's GPUs use it, on the processor, and tensors that say they are on "cuda".

A pointer is an address that a tensor's `data_ptr()` gave, passed to a kernel or put into memory that is. A Python
integer is passed as 64 bits, a float as a double, as cuda.core does; what ctypes names is passed as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kforge.emulation import (
    cuda_driver,
    fake_device,
    launch_trace,
    native_build,
    storage_marks,
    stored_addresses,
    torch_cuda,
    torch_patches,
)
from kforge.emulation.cuda_source import CudaKernelSource, translate, without_includes
from kforge.emulation.entries import entry_of
from kforge.emulation.fake_device import FakeDevice
from kforge.emulation.kernel_launch import Buffer, KernelFault, LaunchRequest, pad_to_three, sizes
from kforge.emulation.launch_trace import set_checked as set_checked
from kforge.emulation.tokens import SourceError
from kforge.emulation.torch_cuda import GROUP_MEMORY, MOST_DYNAMIC, MULTIPROCESSORS, PROPERTIES

_DEFINITIONS = ("__CUDACC__=1", "__CUDACC_RTC__=1", "__CUDA_ARCH__=900", "__NVCC__=1")
_NAME = "kernel.cu"
_MOST_BLOCKS, _MOST_THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
"""The most blocks of a grid and threads of a block, in x, y and z."""
_MOST_REMEMBERED = 4096
_handles: weakref.WeakValueDictionary[int, cuda_driver.HandledKernel] = weakref.WeakValueDictionary()
"""A kernel's handle -> the kernel."""
_numbers = itertools.count(1)
_storages: dict[int, Any] = {}
"""Address -> a storage whose address a program took in this call; it is kept as long."""
_earlier: dict[int, weakref.ref[Any]] = {}
"""Address -> a storage whose address a program took in an earlier call, as long as somebody else keeps it."""


class CompilationFailed(RuntimeError):
    """A program does not compile; the message is as NVRTC's."""


class CudaDevice:
    """As cuda.core's `Device`, under which name programs find it."""

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self.arch = "90"
        self.compute_capability = types.SimpleNamespace(major=9, minor=0)
        self.name = "an emulated GPU"
        self.properties = types.SimpleNamespace(
            multiprocessor_count=MULTIPROCESSORS,
            max_threads_per_block=PROPERTIES.max_threads_per_block,
            max_threads_per_multiprocessor=PROPERTIES.max_threads_per_multi_processor,
            warp_size=PROPERTIES.warp_size,
            max_shared_memory_per_block=GROUP_MEMORY,
            max_shared_memory_per_block_optin=MOST_DYNAMIC,
            max_shared_memory_per_multiprocessor=PROPERTIES.shared_memory_per_multiprocessor,
            max_registers_per_block=PROPERTIES.regs_per_multiprocessor,
            l2_cache_size=PROPERTIES.L2_cache_size,
            compute_capability_major=PROPERTIES.major,
            compute_capability_minor=PROPERTIES.minor,
        )
        self.default_stream = Stream()

    def set_current(self, *_: Any) -> None:
        pass

    def sync(self) -> None:
        pass

    def create_stream(self, *_: Any, **__: Any) -> Stream:
        return Stream()


class Stream:
    @classmethod
    def from_handle(cls, handle: int) -> Stream:
        return cls()

    def sync(self) -> None:
        pass


class ProgramOptions:
    def __init__(self, **options: Any) -> None:
        self.name_expressions = tuple(options.get("name_expressions") or ())
        self.definitions = tuple(_definition(item) for item in _as_list(options.get("define_macro")))


class LaunchConfig:
    def __init__(
        self, grid: int | Sequence[int] = 1, block: int | Sequence[int] = 1, shmem_size: int = 0, **more: Any
    ) -> None:
        if more.get("cluster"):
            raise KernelFault("clusters of blocks are not emulated")
        self.grid, self.block, self.shmem_size = (
            pad_to_three(sizes(grid, "grid")),
            pad_to_three(sizes(block, "block")),
            shmem_size,
        )


class Program:
    def __init__(self, code: str, code_type: str = "c++", options: ProgramOptions | None = None) -> None:
        if code_type != "c++":
            raise KernelFault(f"a program in {code_type}: only CUDA C++ is emulated")
        self._code = code
        self._options = options or ProgramOptions()

    def compile(self, target_type: str = "cubin", name_expressions: Sequence[str] = (), **_: Any) -> ObjectCode:
        names = (*self._options.name_expressions, *name_expressions)
        return ObjectCode(self._code, self._options.definitions, names)

    def close(self) -> None:
        pass


class ObjectCode:
    """Compiled kernels."""

    def __init__(self, source: str, definitions: tuple[str, ...], instances: tuple[str, ...]) -> None:
        self._source = source
        self._folder = native_build.folder_of(self)
        self._built: dict[bool, native_build.Built] = {}
        try:
            native_build.refuse_empty(source)
            ready = native_build.preprocess(without_includes(source), _NAME, (*_DEFINITIONS, *definitions))
            self._translation = translate(ready, instances, source)
            self._build(launch_trace.is_checked())
        except SourceError as error:
            raise CompilationFailed(f"{_NAME}: {error}") from None
        except native_build.CompilerRefused as error:
            raise CompilationFailed(f"compilation failed:\n{error}") from None
        self._kernels = {
            kernel.name: Kernel(self, number, kernel) for number, kernel in enumerate(self._translation.kernels)
        }

    def get_kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            known = ", ".join(self._kernels) or "none"
            raise KernelFault(f"there is no kernel `{name}` in the program; there are: {known}")
        if not self._kernels[name].is_named:
            raise KernelFault(
                f"CUDA_ERROR_NOT_FOUND: named symbol not found: `{name}` has another name once it is compiled; declare "
                'it extern "C", or give the compiler its name: compile("cubin", name_expressions=["' + name + '"])'
            )
        return self._kernels[name]

    def _build(self, checked: bool) -> native_build.Built:
        if checked not in self._built:
            text, header = self._translation.text, "cuda_c.h"
            self._built[checked] = native_build.build(text, header, self._folder, checked, double=True)
        return self._built[checked]


class Kernel:
    def __init__(self, program: ObjectCode, number: int, kernel: CudaKernelSource) -> None:
        self._program = program
        self._number = number
        self._kernel = kernel
        self._most_dynamic = GROUP_MEMORY
        self.handle = next(_numbers)
        _handles[self.handle] = self
        self.attributes = types.SimpleNamespace(
            num_regs=lambda *_: 32, shared_size_bytes=lambda *_: 0, max_threads_per_block=lambda *_: 1024
        )

    @property
    def is_named(self) -> bool:
        """Whether a program can ask for the kernel by its name."""
        return self._kernel.named

    def allow_dynamic(self, size: int) -> bool:
        """Let launches ask for so much shared memory; whether a block can have it."""
        if not 0 <= size <= MOST_DYNAMIC:
            return False
        self._most_dynamic = size
        return True

    def run(self, config: LaunchConfig, arguments: tuple[Any, ...]) -> None:
        name, parameters = self._kernel.name, self._kernel.parameters
        if len(arguments) != len(parameters):
            raise KernelFault(f"{name} takes {len(parameters)} arguments and was launched with {len(arguments)}")
        held: list[Any] = []
        buffers, storages = {}, []
        for number, ((word, pointer), argument) in enumerate(zip(parameters, arguments, strict=True)):
            if not pointer:
                buffers[number] = _value(name, word, argument, held)
                continue
            address, storage = _pointer(name, word, argument)
            if storage is not None:
                buffers[number] = Buffer(storage.data_ptr(), storage.nbytes(), address - storage.data_ptr())
                storages.append(storage)
        addresses, reached = stored_addresses.find(buffers.values(), _known_storages())
        if config.shmem_size > max(self._most_dynamic, GROUP_MEMORY):
            raise KernelFault(
                f"{name}: {config.shmem_size} bytes of dynamic shared memory; a block has {GROUP_MEMORY}, and up to "
                f"{MOST_DYNAMIC} once cuKernelSetAttribute has set CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
            )
        if min(config.grid) < 1:
            raise KernelFault(f"{name}: a grid of {config.grid} blocks: invalid configuration argument")
        order = LaunchRequest(
            name,
            entry_of(self._number),
            buffers,
            tuple(blocks * threads for blocks, threads in zip(config.grid, config.block, strict=True)),  # type: ignore[arg-type]
            config.block,
            group_memory=GROUP_MEMORY + config.shmem_size,
            exited_threads_count=True,
            dynamic_group_bytes=config.shmem_size,
            most_groups=_MOST_BLOCKS,
            most_group=_MOST_THREADS,
            names={number: word for number, (word, _) in enumerate(parameters)},
            addresses=tuple(addresses),
        )
        launch_trace.launch(self._program._build, order, self._program._source, [*storages, *reached])


def launch_kernel(stream: Any, config: LaunchConfig, kernel: Kernel, *arguments: Any) -> None:
    """Launch a kernel, in place of `cuda.core.launch`."""
    kernel.run(config, arguments)


def _pointer(kernel: str, word: str, argument: Any) -> tuple[int, Any]:
    """The memory's own address, and the storage it is in; None for a null pointer."""
    number = argument.value if isinstance(argument, ctypes.c_void_p | ctypes.c_uint64 | ctypes.c_int64) else argument
    if isinstance(argument, ctypes.c_void_p) and number is None:
        number = 0
    if not isinstance(number, int):
        raise KernelFault(f"{kernel}: `{word}` is a pointer: pass tensor.data_ptr(), not a {type(argument).__name__}")
    if number == 0:
        return 0, None
    address = storage_marks.own_address(number) or number
    for storage in _known_storages():
        begin = storage.data_ptr()
        if begin <= address < begin + max(storage.nbytes(), 1):
            odd = fake_device.host_memory_fault(storage)
            if odd:
                raise KernelFault(f"{kernel}: `{word}` {odd}")
            return address, storage
    raise KernelFault(f"{kernel}: `{word}` is an address that no tensor's data_ptr() gave")


def _value(kernel: str, word: str, argument: Any, held: list[Any]) -> Buffer:
    if isinstance(argument, bool):
        data = bytes(ctypes.c_bool(argument))
    elif isinstance(argument, int):
        data = bytes(ctypes.c_int64(argument))
    elif isinstance(argument, float):
        data = bytes(ctypes.c_double(argument))
    elif isinstance(argument, ctypes._SimpleCData | ctypes.Structure | ctypes.Array):
        data = bytes(argument)
    elif hasattr(argument, "tobytes"):
        data = argument.tobytes()
    else:
        raise KernelFault(f"{kernel}: `{word}` cannot be a {type(argument).__name__}")
    kept = torch.frombuffer(bytearray(data.ljust(16, b"\0")), dtype=torch.uint8).untyped_storage()
    held.append(kept)
    return Buffer(kept.data_ptr(), kept.nbytes(), 0)


def _remember(tensor: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    if len(_storages) >= _MOST_REMEMBERED:
        _forget(next(iter(_storages)))
    _storages.pop(storage.data_ptr(), None)
    _storages[storage.data_ptr()] = storage


def _forget(address: int) -> None:
    """Let go of a storage, and know it still while a program keeps it: tables of pointers outlast a call."""
    if len(_earlier) >= _MOST_REMEMBERED:
        _earlier.pop(next(iter(_earlier)))
    _earlier.pop(address, None)
    _earlier[address] = weakref.ref(_storages.pop(address))


def _known_storages() -> list[Any]:
    for address in [address for address, kept in _earlier.items() if kept() is None or address in _storages]:
        del _earlier[address]
    return [*_storages.values(), *filter(None, (kept() for kept in _earlier.values()))]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _definition(item: Any) -> str:
    return item if isinstance(item, str) else f"{item[0]}={item[1]}"


# -- in place of the real ones ---------------------------------------------------------------------------------------


def surroundings(judged: bool = True) -> FakeDevice:
    """Inside, there is a device "cuda"; what a judged program makes without saying where is on the host.

    The storages whose addresses were taken are let go of at the end.
    """
    return _OnCuda("cuda", _remember, judged)


class _OnCuda(FakeDevice):
    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        for address in list(_storages):
            _forget(address)


def install() -> None:
    """Let cuda.core and what programs ask of torch.cuda be the emulator, for the rest of this process."""
    _install_modules()
    torch_patches.install(torch_cuda.patches())


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """`install` and the surroundings for a block, with "cuda" as the default device."""
    before = {name: sys.modules.get(name) for name in _MODULES}
    _install_modules()
    try:
        with torch_patches.installed(torch_cuda.patches()), surroundings(judged=False):
            yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def _install_modules() -> None:
    core = types.ModuleType("cuda.core")
    for name, value in _FACE.items():
        setattr(core, name, value)
    package, bindings, driver = (
        types.ModuleType("cuda"),
        types.ModuleType("cuda.bindings"),
        cuda_driver.module(_handles),
    )
    package.core, package.bindings, bindings.driver = core, bindings, driver  # type: ignore[attr-defined]
    package.__path__ = bindings.__path__ = []
    sys.modules.update(zip(_MODULES, (package, core, core, bindings, driver), strict=True))
    # Where programs look for CUDA's headers, which are the emulator's own.
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")


_MODULES = ("cuda", "cuda.core", "cuda.core.experimental", "cuda.bindings", "cuda.bindings.driver")
_FACE = {
    "Device": CudaDevice,
    "LaunchConfig": LaunchConfig,
    "Program": Program,
    "ProgramOptions": ProgramOptions,
    "Stream": Stream,
    "launch": launch_kernel,
}
