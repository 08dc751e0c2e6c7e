// The two formats of 16 bits.
#pragma once

namespace kforge {

#if defined(__aarch64__) && !defined(__clang__)
using half = __fp16;
#else
using half = _Float16;
#endif

// The upper half of a float; every operation is float's, rounded to nearest even.
struct bfloat {
    unsigned short bits;

    bfloat() = default;
    template <class T>
        requires requires(T t) { static_cast<float>(t); }
    constexpr bfloat(T value) : bits(round(static_cast<float>(value))) {}
    constexpr operator float() const { return __builtin_bit_cast(float, unsigned(bits) << 16); }
    template <class T>
    constexpr bfloat& operator+=(T other) { return *this = bfloat(float(*this) + float(other)); }
    template <class T>
    constexpr bfloat& operator-=(T other) { return *this = bfloat(float(*this) - float(other)); }
    template <class T>
    constexpr bfloat& operator*=(T other) { return *this = bfloat(float(*this) * float(other)); }
    template <class T>
    constexpr bfloat& operator/=(T other) { return *this = bfloat(float(*this) / float(other)); }

   private:
    static constexpr unsigned short round(float value) {
        unsigned whole = __builtin_bit_cast(unsigned, value);
        if ((whole & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>(whole >> 16 | 0x40u);
        return static_cast<unsigned short>((whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
    }
};

// With a float the result is a float; with a whole number it stays what it is.
template <class T>
struct with_bfloat {
    using type = bfloat;
};
template <>
struct with_bfloat<float> {
    using type = float;
};
template <>
struct with_bfloat<half> {
    using type = float;
};

#define KFORGE_BFLOAT(op)                                                                                        \
    constexpr bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); }                    \
    template <class T>                                                                                           \
        requires requires(T t) { +t; static_cast<float>(t); }                                                    \
    constexpr typename with_bfloat<T>::type operator op(bfloat a, T b) { return float(a) op float(b); }          \
    template <class T>                                                                                           \
        requires requires(T t) { +t; static_cast<float>(t); }                                                    \
    constexpr typename with_bfloat<T>::type operator op(T a, bfloat b) { return float(a) op float(b); }
KFORGE_BFLOAT(+)
KFORGE_BFLOAT(-)
KFORGE_BFLOAT(*)
KFORGE_BFLOAT(/)
#undef KFORGE_BFLOAT
constexpr bfloat operator-(bfloat a) { return bfloat(-float(a)); }

}  // namespace kforge
