// Small vectors with the arithmetic of both languages. Swizzles are members `sw` and `swref`: the front end writes them.
#pragma once

#include "halves.h"
#include "runtime.h"

extern "C" [[noreturn]] void kforge_no_component(int number);

// What becomes of a real number that is no number; a language may have another rule.
#ifndef KFORGE_NO_NUMBER
#define KFORGE_NO_NUMBER(To, From) To(0)
#endif

namespace kforge {

template <class T>
struct scalar_kind {
    static constexpr int value = 0;
};
#define KFORGE_KIND(type, kind)                \
    template <>                                \
    struct scalar_kind<type> {                 \
        static constexpr int value = kind;     \
    };
KFORGE_KIND(bool, 1)
KFORGE_KIND(char, 2)
KFORGE_KIND(signed char, 2)
KFORGE_KIND(unsigned char, 2)
KFORGE_KIND(short, 2)
KFORGE_KIND(unsigned short, 2)
KFORGE_KIND(int, 2)
KFORGE_KIND(unsigned int, 2)
KFORGE_KIND(long, 2)
KFORGE_KIND(unsigned long, 2)
KFORGE_KIND(long long, 2)
KFORGE_KIND(unsigned long long, 2)
KFORGE_KIND(float, 3)
KFORGE_KIND(double, 3)
KFORGE_KIND(half, 3)
KFORGE_KIND(bfloat, 3)

template <class T>
concept Scalar = scalar_kind<T>::value > 0;
template <class T>
concept Integer = scalar_kind<T>::value == 2;
template <class T>
concept Real = scalar_kind<T>::value == 3;

// A real number made whole: cut off, the nearest there is where it is too large, and 0 for what is no number. Shorter
// than 32 bits, what is left of those. C++ itself leaves all this to the processor.
template <class To, class From>
[[gnu::always_inline]] constexpr To whole(From value) {
    if constexpr (!Real<From> || !Integer<To>) {
        return (To)value;
    } else if constexpr (sizeof(To) < 4) {
        if constexpr (To(-1) < To(0)) return To(whole<int>(value));
        else return To(whole<unsigned>(value));
    } else {
        constexpr bool is_signed = To(-1) < To(0);
        constexpr To most = is_signed ? To(~(1ull << (8 * sizeof(To) - 1))) : To(~0ull);
        constexpr float beyond = 2.0f * float(1ull << (8 * sizeof(To) - 1 - is_signed));
        using Wide = decltype(1.0f + value);
        Wide real = value;
        if (real != real) return KFORGE_NO_NUMBER(To, From);
        if (real >= beyond) return most;
        if (is_signed ? real < -beyond : real <= -1.0f) return To(~most);
        return static_cast<To>(real);
    }
}
// What a variable begins with: as it would be, but for a real number.
template <class To, Real From>
[[gnu::always_inline]] constexpr To initial(From value) { return whole<To>(value); }
template <class T>
struct just {
    using type = T;
};
template <class To>
[[gnu::always_inline]] constexpr To initial(typename just<To>::type value) { return value; }
// For each component.
template <class To, class From>
[[gnu::always_inline]] constexpr To converted(const From& value) {
    if constexpr (Integer<To> && Real<From>) return whole<To>(value);
    else return To(value);
}

template <class T, int N>
struct vec;

template <class T>
struct width_of {
    static constexpr int value = 1;
};
template <class T, int N>
struct width_of<vec<T, N>> {
    static constexpr int value = N;
};

// A component's number; a checked build stops at one that there is not.
[[gnu::always_inline]] constexpr int component(int number, int count) {
#if KFORGE_CHECKED
    if (unsigned(number) >= unsigned(count)) kforge_no_component(number);
#endif
    return number;
}

template <class T, int... I>
struct SwizzleRef {
    T* at;
    static constexpr int kPlaces[] = {I...};
    using Value = vec<T, int(sizeof...(I))>;
    operator Value() const { return Value(at[I]...); }
    Value operator=(const Value& value) {
        for (int i = 0; i < int(sizeof...(I)); ++i) at[kPlaces[i]] = value.at[i];
        return value;
    }
#define KFORGE_CHANGE(op) \
    template <class B>    \
    Value operator op##=(const B& b) { return *this = Value(*this) op b; }
    KFORGE_CHANGE(+)
    KFORGE_CHANGE(-)
    KFORGE_CHANGE(*)
    KFORGE_CHANGE(/)
    KFORGE_CHANGE(%)
    KFORGE_CHANGE(&)
    KFORGE_CHANGE(|)
    KFORGE_CHANGE(^)
    KFORGE_CHANGE(<<)
    KFORGE_CHANGE(>>)
#undef KFORGE_CHANGE
};

#define KFORGE_VECTOR(N, align, ...)                                                                    \
    template <class T>                                                                                  \
    struct alignas(sizeof(T) * align) vec<T, N> {                                                       \
        union {                                                                                         \
            __VA_ARGS__                                                                                 \
            T at[N];                                                                                    \
        };                                                                                              \
        vec() = default;                                                                                \
        template <Scalar S>                                                                             \
        constexpr vec(S s) : at{} {                                                                     \
            for (int i = 0; i < N; ++i) at[i] = converted<T>(s);                                        \
        }                                                                                               \
        template <class U>                                                                              \
        explicit constexpr vec(const vec<U, N>& other) : at{} {                                         \
            for (int i = 0; i < N; ++i) at[i] = converted<T>(other.at[i]);                              \
        }                                                                                               \
        template <class A, class B, class... Rest>                                                      \
            requires(width_of<A>::value + width_of<B>::value + (0 + ... + width_of<Rest>::value) == N)  \
        constexpr vec(const A& a, const B& b, const Rest&... rest) : at{} {                             \
            int next = 0;                                                                               \
            put(next, a), put(next, b);                                                                 \
            (put(next, rest), ...);                                                                     \
        }                                                                                               \
        template <Scalar S>                                                                             \
        constexpr void put(int& next, const S& s) { at[next++] = converted<T>(s); }                     \
        template <class U, int M>                                                                       \
        constexpr void put(int& next, const vec<U, M>& v) {                                             \
            for (int i = 0; i < M; ++i) at[next++] = converted<T>(v.at[i]);                             \
        }                                                                                               \
        [[gnu::always_inline]] constexpr T& operator[](int i) { return at[component(i, N)]; }           \
        [[gnu::always_inline]] constexpr const T& operator[](int i) const { return at[component(i, N)]; } \
        template <int... I>                                                                             \
        constexpr vec<T, int(sizeof...(I))> sw() const { return vec<T, int(sizeof...(I))>(at[I]...); }  \
        template <int... I>                                                                             \
        SwizzleRef<T, I...> swref() { return {at}; }                                                    \
    };

KFORGE_VECTOR(2, 2, struct { T x, y; }; struct { T r, g; };)
KFORGE_VECTOR(3, 4, struct { T x, y, z; }; struct { T r, g, b; };)
KFORGE_VECTOR(4, 4, struct { T x, y, z, w; }; struct { T r, g, b, a; };)
#undef KFORGE_VECTOR

#define KFORGE_BINARY(op)                                                                                         \
    template <class T, int N>                                                                                     \
    constexpr vec<T, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {                                     \
        vec<T, N> c;                                                                                              \
        for (int i = 0; i < N; ++i) c.at[i] = T(a.at[i] op b.at[i]);                                              \
        return c;                                                                                                 \
    }                                                                                                             \
    template <class T, int N, Scalar S>                                                                           \
    constexpr vec<T, N> operator op(const vec<T, N>& a, S b) { return a op vec<T, N>(T(b)); }                     \
    template <class T, int N, Scalar S>                                                                           \
    constexpr vec<T, N> operator op(S a, const vec<T, N>& b) { return vec<T, N>(T(a)) op b; }                     \
    template <class T, int N, class B>                                                                            \
    constexpr vec<T, N>& operator op##=(vec<T, N>& a, const B& b) { return a = a op b; }
KFORGE_BINARY(+)
KFORGE_BINARY(-)
KFORGE_BINARY(*)
KFORGE_BINARY(/)
KFORGE_BINARY(%)
KFORGE_BINARY(&)
KFORGE_BINARY(|)
KFORGE_BINARY(^)
KFORGE_BINARY(<<)
KFORGE_BINARY(>>)
#undef KFORGE_BINARY

#define KFORGE_COMPARE(op)                                                                          \
    template <class T, int N>                                                                       \
    constexpr vec<bool, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {                    \
        vec<bool, N> c;                                                                             \
        for (int i = 0; i < N; ++i) c.at[i] = a.at[i] op b.at[i];                                   \
        return c;                                                                                   \
    }                                                                                               \
    template <class T, int N, Scalar S>                                                             \
    constexpr vec<bool, N> operator op(const vec<T, N>& a, S b) { return a op vec<T, N>(T(b)); }    \
    template <class T, int N, Scalar S>                                                             \
    constexpr vec<bool, N> operator op(S a, const vec<T, N>& b) { return vec<T, N>(T(a)) op b; }
KFORGE_COMPARE(<)
KFORGE_COMPARE(>)
KFORGE_COMPARE(<=)
KFORGE_COMPARE(>=)
KFORGE_COMPARE(==)
KFORGE_COMPARE(!=)
KFORGE_COMPARE(&&)
KFORGE_COMPARE(||)
#undef KFORGE_COMPARE

template <class T, int N>
constexpr vec<T, N> operator-(const vec<T, N>& a) {
    vec<T, N> c;
    for (int i = 0; i < N; ++i) c.at[i] = -a.at[i];
    return c;
}
template <class T, int N>
constexpr vec<T, N> operator+(const vec<T, N>& a) { return a; }
template <class T, int N>
constexpr vec<T, N> operator~(const vec<T, N>& a) {
    vec<T, N> c;
    for (int i = 0; i < N; ++i) c.at[i] = T(~a.at[i]);
    return c;
}
template <class T, int N>
constexpr vec<bool, N> operator!(const vec<T, N>& a) {
    vec<bool, N> c;
    for (int i = 0; i < N; ++i) c.at[i] = !a.at[i];
    return c;
}
template <class T, int N>
constexpr vec<T, N>& operator++(vec<T, N>& a) { return a = a + T(1); }
template <class T, int N>
constexpr vec<T, N>& operator--(vec<T, N>& a) { return a = a - T(1); }
template <class T, int N>
constexpr vec<T, N> operator++(vec<T, N>& a, int) {
    vec<T, N> before = a;
    a = a + T(1);
    return before;
}

// A function of scalars, for each component.
template <class F, class T, int N, class... More>
constexpr auto each(F f, const vec<T, N>& a, const More&... more) {
    vec<decltype(f(a.at[0], more.at[0]...)), N> c;
    for (int i = 0; i < N; ++i) c.at[i] = f(a.at[i], more.at[i]...);
    return c;
}

}  // namespace kforge
