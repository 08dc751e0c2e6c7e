"""Metal's language as C++: however models write it, what is refused and how, and numbers against Python's."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kforge.emulation import metal  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault  # noqa: E402
from kforge.emulation.msl_source import translate  # noqa: E402
from kforge.emulation.tokens import SourceError, text_of, tokens_of  # noqa: E402

pytestmark = pytest.mark.toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PARAMETERS = (
    "device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]], "
    "uint t [[thread_position_in_threadgroup]]"
)
KERNEL = f"kernel void k({PARAMETERS})"
GIVEN = torch.arange(64.0) / 7 - 3
BOTH = pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])


@dataclass(frozen=True)
class Case:
    """One thing of the language: a body for 64 threads in a group, what stands before the kernel, and what `y` is."""

    body: str
    wanted: Callable[[Any], Any]
    before: str = ""


CASES: dict[str, Case] = {}


def case(name: str, body: str, wanted: Callable[[Any], Any], before: str = "") -> None:
    CASES[name] = Case(body, wanted, before)


case(
    "a macro declares threadgroup memory",
    r"""
TILE(s, 64)
s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); y[i] = s[63 - t];
""",
    lambda x: x.flip(0),
    "#define TILE(n, c) threadgroup float n[c];",
)
case(
    "constant arrays",
    "y[i] = x[i] * W[i % 4];",
    lambda x: x * torch.tensor([1.0, 2, 3, 4]).repeat(16),
    "constant float W[4] = {1, 2, 3, 4};",
)
case(
    "static constant",
    "y[i] = x[i] * W;",
    lambda x: x * 3,
    "static constant float W = 3.0;",
)
case(
    "constexpr constant",
    "y[i] = x[i] * W * V;",
    lambda x: x * 6,
    "constexpr constant float W = 3.0f; constant constexpr float V = 2.0f;",
)
case(
    "static constexpr constant",
    "y[i] = x[i] * W;",
    lambda x: x * 3,
    "static constexpr constant float W = 3.0f;",
)
case(
    "constant const",
    "y[i] = x[i] * W;",
    lambda x: x * 3,
    "constant const float W = 3.0f;",
)
case(
    "a pointer to constants",
    "constant float* w = W; y[i] = x[i] * w[i % 2];",
    lambda x: x * torch.tensor([3.0, 4]).repeat(32),
    "constant float W[] = {3.0f, 4.0f};",
)
case(
    "template defaults",
    "y[i] = f(x[i]) + f<float, 3>(x[i]);",
    lambda x: x * 5,
    "template <typename T, int N = 2> T f(T v) { return v * T(N); }",
)
case(
    "a comparison in a template default",
    "y[i] = f(x[i]);",
    lambda x: x * 2,
    "template <typename T, int N = (1 < 2) ? 2 : 3> T f(T v) { return v * T(N); }",
)
case(
    "methods with address spaces",
    "P p{x[i]}; y[i] = p.get();",
    lambda x: x,
    "struct P { float v; float get() const thread { return v; } };",
)
case(
    "operators of a struct",
    "C a{x[i], 1}, b{2, 0}; C c = a * b; c += a; y[i] = c.re;",
    lambda x: 3 * x,
    r"""
