// Metal's language on the emulator: its types, its library, and how its kernels are called.
#pragma once

#include "collectives.h"

using kforge::bfloat;
using kforge::half;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;
using ptrdiff_t = long;

namespace metal {

using kforge::each;
using kforge::Integer;
using kforge::Location;
using kforge::Real;
using kforge::Scalar;
using kforge::vec;
using ::bfloat;
using ::half;

#define KFORGE_VECTORS(type, name)   \
    using name##2 = vec<type, 2>;    \
    using name##3 = vec<type, 3>;    \
    using name##4 = vec<type, 4>;
KFORGE_VECTORS(bool, bool)
KFORGE_VECTORS(char, char)
KFORGE_VECTORS(uchar, uchar)
KFORGE_VECTORS(short, short)
KFORGE_VECTORS(ushort, ushort)
KFORGE_VECTORS(int, int)
KFORGE_VECTORS(uint, uint)
KFORGE_VECTORS(long, long)
KFORGE_VECTORS(ulong, ulong)
KFORGE_VECTORS(float, float)
KFORGE_VECTORS(half, half)
KFORGE_VECTORS(bfloat, bfloat)
#undef KFORGE_VECTORS

// Without padding and with the alignment of one element.
template <class T, int N>
struct packed_vec;
#define KFORGE_PACKED(N, ...)                                                                    \
    template <class T>                                                                           \
    struct packed_vec<T, N> {                                                                    \
        union {                                                                                  \
            __VA_ARGS__                                                                          \
            T at[N];                                                                             \
        };                                                                                       \
        packed_vec() = default;                                                                  \
        constexpr packed_vec(const vec<T, N>& other) : at{} {                                    \
            for (int i = 0; i < N; ++i) at[i] = other.at[i];                                     \
        }                                                                                        \
        template <class... A>                                                                    \
            requires(sizeof...(A) > 1)                                                           \
        constexpr packed_vec(A... values) : packed_vec(vec<T, N>(values...)) {}                  \
        constexpr packed_vec(T value) : packed_vec(vec<T, N>(value)) {}                          \
        constexpr operator vec<T, N>() const {                                                   \
            vec<T, N> value;                                                                     \
            for (int i = 0; i < N; ++i) value.at[i] = at[i];                                     \
            return value;                                                                        \
        }                                                                                        \
        template <class U>                                                                       \
        explicit constexpr operator vec<U, N>() const { return vec<U, N>(vec<T, N>(*this)); }    \
        [[gnu::always_inline]] constexpr T& operator[](int i) { return at[kforge::component(i, N)]; } \
        [[gnu::always_inline]] constexpr const T& operator[](int i) const { return at[kforge::component(i, N)]; } \
        template <int... I>                                                                      \
        constexpr auto sw() const { return vec<T, N>(*this).template sw<I...>(); }               \
        template <int... I>                                                                      \
        kforge::SwizzleRef<T, I...> swref() { return {at}; }                                     \
        template <class B>                                                                       \
        packed_vec& operator+=(const B& b) { return *this = vec<T, N>(*this) + b; }              \
        template <class B>                                                                       \
        packed_vec& operator-=(const B& b) { return *this = vec<T, N>(*this) - b; }              \
        template <class B>                                                                       \
        packed_vec& operator*=(const B& b) { return *this = vec<T, N>(*this) * b; }              \
        template <class B>                                                                       \
        packed_vec& operator/=(const B& b) { return *this = vec<T, N>(*this) / b; }              \
    };
KFORGE_PACKED(2, struct { T x, y; }; struct { T r, g; };)
KFORGE_PACKED(3, struct { T x, y, z; }; struct { T r, g, b; };)
KFORGE_PACKED(4, struct { T x, y, z, w; }; struct { T r, g, b, a; };)
#undef KFORGE_PACKED
#define KFORGE_PACKED(type)                     \
    using packed_##type##2 = packed_vec<type, 2>; \
    using packed_##type##3 = packed_vec<type, 3>; \
    using packed_##type##4 = packed_vec<type, 4>;
KFORGE_PACKED(char)
KFORGE_PACKED(uchar)
KFORGE_PACKED(short)
KFORGE_PACKED(ushort)
KFORGE_PACKED(int)
KFORGE_PACKED(uint)
KFORGE_PACKED(float)
KFORGE_PACKED(half)
#undef KFORGE_PACKED
#define KFORGE_PACKED(op)                                                                                      \
    template <class T, int N, class B>                                                                         \
    constexpr auto operator op(const packed_vec<T, N>& a, const B& b) { return vec<T, N>(a) op b; }             \
    template <class T, int N, class B>                                                                         \
        requires(kforge::Scalar<B> || kforge::width_of<B>::value == N)                                         \
    constexpr auto operator op(const B& a, const packed_vec<T, N>& b) { return a op vec<T, N>(b); }
KFORGE_PACKED(+)
KFORGE_PACKED(-)
KFORGE_PACKED(*)
KFORGE_PACKED(/)
#undef KFORGE_PACKED

// -- matrices, by columns -----------------------------------------------------------------------------------------------

template <class T, int C, int R>
struct matrix {
    vec<T, R> columns[C];
    matrix() = default;
    constexpr explicit matrix(T diagonal) : columns{} {
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r) columns[c].at[r] = c == r ? diagonal : T(0);
    }
    template <class... A>
        requires(sizeof...(A) == C && C > 1)
    constexpr matrix(const A&... given) : columns{vec<T, R>(given)...} {}
    template <Scalar... A>
        requires(sizeof...(A) == C * R)
    constexpr matrix(A... given) : columns{} {
        int next = 0;
        ((columns[next / R].at[next % R] = T(given), ++next), ...);
    }
    [[gnu::always_inline]] constexpr vec<T, R>& operator[](int c) { return columns[kforge::component(c, C)]; }
    [[gnu::always_inline]] constexpr const vec<T, R>& operator[](int c) const { return columns[kforge::component(c, C)]; }
};
template <class T, int C, int R>
constexpr vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
    vec<T, R> sum(T(0));
    for (int c = 0; c < C; ++c) sum += m.columns[c] * v.at[c];
    return sum;
}
template <class T, int C, int R>
constexpr vec<T, C> operator*(const vec<T, R>& v, const matrix<T, C, R>& m) {
    vec<T, C> out(T(0));
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) out.at[c] += v.at[r] * m.columns[c].at[r];
    return out;
}
template <class T, int C, int R, int K>
constexpr matrix<T, K, R> operator*(const matrix<T, C, R>& a, const matrix<T, K, C>& b) {
    matrix<T, K, R> out;
    for (int k = 0; k < K; ++k) out.columns[k] = a * b.columns[k];
    return out;
}
template <class T, int C, int R>
constexpr matrix<T, C, R> operator+(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
    matrix<T, C, R> out;
    for (int c = 0; c < C; ++c) out.columns[c] = a.columns[c] + b.columns[c];
    return out;
}
template <class T, int C, int R>
constexpr matrix<T, C, R> operator-(const matrix<T, C, R>& a, const matrix<T, C, R>& b) {
    matrix<T, C, R> out;
    for (int c = 0; c < C; ++c) out.columns[c] = a.columns[c] - b.columns[c];
    return out;
}
template <class T, int C, int R, Scalar S>
constexpr matrix<T, C, R> operator*(const matrix<T, C, R>& a, S s) {
    matrix<T, C, R> out;
    for (int c = 0; c < C; ++c) out.columns[c] = a.columns[c] * T(s);
    return out;
}
template <class T, int C, int R, Scalar S>
constexpr matrix<T, C, R> operator*(S s, const matrix<T, C, R>& a) { return a * s; }
template <class T>
constexpr T determinant(const matrix<T, 2, 2>& m) { return m[0][0] * m[1][1] - m[1][0] * m[0][1]; }
template <class T, int N>
    requires(N > 2)
