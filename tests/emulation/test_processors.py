"""What processors and their compilers choose differently, and emulated kernels must not: each test has the compiler
begin with another processor's choice, as a wrapper in its place, or asks for what only one of them does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kforge.emulation import cuda, metal, native_build  # noqa: E402
from kforge.emulation.conditionals import with_arms  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault  # noqa: E402
from kforge.emulation.whole_casts import with_whole_casts  # noqa: E402

pytestmark = pytest.mark.toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
BOTH = pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])
LANGUAGES = pytest.mark.parametrize("language", ["metal", "cuda"])
INFINITE = float("inf")
BEYOND = [0.5, -0.5, 1.9, -1.9, 3e9, -3e9, 5e9, 1e30, -1e30, INFINITE, -INFINITE, float("nan")]


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    yield
    metal.set_checked(False)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have kernels compiled by one that begins with these flags."""
    real = native_build.compiler()
    native_build.runtime()

    def chosen(*flags: str) -> None:
        wrapper = tmp_path / "c++"
        wrapper.write_text(f'#!/bin/sh\nexec {real} {" ".join(flags)} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setattr(native_build, "compiler", lambda: str(wrapper))

    return chosen


def run(language: str, body: str, given: Any, *outputs: Any, before: str = "", checked: bool = True) -> None:
    """A kernel over the elements of x, with outputs y and z."""
    names = [f"{_KINDS[tensor.dtype]}* {name}" for tensor, name in zip(outputs, "yz", strict=False)]
    kind = _KINDS[given.dtype]
    metal.set_checked(checked)
    if language == "metal":
        parameters = ", ".join(f"device {name}" for name in names)
        source = (
            f"{HEAD}{before}\nkernel void k(device const {kind}* x, {parameters}, "
            f"uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
        )
        metal.compile_shader(source).k(given, *outputs, threads=given.numel(), group_size=given.numel())
        return
    source = f'{before}\nextern "C" __global__ void k(const {kind}* x, {", ".join(names)}) {{\n'
    source += f"int i = threadIdx.x;\n{body}\n}}\n"
    with cuda.installed(), torch.device("cpu"):
        made = cuda.Program(source).compile().get_kernel("k")
        tensors = [tensor.to("cuda") for tensor in (given, *outputs)]
        config = cuda.LaunchConfig(grid=1, block=given.numel())
        cuda.launch_kernel(None, config, made, *(tensor.data_ptr() for tensor in tensors))
        for tensor, there in zip(outputs, tensors[1:], strict=True):
            tensor.copy_(there.cpu())


_KINDS = {
    torch.float32: "float",
    torch.float16: "half",
    torch.int32: "int",
    torch.int64: "long",
    torch.int8: "char",
    torch.float64: "double",
}


# -- what a compiler begins with ------------------------------------------------------------------------------------


@BOTH
@LANGUAGES
def test_char_has_a_sign(language: str, checked: bool, compiler: Callable[..., None]) -> None:
    compiler("-funsigned-char")
    x = torch.arange(-128, 128, dtype=torch.int8)
    y, z = torch.zeros(256), torch.zeros(256, dtype=torch.int32)

    run(language, "y[i] = x[i]; char c = i; z[i] = c < 0 ? 1 : 0;", x, y, z, checked=checked)

    assert torch.equal(y, x.float())
    assert z.tolist() == [0] * 128 + [1] * 128


@LANGUAGES
def test_char_has_a_sign_for_the_preprocessor_too(language: str, compiler: Callable[..., None]) -> None:
    compiler("-funsigned-char")
    y = torch.zeros(1)

    run(
        language,
        "y[i] = SIGN;",
        torch.zeros(1),
        y,
        before="#if '\\377' < 0\n#define SIGN 1\n#else\n#define SIGN 2\n#endif",
    )

    assert y.item() == 1


@BOTH
@LANGUAGES
def test_a_product_and_a_sum_are_rounded_apart(language: str, checked: bool, compiler: Callable[..., None]) -> None:
    """As one operation they leave the product's rounding error."""
    compiler(*(("-march=native",) if os.uname().machine == "x86_64" else ()), "-ffp-contract=fast")
    torch.manual_seed(0)
    one, other = torch.rand(300) + 1, torch.rand(300) + 1
    x, y = torch.cat([one, other, one * other]), torch.ones(900)

    run(language, "y[i] = i < 300 ? x[i] * x[i + 300] - x[i + 600] : 0.0f;", x, y, checked=checked)

    assert torch.equal(y, torch.zeros(900))


@BOTH
@LANGUAGES
def test_the_callers_rounding_is_not_the_kernels(language: str, checked: bool) -> None:
    x = torch.tensor([1e-40, 1.0])
    y = torch.zeros(2)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor keeps small numbers")
    try:
        run(language, "y[i] = x[i] * 0.5f * 1e30f * 1e10f;", x, y, checked=checked)
    finally:
        torch.set_flush_denormal(False)

    assert y[0] > 0.4


# -- half as a class, as where the compiler has none of its own -------------------------------------------------------

CHOICES = {
    "half or float": ("y[i] = c ? h : x[i];", True),
    "float or half": ("y[i] = c ? x[i] : h;", False),
    "half or a literal": ("y[i] = c ? h : 0.25f;", "0.25"),
    "half or a whole number": ("auto v = c ? h : 0; v = v + KIND(1); y[i] = v - KIND(1);", "0"),
    "one of two": ("KIND v = c ? h : h; y[i] = v;", "h"),
    "a chain": ("y[i] = i == 3 ? 5.0f : c ? h : x[i] < 0 ? h : x[i];", "chain"),
    "in brackets and calls": ("y[i] = float(0.0f + (c ? h : x[i]));", True),
    "in a condition": ("if ((c ? h : x[i]) != 7.0f) y[i] = (c ? h : x[i]);", True),
    "without a value": ("c ? (void)(y[i] = h) : (void)(y[i] = x[i]); float f = c ? h : x[i]; y[i] = f;", True),
    "in a loop": ("for (int k = c ? 0 : 1; k < 2; ++k) y[i] = k ? c ? h : x[i] : 0;", True),
}


@pytest.mark.parametrize("kind", ["half", "bfloat"])
@pytest.mark.parametrize("name", CHOICES)
@LANGUAGES
def test_one_or_the_other_where_half_is_a_class(
    language: str, name: str, kind: str, compiler: Callable[..., None]
) -> None:
    compiler("-DKFORGE_HALF_ROUNDED=1")
    body, _ = CHOICES[name]
    word = {"half": "half", "bfloat": "bfloat" if language == "metal" else "__nv_bfloat16"}[kind]
    before = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" if language == "cuda" else ""
    x = torch.arange(64.0) / 7 - 3
    y = torch.full((64,), -9.0)

    run(
        language,
        f"{word} h = {word}(x[i]); bool c = i % 2;\n{body.replace('KIND', word)}",
        x,
        y,
        before=before,
        checked=False,
    )

    rounded = x.to(torch.float16 if kind == "half" else torch.bfloat16)
    assert torch.equal(y, _chosen(name, x, rounded))


def _chosen(name: str, x: Any, rounded: Any) -> Any:
    number = torch.arange(64)
    odd, h = number % 2 == 1, rounded.float()
    one = torch.ones((), dtype=rounded.dtype)
    return {
        "float or half": torch.where(odd, x, h),
        "half or a literal": torch.where(odd, h, 0.25),
        "half or a whole number": (torch.where(odd, rounded, 0) + one - one).float(),
        "one of two": h,
        "a chain": torch.where(number == 3, 5.0, torch.where(odd | (x < 0), h, x)),
    }.get(name, torch.where(odd, h, x))


@BOTH
def test_half_as_a_class_computes_as_half_does(checked: bool, compiler: Callable[..., None]) -> None:
    body = """half h = half(x[i]), w = h + 4097; half v = h; v++; ++v; v--; half u = +h;
    y[i] = h * 2.0h + 1.0h + w / 3 - v * u; z[i] = half(h * x[i] + 1.0f) - h / 7.0h;"""
    x = torch.randn(256)
    own, apart = [(torch.zeros(256, dtype=torch.float16), torch.zeros(256, dtype=torch.float16)) for _ in range(2)]

    run("metal", body, x, *own, checked=checked)
    compiler("-DKFORGE_HALF_ROUNDED=1")
    run("metal", body, x, *apart, checked=checked)

    assert torch.equal(own[0], apart[0])
    assert torch.equal(own[1], apart[1])


@pytest.mark.parametrize("rounded", [True, False], ids=["class", "own"])
def test_a_double_becomes_a_half_at_once(rounded: bool, compiler: Callable[..., None]) -> None:
    """By way of a float it would be rounded twice: to 1 and not to 1.0009765625."""
    if rounded:
        compiler("-DKFORGE_HALF_ROUNDED=1")
    x = torch.tensor([1 + 2**-11 + 2**-40, -1 - 2**-11 - 2**-40, 1 + 2**-11, 1e9, 1.5], dtype=torch.float64)
    y = torch.zeros(5, dtype=torch.float16)

    run("cuda", "y[i] = half(x[i]);", x, y, before="#include <cuda_fp16.h>")

    assert y.tolist() == [1 + 2**-10, -1 - 2**-10, 1.0, INFINITE, 1.5]


def test_halves_are_rounded_after_every_operation(compiler: Callable[..., None]) -> None:
    """Compilers may keep more digits than a half has from one operation to the next."""
    torch.manual_seed(0)
    x = torch.randn(512).half()
    y = torch.zeros(512, dtype=torch.float16)

    run("metal", "half a = x[i], b = x[511 - i]; y[i] = a * b + a - b * 3.0h;", x, y, checked=False)

    other = x.flip(0)
    assert torch.equal(y, x * other + x - other * 3)


# -- real numbers made whole ------------------------------------------------------------------------------------------


def _nearest(value: float, least: int, most: int, none: int) -> int:
    if value != value:
        return none
    return most if value >= most else least if value <= least else int(value)


WRITTEN = {
    "a call": "y[i] = int(x[i]); z[i] = long(unsigned(x[i]));",
    "an old cast": "y[i] = (int)x[i]; z[i] = (long)(unsigned)x[i];",
    "a static cast": "y[i] = static_cast<int>(x[i]); z[i] = static_cast<unsigned int>(x[i]);",
    "a variable": "int a = x[i]; unsigned b = x[i] * 1.0f; y[i] = a; z[i] = b;",
}


@BOTH
@LANGUAGES
@pytest.mark.parametrize("name", WRITTEN)
def test_what_no_whole_number_can_be_is_the_nearest(language: str, name: str, checked: bool) -> None:
    x = torch.tensor(BEYOND)
    y, z = torch.zeros(len(BEYOND), dtype=torch.int32), torch.zeros(len(BEYOND), dtype=torch.int64)

    run(language, WRITTEN[name], x, y, z, checked=checked)

    assert y.tolist() == [_nearest(value, -(2**31), 2**31 - 1, 0) for value in x.tolist()]
    assert z.tolist() == [_nearest(value, 0, 2**32 - 1, 0) for value in x.tolist()]


@pytest.mark.parametrize(("language", "none"), [("metal", 0), ("cuda", -(2**63))])
def test_64_bits(language: str, none: int) -> None:
    x = torch.tensor(BEYOND)
    y = torch.zeros(len(BEYOND), dtype=torch.int64)

    run(language, "y[i] = long(x[i]);", x, y)

    assert y.tolist() == [_nearest(value, -(2**63), 2**63 - 1, none) for value in x.tolist()]


def test_vectors_and_shorter_numbers() -> None:
    x = torch.tensor(BEYOND)
    y, z = torch.zeros(len(BEYOND), dtype=torch.int32), torch.zeros(len(BEYOND), dtype=torch.int32)

    run("metal", "y[i] = int4(float4(x[i])).z; z[i] = uchar(x[i]);", x, y, z)

    assert y.tolist() == [_nearest(value, -(2**31), 2**31 - 1, 0) for value in x.tolist()]
    assert z.tolist() == [_nearest(value, 0, 2**32 - 1, 0) & 255 for value in x.tolist()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("y = -(int)-x[i].y(3)->z++ + 4;", "y = -kforge::whole<int>(-x[i].y(3)->z++ )+ 4;"),
        ("b = (int)a < b && c > (d);", "b = kforge::whole<int>(a )< b && c > (d);"),
        ("a = (uint)(float)(x) - b;", "a = kforge::whole<uint>((float)(x) )- b;"),
        ("y = (ulong)max<float>(a, b);", "y = kforge::whole<ulong>(max<float>(a, b));"),
        ("if (n > (int)x) return (uint)*p;", "if (n > kforge::whole<int>(x)) return kforge::whole<uint>(*p);"),
        ("int n = f(x);", "int n = kforge::initial<int>(f(x));"),
    ],
)
def test_casts_are_found(text: str, wanted: str) -> None:
    assert with_whole_casts(f"{text}\n;") == f"{wanted}\n;"