struct C {
    float re, im;
    C operator*(thread const C& o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
    thread C& operator+=(C o) { re += o.re; im += o.im; return *this; }
};
""",
)
case(
    "references to a thread's own",
    "float v = x[i]; bump(v); y[i] = v;",
    lambda x: x + 1,
    "void bump(thread float& v) { v += 1; }",
)
case(
    "overloads by address space",
    r"""
threadgroup float s[64]; s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = f(s + t) + f(x + i);
""",
    lambda x: 2 * x,
    r"""
float f(threadgroup const float* p) { return *p; }
float f(device const float* p) { return *p; }
""",
)
case(
    "overloads by address space, names apart",
    r"""
threadgroup float s[64]; s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = f(s + t) + f(x + i);
""",
    lambda x: 2 * x,
    r"""
inline float f(threadgroup const float* p) { return *p; }
static inline float f(device const float* q) { return *q; }
""",
)
case(
    "templates by address space",
    r"""
threadgroup float s[64]; s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = f<float>(s + t) + f<float>(x + i);
""",
    lambda x: 2 * x,
    r"""
template <typename T> T f(threadgroup const T* p) { return *p; }
template <typename T> T f(device const T* p) { return *p; }
""",
)
case(
    "methods by address space",
    r"""
threadgroup float s[64]; s[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
L l; y[i] = l.f(s + t) + l.f(x + i);
""",
    lambda x: 2 * x,
    r"""
struct L { float f(threadgroup const float* p) { return *p; }
float f(device const float* p) { return *p; } };
""",
)
case(
    "three address spaces",
    "float v = x[i]; y[i] = f(v) + f(x[i]);",
    lambda x: 2 * x,
    r"""
float f(thread const float& p) { return p; }
float f(device const float& p) { return p; }
float f(constant float& p) { return p; }
""",
)
case(
    "pointer to array",
    r"""
threadgroup float s[4][16]; threadgroup float (*p)[16] = s;
p[t / 16][t % 16] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = s[0][t % 16] + p[t/16][t%16];
""",
    lambda x: x[:16].repeat(4) + x,
)
case(
    "a pointer to an array as a parameter",
    r"""
threadgroup float s[4][16]; put(s, t, x[i]);
threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = s[t/16][t%16];
""",
    lambda x: x,
    "void put(threadgroup float (*p)[16], uint t, float v) { p[t / 16][t % 16] = v; }",
)
case(
    "a reference to an array",
    r"""
threadgroup float s[64]; put(s, t, x[i]);
threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = s[t];
""",
    lambda x: x,
    "void put(threadgroup float (&p)[64], uint t, float v) { p[t] = v; }",
)
case(
    "array of vectors",
    r"""
float4 v[2] = {float4(x[i]), float4(1)}; v[1].xy = v[0].zw;
float2 m[2][2]; m[1][0] = v[1].xy; y[i] = v[1].x + v[1].w + m[1][0].y;
""",
    lambda x: 2 * x + 1,
)
case(
    "threadgroup vectors",
    r"""
threadgroup float4 s[64]; s[t] = float4(x[i]);
s[t].y = 2; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = s[t].x + s[t].y;
""",
    lambda x: x + 2,
)
case(
    "half or float",
    "half h = half(x[i]); float f = i % 2 ? h : x[i]; y[i] = f;",
    lambda x: torch.where(torch.arange(64) % 2 == 1, x.half().float(), x),
)
case(
    "half or a literal",
    "half h = half(x[i]); h = h > 0.0h ? h : 0.0h; h = h > 0 ? h : half(0); y[i] = h;",
    lambda x: x.half().float().clamp(min=0),
)
case(
    "bfloat or float",
    "bfloat h = bfloat(x[i]); float f = i % 2 ? h : x[i]; y[i] = f;",
    lambda x: torch.where(torch.arange(64) % 2 == 1, x.bfloat16().float(), x),
)
case(
    "enum class",
    r"""
Op o = Op(i % 2); switch (o) { case Op::A: y[i] = x[i]; break; case Op::B: y[i] = -x[i]; break; default: y[i] = 0; }
""",
    lambda x: torch.where(torch.arange(64) % 2 == 1, -x, x),
    "enum class Op : uint { A, B };",
)
case(
    "switch",
    r"""
switch (i & 3) { case 0: y[i] = 1; break; case 1: { float v = x[i]; y[i] = v; break; } case 2: case 3: y[i] = 2; }
""",
    lambda x: torch.stack([torch.ones(16), x[1::4], torch.full((16,), 2.0), torch.full((16,), 2.0)], 1).flatten(),
)
case(
    "comments in odd places",
    r"""
y /* out */ [ /* thread */ i] = /* in */ x[i] // done
; /* threadgroup float s[4]; */
""",
    lambda x: x,
)
case(
    "continuation",
    r"""
y[i] = \
x[i]; // a comment \
y[i] = 0;
""",
    lambda x: x,
    r"""
#define MUL(a, b) \
((a) * \
(b))
""",
)
case(
    "letters beyond ASCII",
    "y[i] = x[i]; // größe, 大きさ, αβγ → ≤",
    lambda x: x,
    "/* über – alles … */",
)
case(
    "numbers",
    "y[i] = x[i] * 1.h + 0x10 + 1e-1f * 10.F + .5f*2 + 1'0 - 10 - 16 - 1 - 1;",
    lambda x: x,
)
case(
    "uint literals",
    "uint a = 1u, b = 2U; ulong c = 3ul; long d = 4L; y[i] = x[i] + a + b + c + d;",
    lambda x: x + 10,
)
case(
    "vector literal",
    "float4 v = {x[i], 1.0f, 2.0f, 3.0f}; float2 w{x[i], 2}; y[i] = v.x + w.x;",
    lambda x: 2 * x,
)
case(
    "swizzles written",
    r"""
float4 v = float4(x[i]); v.wzyx = float4(1,2,3,4);
v.xy += 1.0f; v.zw *= float2(2); v.rgb = v.bgr;
y[i] = v.x*1000 + v.y*100 + v.z*10 + v.w;
""",
    lambda x: torch.full((64,), 4 * 1000 + 4 * 100 + 5 * 10 + 2.0),
)
case(
    "swizzles of swizzles",
    "float4 v = float4(1,2,3,x[i]); y[i] = v.wzyx.xy.x + v.xyz.z;",
    lambda x: x + 3,
)
case(
    "swizzles of calls",
    "y[i] = float4(x[i]).xy.y + (float2(1,2) + float2(3,4)).yx.x;",
    lambda x: x + 6,
)
case(
    "swizzles in templates",
    "y[i] = f(float4(x[i], 1, 2, 3));",
    lambda x: x + 3,
    "template <typename V> float f(V v) { return v.xy.x + v.zw.y; }",
)
case(
    "swizzles of a buffer's element",
    r"""
device float4* q = (device float4*)y; device const float4* p = (device const float4*)x;
if (i < 16) { q[i].xy = p[i].xy; q[i].zw = p[i].wz; }
""",
    lambda x: x.view(16, 4)[:, [0, 1, 3, 2]].flatten(),
)
case(
    "components counted up",
    "float4 v = float4(x[i]); v.x++; ++v.y; v.z -= 1; y[i] = v.x + v.y + v.z;",
    lambda x: 3 * x + 1,
)
case(
    "swizzles through a pointer",
    "float4 v = float4(x[i]); thread float4* p = &v; p->xy = float2(1, 2); y[i] = p->xy.y + p->z;",
    lambda x: x + 2,
)
case(
    "swizzles and bits",
    r"""
uint4 v = uint4(i); v.xy &= 3u; v.zw <<= 1u;
v.xy |= uint2(8u); v.xy ^= 1u; v.xy >>= 0u;
y[i] = float(v.x + v.z);
""",
    lambda x: torch.tensor([float((((i & 3) | 8) ^ 1) + (i << 1)) for i in range(64)]),
)
case(
    "nested struct arrays",
    "S s; s.a[1].v = x[i]; y[i] = s.a[1].v;",
    lambda x: x,
    "struct In { float v; int k; }; struct S { In a[4]; };",
)
case(
    "names for types",
    "real v = x[i]; vec4 q = vec4(v); y[i] = q.x;",
    lambda x: x,
    "typedef float real; using vec4 = metal::float4;",
)
case(
    "vec<T, N>",
    "vec<float, 4> v(x[i]); y[i] = v.x + v.xy.y;",
    lambda x: 2 * x,
)
case(
    "anonymous namespace",
    "y[i] = f(x[i]);",
    lambda x: x * 2,
    "namespace { float f(float v) { return v * 2; } }",
)
case(
    "METAL_FUNC",
    "y[i] = f(x[i]);",
    lambda x: x,
    "METAL_FUNC float f(float v) { return v; }",
)
case(
    "always_inline",
    "y[i] = f(x[i]);",
    lambda x: x,
    "static inline __attribute__((always_inline)) float f(float v) { return v; }",
)
case(
    "pragma unroll",
    r"""
float s = 0;
#pragma unroll
for (int j = 0; j < 4; ++j) s += x[i];
_Pragma("clang loop unroll(full)") for (int j = 0; j < 2; ++j) s -= x[i];
y[i] = s;
""",
    lambda x: 2 * x,
)
case(
    "static_assert",
    r"""
static_assert(sizeof(float4) == 16, ""); static_assert(sizeof(float3) == 16, "");
static_assert(sizeof(packed_float3) == 12, "");
y[i] = x[i];
""",
    lambda x: x,
)
case(
    "if constexpr",
    "y[i] = f<float>(x[i]);",
    lambda x: 2 * x,
    r"""
template <typename T> T f(T v) { if constexpr (is_same<T, float>::value) return v * 2; else return v; }
""",
)
case(
    "an operation as a template's argument",
    "Sum op; y[i] = red(x[i], 1.0f, op);",
    lambda x: x + 1,
    r"""
struct Sum { template <typename T> T operator()(T a, T b) const { return a + b; } };
template <typename Op> float red(float a, float b, Op op) { return op(a, b); }
""",
)
case(
    "vectors of bool",
    r"""
float4 v = float4(x[i], -1, 2, 3); float4 r = select(float4(0), v, v > 0.0f);
bool4 b = v > float4(0); y[i] = r.x + (any(b) ? 0 : 0) + (all(b.zw) ? 1 : 0);
""",
    lambda x: x.clamp(min=0) + 1,
)
case(
    "as_type",
    r"""
uint u = as_type<uint>(x[i]); y[i] = as_type<float>(u & 0x7fffffffu);
half2 h = as_type<half2>(0x3c003c00u); y[i] += h.x - h.y;
""",
    lambda x: x.abs(),
)
case(
    "vectors of half",
    "half4 h = half4(float4(x[i])); h = h * 2.0h + half4(1); y[i] = float4(h).x;",
    lambda x: (x.half() * 2 + 1).float(),
)
case(
    "fast and precise",
    r"""
y[i] = fast::exp(x[i]) + precise::exp(x[i]) + metal::exp(x[i]) + fast::max(x[i], 0.0f) + precise::max(x[i], 0.0f);
y[i] += fast::clamp(x[i], 0.0f, 1.0f) + fast::min(x[i], 0.0f);
""",
    lambda x: 3 * x.exp() + 2 * x.clamp(min=0) + x.clamp(0, 1) + x.clamp(max=0),
)
case(
    "fmin3 and its like",
    r"""
y[i] = fmin3(x[i], 1.0f, 2.0f) + fmax3(x[i], -1.0f, -2.0f) + min3(x[i], 1.0f, 2.0f) + fmedian3(x[i], 0.0f, 1.0f);
""",
    lambda x: x.clamp(max=1) * 2 + x.clamp(min=-1) + x.clamp(0, 1),
)
case(
    "array<T, N>",
    "array<float, 4> v; for (uint j = 0; j < v.size(); ++j) v[j] = x[i]; y[i] = v[3];",
    lambda x: x,
)
case(
    "numeric_limits",
    r"""
y[i] = max(x[i], numeric_limits<float>::lowest()) + (-INFINITY < -FLT_MAX ? 1 : 0);
y[i] += (metal::numeric_limits<float>::infinity() > FLT_MAX ? 1 : 0);
""",
    lambda x: x + 2,
)
case(
    "commas in a for",
    "float s = 0; for (uint a = 0, b = 4; a < b; ++a, --b) s += x[i]; y[i] = s;",
    lambda x: 2 * x,
)
case(
    "< and > that are no brackets",
    r"""
uint a = i, b = 3, c = 2; bool r = a < b && c > (b >> 1);
float v[4] = {1,2,3,4}; y[i] = v[a < b ? 0 : 1] + (r ? 1 : 0);
""",
    lambda x: torch.full((64,), 2.0),
)
case(
    "]] that ends no attribute",
    "uint v[2] = {i, 1}; uint w[2] = {0, 1}; y[i] = float(v[w[0]] >> v[w[1]]);",
    lambda x: (torch.arange(64) // 2).float(),
)
case(
    "a threadgroup struct",
    r"""
threadgroup S s; if (t == 0) { s.total = 2; s.v[3] = 1; } threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = x[i] * s.total + s.v[3];
""",
    lambda x: x * 2 + 1,
    "struct S { float total; float v[4]; };",
)
case(
    "a threadgroup scalar",
    r"""
threadgroup float total; if (t == 0) total = 2;
threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = x[i] * total;
""",
    lambda x: x * 2,
)
case(
    "several threadgroup variables",
    r"""
threadgroup float a[64], b[64]; a[t] = x[i];
b[t] = 2; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = a[63 - t] * b[t];
""",
    lambda x: x.flip(0) * 2,
)
case(
    "alignas",
    r"""
alignas(16) threadgroup float a[64]; threadgroup alignas(16) float b[64];
a[t] = x[i]; b[t] = 1; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = a[t] * b[t];
""",
    lambda x: x,
)
case(
    "aligned after the name",
    r"""
threadgroup float4 a[16] __attribute__((aligned(16)));
if (t < 16) a[t] = float4(x[i]); threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = a[t / 4].x;
""",
    lambda x: x[torch.arange(64) // 4],
)
case(
    "a threadgroup atomic",
    r"""
threadgroup atomic_uint n; if (t == 0) atomic_store_explicit(&n, 0u, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = float(atomic_load_explicit(&n, memory_order_relaxed));
""",
    lambda x: torch.full((64,), 64.0),
)
case(
    "threadgroup memory in a template",
    "f<32>(x, y, i, t);",
    lambda x: x,
    r"""
template <int N> void f(device const float* x, device float* y, uint i, uint t) {
    threadgroup float s[N * 2]; s[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = s[t];
}
""",
)
case(
    "volatile threadgroup memory",
    r"""
volatile threadgroup float s[64]; threadgroup volatile float r[64];
s[t] = x[i]; r[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = s[63 - t] + r[t] - x[i];
""",
    lambda x: x.flip(0),
)
case(
    "threadgroup pointers, cast",
    r"""
threadgroup float s[64]; threadgroup float* p = &s[0];
threadgroup float4* q = (threadgroup float4*)s;
p[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);
y[i] = q[t / 4][t % 4];
""",
    lambda x: x,
)
case(
    "reinterpret_cast",
    "device const uint* p = reinterpret_cast<device const uint*>(x); y[i] = as_type<float>(p[i]);",
    lambda x: x,
)
case(
    "static_cast",
    "y[i] = static_cast<float>(static_cast<half>(x[i]));",
    lambda x: x.half().float(),
)
case(
    "const device",
    "const device float* p = x; float const* q = nullptr; y[i] = p[i] + (q == nullptr ? 0 : 1);",
    lambda x: x,
)
case(
    "const pointers",
    "device const float * const p = x; device float * const r = y; r[i] = p[i];",
    lambda x: x,
)
case(
    "restrict",
    r"""
device const float* __restrict p = x; device const float* __restrict__ q = x; y[i] = p[i] + q[i];
""",
    lambda x: 2 * x,
)
case(
    "auto",
    "auto p = x + i; auto v = *p; const auto w = v; y[i] = w;",
    lambda x: x,
)
case(
    "matrices",
    r"""
float2x2 m = float2x2(1, 2, 3, 4); float2x2 n = float2x2(float2(1,2), float2(3,4));
y[i] = x[i] * (m[0][1] - n[0].y + 1) + determinant(m) + 2;
""",
    lambda x: x,
)
case(
    "local constexpr",
    r"""
constexpr int N = 4; const int M = 2; float v[N * M];
for (int j = 0; j < N * M; ++j) v[j] = x[i];
constexpr float S = 1.0f / N; y[i] = v[7] * S * 4;
""",
    lambda x: x,
)
case(
    "a free operator",
    "y[i] = (fp{x[i], 1} + fp{1, 2}).a;",
    lambda x: x + 1,
    r"""
struct fp { float a, b; };
fp operator+(fp l, fp r) { return fp{l.a + r.a, l.b + r.b}; }
""",
)
case(
    "union",
    "union { float f; uint u; } v; v.f = x[i]; y[i] = as_type<float>(v.u);",
    lambda x: x,
)
case(
    "bitfield",
    "struct B { uint a : 4; uint b : 28; }; B v; v.a = 3; v.b = 5; y[i] = x[i] * v.a;",
    lambda x: 3 * x,
)
case(
    "constructor",
    "P p(x[i]); P q = P(1.0f); y[i] = p.v + q.v;",
    lambda x: x + 1,
    "struct P { float v; P(float a) : v(a) {} P() : v(0) {} };",
)
case(
    "static members of a template",
    "y[i] = x[i] * T<4>::twice * T<2>::get();",
    lambda x: x * 16,
    r"""
template <int N> struct T { static constexpr constant int twice = 2 * N; static constexpr int get() { return N; } };
""",
)
case(
    "variadic",
    "y[i] = sum(x[i], 1.0f, 2.0f);",
    lambda x: x + 3,
    r"""
template <typename A> A sum(A a) { return a; }
template <typename A, typename... R> A sum(A a, R... r) { return a + sum(r...); }
""",
)
case(
    ">> that ends two templates",
    "W<W<float>> w; w.v.v = x[i]; y[i] = w.v.v;",
    lambda x: x,
    "template <typename T> struct W { T v; };",
)
case(
    "half compare",
    "half h = half(x[i]); y[i] = h > half(0) && h < 2.0h ? float(h) : 0.0f;",
    lambda x: torch.where((x.half() > 0) & (x.half() < 2), x.half().float(), 0.0),
)
case(
    "half compound",
    "half h = half(x[i]); h += 1.0h; h *= 2; h -= half(0.5f); h /= 2.0h; y[i] = float(h);",
    lambda x: (((x.half() + 1) * 2 - 0.5) / 2).float(),
)
case(
    "half plus int",
    "half h = half(x[i]) + 1; y[i] = h;",
    lambda x: (x.half() + 1).float(),
)
case(
    "max half literal",
    "half h = max(half(x[i]), 0.0h); half g = max(half(x[i]), half(0)); y[i] = float(h + g);",
    lambda x: x.half().clamp(min=0).float() * 2,
)
case(
    "bfloat ops",
    r"""
bfloat b = bfloat(x[i]); b = b * b; b += bfloat(1);
bfloat c = -b; y[i] = float(b) + float(c) + float(max(b, c));
""",
    lambda x: (x.bfloat16() * x.bfloat16() + 1).float(),
)
case(
    "bfloat and whole numbers",
    "bfloat b = static_cast<bfloat>(x[i]); y[i] = b > 0 ? 1 : b == bfloat(0) ? 2 : 3;",
    lambda x: torch.where(x.bfloat16() > 0, 1.0, torch.where(x.bfloat16() == 0, 2.0, 3.0)),
)
case(
    "bfloat vec",
    "bfloat4 b = bfloat4(x[i]); float4 f = float4(b); y[i] = f.x;",
    lambda x: x.bfloat16().float(),
)
case(
    "ifdef",
    r"""
#ifdef __METAL_VERSION__
y[i] = x[i];
#else
y[i] = 0;
#endif
""",
    lambda x: x,
)
case(
    "__METAL_VERSION__",
    r"""
#if __METAL_VERSION__ >= 300 && defined(__METAL__)
y[i] = x[i];
#else
y[i] = 0;
#endif
""",
    lambda x: x,
)
case(
    "several declarations at once",
    "float2 a = float2(x[i], 1), b = a.yx, c = b.yx; y[i] = c.x;",
    lambda x: x,
)
case(
    "a reference to a constant struct",
    "constant S& s = g; y[i] = x[i] * s.v;",
    lambda x: x * 2,
    r"""
struct S { float v; };
constant S g = {2.0f};
""",
)
case(
    "and, not",
    "y[i] = x[i]; if (i == 3 and not (i == 4)) y[i] = x[i];",
    lambda x: x,
)
case(
    "simd in templates",
    "y[i] = red<float>(x[i]);",
    lambda x: x.view(2, 32).sum(1).repeat_interleave(32),
    r"""
template <typename T> T red(T v) { for (ushort d = 16; d > 0; d /= 2) v += simd_shuffle_xor(v, d); return v; }
""",
)
case(
    "two collectives on a line",
    "y[i] = simd_sum(x[i]) + simd_max(x[i]) + simd_min(simd_sum(x[i]));",
    lambda x: (2 * x.view(2, 32).sum(1) + x.view(2, 32).max(1).values).repeat_interleave(32),
)
case(
    "a macro of two collectives",
    "y[i] = R(x[i]);",
    lambda x: (x.view(2, 32).sum(1) + x.view(2, 32).max(1).values).repeat_interleave(32),
    "#define R(v) (simd_sum(v) + simd_max(v))",
)
case(
    "a macro with one collective twice",
    "y[i] = R(x[i]);",
    lambda x: (2 * x.view(2, 32).sum(1)).repeat_interleave(32),
    "#define R(v) (simd_sum(v) + simd_sum(v))",
)
case(
    "barriers' flags",
    r"""
threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
threadgroup_barrier(metal::mem_flags::mem_none);
simdgroup_barrier(mem_flags::mem_none); y[i] = x[i];
""",
    lambda x: x,
)
case(
    "quad ops",
    "y[i] = quad_sum(x[i]);",
    lambda x: x.view(16, 4).sum(1).repeat_interleave(4),
)
case(
    "pack unpack",
    r"""
uint u = pack_float_to_unorm4x8(float4(1, 0, 1, 0));
float4 v = unpack_unorm4x8_to_float(u); y[i] = x[i] * v.x;
""",
    lambda x: x,
)
case(
    "an overload of the library's",
    "y[i] = max(x[i], 1);",
    lambda x: x.clamp(min=1),
    "float max(float a, int b) { return metal::max(a, float(b)); }",
)
case(
    "fma, mix, step",
    r"""
y[i] = fma(x[i], 2.0f, 1.0f) + mix(0.0f, 2.0f, 0.5f) + smoothstep(0.0f, 1.0f, 0.5f) + step(0.0f, 1.0f);
y[i] += sign(-2.0f) + clamp(x[i], 0.0f, 0.0f);
""",
    lambda x: 2 * x + 1 + 1 + 0.5 + 1 - 1,
)


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    yield
    metal.set_checked(False)


@functools.cache
def library(source: str) -> Any:
    return metal.compile_shader(source)


@functools.cache
def all_cases() -> Any:
    """All cases in one source, each in a namespace of its own; None if it does not compile."""
    parts = [
        f"namespace case_{number} {{\n{item.before}\nkernel void k_{number}({PARAMETERS}) {{\n{item.body}\n}}\n}}\n"
        for number, item in enumerate(CASES.values())
    ]
    try:
        return library(HEAD + "".join(parts))
    except SyntaxError:
        return None


def computed(kernel: Any, checked: bool) -> Any:
    y = torch.zeros(64)
    metal.set_checked(checked)
    kernel(GIVEN.clone(), y, threads=64, group_size=64)
    return y


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_what_models_write(name: str, checked: bool) -> None:
    item = CASES[name]
    whole = all_cases()
    if whole is None:
        # One of them does not compile: the one that does not says so.
        kernel = library(f"{HEAD}{item.before}\n{KERNEL} {{\n{item.body}\n}}\n").k
    else:
        kernel = getattr(whole, f"k_{list(CASES).index(name)}")

    torch.testing.assert_close(computed(kernel, checked), item.wanted(GIVEN), rtol=1e-5, atol=1e-5)


WHOLE = {
    "[[kernel]]": HEAD + KERNEL.replace("kernel void", "[[kernel]] void") + "{ y[i] = x[i]; }",
    "attributes before": HEAD + f"[[max_total_threads_per_threadgroup(64)]] {KERNEL} {{ y[i] = x[i]; }}",
    "attributes behind": HEAD + f"{KERNEL} [[max_total_threads_per_threadgroup(64)]] {{ y[i] = x[i]; }}",
    "no using": f"#include <metal_stdlib>\n{KERNEL} {{ metal::float2 v(x[i], 1); y[i] = metal::max(v.x, v.x); }}",
    "no include": f"using namespace metal;\n{KERNEL} {{ y[i] = max(x[i], x[i]); }}",
    "names brought in": "#include <metal_stdlib>\nusing metal::max; using metal::float4;\n"
    f"{KERNEL} {{ y[i] = max(x[i], float4(x[i]).x); }}",
    "simd/simd.h": "#include <metal_stdlib>\n#include <simd/simd.h>\n"
    f"{KERNEL} {{ simd::float4 v = simd::float4(x[i]); y[i] = v.x; }}",
    "includes as they come": '  # include   <metal_stdlib>  // it\n#include "metal_stdlib"\n#import <metal_math>\n'
    f"{KERNEL} {{ y[i] = x[i]; }}",
    "a member named like a swizzle": HEAD + "struct P { float v, xy = 0; void set(float a) thread { v = a; } };\n"
    f"{KERNEL} {{ P p; p.set(x[i]); y[i] = p.v + p.xy; }}",
    "a method named like a swizzle": HEAD + "struct P { float2 v; float2 xy() const { return v.xy; } };\n"
    f"{KERNEL} {{ P p{{float2(x[i], 1)}}; y[i] = p.xy().x; }}",
    "names of C's library": HEAD
    + "float erf(float v) { return v; } float expm1(float v) { return v; } float j1(float v) { return v; }\n"
    f"{KERNEL} {{ float gamma = x[i], y0 = 0, time = 0; y[i] = erf(expm1(j1(gamma))) + y0 + time; }}",
    "a kernel in namespaces": HEAD + f"namespace a {{ namespace b {{\n{KERNEL} {{ y[i] = x[i]; }}\n}} }}\n",
    'extern "C"': HEAD + f'extern "C" {KERNEL} {{ y[i] = x[i]; }}',
    'extern "C" around it': HEAD + f'extern "C" {{\n{KERNEL} {{ y[i] = x[i]; }}\n}}\n',
    "a name for the host": HEAD + f'[[host_name("k")]] {KERNEL.replace(" k(", " other(")} {{ y[i] = x[i]; }}',
    "a template and its attribute": HEAD
    + "template <typename T>\n[[kernel]] void kt(device const T* x [[buffer(0)]], device T* y [[buffer(1)]], "
    'uint i [[thread_position_in_grid]]) { y[i] = x[i]; }\ntemplate [[host_name("k")]] [[kernel]] void kt<float>('
    "device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]);",
    "a template's type by name": HEAD + "template <typename T, int N>\nkernel void kt(device const T* x, device T* y, "
    "uint i [[thread_position_in_grid]]) { y[i] = x[i] * T(N); }\ntypedef decltype(kt<float, 1>) kt_t;\n"
    'template [[host_name("k")]] kernel kt_t kt<float, 1>;',
    "buffers by the names of numbers": HEAD + "enum { FIRST, SECOND = FIRST + 1 };\n#define OF(n) ((n) * 2 - 1)\n"
    "kernel void k(device const float* x [[buffer(FIRST)]], device float* y [[buffer(OF(SECOND))]], "
    "uint i [[thread_position_in_grid]]) { y[i] = x[i]; }",
    "structs as buffers": HEAD + "struct V { float v[64]; };\nkernel void k(device const V& x [[buffer(0)]], "
    "device V& y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y.v[i] = x.v[i]; }",
    "short positions": HEAD
    + "kernel void k(device const float* x, device float* y, ushort3 p [[thread_position_in_grid]], "
    "ushort l [[thread_index_in_simdgroup]]) { ushort2 q = p.xy; y[q.x] = x[p.x] + l - l; }",
    "quadgroups": HEAD + "kernel void k(device const float* x, device float* y, uint i [[thread_position_in_grid]], "
    "uint n [[quadgroups_per_threadgroup]]) { y[i] = x[i] + n - 16; }",
    "carriage returns": f"{HEAD}{KERNEL} {{\n float v = x[i];\n y[i] = v;\n}}\n".replace("\n", "\r\n"),
    "a byte order mark": f"\ufeff{HEAD}{KERNEL} {{ y[i] = x[i]; }}",
    "on one line": "using namespace metal; " + KERNEL + " { for (uint k = 0; k < 2; ++k) if (k == 1) y[i] = x[i]; }",
}
"""Programs as they are, that copy."""


@pytest.mark.parametrize("name", WHOLE)
def test_whole_programs(name: str) -> None:
    torch.testing.assert_close(computed(library(WHOLE[name]).k, checked=False), GIVEN)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    {
        "nothing": ("  \n", "the source is empty"),
        "no kernel": (HEAD + "float f(float v) { return v; }", "there is no kernel function in it"),
        "no MSL": ("this is no program", "refused"),
        "a missing bracket": (f"{HEAD}{KERNEL} {{ y[i] = x[i];", "line 3: `{` is never closed"),
        "a missing semicolon": (f"{HEAD}{KERNEL} {{\n y[i] = x[i]\n}}", "kernel.metal:4: error"),
        "an unknown name": (f"{HEAD}{KERNEL} {{\n y[i] = nothing(x[i]);\n}}", "kernel.metal:4: error: ‘nothing’"),
        "double": (f"{HEAD}{KERNEL} {{\n double v = x[i]; y[i] = v;\n}}", "line 4: Metal has no double"),
        "types apart": (f"{HEAD}{KERNEL} {{\n y[i] = max(x[i], 0);\n}}", "kernel.metal:4: error: no matching function"),
        "a texture": (HEAD + "kernel void k(texture2d<float> t [[texture(0)]]) {}", "textures are not emulated"),
        "a function constant": (HEAD + "constant int n [[function_constant(0)]];\n", "function constants"),
        "threadgroup memory given": (HEAD + "kernel void k(threadgroup float* s [[threadgroup(0)]]) {}", "fixed size"),
        "buffer 31": (
            HEAD + "kernel void k(device float* y [[buffer(31)]]) {}",
            "line 3: [[buffer(31)]]: buffers are 0 to 30",
        ),
        "buffer 0 twice": (
            HEAD + "kernel void k(device float* y [[buffer(0)]], device float* z [[buffer(0)]]) {}",
            "line 3: [[buffer(0)]] twice: `y` and `z`",
        ),
        "a threadgroup variable with a value": (
            f"{HEAD}{KERNEL} {{\n threadgroup float s[2] = {{0}}; y[i] = s[0];\n}}",
            "line 4: a threadgroup variable cannot have an initialiser",
        ),
        "a variable that lasts": (f"{HEAD}{KERNEL} {{\n static float s; y[i] = s;\n}}", "line 4: Metal has no static"),
        "goto": (f"{HEAD}{KERNEL} {{\n goto end; end: y[i] = 0;\n}}", "line 4: Metal has no goto"),
        "buffer N": (HEAD + "kernel void k(device float* y [[buffer(N)]]) {}", "[[buffer(N)]]"),
        "no attribute": (
            HEAD + "kernel void k(device float* y, uint i) {}",
            "`i` is neither a buffer nor has it an attribute",
        ),
        "another header": ('#include "mine.h"\n' + HEAD, "line 1"),
        "a vertex function": (HEAD + "vertex float4 v() { return 0; }", "line 3: a vertex function"),
        "overloads that do different things": (
            HEAD + "float f(device float* p) { return *p; }\nfloat f(threadgroup float* p) { return -*p; }\n"
            f"{KERNEL} {{ y[i] = f(x); }}",
            "line 4: `f` has overloads that differ only by address space and do different things (the other is in",
        ),
    }.values(),
)
def test_what_is_refused(source: str, said: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        metal.compile_shader(source)

    assert said in str(caught.value)


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="there are: k"):
        library(f"{HEAD}{KERNEL} {{ y[i] = x[i]; }}").other()


# -- lines ------------------------------------------------------------------------------------------------------------

LINES = {
    "a kernel by attribute": "[[kernel]]\nvoid k(device float* y [[buffer(0)]])\n{{\n{fault}\n}}",
    "two attributes": "[[kernel]]\n[[max_total_threads_per_threadgroup(64)]]\nvoid k(device float* y)\n{{\n{fault}\n}}",
    "behind another one": (
        "[[kernel]] void j(device float* y) {{ y[0] = 1; }}\n\n[[kernel]]\nvoid k(device float* y) {{\n{fault}\n}}"
    ),
    "attributes in lines of their own": (
        "kernel void k(\n  device float* y\n    [[buffer(0)]]\n  , uint i\n    [[thread_position_in_grid]]\n) {{\n"
        "{fault}\n}}"
    ),
    "a template": (
        "template <typename T>\n[[kernel]]\nvoid f(device T* y) {{\n{fault}\n}}\n"
        'template\n[[host_name("k")]]\n[[kernel]] void f<float>(device float* y);'
    ),
    "behind an instance": (
        "template <typename T>\n[[kernel]] void f(device T* y) {{ y[0] = 1; }}\n"
        'template [[host_name("one")]]\n[[kernel]]\nvoid f<float>(device float* y);\n'
        "kernel void k(device float* y) {{\n{fault}\n}}"
    ),
    "an attribute behind the parameters": (
        "kernel void k(device float* y)\n  [[max_total_threads_per_threadgroup(64)]]\n{{\n{fault}\n}}"
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_fault_names_its_line_whatever_stands_before(name: str) -> None:
    source = HEAD + LINES[name].format(fault="y[100] = 1; // here")
    metal.set_checked(True)
    try:
        with pytest.raises(KernelFault) as caught:
            library(source).k(torch.zeros(1), threads=1, group_size=1)
    finally:
        metal.set_checked(False)

    line = next(number for number, text in enumerate(source.splitlines(), 1) if "// here" in text)
    assert f"line {line}:" in str(caught.value)


@pytest.mark.parametrize("name", LINES)
def test_an_error_names_its_line_whatever_stands_before(name: str) -> None:
    source = HEAD + LINES[name].format(fault="y[0] = nothing; // here")
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "// here" in text)

    with pytest.raises(SyntaxError, match=f"kernel.metal:{line}: error"):
        metal.compile_shader(source)


# -- tokens -------------------------------------------------------------------------------------------------------

WORDS = """a b1 _x 0 1.5f 1e-3 0x1F 1'000 "s" 'c' ( ) [[ ] { } < > <<= :: -> . , ; ++ += && # \\ é"""
LEXEMES = st.sampled_from(WORDS.split(" "))
COMMENTS = ("/* c */", "// c\n", "/* a\n b */")
SPACES = st.sampled_from([" ", "\n", "\t", "  ", " \n "])


@given(st.lists(st.tuples(LEXEMES, SPACES), max_size=40))
def test_tokens_make_the_text_again(parts: list[tuple[str, str]]) -> None:
    text = "".join(word + space for word, space in parts).rstrip()

    tokens = tokens_of(text)

    assert text_of(tokens) == text
    at = 0
    for token in tokens:
        at += len(token.space)
        if token.kind != "marker" and not any(item.kind == "marker" for item in tokens):
            assert token.line == 1 + text.count("\n", 0, at)
        at += len(token.text)


@given(st.text(alphabet="ab \n\t+-*<>[](){};.,'1\"#\\é", max_size=60))
@example("'")
@example('"unfinished')
def test_any_text_has_tokens(text: str) -> None:
    whole = text.rstrip(" \n\t")

    assert text_of(tokens_of(whole)) == whole


@given(st.lists(st.one_of(LEXEMES.filter(lambda word: word != "#"), st.sampled_from(COMMENTS)), max_size=30))
def test_comments_are_no_tokens(parts: list[str]) -> None:
    text = " ".join(parts)
    without = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)

    assert [token.text for token in tokens_of(text)] == [token.text for token in tokens_of(without)]


@given(st.sampled_from(sorted(CASES)), st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=3))
def test_broken_sources_are_refused_or_left_to_the_compiler(name: str, changes: list[tuple[int, bool]]) -> None:
    item = CASES[name]
    tokens = tokens_of(f"{item.before}\n{KERNEL} {{ float s = simd_sum(x[i]); {item.body} }}")
    for place, twice in changes:
        at = place % len(tokens)
        tokens[at : at + 1] = [tokens[at]] * 2 if twice else []

    # Nothing but a SourceError leaves it.
    with contextlib.suppress(SourceError):
        translate(text_of(tokens))


# -- numbers against Python's and torch's -------------------------------------------------------------------------

FEW = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
SOME = settings(max_examples=15, deadline=None)
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@st.composite
def swizzles(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A statement about `v` and `w`, and what `v` is after it: both are vectors of four whole numbers."""
    v, w = [1, 2, 3, 4], [5, 6, 7, 8]
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        letters = draw(st.sampled_from(["xyzw", "rgba"]))
        places = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4, unique=True))
        taken = draw(st.lists(st.integers(0, 3), min_size=len(places), max_size=len(places)))
        other = draw(st.booleans())
        sign = draw(st.sampled_from(["", "+", "-", "*"]))
        left = "".join(letters[place] for place in places)
        right = "".join(letters[place] for place in taken)
        lines.append(f"v.{left} {sign}= {'w' if other else 'v'}.{right};")
        values = [(w if other else v)[place] for place in taken]
        new = [OPERATORS[sign](v[p], b) for p, b in zip(places, values, strict=True)] if sign else values
        for place, value in zip(places, new, strict=True):
            v[place] = value
    return " ".join(lines), v


@FEW
@given(st.lists(swizzles(), min_size=25, max_size=25))
def test_swizzles(statements: list[tuple[str, list[int]]]) -> None:
    bodies = "".join(
        f"{{ int4 v = int4(1, 2, 3, 4), w = int4(5, 6, 7, 8); {text} y[{number}] = v; }}\n"
        for number, (text, _) in enumerate(statements)
    )
    y = torch.zeros(len(statements), 4, dtype=torch.int32)

    metal.compile_shader(f"{HEAD}kernel void k(device int4* y) {{\n{bodies}}}").k(y, threads=1, group_size=1)

    assert y.tolist() == [wanted for _, wanted in statements]


FLOATS = st.lists(st.floats(width=32), min_size=1, max_size=64)


@pytest.mark.parametrize(("kind", "dtype"), [("half", torch.float16), ("bfloat", torch.bfloat16)])
@SOME
@given(FLOATS)
def test_rounding_is_torchs(kind: str, dtype: Any, values: list[float]) -> None:
    source = (
        f"{HEAD}kernel void k(device const float* x, device {kind}* one, device {kind}* sum, device {kind}* product, "
        f"device float* back, uint i [[thread_position_in_grid]]) {{ {kind} v = {kind}(x[i]); one[i] = v; "
        f"sum[i] = v + {kind}(0.3f); product[i] = v * {kind}(1.7f); back[i] = float(v); }}"
    )
    x = torch.tensor(values)
    one, total, product = (torch.zeros(len(values), dtype=dtype) for _ in range(3))
    back = torch.zeros(len(values))

    library(source).k(x, one, total, product, back, threads=len(values), group_size=64)

    rounded = x.to(dtype)
    for got, wanted in (
        (one, rounded),
        (total, rounded + torch.tensor(0.3).to(dtype)),
        (product, rounded * torch.tensor(1.7).to(dtype)),
        (back, rounded.float()),
    ):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


@SOME
@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**32 - 1)] * 2, st.integers(0, 31), st.integers(0, 32)), min_size=1, max_size=64
    )
)
def test_functions_of_whole_numbers(rows: list[tuple[int, int, int, int]]) -> None:
    source = (
        f"{HEAD}kernel void k(device const uint4* x, device uint* y, uint i [[thread_position_in_grid]]) {{\n"
        "uint a = x[i].x, b = x[i].y, from = x[i].z, bits = min(x[i].w, 32 - from); device uint* out = y + 12 * i;\n"
        "out[0] = clz(a); out[1] = ctz(a); out[2] = popcount(a); out[3] = rotate(a, b); out[4] = reverse_bits(a);\n"
        "out[5] = extract_bits(a, from, bits); out[6] = insert_bits(a, b, from, bits); out[7] = mulhi(a, b);\n"
        "out[8] = uint(mulhi(int(a), int(b))); out[9] = addsat(a, b); out[10] = uint(subsat(int(a), int(b)));\n"
        "out[11] = uint(extract_bits(int(a), from, bits));\n}"
    )
    y = torch.zeros(len(rows), 12, dtype=torch.int32)

    library(source).k(_words(rows), y, threads=len(rows), group_size=64)

    assert [[value & 0xFFFFFFFF for value in row] for row in y.tolist()] == [_whole(*row) for row in rows]


def _words(rows: Sequence[tuple[int, ...]]) -> Any:
    flat = [value for row in rows for value in row]
    return torch.frombuffer(bytearray(struct.pack(f"<{len(flat)}I", *flat)), dtype=torch.int32)


def _whole(a: int, b: int, first: int, bits: int) -> list[int]:
    bits = min(bits, 32 - first)
    mask = ((1 << bits) - 1) << first
    turn = b % 32
    field = (a & mask) >> first
    least, most = -(2**31), 2**31 - 1
    return [
        32 - a.bit_length(),
        (a & -a).bit_length() - 1 if a else 32,
        a.bit_count(),
        (a << turn | a >> (32 - turn)) & 0xFFFFFFFF,
        int(f"{a:032b}"[::-1], 2),
        field,
        (a & ~mask & 0xFFFFFFFF) | (b << first & mask),
        a * b >> 32,
        _signed(a) * _signed(b) >> 32 & 0xFFFFFFFF,
        min(a + b, 0xFFFFFFFF),
        max(least, min(most, _signed(a) - _signed(b))) & 0xFFFFFFFF,
        (field - (1 << bits) if bits and field >> (bits - 1) else field) & 0xFFFFFFFF,
    ]


def _signed(value: int) -> int:
    return value - 2**32 if value >> 31 else value


@SOME
@given(st.lists(st.tuples(*[st.integers(-1000, 1000)] * 6), min_size=1, max_size=64))
def test_arithmetic_of_vectors(rows: list[tuple[int, ...]]) -> None:
    source = (
        f"{HEAD}kernel void k(device const packed_int3* x, device packed_int3* y, "
        "uint i [[thread_position_in_grid]]) {\n"
        "int3 a = x[2 * i], b = x[2 * i + 1]; device packed_int3* out = y + 6 * i;\n"
        "out[0] = a + b * 2; out[1] = 3 - a; out[2] = min(a, b); out[3] = select(a, b, a < b);\n"
        "out[4] = abs(-a) & 255;\n"
        "a += b; a.yz -= b.xy; out[5] = a;\n}"
    )
    y = torch.zeros(len(rows), 18, dtype=torch.int32)

    library(source).k(torch.tensor(rows, dtype=torch.int32), y, threads=len(rows), group_size=64)

    wanted = []
    for *a, p, q, r in rows:
        b = [p, q, r]
        pairs = list(zip(a, b, strict=True))
        total = [u + v for u, v in pairs]
        wanted.append(
            [u + 2 * v for u, v in pairs]
            + [3 - u for u in a]
            + [min(u, v) for u, v in pairs]
            + [v if u < v else u for u, v in pairs]
            + [abs(u) & 255 for u in a]
            + [total[0], total[1] - p, total[2] - q]
        )
    assert y.tolist() == wanted