constexpr T determinant(const matrix<T, N, N>& m) {
    T sum = T(0);
    for (int c = 0; c < N; ++c) {
        matrix<T, N - 1, N - 1> rest;
        for (int other = 0, to = 0; other < N; ++other) {
            if (other == c) continue;
            for (int r = 1; r < N; ++r) rest[to][r - 1] = m[other][r];
            ++to;
        }
        sum += (c % 2 ? T(-1) : T(1)) * m[c][0] * determinant(rest);
    }
    return sum;
}
template <class T, int C, int R>
constexpr matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
    matrix<T, R, C> out;
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) out.columns[r].at[c] = m.columns[c].at[r];
    return out;
}
#define KFORGE_MATRICES(type)                \
    using type##2x2 = matrix<type, 2, 2>;    \
    using type##2x3 = matrix<type, 2, 3>;    \
    using type##2x4 = matrix<type, 2, 4>;    \
    using type##3x2 = matrix<type, 3, 2>;    \
    using type##3x3 = matrix<type, 3, 3>;    \
    using type##3x4 = matrix<type, 3, 4>;    \
    using type##4x2 = matrix<type, 4, 2>;    \
    using type##4x3 = matrix<type, 4, 3>;    \
    using type##4x4 = matrix<type, 4, 4>;
KFORGE_MATRICES(float)
KFORGE_MATRICES(half)
#undef KFORGE_MATRICES

template <class To, class From>
constexpr To as_type(From value) {
    return __builtin_bit_cast(To, value);
}

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
template <class T, T held>
struct integral_constant {
    static constexpr T value = held;
    constexpr operator T() const { return held; }
};
template <class A, class B>
struct is_same : bool_constant<is_same_v<A, B>> {};
template <class T>
constexpr bool is_floating_point_v = Real<T>;
template <class T>
struct is_floating_point : bool_constant<Real<T>> {};
template <class T>
constexpr bool is_integral_v = Integer<T> || is_same_v<T, bool>;
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
constexpr bool is_signed_v = Scalar<T> && T(-1) < T(0);
template <class T>
struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T>
constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <class T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T>
struct remove_cv {
    using type = T;
};
template <class T>
struct remove_cv<const T> {
    using type = T;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
struct make_scalar {
    using type = T;
};
template <class T, int N>
struct make_scalar<vec<T, N>> {
    using type = T;
};
template <class T>
using make_scalar_t = typename make_scalar<T>::type;

template <class T, size_t N>
struct array {
    T held[N];
    [[gnu::always_inline]] constexpr T& operator[](size_t i) { return held[kforge::component(int(i), N)]; }
    [[gnu::always_inline]] constexpr const T& operator[](size_t i) const { return held[kforge::component(int(i), N)]; }
    static constexpr size_t size() { return N; }
    constexpr T* data() { return held; }
    constexpr const T* data() const { return held; }
};
template <bool C, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    using type = T;
};
template <bool C, class T = void>
using enable_if_t = typename enable_if<C, T>::type;
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

template <class T>
struct numeric_limits;
#define KFORGE_LIMITS(T, least, most, tiny)                    \
    template <>                                                \
    struct numeric_limits<T> {                                 \
        static constexpr T max() { return T(most); }           \
        static constexpr T lowest() { return T(least); }       \
        static constexpr T min() { return T(tiny); }           \
        static constexpr T infinity() { return T(__builtin_inff()); } \
        static constexpr T quiet_NaN() { return T(__builtin_nanf("")); } \
        static constexpr T epsilon() { return T(1.1920929e-7f); }  \
    };
KFORGE_LIMITS(float, -3.402823466e+38f, 3.402823466e+38f, 1.175494351e-38f)
KFORGE_LIMITS(bfloat, -3.3895314e+38f, 3.3895314e+38f, 1.175494351e-38f)
#undef KFORGE_LIMITS
template <>
struct numeric_limits<half> {
    static constexpr half max() { return half(65504.0f); }
    static constexpr half lowest() { return half(-65504.0f); }
    static constexpr half min() { return half(6.103515625e-5f); }
    static constexpr half infinity() { return half(__builtin_inff()); }
    static constexpr half quiet_NaN() { return half(__builtin_nanf("")); }
    static constexpr half epsilon() { return half(9.765625e-4f); }
};
#define KFORGE_LIMITS(T, least, most)                       \
    template <>                                             \
    struct numeric_limits<T> {                              \
        static constexpr T max() { return T(most); }        \
        static constexpr T lowest() { return T(least); }    \
        static constexpr T min() { return T(least); }       \
    };
KFORGE_LIMITS(char, -128, 127)
KFORGE_LIMITS(int8_t, -128, 127)
KFORGE_LIMITS(uchar, 0, 255)
KFORGE_LIMITS(short, -32768, 32767)
KFORGE_LIMITS(ushort, 0, 65535)
KFORGE_LIMITS(int, -2147483647 - 1, 2147483647)
KFORGE_LIMITS(uint, 0, 4294967295u)
KFORGE_LIMITS(long, -9223372036854775807l - 1, 9223372036854775807l)
KFORGE_LIMITS(ulong, 0, 18446744073709551615ul)
#undef KFORGE_LIMITS

// -- functions of real numbers ------------------------------------------------------------------------------------------

