"""CUDA C on the emulator: the corpus against torch, and what cuda.core's callers may do wrong."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

import nvrtc
from corpus_reading import Entry, entries

torch = pytest.importorskip("torch")

from kforge.emulation import cuda, launch_trace, nvrtc_names, storage_marks, torch_cuda, torch_patches  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault  # noqa: E402

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
    cuda.set_checked(False)


def run(entry: Entry, checked: bool) -> tuple[Any, Any]:
    """What the program gives and what torch gives."""
    cuda.set_checked(checked)
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


@pytest.mark.parametrize(
    "entry", [*entries("cuda_c", "right"), *entries("cuda_c", "wrong")], ids=lambda entry: entry.name
)
def test_nvidias_own_compiler_accepts_the_corpus(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.library()
    sources: list[str] = []
    plain = cuda.ObjectCode.__init__

    def noted(program: Any, source: str, *rest: Any) -> None:
        sources.append(source)
        plain(program, source, *rest)

    monkeypatch.setattr(cuda.ObjectCode, "__init__", noted)
    with contextlib.suppress(KernelFault):
        run(entry, checked=False)
    assert sources
    for source in sources:
        if "#include" in source and not nvrtc.INCLUDE.is_dir():
            pytest.skip(f"CUDA's headers are not in {nvrtc.INCLUDE}: set CUDA_HOME")
        assert nvrtc.refusal(source) == ""


def compiled(source: str = ADD, **options: Any) -> Any:
    return cuda.Program(source, "c++", cuda.ProgramOptions(std="c++17")).compile("cubin", **options)


NAMED = 'extern "C" __global__ void f(float* y) { y[0] = '


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('extern "C" __global__ void f(float* y) { y[0] = nothing; }', "nothing"),
        ('extern "C" __global__ void f(float* y) { asm volatile("trap;"); }', "line 1: inline PTX is not emulated"),
        ("#include <mma.h>\n", "line 1: `#include <mma.h>`: this header is not emulated"),
        ("", "empty"),
        (
            f"{NAMED}INFINITY; }}",
            'line 1: identifier "INFINITY" is undefined in NVRTC: write __int_as_float(0x7f800000)',
        ),
        (f"#include <cuda/std/cstdint>\n{NAMED}FLT_MAX; }}", 'line 2: identifier "FLT_MAX" is undefined'),
        (f"{NAMED}(int64_t)1; }}", 'identifier "int64_t" is undefined'),
        (f"{NAMED}(uint)1; }}", 'identifier "uint" is undefined'),
        (f"#include <math.h>\n{NAMED}1; }}", 'line 1: cannot open source file "math.h": NVRTC has none'),
        ("__global__ void f() { __shared__ float s = 1; }", "line 1: a shared variable with an initialiser"),
        ('extern "C" int missing(int); extern "C" __global__ void f(int* y) { *y = missing(1); }', "missing"),
    ],
)
def test_what_cannot_be_compiled_is_said(source: str, words: str) -> None:
    with pytest.raises(cuda.CompilationFailed, match=r"kernel|compilation") as error:
        compiled(source)
    assert words in str(error.value)


@pytest.mark.parametrize("name", sorted(nvrtc_names.CURES))
def test_nvidias_own_compiler_does_not_know_what_is_refused(name: str) -> None:
    kind = name.endswith("_t") or name in nvrtc_names.SHORT
    source = f"{NAMED}({name})1; }}" if kind else f"{NAMED}(float){name}; }}"
    assert "is undefined" in nvrtc.refusal(source)
    with pytest.raises(cuda.CompilationFailed, match="is undefined"):
        compiled(source)


def run_one(source: str, x: Any, size: int = 32, **config: Any) -> Any:
    """What kernel `k` writes from a tensor; to be used where cuda is installed."""
    y = torch.zeros(size, device="cuda")
    options = cuda.LaunchConfig(**{"grid": 1, "block": 32, **config})
    cuda.launch_kernel(None, options, compiled(source).get_kernel("k"), x.data_ptr(), y.data_ptr())
    return y


@pytest.mark.parametrize(
    "source",
    [
        f"#include <cuda/std/cmath>  // INFINITY\n{NAMED}INFINITY; }}",
        f"#include <cooperative_groups.h>\n{NAMED}(uint32_t)1 + INT_MAX; }}",
        f"#define INFINITY __int_as_float(0x7f800000)\n{NAMED}INFINITY; }}",
        f"typedef long long int64_t;\n{NAMED}(int64_t)1; }}",
        f"using uint = unsigned;\n{NAMED}(uint)1; }}",
        f"#include <math_constants.h>\n{NAMED}CUDART_INF_F; }}",
    ],
)
def test_a_name_that_a_header_or_the_program_brings_is_known(source: str) -> None:
    assert compiled(source).get_kernel("f")


PLAIN = "__global__ void f(float* y) { y[0] = 1.0f; }"


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (f'extern "C" {PLAIN}', {}),
        (f'extern "C" {{ {PLAIN} }}', {}),
        (f'extern "C" __launch_bounds__(64) {PLAIN}', {}),
        (PLAIN, {"name_expressions": ["f"]}),
    ],
)
def test_a_kernel_is_found_by_a_name_that_it_keeps(source: str, options: dict[str, Any]) -> None:
    assert compiled(source, **options).get_kernel("f")


def test_a_kernel_whose_name_the_compiler_changes_is_not_found() -> None:
    with pytest.raises(KernelFault, match=r'named symbol not found.*extern "C"'):
        compiled(f'extern "C" {{ {PLAIN.replace("f(", "g(")} }} {PLAIN}').get_kernel("f")


def test_more_shared_memory_than_48_kib_needs_the_attribute() -> None:
    source = """extern "C" __global__ void k(const float* x, float* y) {
        extern __shared__ float s[];
        s[threadIdx.x * 800] = x[threadIdx.x];
        y[threadIdx.x] = s[threadIdx.x * 800];
    }"""
    with cuda.installed():
        from cuda.bindings import driver  # type: ignore[import-not-found]

        kernel, size = compiled(source).get_kernel("k"), 100 << 10
        x, y = torch.arange(32.0, device="cuda"), torch.zeros(32, device="cuda")
        launched = functools.partial(
            cuda.launch_kernel, None, cuda.LaunchConfig(1, 32, size), kernel, x.data_ptr(), y.data_ptr()
        )
        with pytest.raises(KernelFault, match="102400 bytes of dynamic shared memory; a block has 49152"):
            launched()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (result,) = driver.cuKernelSetAttribute(attribute, 300 << 10, kernel.handle, 0)
        assert result == driver.CUresult.CUDA_ERROR_INVALID_VALUE
        (result,) = driver.cuKernelSetAttribute(attribute, size, kernel.handle, 0)
        assert result == driver.CUresult.CUDA_SUCCESS
        launched()
        assert torch.equal(y, x)
        with pytest.raises(AttributeError, match="cuMemAlloc is not emulated"):
            driver.cuMemAlloc(4)


@pytest.mark.parametrize("checked", [True, False])
def test_names_that_kernels_use(checked: bool) -> None:
    source = """
    #include <cooperative_groups.h>
    #include <cuda/std/limits>
    namespace cg = cooperative_groups;
    __device__ __constant__ const float table[] = {1.0f, 2.0f};
    __device__ int places[2];
    struct __align__(8) Pair { float a, b; };
    extern "C" __global__ void k(const float* x, float* y) {
        alignas(16) __shared__ float s[32], u[4];
        volatile __shared__ int flag;
        static int never;
        int t = threadIdx.x;
        s[t] = x[t];
        u[t % 4] = 1.0f;
        flag = 1;
        __syncthreads();
        float4 four = *reinterpret_cast<float4*>(s + t / 4 * 4);
        float copied;
        memcpy(&copied, &s[t], sizeof(float));
        if (t == 99) printf("%d", never);
        assert(t < 32);
        bool right = __byte_perm(0x03020100u, 0x07060504u, 0x7410u) == 0x07040100u && table[1] == 2.0f
            && __match_any_sync(~0u, t % 2) == (t % 2 ? 0xaaaaaaaau : 0x55555555u) && four.x == s[t / 4 * 4]
            && __dp4a(0x01020304, 0x01010101, 5) == 15
            && cg::this_grid().thread_rank() == t && cg::coalesced_threads().size() == 32 && __mul24(-3, 4) == -12
            && __sad(3, -4, 5u) == 12 && __float2uint_rz(2.7f) == 2 && signbit(-1.0f) && places[0] == 0 && flag == 1
            && cuda::std::numeric_limits<float>::max() == 3.402823466e+38f && sizeof(Pair) == 8
            && __funnelshift_l(0x80000000u, 1u, 1) == 3u && (reinterpret_cast<uintptr_t>(u) & 15) == 0;
        y[t] = right ? copied : -1.0f;
    }"""
    cuda.set_checked(checked)
    with cuda.installed():
        x = torch.arange(32.0, device="cuda")
        assert torch.equal(run_one(source, x), x)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("const float2* p = (const float2*)(x + 1); y[0] = p->x;", "misaligned address"),
        ("y[0] = __ldg((const float4*)(x + 2)).x;", "misaligned address: it reads or writes 16 bytes at once, 8 past"),
        (
            "if (x[0] == 0) { __shared__ float s[10000], u[2289]; s[0] = u[0] = 1; }",
            "49156 bytes, and it may have 49152",
        ),
        ("assert(x[0] == 1);", "assert(x[0] == 1) is not so"),
        ("cooperative_groups::this_grid().sync();", "a grid's sync() is not emulated"),
    ],
)
def test_what_a_gpu_would_not_do_is_said_with_the_line(line: str, words: str) -> None:
    source = f'extern "C" __global__ void k(const float* x, float* y) {{\n{line}\n}}'
    for checked in (True, False):
        cuda.set_checked(checked)
        with cuda.installed():
            x = torch.zeros(32, device="cuda")
            with pytest.raises(KernelFault) as error:
                run_one(source, x, shmem_size=4096)
        assert words in str(error.value)
        assert checked is False or f"2 | {line}" in str(error.value)


@pytest.mark.parametrize("checked", [True, False])
def test_addresses_in_memory_are_what_they_were_after_a_launch(checked: bool) -> None:
    source = """extern "C" __global__ void follow(long long* table, long long number) {
        float** deep = reinterpret_cast<float**>(table[0]);
        deep[0][threadIdx.x] += reinterpret_cast<const float*>(number)[0];
        if (threadIdx.x == 0) table[1] = 7;
    }"""
    cuda.set_checked(checked)
    with cuda.installed():
        x, step = torch.arange(32.0, device="cuda"), torch.full((1,), 0.5, device="cuda")
        deep = torch.tensor([x.data_ptr()]).to("cuda")
        table = torch.tensor([deep.data_ptr(), x.data_ptr(), 3]).to("cuda")
        before = table.tolist()
        kernel = cuda.Program(source).compile().get_kernel("follow")
        cuda.launch_kernel(None, cuda.LaunchConfig(grid=1, block=32), kernel, table.data_ptr(), step.data_ptr())
        assert table.tolist() == [before[0], 7, 3]
        assert deep.tolist() == [x.data_ptr()]
    assert torch.equal(x, torch.arange(32.0) + 0.5)


FOLLOW = """extern "C" __global__ void follow(const long long* table, float* y, int n) {
    const float* p = reinterpret_cast<const float*>(table[0]);
    const float* end = reinterpret_cast<const float*>(table[1]);
    float sum = 0;
    for (; p != end; ++p) sum += *p;
    if (threadIdx.x < n) y[threadIdx.x] = sum;
}
extern "C" __global__ void pass_on(const long long* table, long long* other) {
    for (int i = 0; i < 2; ++i) other[i] = table[i];
}
"""


def followed(table: Any, y: Any) -> None:
    kernel = cuda.Program(FOLLOW).compile().get_kernel("follow")
    cuda.launch_kernel(None, cuda.LaunchConfig(), kernel, table.data_ptr(), y.data_ptr(), ctypes.c_int(1))


def ends_of(x: Any) -> Any:
    return torch.tensor([x.data_ptr(), x.data_ptr() + x.nbytes]).to("cuda")


@pytest.mark.parametrize("checked", [True, False])
def test_an_address_that_a_kernel_wrote_is_followed_too(checked: bool) -> None:
    cuda.set_checked(checked)
    with cuda.installed():
        x, y = torch.arange(5.0, device="cuda"), torch.zeros(1, device="cuda")
        table = ends_of(x)
        other = torch.zeros_like(table)
        kernel = cuda.Program(FOLLOW).compile().get_kernel("pass_on")
        cuda.launch_kernel(None, cuda.LaunchConfig(), kernel, table.data_ptr(), other.data_ptr())
        assert other.tolist() == table.tolist()
        followed(other, y)
    assert y.tolist() == [10.0]


def test_a_table_that_is_kept_from_one_call_to_the_next_leads_where_it_did() -> None:
    x = torch.arange(4.0)
    storage_marks.mark_on_device([x])
    with torch_patches.installed(torch_cuda.patches()):
        with cuda.surroundings():
            table = ends_of(x)
        for _ in range(2):
            with cuda.surroundings():
                y = torch.zeros(1, device="cuda")
                followed(table, y)
            assert y.tolist() == [6.0]


def test_an_address_that_the_program_made_up_leads_nowhere() -> None:
    with torch_patches.installed(torch_cuda.patches()), cuda.surroundings():
        host, y = torch.arange(4.0), torch.zeros(1, device="cuda")
        made_up = [host.data_ptr() + (1 << 52), host.data_ptr() + (1 << 52) + 16]
        with pytest.raises(KernelFault):
            followed(torch.tensor(made_up).to("cuda"), y)


def test_what_came_through_a_table_counts_as_given_to_the_kernel() -> None:
    fed, unfed = torch.arange(4.0), torch.arange(4.0)
    storage_marks.mark_on_device([fed, unfed])
    for given, words in ((fed, ""), (unfed, launch_trace.UNFED)):
        with torch_patches.installed(torch_cuda.patches()), cuda.surroundings():
            launch_trace.begin_dataflow_trace([fed])
            y = torch.zeros(1, device="cuda")
            followed(ends_of(given), y)
            assert launch_trace.end_dataflow_trace([y]) == words


@pytest.mark.parametrize("given", [1, 0])
def test_more_arguments_than_there_is_room_for_are_refused(given: int) -> None:
    names = ", ".join(f"const float* n{number}" if given == 0 else f"int n{number}" for number in range(300))
    source = f'extern "C" __global__ void many(float* y, {names}, int last) {{ y[0] = last; }}'
    with cuda.installed():
        y = torch.empty(1, device="cuda")
        kernel = cuda.Program(source).compile().get_kernel("many")
        arguments = (*[0 if given == 0 else ctypes.c_int(1)] * 300, ctypes.c_int(1))
        with pytest.raises(KernelFault, match="302 arguments"):
            cuda.launch_kernel(None, cuda.LaunchConfig(), kernel, y.data_ptr(), *arguments)


def test_a_table_of_more_tensors_than_there_is_room_for_is_refused() -> None:
    with cuda.installed():
        tensors = [torch.zeros(1, device="cuda") for _ in range(1100)]
        table = torch.tensor([tensor.data_ptr() for tensor in tensors]).to("cuda")
        with pytest.raises(KernelFault, match="memory in 1103 places"):
            followed(table, torch.zeros(1, device="cuda"))


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
        (
            lambda x: (x.data_ptr(), x.data_ptr(), ctypes.c_int(4)),
            {"shmem_size": 1 << 20},
            "bytes of dynamic shared memory",
        ),
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
