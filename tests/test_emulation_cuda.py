"""CUDA C on the emulator: the corpus against torch, and what cuda.core's callers may do wrong."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from corpus_reading import Entry, entries

torch = pytest.importorskip("torch")

from kforge.emulation import cuda  # noqa: E402
from kforge.emulation.launching import KernelFault  # noqa: E402

pytestmark = pytest.mark.toolchain

ADD = """
extern "C" __global__ void add_one(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
template <typename T> __global__ void twice(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x] * T(2); }
"""


@pytest.fixture(autouse=True)
def unchecked_afterwards() -> Iterator[None]:
    yield
    cuda.check(False)


def run(entry: Entry, checked: bool) -> tuple[Any, Any]:
    """What the program gives and what torch gives."""
    cuda.check(checked)
    with cuda.installed():
        spec = importlib.util.spec_from_file_location(f"corpus_{entry.name}", entry.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        torch.manual_seed(0)
        new = module.ModelNew(*module.get_init_inputs())
        torch.manual_seed(0)
        reference = module.Model(*module.get_init_inputs())
        torch.manual_seed(1)
        inputs = module.get_inputs()
        with torch.no_grad():
            got = new(*(value.clone() for value in inputs))
    with torch.no_grad():
        return got, reference(*inputs)


def agree(got: Any, wanted: Any) -> bool:
    limit = 1e-2 if wanted.dtype in (torch.float16, torch.bfloat16) else 1e-4
    same = got.shape == wanted.shape and got.dtype == wanted.dtype
    return same and torch.allclose(got.double(), wanted.double(), rtol=limit, atol=limit)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("entry", entries("cuda_c", "right"), ids=lambda entry: entry.name)
def test_a_right_program_agrees_with_torch(entry: Entry, checked: bool) -> None:
    assert agree(*run(entry, checked))


@pytest.mark.parametrize("entry", entries("cuda_c", "wrong"), ids=lambda entry: entry.name)
def test_a_planted_bug_is_caught(entry: Entry) -> None:
    try:
        caught, said = not agree(*run(entry, checked=True)), ""
    except KernelFault as error:
        caught, said = True, str(error)
    assert caught
    if entry.caught == "checked":
        assert entry.faulty_line in said


def compiled(source: str = ADD, **options: Any) -> Any:
    return cuda.Program(source, "c++", cuda.ProgramOptions(std="c++17")).compile("cubin", **options)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('extern "C" __global__ void f(float* y) { y[0] = nothing; }', "nothing"),
        ('extern "C" __global__ void f(float* y) { asm volatile("trap;"); }', "line 1: inline PTX is not emulated"),
        ("#include <mma.h>\n", "line 1: `#include <mma.h>`: this header is not emulated"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_compiled_is_said(source: str, words: str) -> None:
    with pytest.raises(cuda.CompilationFailed, match=r"kernel|compilation") as error:
        compiled(source)
    assert words in str(error.value)


def test_a_template_is_launched_by_its_instance() -> None:
    with cuda.installed():
        x = torch.arange(32.0, device="cuda")
        y = torch.empty_like(x)
        kernel = compiled(name_expressions=("twice<float>",)).get_kernel("twice<float>")
        cuda.launch_kernel(None, cuda.LaunchConfig(grid=1, block=32), kernel, x.data_ptr(), y.data_ptr())
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize(
    ("arguments", "config", "words"),
    [
        (lambda x: (x.data_ptr(), x.data_ptr()), {}, "takes 3 arguments and was launched with 2"),
        (lambda x: (x, x.data_ptr(), ctypes.c_int(4)), {}, "pass tensor.data_ptr(), not a Tensor"),
        (lambda x: (123456, x.data_ptr(), ctypes.c_int(4)), {}, "an address that no tensor's data_ptr() gave"),
        (lambda x: (x.data_ptr(), x.data_ptr(), "4"), {}, "`n` cannot be a str"),
        (lambda x: (x.data_ptr(), x.data_ptr(), ctypes.c_int(4)), {"block": 2048}, "1024 are allowed"),
        (lambda x: (x.data_ptr(), x.data_ptr(), ctypes.c_int(4)), {"shmem_size": 1 << 20}, "bytes of shared memory"),
        (lambda x: (x.data_ptr(), x.data_ptr(), ctypes.c_int(4)), {"grid": 0}, "invalid configuration"),
        (lambda x: (0, x.data_ptr(), ctypes.c_int(4)), {}, "null pointer"),
    ],
)
def test_a_launch_that_makes_no_sense_is_a_sentence(arguments: Any, config: dict[str, Any], words: str) -> None:
    with cuda.installed():
        x = torch.zeros(64, device="cuda")
        options = cuda.LaunchConfig(**{"grid": 1, "block": 64, **config})
        kernel, given = compiled().get_kernel("add_one"), arguments(x)
        with pytest.raises(KernelFault) as error:
            cuda.launch_kernel(None, options, kernel, *given)
    assert words in str(error.value)


def test_an_unknown_kernel_is_named_with_those_there_are() -> None:
    with pytest.raises(KernelFault, match=r"there is no kernel `add_two`.*add_one"):
        compiled().get_kernel("add_two")


def test_tensors_say_they_are_on_the_device_and_torch_is_itself_again_afterwards() -> None:
    before = torch.cuda.is_available()
    with cuda.installed():
        x = torch.ones(3, device="cuda")
        assert x.is_cuda
        assert x.device == torch.device("cuda", 0)
        assert x.to("cuda").sum().item() == 3
        assert torch.cuda.is_available()
    assert not x.is_cuda
    assert torch.cuda.is_available() is before