#define KFORGE_REAL1(name, expression)                                                                       \
    template <Real T>                                                                                        \
    inline T name(T given) {                                                                                 \
        float x = float(given);                                                                              \
        return T(expression);                                                                                \
    }                                                                                                        \
    template <Real T, int N>                                                                                 \
    inline vec<T, N> name(const vec<T, N>& v) {                                                              \
        return each([](T x) { return name(x); }, v);                                                         \
    }
#define KFORGE_REAL2(name, expression)                                                                       \
    template <Real T>                                                                                        \
    inline T name(T first, T second) {                                                                       \
        float x = float(first), y = float(second);                                                           \
        return T(expression);                                                                                \
    }                                                                                                        \
    template <Real T, int N>                                                                                 \
    inline vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b) {                                          \
        return each([](T x, T y) { return name(x, y); }, a, b);                                              \
    }                                                                                                        \
    template <Real T, int N>                                                                                 \
    inline vec<T, N> name(const vec<T, N>& a, T b) { return name(a, vec<T, N>(b)); }
#define KFORGE_LIBRARY                                                                       \
    KFORGE_REAL1(exp, __builtin_expf(x))                                                     \
    KFORGE_REAL1(exp2, __builtin_exp2f(x))                                                   \
    KFORGE_REAL1(exp10, __builtin_powf(10.0f, x))                                            \
    KFORGE_REAL1(log, __builtin_logf(x))                                                     \
    KFORGE_REAL1(log2, __builtin_log2f(x))                                                   \
    KFORGE_REAL1(log10, __builtin_log10f(x))                                                 \
    KFORGE_REAL1(sin, __builtin_sinf(x))                                                     \
    KFORGE_REAL1(cos, __builtin_cosf(x))                                                     \
    KFORGE_REAL1(tan, __builtin_tanf(x))                                                     \
    KFORGE_REAL1(asin, __builtin_asinf(x))                                                   \
    KFORGE_REAL1(acos, __builtin_acosf(x))                                                   \
    KFORGE_REAL1(atan, __builtin_atanf(x))                                                   \
    KFORGE_REAL1(sinh, __builtin_sinhf(x))                                                   \
    KFORGE_REAL1(cosh, __builtin_coshf(x))                                                   \
    KFORGE_REAL1(tanh, __builtin_tanhf(x))                                                   \
    KFORGE_REAL1(asinh, __builtin_asinhf(x))                                                 \
    KFORGE_REAL1(acosh, __builtin_acoshf(x))                                                 \
    KFORGE_REAL1(atanh, __builtin_atanhf(x))                                                 \
    KFORGE_REAL1(sinpi, __builtin_sinf(3.14159265358979f * x))                               \
    KFORGE_REAL1(cospi, __builtin_cosf(3.14159265358979f * x))                               \
    KFORGE_REAL1(tanpi, __builtin_tanf(3.14159265358979f * x))                               \
    KFORGE_REAL1(sqrt, __builtin_sqrtf(x))                                                   \
    KFORGE_REAL1(rsqrt, 1.0f / __builtin_sqrtf(x))                                           \
    KFORGE_REAL1(fabs, __builtin_fabsf(x))                                                   \
    KFORGE_REAL1(floor, __builtin_floorf(x))                                                 \
    KFORGE_REAL1(ceil, __builtin_ceilf(x))                                                   \
    KFORGE_REAL1(round, __builtin_roundf(x))                                                 \
    KFORGE_REAL1(rint, __builtin_rintf(x))                                                   \
    KFORGE_REAL1(trunc, __builtin_truncf(x))                                                 \
    KFORGE_REAL1(fract, x - __builtin_floorf(x))                                             \
    KFORGE_REAL1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))                  \
    KFORGE_REAL1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)            \
    KFORGE_REAL2(pow, __builtin_powf(x, y))                                                  \
    KFORGE_REAL2(powr, __builtin_powf(x, y))                                                 \
    KFORGE_REAL2(atan2, __builtin_atan2f(x, y))                                              \
    KFORGE_REAL2(fmod, __builtin_fmodf(x, y))                                                \
    KFORGE_REAL2(fmin, __builtin_fminf(x, y))                                                \
    KFORGE_REAL2(fmax, __builtin_fmaxf(x, y))                                                \
    KFORGE_REAL2(fdim, __builtin_fdimf(x, y))                                                \
    KFORGE_REAL2(copysign, __builtin_copysignf(x, y))                                        \
    KFORGE_REAL2(divide, x / y)                                                              \
    KFORGE_REAL2(step, y < x ? 0.0f : 1.0f)
KFORGE_LIBRARY
namespace precise {
KFORGE_LIBRARY
}
namespace fast {
KFORGE_LIBRARY
}

template <Real T>
inline T fma(T a, T b, T c) { return T(__builtin_fmaf(float(a), float(b), float(c))); }
template <Real T, int N>
inline vec<T, N> fma(const vec<T, N>& a, const vec<T, N>& b, const vec<T, N>& c) {
    return each([](T x, T y, T z) { return fma(x, y, z); }, a, b, c);
}
template <Real T>
inline T mix(T a, T b, T t) { return T(a + (b - a) * t); }
template <Real T, int N>
inline vec<T, N> mix(const vec<T, N>& a, const vec<T, N>& b, const vec<T, N>& t) { return a + (b - a) * t; }
template <Real T, int N>
inline vec<T, N> mix(const vec<T, N>& a, const vec<T, N>& b, T t) { return a + (b - a) * t; }
template <Real T>
inline T smoothstep(T low, T high, T x) {
    T t = saturate(T((x - low) / (high - low)));
    return T(t * t * (T(3) - T(2) * t));
}
template <Real T>
inline bool isnan(T x) { return __builtin_isnan(float(x)); }
template <Real T>
inline bool isinf(T x) { return __builtin_isinf(float(x)); }
template <Real T>
inline bool isfinite(T x) { return __builtin_isfinite(float(x)); }
template <Real T>
inline bool isnormal(T x) { return __builtin_isnormal(float(x)); }
template <Real T>
inline bool signbit(T x) { return __builtin_signbit(float(x)); }
#define KFORGE_TEST(name)                                                                            \
    template <Real T, int N>                                                                         \
    inline vec<bool, N> name(const vec<T, N>& v) { return each([](T x) { return name(x); }, v); }