@pytest.mark.parametrize(
    "text",
    [
        "s = sizeof(int) * 4;",
        "int (*p)[16] = s;",
        "operator int() const;",
        "void f(int) {}",
        "template <int N = 3> T f(T x);",
        "template <> float f<float>(int) const { return g; }",
        "float operator()(int) const { return g; }",
        "void f(int n = 3, int m = 4);",
        "enum class Op : uint { A = 1 };",
        "int4(x)",
        "int n{3};",
    ],
)
def test_what_is_no_cast_is_left_alone(text: str) -> None:
    assert with_whole_casts(text) == text


def test_a_conditional_in_two_ifs() -> None:
    text = "if (a) b ? c : d;\nelse x = {p, q ? r : s};"

    assert with_arms(text) == (
        "if (a) (kforge::result, b ? (kforge::arm, c ): (kforge::arm, d));\n"
        "else x = {p, (kforge::result, q ? (kforge::arm, r ): (kforge::arm, s))};"
    )


# -- faults that only some processors notice --------------------------------------------------------------------------


@BOTH
@LANGUAGES
@pytest.mark.parametrize("mark", ["/", "%"])
def test_a_division_by_zero(language: str, mark: str, checked: bool) -> None:
    line = 5 if language == "metal" else 4

    with pytest.raises(KernelFault, match=f"line {line}: an integer was divided by zero"):
        run(language, f"y[i] = 7 {mark} (x[i] - 1);", torch.ones(4, dtype=torch.int32), torch.zeros(4), checked=checked)


