// CUDA C on the emulator: its built-in variables, functions and types, and how its kernels are called.
#pragma once

// With 64 bits on either side, the highest bit alone: so says PTX of `cvt`.
#define KFORGE_NO_NUMBER(To, From) (sizeof(To) == 8 || sizeof(From) == 8 ? To(1ull << (8 * sizeof(To) - 1)) : To(0))
#include "collectives.h"

using kforge::Location;
using size_t = unsigned long;
using ptrdiff_t = long;
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using uintptr_t = unsigned long;

#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __builtin_assume(truth) ((void)0)
#define assert(truth) ((truth) ? (void)0 : kforge::kforge_fail("assert(" #truth ") is not so", __LINE__))
#define threadIdx (kforge::kforge_where()->thread_in_group)
#define blockIdx (kforge::kforge_where()->group_in_grid)
#define blockDim (kforge::kforge_where()->full_threads_per_group)
#define gridDim (kforge::kforge_where()->groups_per_grid)
#define warpSize 32
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_PI_F 3.141592654f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920929e-7f
#define DBL_MAX 1.7976931348623157e+308
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#define M_2_SQRTPI 1.12837916709551257390

// -- vectors: plain structs, without arithmetic ------------------------------------------------------------------------

#define KFORGE_STRUCTS(type, name)                                                                        \
    struct name##1 { type x; };                                                                           \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                              \
    struct name##3 { type x, y, z; };                                                                     \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; };           \
    inline name##1 make_##name##1(type x) { return {x}; }                                                 \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                      \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                           \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
KFORGE_STRUCTS(signed char, char)
KFORGE_STRUCTS(unsigned char, uchar)
KFORGE_STRUCTS(short, short)
KFORGE_STRUCTS(unsigned short, ushort)
KFORGE_STRUCTS(int, int)
KFORGE_STRUCTS(unsigned int, uint)
KFORGE_STRUCTS(long, long)
KFORGE_STRUCTS(unsigned long, ulong)
KFORGE_STRUCTS(long long, longlong)
KFORGE_STRUCTS(unsigned long long, ulonglong)
KFORGE_STRUCTS(float, float)
KFORGE_STRUCTS(double, double)
#undef KFORGE_STRUCTS
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    dim3(const kforge::Index3& i) : x(i.x), y(i.y), z(i.z) {}
};

// -- mathematics --------------------------------------------------------------------------------------------------------