KFORGE_TEST(isnan)
KFORGE_TEST(isinf)
KFORGE_TEST(isfinite)
#undef KFORGE_TEST
template <Real T>
inline T ldexp(T x, int e) { return T(__builtin_ldexpf(float(x), e)); }
template <Real T>
inline T frexp(T x, int& e) { return T(__builtin_frexpf(float(x), &e)); }
template <Real T>
inline T modf(T x, T& whole) {
    whole = trunc(x);
    return T(x - whole);
}
#define KFORGE_SINCOS              \
    template <Real T>              \
    inline T sincos(T x, T& cosine) { \
        cosine = cos(x);           \
        return sin(x);             \
    }
KFORGE_SINCOS
namespace precise {
KFORGE_SINCOS
}
namespace fast {
KFORGE_SINCOS
}
#undef KFORGE_SINCOS
template <Real T>
inline int ilogb(T x) { return __builtin_ilogbf(float(x)); }
template <Real T>
inline T nextafter(T x, T y) { return T(__builtin_nextafterf(float(x), float(y))); }

// -- functions of any numbers: both of the same type, as Metal's overloads need it -------------------------------------

template <Integer T>
constexpr T abs(T x) { return x < T(0) ? T(-x) : x; }
template <Real T>
inline T abs(T x) { return fabs(x); }
template <class T, int N>
inline vec<T, N> abs(const vec<T, N>& v) { return each([](T x) { return abs(x); }, v); }
template <Integer T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <Integer T>
constexpr T max(T a, T b) { return a < b ? b : a; }
template <Real T>
inline T min(T a, T b) { return fmin(a, b); }
template <Real T>
inline T max(T a, T b) { return fmax(a, b); }
#define KFORGE_PAIR(name)                                                                     \
    template <class T, int N>                                                                 \
    inline vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b) {                           \
        return each([](T x, T y) { return name(x, y); }, a, b);                               \
    }                                                                                         \
    template <class T, int N>                                                                 \
    inline vec<T, N> name(const vec<T, N>& a, T b) { return name(a, vec<T, N>(b)); }          \
    template <class T, int N>                                                                 \
    inline vec<T, N> name(T a, const vec<T, N>& b) { return name(vec<T, N>(a), b); }
KFORGE_PAIR(min)
KFORGE_PAIR(max)
#undef KFORGE_PAIR
template <Scalar T>
inline T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T, int N>
inline vec<T, N> clamp(const vec<T, N>& x, const vec<T, N>& low, const vec<T, N>& high) { return min(max(x, low), high); }
template <class T, int N>
inline vec<T, N> clamp(const vec<T, N>& x, T low, T high) { return min(max(x, low), high); }
template <Scalar T>
inline T min3(T a, T b, T c) { return min(min(a, b), c); }
template <Scalar T>
inline T max3(T a, T b, T c) { return max(max(a, b), c); }
template <Scalar T>
inline T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
template <Real T>
inline T fmin3(T a, T b, T c) { return fmin(fmin(a, b), c); }
template <Real T>
inline T fmax3(T a, T b, T c) { return fmax(fmax(a, b), c); }
template <Real T>
inline T fmedian3(T a, T b, T c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }
#define KFORGE_TRIPLE(name)                                                                              \
    template <class T, int N>                                                                            \
    inline vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b, const vec<T, N>& c) {                  \
        return each([](T x, T y, T z) { return name(x, y, z); }, a, b, c);                               \
    }
KFORGE_TRIPLE(min3)
KFORGE_TRIPLE(max3)
KFORGE_TRIPLE(median3)
KFORGE_TRIPLE(fmin3)
KFORGE_TRIPLE(fmax3)
KFORGE_TRIPLE(fmedian3)
KFORGE_TRIPLE(smoothstep)
#undef KFORGE_TRIPLE
template <Scalar T>
inline T select(T no, T yes, bool which) { return which ? yes : no; }
template <class T, int N>
inline vec<T, N> select(const vec<T, N>& no, const vec<T, N>& yes, const vec<bool, N>& which) {
    return each([](T a, T b, bool c) { return c ? b : a; }, no, yes, which);
}
template <int N>
inline bool any(const vec<bool, N>& v) {
    bool found = false;
    for (int i = 0; i < N; ++i) found |= v.at[i];
    return found;
}
template <int N>
inline bool all(const vec<bool, N>& v) {
    bool found = true;
    for (int i = 0; i < N; ++i) found &= v.at[i];
    return found;
}
inline bool any(bool v) { return v; }
inline bool all(bool v) { return v; }

template <Integer T>
constexpr T popcount(T x) {
    return T(sizeof(T) == 8 ? __builtin_popcountll((unsigned long long)x)
                            : __builtin_popcount(uint(x) & (sizeof(T) == 4 ? ~0u : (1u << (8 * sizeof(T) % 32)) - 1)));
}
template <Integer T>
constexpr T clz(T x) {
    T count = 0;
    for (int bit = int(8 * sizeof(T)) - 1; bit >= 0 && !(ulong(x) >> bit & 1); --bit) ++count;
    return count;
}
template <Integer T>
constexpr T ctz(T x) {
    T count = 0;
    for (int bit = 0; bit < int(8 * sizeof(T)) && !(ulong(x) >> bit & 1); ++bit) ++count;
    return count;
}
template <Integer T>
constexpr T reverse_bits(T x) {
    ulong out = 0;
    for (int bit = 0; bit < int(8 * sizeof(T)); ++bit) out |= (ulong(x) >> bit & 1) << (8 * sizeof(T) - 1 - bit);
    return T(out);
}
template <Integer T>
constexpr T rotate(T x, T by) {
    constexpr uint width = 8 * sizeof(T);
    ulong bits = ulong(x) & (width == 64 ? ~0ul : (1ul << (width % 64)) - 1);
    uint n = uint(by) % width;
    return n == 0 ? x : T(bits << n | bits >> (width - n));
}
template <Integer T>
constexpr T extract_bits(T x, uint offset, uint bits) {
    if (bits == 0) return 0;
    T left = T(x << (8 * sizeof(T) - offset - bits));
    return T(left >> (8 * sizeof(T) - bits));
}
template <Integer T>
constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
    T mask = T(((bits >= 8 * sizeof(T) ? ~0ul : (1ul << bits) - 1)) << offset);
    return T((base & ~mask) | ((insert << offset) & mask));
}
template <Integer T>
constexpr T mulhi(T a, T b) {
    if constexpr (sizeof(T) == 8) return T(((__int128)a * (__int128)b) >> 64);
    else return T(((long)a * (long)b) >> (8 * sizeof(T)));
}
template <Integer T>
constexpr T mul24(T a, T b) { return T(a * b); }
template <Integer T>
constexpr T mad24(T a, T b, T c) { return T(a * b + c); }
template <Integer T>
constexpr T hadd(T a, T b) { return T(((long)a + (long)b) >> 1); }
template <Integer T>
constexpr T rhadd(T a, T b) { return T(((long)a + (long)b + 1) >> 1); }
template <Integer T>
constexpr T absdiff(T a, T b) { return a < b ? T(b - a) : T(a - b); }
template <Integer T>
constexpr T addsat(T a, T b) {
    T sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < T(0) ? numeric_limits<T>::lowest() : numeric_limits<T>::max();
}
template <Integer T>
constexpr T subsat(T a, T b) {
    T difference;
    if (!__builtin_sub_overflow(a, b, &difference)) return difference;
    return a < b ? numeric_limits<T>::lowest() : numeric_limits<T>::max();
}