def test_divisions_of_vectors_name_the_kernels_line() -> None:
    with pytest.raises(KernelFault, match="line 5: an integer was divided by zero"):
        run("metal", "y[i] = (int2(7) / int2(x[i] - 1)).y;", torch.ones(4, dtype=torch.int32), torch.zeros(4))


@pytest.mark.parametrize(
    "body",
    [
        "float4 v = *(device const float4*)(x + 1 + 4 * i); y[i] = v.x + v.w;",
        "device const float4* p = (device const float4*)(x + 1); y[i] = dot(p[i], p[i]);",
        "device const float4* p = (device const float4*)(x + 1); y[i] = p[i].y;",
        "if (i < 4) *(device float4*)(y + 1 + 4 * i) = float4(1.0f);",
    ],
)
def test_a_misaligned_vector_in_metal(body: str) -> None:
    with pytest.raises(KernelFault, match=r"line 5: misaligned address: .* 16 bytes at once, 4 past a multiple of 16"):
        run("metal", body, torch.ones(64), torch.zeros(64))


@BOTH
def test_shorter_vectors_may_lie_anywhere_in_metal(checked: bool) -> None:
    y = torch.zeros(16)

    run("metal", "float2 v = *(device const float2*)(x + 1); y[i] = v.x + v.y;", torch.ones(16), y, checked=checked)

    assert y.tolist() == [2.0] * 16