#define KFORGE_F1(name)                                                     \
    inline float name##f(float x) { return __builtin_##name##f(x); }        \
    inline double name(double x) { return __builtin_##name(x); }            \
    inline float name(float x) { return __builtin_##name##f(x); }
#define KFORGE_F2(name)                                                               \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }      \
    inline double name(double x, double y) { return __builtin_##name(x, y); }         \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); }
KFORGE_F1(exp) KFORGE_F1(exp2) KFORGE_F1(expm1) KFORGE_F1(log) KFORGE_F1(log2) KFORGE_F1(log10) KFORGE_F1(log1p)
KFORGE_F1(sin) KFORGE_F1(cos) KFORGE_F1(tan) KFORGE_F1(asin) KFORGE_F1(acos) KFORGE_F1(atan)
KFORGE_F1(sinh) KFORGE_F1(cosh) KFORGE_F1(tanh) KFORGE_F1(asinh) KFORGE_F1(acosh) KFORGE_F1(atanh)
KFORGE_F1(sqrt) KFORGE_F1(cbrt) KFORGE_F1(erf) KFORGE_F1(erfc) KFORGE_F1(lgamma) KFORGE_F1(tgamma)
KFORGE_F1(floor) KFORGE_F1(ceil) KFORGE_F1(round) KFORGE_F1(rint) KFORGE_F1(nearbyint) KFORGE_F1(trunc) KFORGE_F1(fabs)
KFORGE_F2(pow) KFORGE_F2(atan2) KFORGE_F2(fmod) KFORGE_F2(fmin) KFORGE_F2(fmax) KFORGE_F2(fdim) KFORGE_F2(copysign)
KFORGE_F2(hypot) KFORGE_F2(remainder)
#undef KFORGE_F1
#undef KFORGE_F2
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float exp10f(float x) { return __builtin_powf(10.0f, x); }
inline float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
inline float frexpf(float x, int* e) { return __builtin_frexpf(x, e); }
inline float normcdff(float x) { return 0.5f * __builtin_erfcf(-x * 0.70710678118654752f); }
inline float sinpif(float x) { return __builtin_sinf(3.14159265358979f * x); }
inline float cospif(float x) { return __builtin_cosf(3.14159265358979f * x); }
inline void sincosf(float x, float* s, float* c) { *s = __builtin_sinf(x), *c = __builtin_cosf(x); }
inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float __expf(float x) { return __builtin_expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __log10f(float x) { return __builtin_log10f(x); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __tanf(float x) { return __builtin_tanf(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __saturatef(float x) { return x < 0.0f || x != x ? 0.0f : x > 1.0f ? 1.0f : x; }
template <class T>
inline bool isnan(T x) { return __builtin_isnan(double(x)); }
template <class T>
inline bool isinf(T x) { return __builtin_isinf(double(x)); }
template <class T>
inline bool isfinite(T x) { return __builtin_isfinite(double(x)); }
template <class T>
inline bool signbit(T x) { return __builtin_signbit(double(x)); }
#define KFORGE_MINMAX(type)                                    \
    inline type min(type a, type b) { return b < a ? b : a; }  \
    inline type max(type a, type b) { return a < b ? b : a; }
KFORGE_MINMAX(int) KFORGE_MINMAX(unsigned) KFORGE_MINMAX(long) KFORGE_MINMAX(unsigned long)
KFORGE_MINMAX(long long) KFORGE_MINMAX(unsigned long long)
#undef KFORGE_MINMAX
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
inline long long min(long long a, int b) { return min(a, (long long)b); }
inline long long min(int a, long long b) { return min((long long)a, b); }
inline long long max(long long a, int b) { return max(a, (long long)b); }
inline long long max(int a, long long b) { return max((long long)a, b); }
inline double min(float a, double b) { return __builtin_fmin(a, b); }
inline double max(float a, double b) { return __builtin_fmax(a, b); }
inline double min(double a, float b) { return __builtin_fmin(a, b); }
inline double max(double a, float b) { return __builtin_fmax(a, b); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline long long llabs(long long x) { return x < 0 ? -x : x; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned out = 0;
    for (int i = 0; i < 32; ++i) out |= (x >> i & 1) << (31 - i);
    return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __sad(int a, int b, unsigned c) { return c + (a < b ? unsigned(b) - unsigned(a) : unsigned(a) - unsigned(b)); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned one = which >> (4 * i), byte = unsigned(both >> (8 * (one & 7))) & 0xffu;
        // The highest bit of the choice: its sign, in all eight places.
        if (one & 8) byte = byte & 0x80u ? 0xffu : 0u;
        out |= byte << (8 * i);
    }
    return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return unsigned(((unsigned long long)high << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned(((unsigned long long)high << 32 | low) >> (by & 31));
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += int((signed char)(a >> (8 * i))) * int((signed char)(b >> (8 * i)));
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xffu) * (b >> (8 * i) & 0xffu);
    return c;
}
inline int __float2int_rn(float x) { return kforge::whole<int>(__builtin_rintf(x)); }
inline int __float2int_rz(float x) { return kforge::whole<int>(x); }
inline int __float2int_rd(float x) { return kforge::whole<int>(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return kforge::whole<int>(__builtin_ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return kforge::whole<unsigned>(__builtin_rintf(x)); }
inline unsigned __float2uint_rz(float x) { return kforge::whole<unsigned>(x); }
inline unsigned __float2uint_rd(float x) { return kforge::whole<unsigned>(__builtin_floorf(x)); }
inline unsigned __float2uint_ru(float x) { return kforge::whole<unsigned>(__builtin_ceilf(x)); }
inline long long __float2ll_rn(float x) { return kforge::whole<long long>(__builtin_rintf(x)); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __double2float_rn(double x) { return float(x); }
inline int __double2int_rn(double x) { return kforge::whole<int>(__builtin_rint(x)); }
inline int __double2int_rz(double x) { return kforge::whole<int>(x); }
inline double __int2double_rn(int x) { return double(x); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

// Into the kernel's own code, whose line a finding is to name.
#define KFORGE_INLINE template <class T> [[gnu::always_inline]] inline
KFORGE_INLINE T __ldg(const T* place) { return *place; }
KFORGE_INLINE T __ldcs(const T* place) { return *place; }
KFORGE_INLINE T __ldca(const T* place) { return *place; }
KFORGE_INLINE T __ldcg(const T* place) { return *place; }
KFORGE_INLINE T __ldlu(const T* place) { return *place; }
KFORGE_INLINE T __ldcv(const T* place) { return *const_cast<const volatile T*>(place); }
KFORGE_INLINE void __stcs(T* place, T value) { *place = value; }
KFORGE_INLINE void __stcg(T* place, T value) { *place = value; }
KFORGE_INLINE void __stwb(T* place, T value) { *place = value; }
KFORGE_INLINE void __stwt(T* place, T value) { *place = value; }
#undef KFORGE_INLINE
// Byte by byte: each of them is checked, and none needs an alignment.
[[gnu::always_inline]] inline void* memcpy(void* to, const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
    return to;
}
[[gnu::always_inline]] inline void* memset(void* to, int value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) static_cast<char*>(to)[i] = char(value);
    return to;
}
// What a kernel prints is left out.
template <class... A>
inline int printf(const char*, const A&...) { return int(sizeof...(A)); }
[[noreturn]] inline void __trap(Location at = Location::current()) { kforge::kforge_fail("the kernel gave up (__trap)", at.line()); }
// Time does not pass: how long anything takes means nothing here.
inline long long clock64() { return 0; }
inline int clock() { return 0; }

// -- half and bfloat16 --------------------------------------------------------------------------------------------------

using __half = kforge::half;
using half = kforge::half;
using __nv_bfloat16 = kforge::bfloat;
using nv_bfloat16 = kforge::bfloat;
struct alignas(4) __half2 { half x, y; };
using half2 = __half2;
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using nv_bfloat162 = __nv_bfloat162;
inline float __half2float(half x) { return float(x); }
inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline half __int2half_rn(int x) { return half(float(x)); }
inline half2 __floats2half2_rn(float a, float b) { return {half(a), half(b)}; }
inline half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
inline half2 __float2half2_rn(float a) { return {half(a), half(a)}; }
inline float2 __half22float2(half2 v) { return {float(v.x), float(v.y)}; }
inline half2 __halves2half2(half a, half b) { return {a, b}; }
inline half2 __half2half2(half a) { return {a, a}; }
inline half2 make_half2(half a, half b) { return {a, b}; }
inline half __low2half(half2 v) { return v.x; }
inline half __high2half(half2 v) { return v.y; }
inline float __low2float(half2 v) { return float(v.x); }
inline float __high2float(half2 v) { return float(v.y); }
inline half __hadd(half a, half b) { return half(float(a) + float(b)); }
inline half __hsub(half a, half b) { return half(float(a) - float(b)); }
inline half __hmul(half a, half b) { return half(float(a) * float(b)); }
inline half __hdiv(half a, half b) { return half(float(a) / float(b)); }
inline half __hneg(half a) { return half(-float(a)); }
inline half __hfma(half a, half b, half c) { return half(__builtin_fmaf(float(a), float(b), float(c))); }
inline half __hmax(half a, half b) { return half(__builtin_fmaxf(float(a), float(b))); }
inline half __hmin(half a, half b) { return half(__builtin_fminf(float(a), float(b))); }
inline half __habs(half a) { return half(__builtin_fabsf(float(a))); }
inline bool __heq(half a, half b) { return float(a) == float(b); }
inline bool __hne(half a, half b) { return float(a) != float(b); }
inline bool __hge(half a, half b) { return float(a) >= float(b); }
inline bool __hle(half a, half b) { return float(a) <= float(b); }
inline bool __hisnan(half a) { return float(a) != float(a); }
inline short __half_as_short(half a) { return __builtin_bit_cast(short, a); }
inline unsigned short __half_as_ushort(half a) { return __builtin_bit_cast(unsigned short, a); }
inline half __short_as_half(short a) { return __builtin_bit_cast(half, a); }
inline half __ushort_as_half(unsigned short a) { return __builtin_bit_cast(half, a); }
inline bool __hgt(half a, half b) { return float(a) > float(b); }
inline bool __hlt(half a, half b) { return float(a) < float(b); }
inline half hexp(half a) { return half(__builtin_expf(float(a))); }
inline half hlog(half a) { return half(__builtin_logf(float(a))); }
inline half hsqrt(half a) { return half(__builtin_sqrtf(float(a))); }
inline half hrsqrt(half a) { return half(1.0f / __builtin_sqrtf(float(a))); }
#define KFORGE_HALF2(name, scalar) \
    inline half2 name(half2 a, half2 b) { return {scalar(a.x, b.x), scalar(a.y, b.y)}; }
KFORGE_HALF2(__hadd2, __hadd)
KFORGE_HALF2(__hsub2, __hsub)
KFORGE_HALF2(__hmul2, __hmul)
KFORGE_HALF2(__hmax2, __hmax)
KFORGE_HALF2(__hmin2, __hmin)
KFORGE_HALF2(operator+, __hadd)
KFORGE_HALF2(operator-, __hsub)
KFORGE_HALF2(operator*, __hmul)
KFORGE_HALF2(operator/, __hdiv)
#undef KFORGE_HALF2
inline half2 __hfma2(half2 a, half2 b, half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return {__nv_bfloat16(a), __nv_bfloat16(a)}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }

// -- barriers, fences and what a warp does together ---------------------------------------------------------------------

inline void __syncthreads(Location at = Location::current()) {
    kforge::kforge_barrier(kforge::kFenceDevice | kforge::kFenceGroup, at.line(), at.column());
}
inline void __syncwarp(unsigned = 0xffffffffu, Location at = Location::current()) {
    kforge::kforge_lane_barrier(kforge::kFenceDevice | kforge::kFenceGroup, at.line(), at.column());
}
inline int __syncthreads_count(int yes, Location at = Location::current()) {
    unsigned& total = kforge::group_memory<unsigned, 0x7fffffffu>(at.line());
    if (kforge::kforge_where()->index_in_group == 0) kforge::atomically<unsigned>(kforge::kStore, &total, 0u);
    __syncthreads(at);
    if (yes) kforge::atomically<unsigned>(kforge::kAdd, &total, 1u);
    __syncthreads(at);
    int found = int(kforge::atomically<unsigned>(kforge::kLoad, &total, 0u));
    __syncthreads(at);
    return found;
}
inline int __syncthreads_or(int yes, Location at = Location::current()) { return __syncthreads_count(yes, at) > 0; }
inline int __syncthreads_and(int yes, Location at = Location::current()) { return __syncthreads_count(!yes, at) == 0; }
inline void __threadfence() { kforge::kforge_fence(true); }
inline void __threadfence_block() { kforge::kforge_fence(false); }
inline void __threadfence_system() { kforge::kforge_fence(true); }

namespace kforge {
inline void all_named(unsigned mask, const Location& at) {
    unsigned there = taking_part(at);
    unsigned exist = kforge_where()->lane_groups * 32 <= kforge_where()->index_in_group + 32 ? there : ~0u;
    if (mask & ~there & exist) {
        kforge_fail("its mask names lanes that do not take part: they have returned or are in another branch", at.line());
    }
}
template <class T>
inline T shuffled(unsigned mask, T value, unsigned from, bool stays, const Location& at) {
    all_named(mask, at);
    return fetched<T>(value, stays ? kforge_where()->lane : from, kIsAnything, at);
}
}  // namespace kforge
template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, Location at = Location::current()) {
    unsigned base = kforge::kforge_where()->lane / width * width;
    return kforge::shuffled<T>(mask, value, base + unsigned(lane) % width, false, at);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, Location at = Location::current()) {
    unsigned lane = kforge::kforge_where()->lane;
    return kforge::shuffled<T>(mask, value, lane - by, lane % width < by, at);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, Location at = Location::current()) {
    unsigned lane = kforge::kforge_where()->lane;
    return kforge::shuffled<T>(mask, value, lane + by, lane % width + by >= unsigned(width), at);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, Location at = Location::current()) {
    unsigned lane = kforge::kforge_where()->lane, from = lane ^ unsigned(with);
    return kforge::shuffled<T>(mask, value, from, from / width > lane / width, at);
}
inline unsigned __ballot_sync(unsigned mask, int yes, Location at = Location::current()) {
    kforge::all_named(mask, at);
    return kforge::votes(yes != 0, at) & mask;
}
inline int __any_sync(unsigned mask, int yes, Location at = Location::current()) { return __ballot_sync(mask, yes, at) != 0; }
inline int __all_sync(unsigned mask, int yes, Location at = Location::current()) { return __ballot_sync(mask, !yes, at) == 0; }
inline unsigned __activemask(Location at = Location::current()) { return kforge::taking_part(at); }
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, Location at = Location::current()) {
    kforge::all_named(mask, at);
    struct Mine {
        T value;
        unsigned same;
    } mine{value, 0};
    kforge::together(
        +[](kforge::Part* parts, unsigned count, unsigned) {
            for (unsigned i = 0; i < count; ++i) {
                Mine& mine = *static_cast<Mine*>(parts[i].value);
                for (unsigned k = 0; k < count; ++k) {
                    if (static_cast<Mine*>(parts[k].value)->value == mine.value) mine.same |= 1u << parts[k].lane;
                }
            }
        },
        mine, at);
    return mine.same & mask;
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* all, Location at = Location::current()) {
    unsigned same = __match_any_sync(mask, value, at);
    *all = __all_sync(mask, same == (kforge::taking_part(at) & mask), at);
    return *all ? same : 0u;
}
#define KFORGE_REDUCE(name, how)                                                                          \
    template <class T>                                                                                    \
    inline T name(unsigned mask, T value, Location at = Location::current()) {                            \
        kforge::all_named(mask, at);                                                               \
        return kforge::folded<T, kforge::how>(value, at);                                          \
    }
KFORGE_REDUCE(__reduce_add_sync, Plus)
KFORGE_REDUCE(__reduce_min_sync, Least)
KFORGE_REDUCE(__reduce_max_sync, Most)
KFORGE_REDUCE(__reduce_and_sync, BitAnd)
KFORGE_REDUCE(__reduce_or_sync, BitOr)
KFORGE_REDUCE(__reduce_xor_sync, BitXor)
#undef KFORGE_REDUCE

// -- atomics ------------------------------------------------------------------------------------------------------------

#define KFORGE_ATOMIC(name, operation)                                                      \
    template <class T>                                                                      \
    [[gnu::always_inline]] inline T name(T* place, typename kforge::as_it_is<T>::type value) { \
        return kforge::atomically<T>(operation, place, value);                              \
    }
namespace kforge {
template <class T>
struct as_it_is {
    using type = T;
};
}  // namespace kforge
KFORGE_ATOMIC(atomicAdd, kforge::kAddOf<T>)
KFORGE_ATOMIC(atomicSub, kforge::kSub)
KFORGE_ATOMIC(atomicExch, kforge::kExchange)
KFORGE_ATOMIC(atomicMin, kforge::kMinOf<T>)
KFORGE_ATOMIC(atomicMax, kforge::kMaxOf<T>)
KFORGE_ATOMIC(atomicAnd, kforge::kAnd)
KFORGE_ATOMIC(atomicOr, kforge::kOr)
KFORGE_ATOMIC(atomicXor, kforge::kXor)
KFORGE_ATOMIC(atomicInc, kforge::kIncrement)
KFORGE_ATOMIC(atomicDec, kforge::kDecrement)
#undef KFORGE_ATOMIC
template <class T>
[[gnu::always_inline]] inline T atomicCAS(T* place, typename kforge::as_it_is<T>::type expected,
                                          typename kforge::as_it_is<T>::type value) {
    return kforge::atomically<T>(kforge::kCompareExchange, place, value, expected);
}

// -- cooperative groups: a block, and tiles of it within a warp ---------------------------------------------------------

namespace cooperative_groups {
struct thread_block {
    void sync(Location at = Location::current()) const { __syncthreads(at); }
    unsigned thread_rank() const { return kforge::kforge_where()->index_in_group; }
    unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
    unsigned num_threads() const { return size(); }
    dim3 group_index() const { return blockIdx; }
    dim3 thread_index() const { return threadIdx; }
};
inline thread_block this_thread_block() { return {}; }
// All blocks of a launch. They do not run at once here, so none can wait for the others.
struct grid_group {
    [[noreturn]] void sync(Location at = Location::current()) const {
        kforge::kforge_fail("a grid's sync() is not emulated: end the kernel there and launch a second one", at.line());
    }
    static bool is_valid() { return true; }
    unsigned long long block_rank() const {
        return (blockIdx.z * (unsigned long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long thread_rank() const {
        return block_rank() * this_thread_block().size() + this_thread_block().thread_rank();
    }
    unsigned long long size() const { return num_blocks() * this_thread_block().size(); }
    unsigned long long num_threads() const { return size(); }
    dim3 group_dim() const { return gridDim; }
};
inline grid_group this_grid() { return {}; }
// The lanes that are here.
struct coalesced_group {
    unsigned mask;
    unsigned size() const { return unsigned(__builtin_popcount(mask)); }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const { return unsigned(__builtin_popcount(mask & ((1u << kforge::kforge_where()->lane) - 1))); }
    unsigned lane_of(unsigned rank) const {
        unsigned left = mask;
        for (; rank > 0 && left != 0; --rank) left &= left - 1;
        return left == 0 ? kforge::kforge_where()->lane : unsigned(__builtin_ctz(left));
    }
    void sync(Location at = Location::current()) const { __syncwarp(mask, at); }
    template <class T>
    T shfl(T value, unsigned rank, Location at = Location::current()) const {
        return __shfl_sync(mask, value, int(lane_of(rank)), 32, at);
    }
    template <class T>
    T shfl_down(T value, unsigned by, Location at = Location::current()) const {
        unsigned rank = thread_rank() + by;
        return shfl(value, rank < size() ? rank : thread_rank(), at);
    }
    unsigned ballot(int yes, Location at = Location::current()) const {
        unsigned votes = __ballot_sync(mask, yes, at), out = 0;
        for (unsigned rank = 0; rank < size(); ++rank) out |= (votes >> lane_of(rank) & 1) << rank;
        return out;
    }
    int any(int yes, Location at = Location::current()) const { return ballot(yes, at) != 0; }
    int all(int yes, Location at = Location::current()) const { return ballot(!yes, at) == 0; }
};
inline coalesced_group coalesced_threads(Location at = Location::current()) { return {__activemask(at)}; }
template <unsigned N, class Parent = void>
struct thread_block_tile {
    static_assert(N <= 32, "tiles of more than a warp are not emulated");
    void sync(Location at = Location::current()) const { __syncwarp(~0u, at); }
    unsigned thread_rank() const { return kforge::kforge_where()->lane % N; }
    static constexpr unsigned size() { return N; }
    static constexpr unsigned num_threads() { return N; }
    unsigned meta_group_rank() const { return kforge::kforge_where()->index_in_group / N; }
    unsigned meta_group_size() const { return (blockDim.x * blockDim.y * blockDim.z + N - 1) / N; }
    template <class T>
    T shfl(T value, int lane, Location at = Location::current()) const { return __shfl_sync(mask(), value, lane, N, at); }
    template <class T>
    T shfl_down(T value, unsigned by, Location at = Location::current()) const {
        return __shfl_down_sync(mask(), value, by, N, at);
    }
    template <class T>
    T shfl_up(T value, unsigned by, Location at = Location::current()) const { return __shfl_up_sync(mask(), value, by, N, at); }
    template <class T>
    T shfl_xor(T value, unsigned with, Location at = Location::current()) const {
        return __shfl_xor_sync(mask(), value, int(with), N, at);
    }
    unsigned ballot(int yes, Location at = Location::current()) const {
        return (__ballot_sync(mask(), yes, at) & mask()) >> kforge::kforge_where()->lane / N * N;
    }
    int any(int yes, Location at = Location::current()) const { return ballot(yes, at) != 0; }
    int all(int yes, Location at = Location::current()) const { return ballot(!yes, at) == 0; }
    static unsigned mask() { return N == 32 ? ~0u : ((1u << N % 32) - 1) << kforge::kforge_where()->lane / N * N; }
};
template <unsigned N, class Parent>
inline thread_block_tile<N, Parent> tiled_partition(const Parent&) { return {}; }
template <class T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct greater {
    T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct less {
    T operator()(T a, T b) const { return a < b ? a : b; }
};
template <unsigned N, class Parent, class T, class F>
inline T reduce(const thread_block_tile<N, Parent>& tile, T value, F f, Location at = Location::current()) {
    for (unsigned by = N / 2; by > 0; by /= 2) value = f(value, tile.shfl_xor(value, by, at));
    return value;
}
}  // namespace cooperative_groups

// -- of the standard library, what kernels use -------------------------------------------------------------------------

namespace cuda::std {
using ::int16_t, ::int32_t, ::int64_t, ::int8_t, ::size_t, ::uint16_t, ::uint32_t, ::uint64_t, ::uint8_t;
using ::max, ::min, ::isfinite, ::isinf, ::isnan, ::sqrt, ::exp, ::log, ::pow, ::tanh, ::fma, ::abs, ::floor, ::ceil;
template <class A, class B>
constexpr bool is_same_v = false;
template <class A>
constexpr bool is_same_v<A, A> = true;
template <bool truth>
struct bool_constant {
    static constexpr bool value = truth;
    constexpr operator bool() const { return truth; }
};
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <class A, class B>
struct is_same : bool_constant<is_same_v<A, B>> {};
template <class T>
constexpr bool is_floating_point_v = kforge::Real<T>;
template <class T>
constexpr bool is_integral_v = kforge::Integer<T> || is_same_v<T, bool>;
template <bool C, class A, class B>
struct conditional {
    using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
    using type = B;
};
template <bool C, class A, class B>
using conditional_t = typename conditional<C, A, B>::type;
template <bool C, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    using type = T;
};
template <bool C, class T = void>
using enable_if_t = typename enable_if<C, T>::type;
template <class T>
struct numeric_limits;
#define KFORGE_LIMITS(T, least, tiny, most)                       \
    template <>                                                   \
    struct numeric_limits<T> {                                    \
        static constexpr T lowest() { return static_cast<T>(least); }          \
        static constexpr T min() { return static_cast<T>(tiny); }              \
        static constexpr T max() { return static_cast<T>(most); }              \
        static constexpr T infinity() { return T(__builtin_inff()); } \
        static constexpr T quiet_NaN() { return T(__builtin_nanf("")); } \
        static constexpr T epsilon() { return T(sizeof(T) == 8 ? 2.220446049250313e-16 : 1.1920929e-7); } \
    };
KFORGE_LIMITS(float, -3.402823466e+38f, 1.175494351e-38f, 3.402823466e+38f)
KFORGE_LIMITS(double, -1.7976931348623157e+308, 2.2250738585072014e-308, 1.7976931348623157e+308)
#undef KFORGE_LIMITS
#define KFORGE_LIMITS(T, least, most)                             \
    template <>                                                   \
    struct numeric_limits<T> {                                    \
        static constexpr T lowest() { return static_cast<T>(least); }          \
        static constexpr T min() { return static_cast<T>(least); }             \
        static constexpr T max() { return static_cast<T>(most); }              \
    };
KFORGE_LIMITS(int, -2147483647 - 1, 2147483647)
KFORGE_LIMITS(unsigned, 0, 4294967295u)
KFORGE_LIMITS(long long, -9223372036854775807ll - 1, 9223372036854775807ll)
KFORGE_LIMITS(unsigned long long, 0, 18446744073709551615ull)
KFORGE_LIMITS(long, -9223372036854775807l - 1, 9223372036854775807l)
KFORGE_LIMITS(unsigned long, 0, 18446744073709551615ul)
#undef KFORGE_LIMITS
}  // namespace cuda::std

// -- how a kernel is called ---------------------------------------------------------------------------------------------

namespace kforge {

template <class A>
inline A parameter(const Call* call, int number) {
    if constexpr (bare<A>::pointer) return static_cast<A>(call->buffers[number]);
    else return *static_cast<const A*>(call->buffers[number]);
}

template <class F, F f>
struct Invoke;
template <class... A, void (*f)(A...)>
struct Invoke<void (*)(A...), f> {
    template <int... numbers>
    static inline void run(const Call* call, const Where*) {
        f(parameter<A>(call, numbers)...);
    }
};

inline void* dynamic_group_memory(u32 line) { return kforge_dynamic_group_memory(line); }

}  // namespace kforge