template <Integer T>
constexpr T madhi(T a, T b, T c) { return T(mulhi(a, b) + c); }
template <Integer T>
constexpr T madsat(T a, T b, T c) {
    __int128 whole = (__int128)a * b + c, low = numeric_limits<T>::lowest(), high = numeric_limits<T>::max();
    return T(whole < low ? low : whole > high ? high : whole);
}

// -- geometry -----------------------------------------------------------------------------------------------------------

template <Real T, int N>
inline T dot(const vec<T, N>& a, const vec<T, N>& b) {
    T sum = T(0);
    for (int i = 0; i < N; ++i) sum += a.at[i] * b.at[i];
    return sum;
}
template <Real T, int N>
inline T length_squared(const vec<T, N>& v) { return dot(v, v); }
template <Real T, int N>
inline T length(const vec<T, N>& v) { return sqrt(dot(v, v)); }
template <Real T, int N>
inline T distance(const vec<T, N>& a, const vec<T, N>& b) { return length(a - b); }
template <Real T, int N>
inline T distance_squared(const vec<T, N>& a, const vec<T, N>& b) { return length_squared(a - b); }
template <Real T, int N>
inline vec<T, N> normalize(const vec<T, N>& v) { return v * rsqrt(dot(v, v)); }
template <Real T, int N>
inline vec<T, N> reflect(const vec<T, N>& v, const vec<T, N>& normal) { return v - normal * T(T(2) * dot(v, normal)); }
template <Real T, int N>
inline vec<T, N> faceforward(const vec<T, N>& n, const vec<T, N>& i, const vec<T, N>& reference) {
    return dot(reference, i) < T(0) ? n : -n;
}
template <Real T>
inline vec<T, 3> cross(const vec<T, 3>& a, const vec<T, 3>& b) {
    return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

// -- numbers packed into whole ones -------------------------------------------------------------------------------------

#define KFORGE_PACK(name, N, width, word, low, most)                                                                  \
    inline word pack_float_to_##name(const vec<float, N>& v) {                                                        \
        word out = 0;                                                                                                 \
        for (int i = 0; i < N; ++i) {                                                                                 \
            int one = int(rint(clamp(v.at[i], low, 1.0f) * most));                                                    \
            out |= word(word(one) & word((1u << width) - 1u)) << (width * i);                                         \
        }                                                                                                             \
        return out;                                                                                                   \
    }
#define KFORGE_UNPACK(name, N, width, word, whole, low, most)                                                         \
    inline vec<float, N> unpack_##name##_to_float(word packed) {                                                      \
        vec<float, N> v;                                                                                              \
        for (int i = 0; i < N; ++i) v.at[i] = max(float(whole(packed >> (width * i))) / most, low);                   \
        return v;                                                                                                     \
    }
KFORGE_PACK(unorm4x8, 4, 8, uint, 0.0f, 255.0f)
KFORGE_PACK(snorm4x8, 4, 8, uint, -1.0f, 127.0f)
KFORGE_PACK(unorm2x16, 2, 16, uint, 0.0f, 65535.0f)
KFORGE_PACK(snorm2x16, 2, 16, uint, -1.0f, 32767.0f)
KFORGE_UNPACK(unorm4x8, 4, 8, uint, uchar, 0.0f, 255.0f)
KFORGE_UNPACK(snorm4x8, 4, 8, uint, int8_t, -1.0f, 127.0f)
KFORGE_UNPACK(unorm2x16, 2, 16, uint, ushort, 0.0f, 65535.0f)
KFORGE_UNPACK(snorm2x16, 2, 16, uint, short, -1.0f, 32767.0f)
#undef KFORGE_PACK
#undef KFORGE_UNPACK

// -- both ways to compute are the same here ----------------------------------------------------------------------------

#define KFORGE_AGAIN                                                                                        \
    using metal::abs, metal::min, metal::max, metal::clamp, metal::min3, metal::max3, metal::median3;       \
    using metal::fmin3, metal::fmax3, metal::fmedian3, metal::fma, metal::mix, metal::smoothstep;           \
    using metal::isnan, metal::isinf, metal::isfinite, metal::isnormal, metal::signbit, metal::ldexp;       \
    using metal::frexp, metal::modf, metal::dot, metal::length, metal::length_squared, metal::distance;     \
    using metal::distance_squared, metal::normalize, metal::cross, metal::reflect;
namespace precise {
KFORGE_AGAIN
}
namespace fast {
KFORGE_AGAIN
}
#undef KFORGE_AGAIN

// -- barriers and what lanes do together --------------------------------------------------------------------------------

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

inline void threadgroup_barrier(mem_flags flags, Location at = Location::current()) {
    // For device memory there was no other fence than this one for long: it counts for other groups too.
    uint fences = uint(flags) & 3;
    kforge::kforge_barrier(fences & 1 ? fences | kforge::kFenceGrid : fences, at.line(), at.column());
}
inline void simdgroup_barrier(mem_flags flags, Location at = Location::current()) {
    kforge::kforge_lane_barrier(uint(flags) & 3, at.line(), at.column());
}

#define KFORGE_FOLD(name, how)                                                                        \
    template <class T>                                                                                \
    inline T name(T value, Location at = Location::current()) {                                       \
        return kforge::folded<T, kforge::how>(value, at);                                      \
    }
