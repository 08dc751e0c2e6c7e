// The two formats of 16 bits.
#pragma once

namespace kforge {

// A format of 16 bits: every operation is float's, rounded to nearest even.
template <class Format>
struct rounded {
    unsigned short bits;

    rounded() = default;
    template <class T>
        requires requires(T t) { static_cast<float>(t); }
    constexpr rounded(T value) : bits(Format::round(static_cast<float>(value))) {}
    constexpr operator float() const { return Format::whole(bits); }
    template <class T>
    constexpr rounded& operator+=(T other) { return *this = rounded(float(*this) + float(other)); }
    template <class T>
    constexpr rounded& operator-=(T other) { return *this = rounded(float(*this) - float(other)); }
    template <class T>
    constexpr rounded& operator*=(T other) { return *this = rounded(float(*this) * float(other)); }
    template <class T>
    constexpr rounded& operator/=(T other) { return *this = rounded(float(*this) / float(other)); }
    constexpr rounded& operator++() { return *this += 1; }
    constexpr rounded& operator--() { return *this -= 1; }
};

// The upper half of a float.
struct UpperHalf {
    static constexpr float whole(unsigned short bits) { return __builtin_bit_cast(float, unsigned(bits) << 16); }
    static constexpr unsigned short round(float value) {
        unsigned bits = __builtin_bit_cast(unsigned, value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>(bits >> 16 | 0x40u);
        return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};
using bfloat = rounded<UpperHalf>;

// GCC has no `_Float16` in C++ for this processor before its version 13, and `__fp16` does not round between operations.
#define KFORGE_HALF_ROUNDED (__aarch64__ && !__clang__ && __GNUC__ < 13)
#if KFORGE_HALF_ROUNDED
struct HalfPrecision {
    static constexpr float whole(unsigned short bits) { return float(__builtin_bit_cast(__fp16, bits)); }
    static constexpr unsigned short round(float value) { return __builtin_bit_cast(unsigned short, __fp16(value)); }
};
using half = rounded<HalfPrecision>;
#else
using half = _Float16;
#endif

// With another real number the result is a float; with a whole number it stays what it is.
template <class Format, class T>
struct with_rounded {
    using type = rounded<Format>;
};
template <class Format>
struct with_rounded<Format, float> {
    using type = float;
};
template <class Format>
struct with_rounded<Format, double> {
    using type = float;
};
template <class Format, class Other>
struct with_rounded<Format, rounded<Other>> {
    using type = float;
};
#if !KFORGE_HALF_ROUNDED
template <class Format>
struct with_rounded<Format, half> {
    using type = float;
};
#endif

template <class T>
constexpr bool is_rounded = false;
template <class Format>
constexpr bool is_rounded<rounded<Format>> = true;

#define KFORGE_ROUNDED(op)                                                                                          \
    template <class F>                                                                                              \
    constexpr rounded<F> operator op(rounded<F> a, rounded<F> b) { return rounded<F>(float(a) op float(b)); }       \
    template <class F, class G>                                                                                     \
    constexpr float operator op(rounded<F> a, rounded<G> b) { return float(a) op float(b); }                        \
    template <class F, class T>                                                                                     \
        requires(!is_rounded<T> && requires(T t) { +t; static_cast<float>(t); })                                    \
    constexpr typename with_rounded<F, T>::type operator op(rounded<F> a, T b) { return float(a) op float(b); }     \
    template <class F, class T>                                                                                     \
        requires(!is_rounded<T> && requires(T t) { +t; static_cast<float>(t); })                                    \
    constexpr typename with_rounded<F, T>::type operator op(T a, rounded<F> b) { return float(a) op float(b); }
KFORGE_ROUNDED(+)
KFORGE_ROUNDED(-)
KFORGE_ROUNDED(*)
KFORGE_ROUNDED(/)
#undef KFORGE_ROUNDED
template <class F>
constexpr rounded<F> operator-(rounded<F> a) { return rounded<F>(-float(a)); }

}  // namespace kforge
