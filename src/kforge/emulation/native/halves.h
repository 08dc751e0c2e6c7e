// The two formats of 16 bits.
#pragma once

namespace kforge {

// A float with which rounding to fewer digits gives what rounding the double itself does: cut off, and odd if that lost
// anything.
constexpr float odd_float(double value) {
    float near = static_cast<float>(value);
    double back = near;
    if (back == value || value != value) return near;
    unsigned bits = __builtin_bit_cast(unsigned, near);
    bool larger = value < 0 ? back < value : back > value;
    return __builtin_bit_cast(float, (larger ? bits - 1 : bits) | 1u);
}
constexpr float odd_float(float value) { return value; }
template <class T>
constexpr float odd_float(T value) { return static_cast<float>(value); }

// A format of 16 bits: every operation is float's, rounded to nearest even.
template <class Format>
struct rounded {
    unsigned short bits;

    rounded() = default;
    template <class T>
        requires requires(T t) { static_cast<float>(t); }
    constexpr rounded(T value) : bits(Format::round(odd_float(value))) {}
    constexpr operator float() const { return Format::whole(bits); }
    template <class T>
    constexpr rounded& operator+=(T other) { return *this = rounded(*this + other); }
    template <class T>
    constexpr rounded& operator-=(T other) { return *this = rounded(*this - other); }
    template <class T>
    constexpr rounded& operator*=(T other) { return *this = rounded(*this * other); }
    template <class T>
    constexpr rounded& operator/=(T other) { return *this = rounded(*this / other); }
    constexpr rounded& operator++() { return *this += 1; }
    constexpr rounded& operator--() { return *this -= 1; }
    constexpr rounded operator++(int) {
        rounded before = *this;
        ++*this;
        return before;
    }
    constexpr rounded operator--(int) {
        rounded before = *this;
        --*this;
        return before;
    }
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

// GCC has no `_Float16` in C++ for Arm before its version 13, and `__fp16` does not round between operations. A build may
// ask for the class elsewhere too.
#ifndef KFORGE_HALF_ROUNDED
#define KFORGE_HALF_ROUNDED (__aarch64__ && !__clang__ && __GNUC__ < 13)
#endif
#if KFORGE_HALF_ROUNDED
struct HalfPrecision {
#if __aarch64__
    using Stored = __fp16;
#else
    using Stored = _Float16;
#endif
    static constexpr float whole(unsigned short bits) { return float(__builtin_bit_cast(Stored, bits)); }
    static constexpr unsigned short round(float value) { return __builtin_bit_cast(unsigned short, Stored(value)); }
};
using half = rounded<HalfPrecision>;
#else
using half = _Float16;
#endif

template <class T>
constexpr bool is_rounded = false;
template <class Format>
constexpr bool is_rounded<rounded<Format>> = true;

// With another real number the result is a float, or a double; a whole number becomes what it meets.
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
    using type = double;
};
#if !KFORGE_HALF_ROUNDED
template <class Format>
struct with_rounded<Format, half> {
    using type = float;
};
#endif
template <class T>
concept Number = !is_rounded<T> && requires(T t) { +t; static_cast<float>(t); };

#define KFORGE_ROUNDED(op)                                                                                          \
    template <class F>                                                                                              \
    constexpr rounded<F> operator op(rounded<F> a, rounded<F> b) { return rounded<F>(float(a) op float(b)); }       \
    template <class F, class G>                                                                                     \
    constexpr float operator op(rounded<F> a, rounded<G> b) { return float(a) op float(b); }                        \
    template <class F, Number T>                                                                                    \
    constexpr typename with_rounded<F, T>::type operator op(rounded<F> a, T b) {                                    \
        using Both = typename with_rounded<F, T>::type;                                                             \
        return Both(a) op Both(b);                                                                                  \
    }                                                                                                               \
    template <class F, Number T>                                                                                    \
    constexpr typename with_rounded<F, T>::type operator op(T a, rounded<F> b) {                                    \
        using Both = typename with_rounded<F, T>::type;                                                             \
        return Both(a) op Both(b);                                                                                  \
    }
KFORGE_ROUNDED(+)
KFORGE_ROUNDED(-)
KFORGE_ROUNDED(*)
KFORGE_ROUNDED(/)
#undef KFORGE_ROUNDED
template <class F>
constexpr rounded<F> operator-(rounded<F> a) { return rounded<F>(-float(a)); }
template <class F>
constexpr rounded<F> operator+(rounded<F> a) { return a; }

// One side of `c ? a : b`, as the front end writes it again: it becomes another real number, and whole numbers become
// it, but not the other way round.
template <class F>
struct Choice {
    rounded<F> value;
    struct Made {};
    constexpr Choice(Made, rounded<F> its) : value(its) {}
    template <Number T>
        requires requires(T t) { t % t; }
    constexpr Choice(T whole) : value(whole) {}
    template <class T>
        requires requires(typename with_rounded<F, T>::type both, T* other) { other = &both; }
    constexpr operator T() const { return T(float(value)); }
};
struct Arm {};
struct Result {};
constexpr Arm arm;
constexpr Result result;
template <class F>
constexpr Choice<F> operator,(Arm, rounded<F> value) { return {typename Choice<F>::Made{}, value}; }
template <class F>
constexpr rounded<F> operator,(Result, Choice<F> choice) { return choice.value; }

}  // namespace kforge