KFORGE_FOLD(simd_sum, Plus)
KFORGE_FOLD(simd_product, Times)
KFORGE_FOLD(simd_min, Least)
KFORGE_FOLD(simd_max, Most)
KFORGE_FOLD(simd_and, BitAnd)
KFORGE_FOLD(simd_or, BitOr)
KFORGE_FOLD(simd_xor, BitXor)
#undef KFORGE_FOLD
template <class T>
inline T simd_prefix_inclusive_sum(T value, Location at = Location::current()) {
    return kforge::folded_up_to<T, kforge::Plus>(value, at);
}
template <class T>
inline T simd_prefix_inclusive_product(T value, Location at = Location::current()) {
    return kforge::folded_up_to<T, kforge::Times>(value, at);
}
template <class T>
inline T simd_prefix_exclusive_sum(T value, Location at = Location::current()) {
    return kforge::folded_before<T, kforge::Plus>(value, T(0), at);
}
template <class T>
inline T simd_prefix_exclusive_product(T value, Location at = Location::current()) {
    return kforge::folded_before<T, kforge::Times>(value, T(1), at);
}
template <class T>
inline T simd_shuffle(T value, ushort lane, Location at = Location::current()) {
    return kforge::fetched<T>(value, lane, kforge::kFails, at);
}
template <class T>
inline T simd_broadcast(T value, ushort lane, Location at = Location::current()) {
    return kforge::fetched<T>(value, lane, kforge::kFails, at);
}
template <class T>
inline T simd_broadcast_first(T value, Location at = Location::current()) {
    return kforge::fetched<T>(value, uint(__builtin_ctz(kforge::taking_part(at))), kforge::kFails, at);
}
// Past the ends a lane keeps its own.
template <class T>
inline T simd_shuffle_down(T value, ushort by, Location at = Location::current()) {
    uint lane = kforge::kforge_where()->lane;
    return kforge::fetched<T>(value, lane + by < 32 ? lane + by : lane, kforge::kIsAnything, at);
}
template <class T>
inline T simd_shuffle_up(T value, ushort by, Location at = Location::current()) {
    uint lane = kforge::kforge_where()->lane;
    return kforge::fetched<T>(value, lane >= by ? lane - by : lane, kforge::kIsAnything, at);
}
template <class T>
inline T simd_shuffle_xor(T value, ushort mask, Location at = Location::current()) {
    return kforge::fetched<T>(value, kforge::kforge_where()->lane ^ mask, kforge::kFails, at);
}
template <class T>
inline T simd_shuffle_rotate_down(T value, ushort by, Location at = Location::current()) {
    return kforge::fetched<T>(value, (kforge::kforge_where()->lane + by) % 32, kforge::kFails, at);
}
template <class T>
inline T simd_shuffle_rotate_up(T value, ushort by, Location at = Location::current()) {
    return kforge::fetched<T>(value, (kforge::kforge_where()->lane + 32 - by % 32) % 32, kforge::kFails, at);
}
template <class T>
inline T simd_shuffle_and_fill_down(T value, T fill, ushort by, Location at = Location::current()) {
    uint from = kforge::kforge_where()->lane + by;
    T other = kforge::fetched<T>(value, from % 32, kforge::kFails, at);
    T filled = kforge::fetched<T>(fill, from % 32, kforge::kFails, at);
    return from < 32 ? other : filled;
}
template <class T>
inline T simd_shuffle_and_fill_up(T value, T fill, ushort by, Location at = Location::current()) {
    uint lane = kforge::kforge_where()->lane, from = (lane + 32 - by % 32) % 32;
    T other = kforge::fetched<T>(value, from, kforge::kFails, at);
    T filled = kforge::fetched<T>(fill, from, kforge::kFails, at);
    return lane >= by ? other : filled;
}
inline bool simd_any(bool mine, Location at = Location::current()) { return kforge::votes(mine, at) != 0; }
inline bool simd_all(bool mine, Location at = Location::current()) { return kforge::votes(!mine, at) == 0; }
struct simd_vote {
    ulong mask;
    using vote_t = ulong;
    explicit operator ulong() const { return mask; }
    explicit operator uint() const { return uint(mask); }
    bool any() const { return mask != 0; }
    bool all() const { return uint(mask) == ~0u; }
};
inline simd_vote simd_ballot(bool mine, Location at = Location::current()) {
    return {kforge::votes(mine, at)};
}
inline simd_vote simd_active_threads_mask(Location at = Location::current()) {
    return {kforge::taking_part(at)};
}
inline bool simd_is_first(Location at = Location::current()) {
    return kforge::kforge_where()->lane == uint(__builtin_ctz(kforge::taking_part(at)));
}
// Four neighbouring lanes.
template <class T>
inline T quad_broadcast(T value, ushort lane, Location at = Location::current()) {
    return kforge::fetched<T>(value, (kforge::kforge_where()->lane & ~3u) + lane % 4, kforge::kFails, at);
}
template <class T>
inline T quad_shuffle(T value, ushort lane, Location at = Location::current()) {
    return kforge::fetched<T>(value, (kforge::kforge_where()->lane & ~3u) + lane % 4, kforge::kFails, at);
}
template <class T>
inline T quad_shuffle_xor(T value, ushort mask, Location at = Location::current()) {
    return kforge::fetched<T>(value, kforge::kforge_where()->lane ^ (mask & 3), kforge::kFails, at);
}
#define KFORGE_FOLD(name, how)                                                      \
    template <class T>                                                              \
    inline T name(T value, Location at = Location::current()) {                     \
        value = kforge::how{}(value, quad_shuffle_xor(value, 1, at));               \
        return kforge::how{}(value, quad_shuffle_xor(value, 2, at));                \
    }
KFORGE_FOLD(quad_sum, Plus)
KFORGE_FOLD(quad_product, Times)
KFORGE_FOLD(quad_min, Least)
KFORGE_FOLD(quad_max, Most)
KFORGE_FOLD(quad_and, BitAnd)
KFORGE_FOLD(quad_or, BitOr)
KFORGE_FOLD(quad_xor, BitXor)
#undef KFORGE_FOLD
template <class T>
inline T quad_shuffle_up(T value, ushort by, Location at = Location::current()) {
    uint lane = kforge::kforge_where()->lane;
    return kforge::fetched<T>(value, lane % 4 >= by ? lane - by : lane, kforge::kFails, at);
}
template <class T>
inline T quad_shuffle_down(T value, ushort by, Location at = Location::current()) {
    uint lane = kforge::kforge_where()->lane;
    return kforge::fetched<T>(value, lane % 4 + by < 4 ? lane + by : lane, kforge::kFails, at);
}