@BOTH
@LANGUAGES
def test_a_shift_by_more_places_than_there_are(language: str, checked: bool) -> None:
    """Metal counts on from 0; so do both processors, where the compiler does not know the number."""
    y, z = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int64)
    x = torch.arange(64, dtype=torch.int32) * 3

    run(language, "y[i] = 1 << x[i]; z[i] = 5l << x[i] >> (x[i] + 64);", x, y, z, checked=checked)

    assert [value & 0xFFFFFFFF for value in y.tolist()] == [1 << value % 32 for value in x.tolist()]
    assert z.tolist() == [_wrapped(5 << value % 64) >> value % 64 for value in x.tolist()]


def _wrapped(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def test_a_long_double_is_a_double() -> None:
    y = torch.zeros(1, dtype=torch.int32)

    run("cuda", "long double v = 1; y[i] = sizeof(v) + (1 + (long double)1e-17 == 1);", torch.zeros(1), y)

    assert y.item() == 9


@BOTH
def test_a_misaligned_atomic_operation(checked: bool) -> None:
    source = 'extern "C" __global__ void k(char* y) { atomicAdd((unsigned*)(y + 2), 1u); }'
    cuda.set_checked(checked)
    with cuda.installed():
        kernel = cuda.Program(source).compile().get_kernel("k")
        y = torch.zeros(16, dtype=torch.int8, device="cuda")
        with pytest.raises(KernelFault, match="misaligned address"):
            cuda.launch_kernel(None, cuda.LaunchConfig(grid=1, block=1), kernel, y.data_ptr())


@pytest.mark.parametrize("kib", [260, 300, 319, 321, 384, 400, 4000])
def test_a_frame_of_every_size_ends_at_the_guard(kib: int) -> None:
    """However far below the last address it touched a compiler lets a frame reach."""
    body = f"char a[{kib} * 1024]; for (uint k = 0; k < sizeof(a); k += 500) a[k] = char(k + i);\ny[i] = a[i];"

    with pytest.raises(KernelFault, match="private memory is more than its stack of 256 KiB"):
        run("metal", body, torch.zeros(64), torch.zeros(64), checked=False)


def test_the_machine_is_one_that_is_known() -> None:
    """The context switch is written for these two."""
    assert os.uname().machine in ("x86_64", "aarch64", "arm64")