inline bool quad_any(bool mine, Location at = Location::current()) { return quad_or(uint(mine), at) != 0; }
inline bool quad_all(bool mine, Location at = Location::current()) { return quad_and(uint(mine), at) != 0; }
template <class T, class F>
inline T quad_prefix(T value, T neutral, bool inclusive, const Location& at) {
    uint lane = kforge::kforge_where()->lane % 4;
    T total = neutral;
    for (ushort i = 0; i < 4; ++i) {
        T other = quad_shuffle(value, i, at);
        if (i < lane || (inclusive && i == lane)) total = F{}(total, other);
    }
    return total;
}
template <class T>
inline T quad_prefix_inclusive_sum(T value, Location at = Location::current()) {
    return quad_prefix<T, kforge::Plus>(value, T(0), true, at);
}
template <class T>
inline T quad_prefix_exclusive_sum(T value, Location at = Location::current()) {
    return quad_prefix<T, kforge::Plus>(value, T(0), false, at);
}
template <class T>
inline T quad_prefix_inclusive_product(T value, Location at = Location::current()) {
    return quad_prefix<T, kforge::Times>(value, T(1), true, at);
}
template <class T>
inline T quad_prefix_exclusive_product(T value, Location at = Location::current()) {
    return quad_prefix<T, kforge::Times>(value, T(1), false, at);
}

// -- matrices held by a SIMD-group: each lane has two neighbours of a row ----------------------------------------------

template <class T, int C, int R>
struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "Metal has SIMD-group matrices of 8 by 8");
    vec<T, 2> held;
    simdgroup_matrix() = default;
    // On the diagonal.
    explicit simdgroup_matrix(T value) {
        uint lane = kforge::kforge_where()->lane;
        for (uint i = 0; i < 2; ++i) held.at[i] = row(lane) == column(lane) + i ? value : T(0);
    }
    vec<T, 2>& thread_elements() { return held; }
    const vec<T, 2>& thread_elements() const { return held; }
    static uint row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
    static uint column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int C, int R = C>
inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> made;
    made.held = vec<T, 2>(value);
    return made;
}
template <class T, int C, int R = C>
inline simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) { return simdgroup_matrix<T, C, R>(value); }

namespace matrices {
inline uint part() { return kforge::kforge_where()->lane; }
inline void all_there(uint active, uint line) {
    if (active != ~0u) kforge::kforge_fail("a SIMD-group matrix is used where not all 32 lanes take part", line);
}
}  // namespace matrices

template <class T, class U>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const U* from, ulong per_row = 8, ulong2 origin = ulong2(0ul),
                           bool transposed = false, Location at = Location::current()) {
    matrices::all_there(kforge::taking_part(at), at.line());
    uint row = m.row(matrices::part()), column = m.column(matrices::part());
    for (uint i = 0; i < 2; ++i) {
        ulong y = transposed ? column + i : row, x = transposed ? row : column + i;
        m.held.at[i] = T(from[(origin.y + y) * per_row + origin.x + x]);
    }
}
template <class T, class U>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, U* to, ulong per_row = 8, ulong2 origin = ulong2(0ul),
                            bool transposed = false, Location at = Location::current()) {
    matrices::all_there(kforge::taking_part(at), at.line());
    uint row = m.row(matrices::part()), column = m.column(matrices::part());
    for (uint i = 0; i < 2; ++i) {
        ulong y = transposed ? column + i : row, x = transposed ? row : column + i;
        to[(origin.y + y) * per_row + origin.x + x] = U(m.held.at[i]);
    }
}
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                          Location at = Location::current()) {
    struct Mine {
        vec<A, 2> a;
        vec<B, 2> b;
        vec<C, 2> c;
        float out[2];
        uint line;
    } mine{a.held, b.held, c.held, {0, 0}, at.line()};
    kforge::together(
        +[](kforge::Part* parts, uint count, uint active) {
            using M = simdgroup_matrix<float, 8, 8>;
            matrices::all_there(active, static_cast<Mine*>(parts[0].value)->line);
            float left[8][8], right[8][8];
            for (uint i = 0; i < count; ++i) {
                const Mine& mine = *static_cast<Mine*>(parts[i].value);
                uint row = M::row(parts[i].lane), column = M::column(parts[i].lane);
                for (uint k = 0; k < 2; ++k) {
                    left[row][column + k] = float(mine.a.at[k]);
                    right[row][column + k] = float(mine.b.at[k]);
                }
            }
            for (uint i = 0; i < count; ++i) {
                Mine& mine = *static_cast<Mine*>(parts[i].value);
                uint row = M::row(parts[i].lane), column = M::column(parts[i].lane);
                for (uint k = 0; k < 2; ++k) {
                    float sum = float(mine.c.at[k]);
                    for (uint j = 0; j < 8; ++j) sum += left[row][j] * right[j][column + k];
                    mine.out[k] = sum;
                }
            }
        },
        mine, at);
    d.held = vec<D, 2>(D(mine.out[0]), D(mine.out[1]));
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, Location at = Location::current()) {
    simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<float, 8, 8>(0.0f), at);
}
template <class T>
inline simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}

// -- atomics ------------------------------------------------------------------------------------------------------------

enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
template <class T>
struct atomic {
    T held;
    atomic() = default;
    atomic(const atomic&) = delete;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_float = atomic<float>;
using atomic_bool = atomic<uint>;
using atomic_ulong = atomic<ulong>;

// Into the kernel's own code, whose line a finding is to name.
#define KFORGE_INLINE [[gnu::always_inline]] inline
#if KFORGE_CHECKED
#define KFORGE_ATOMIC(native, operation) return kforge::atomically<T>(operation, &place->held, T(value))
#else
#define KFORGE_ATOMIC(native, operation)                                                      \
    if constexpr (Integer<T>) return native(&const_cast<atomic<T>*>(place)->held, T(value), __ATOMIC_SEQ_CST); \
    else return kforge::atomically<T>(operation, &place->held, T(value))
#endif
template <class T, class U>
KFORGE_INLINE T atomic_fetch_add_explicit(volatile atomic<T>* place, U value, memory_order) {
    KFORGE_ATOMIC(__atomic_fetch_add, kforge::kAddOf<T>);
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_or_explicit(volatile atomic<T>* place, U value, memory_order) {
    KFORGE_ATOMIC(__atomic_fetch_or, kforge::kOr);
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_and_explicit(volatile atomic<T>* place, U value, memory_order) {
    KFORGE_ATOMIC(__atomic_fetch_and, kforge::kAnd);
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_xor_explicit(volatile atomic<T>* place, U value, memory_order) {
    KFORGE_ATOMIC(__atomic_fetch_xor, kforge::kXor);
}
template <class T, class U>
KFORGE_INLINE T atomic_exchange_explicit(volatile atomic<T>* place, U value, memory_order) {
    return kforge::atomically<T>(kforge::kExchange, &place->held, T(value));
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_sub_explicit(volatile atomic<T>* place, U value, memory_order) {
    if constexpr (Real<T>) return kforge::atomically<T>(kforge::kAddFloat, &place->held, T(-T(value)));
    else return kforge::atomically<T>(kforge::kSub, &place->held, T(value));
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_min_explicit(volatile atomic<T>* place, U value, memory_order) {
    return kforge::atomically<T>(kforge::kMinOf<T>, &place->held, T(value));
}
template <class T, class U>
KFORGE_INLINE T atomic_fetch_max_explicit(volatile atomic<T>* place, U value, memory_order) {
    return kforge::atomically<T>(kforge::kMaxOf<T>, &place->held, T(value));
}
template <class T>
KFORGE_INLINE T atomic_load_explicit(const volatile atomic<T>* place, memory_order) {
    return kforge::atomically<T>(kforge::kLoad, &place->held, T());
}
template <class T, class U>
KFORGE_INLINE void atomic_store_explicit(volatile atomic<T>* place, U value, memory_order) {
    kforge::atomically<T>(kforge::kStore, &place->held, T(value));
}
template <class T, class U>
KFORGE_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* place, T* expected, U value, memory_order, memory_order) {
    T old = kforge::atomically<T>(kforge::kCompareExchange, &place->held, T(value), *expected);
    bool done = __builtin_bit_cast(typename kforge::same_size<T>::type, old) ==
                __builtin_bit_cast(typename kforge::same_size<T>::type, *expected);
    *expected = old;
    return done;
}
#undef KFORGE_INLINE
inline void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope scope = thread_scope_device) {
    if (order == memory_order_relaxed) return;
    kforge::kforge_fence(uint(flags) & 1 && scope == thread_scope_device);
}

}  // namespace metal

// -- names that need no namespace ---------------------------------------------------------------------------------------

#define METAL_FUNC inline __attribute__((always_inline))
#define restrict __restrict
#define INFINITY __builtin_inff()
#define HUGE_VALF __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920929e-7f
#define HALF_MAX half(65504.0f)
#define MAXHALF half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_PI_H half(3.14159265358979323846f)

using metal::as_type;
#define KFORGE_GLOBAL(name) using metal::name##2; using metal::name##3; using metal::name##4;
KFORGE_GLOBAL(bool)
KFORGE_GLOBAL(char)
KFORGE_GLOBAL(uchar)
KFORGE_GLOBAL(short)
KFORGE_GLOBAL(ushort)
KFORGE_GLOBAL(int)
KFORGE_GLOBAL(uint)
KFORGE_GLOBAL(long)
KFORGE_GLOBAL(ulong)
KFORGE_GLOBAL(float)
KFORGE_GLOBAL(half)
KFORGE_GLOBAL(bfloat)
KFORGE_GLOBAL(packed_float)
KFORGE_GLOBAL(packed_half)
KFORGE_GLOBAL(packed_int)
KFORGE_GLOBAL(packed_uint)
KFORGE_GLOBAL(packed_char)
KFORGE_GLOBAL(packed_uchar)
KFORGE_GLOBAL(packed_short)
KFORGE_GLOBAL(packed_ushort)
#undef KFORGE_GLOBAL
#define KFORGE_GLOBAL(type)                                                     \
    using metal::type##2x2, metal::type##2x3, metal::type##2x4;                 \
    using metal::type##3x2, metal::type##3x3, metal::type##3x4;                 \
    using metal::type##4x2, metal::type##4x3, metal::type##4x4;
KFORGE_GLOBAL(float)
KFORGE_GLOBAL(half)
#undef KFORGE_GLOBAL
namespace simd {
using namespace metal;
}

// -- where lanes that parted meet again ---------------------------------------------------------------------------------

namespace kforge {
inline void meet(u32 line, u32 place) { kforge_lane_barrier(kFenceNone, line, 0x100000u + place); }
}  // namespace kforge

// -- how a kernel is called ---------------------------------------------------------------------------------------------

namespace kforge {

// Numbers from 0 on are buffers; these are what a parameter's attribute asks for.
enum Attribute : int {
    kThreadInGrid = -1, kThreadInGroup = -2, kGroupInGrid = -3, kThreadsPerGroup = -4, kThreadsPerGrid = -5,
    kGroupsPerGrid = -6, kFullThreadsPerGroup = -7, kIndexInGroup = -8, kLane = -9, kLaneGroup = -10, kLaneGroups = -11,
    kLanesPerGroup = -12, kGridOrigin = -13, kQuadLane = -14, kQuadGroup = -15, kQuadGroups = -16
};

inline u32 threads_of(const Where* where) {
    return where->threads_per_group.x * where->threads_per_group.y * where->threads_per_group.z;
}

template <class A, int source>
inline A argument(const Call* call, const Where* where) {
    if constexpr (source >= 0) {
        static_assert(bare<A>::pointer || bare<A>::reference, "a buffer is a pointer or a reference");
        if constexpr (bare<A>::pointer) return static_cast<A>(call->buffers[source]);
        else return *static_cast<typename bare<A>::type*>(call->buffers[source]);
    } else {
        const Index3 index = source == kThreadInGrid          ? where->thread_in_grid
                             : source == kThreadInGroup       ? where->thread_in_group
                             : source == kGroupInGrid         ? where->group_in_grid
                             : source == kThreadsPerGroup     ? where->threads_per_group
                             : source == kThreadsPerGrid      ? where->threads_per_grid
                             : source == kGroupsPerGrid       ? where->groups_per_grid
                             : source == kFullThreadsPerGroup ? where->full_threads_per_group
                             : source == kIndexInGroup        ? Index3{where->index_in_group, 0, 0}
                             : source == kLane                ? Index3{where->lane, 0, 0}
                             : source == kLaneGroup           ? Index3{where->lane_group, 0, 0}
                             : source == kLaneGroups          ? Index3{where->lane_groups, 0, 0}
                             : source == kLanesPerGroup       ? Index3{where->lanes, 0, 0}
                             : source == kQuadLane            ? Index3{where->lane % 4, 0, 0}
                             : source == kQuadGroup           ? Index3{where->index_in_group / 4, 0, 0}
                             : source == kQuadGroups          ? Index3{(threads_of(where) + 3) / 4, 0, 0}
                                                              : where->grid_origin;
        return from_index<A>::get(index);
    }
}

template <class F, F f>
struct Invoke;
template <class... A, void (*f)(A...)>
struct Invoke<void (*)(A...), f> {
    template <int... sources>
    static inline void run(const Call* call, const Where* where) {
        f(argument<A, sources>(call, where)...);
    }
};

}  // namespace kforge
