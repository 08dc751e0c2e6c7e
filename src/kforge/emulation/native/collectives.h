// What the lanes of a lane group do together, in no language's names. Lanes that are elsewhere take no part.
#pragma once

#include "vectors.h"

namespace kforge {

// Each lane's value becomes f of all of them, in lane order.
template <class T, class F>
struct Folded {
    static void all(Part* parts, u32 count, u32) {
        T total = *static_cast<T*>(parts[0].value);
        for (u32 i = 1; i < count; ++i) total = F{}(total, *static_cast<T*>(parts[i].value));
        for (u32 i = 0; i < count; ++i) *static_cast<T*>(parts[i].value) = total;
    }
    static void inclusive(Part* parts, u32 count, u32) {
        for (u32 i = 1; i < count; ++i) {
            T& mine = *static_cast<T*>(parts[i].value);
            mine = F{}(*static_cast<T*>(parts[i - 1].value), mine);
        }
    }
};

template <class T, class F>
inline T folded(T value, const Location& at) {
    together(&Folded<T, F>::all, value, at);
    return value;
}

template <class T, class F>
inline T folded_up_to(T value, const Location& at) {
    together(&Folded<T, F>::inclusive, value, at);
    return value;
}

// Exclusive: what the lanes before hold, from a neutral value on.
template <class T, class F>
inline T folded_before(T value, T neutral, const Location& at) {
    struct Pair {
        T value, neutral;
    } pair{value, neutral};
    together(
        +[](Part* parts, u32 count, u32) {
            T total = static_cast<Pair*>(parts[0].value)->neutral;
            for (u32 i = 0; i < count; ++i) {
                Pair& mine = *static_cast<Pair*>(parts[i].value);
                T own = mine.value;
                mine.value = total;
                total = F{}(total, own);
            }
        },
        pair, at);
    return pair.value;
}

// Another lane's value. From one that takes no part there is none: what a GPU gives then is anything, and here all ones,
// for a real number no number at all.
template <class T>
inline T nothing() {
    T value;
    __builtin_memset(static_cast<void*>(&value), 0xFF, sizeof value);
    return value;
}
template <>
inline bool nothing<bool>() { return true; }

enum Missing { kFails, kIsAnything };

template <class T>
struct Fetched {
    T value;
    u32 from;
    u32 found;
};

template <class T>
inline T fetched(T value, u32 from, Missing missing, const Location& at) {
    Fetched<T> mine{value, from, 0};
    together(
        +[](Part* parts, u32 count, u32 active) {
            T values[kLanes];
            for (u32 i = 0; i < count; ++i) values[parts[i].lane] = static_cast<Fetched<T>*>(parts[i].value)->value;
            for (u32 i = 0; i < count; ++i) {
                Fetched<T>& mine = *static_cast<Fetched<T>*>(parts[i].value);
                mine.found = mine.from < kLanes && (active >> mine.from & 1);
                if (mine.found) mine.value = values[mine.from];
            }
        },
        mine, at);
    if (mine.found) return mine.value;
    if (missing == kFails) {
        kforge_fail("it takes a value from a lane that does not take part: that lane has returned, is in another branch, "
                    "or does not exist",
                    at.line());
    }
    return nothing<T>();
}

inline u32 votes(bool mine, const Location& at) {
    u32 value = mine;
    together(
        +[](Part* parts, u32 count, u32) {
            u32 mask = 0;
            for (u32 i = 0; i < count; ++i) mask |= u32(*static_cast<u32*>(parts[i].value) != 0) << parts[i].lane;
            for (u32 i = 0; i < count; ++i) *static_cast<u32*>(parts[i].value) = mask;
        },
        value, at);
    return value;
}

inline u32 taking_part(const Location& at) { return votes(true, at); }

struct Plus {
    template <class T>
    T operator()(T a, T b) const { return T(a + b); }
};
struct Times {
    template <class T>
    T operator()(T a, T b) const { return T(a * b); }
};
struct Least {
    template <class T>
    T operator()(T a, T b) const { return b < a ? b : a; }
    template <class T, int N>
    vec<T, N> operator()(vec<T, N> a, vec<T, N> b) const { return each(*this, a, b); }
};
struct Most {
    template <class T>
    T operator()(T a, T b) const { return a < b ? b : a; }
    template <class T, int N>
    vec<T, N> operator()(vec<T, N> a, vec<T, N> b) const { return each(*this, a, b); }
};
struct BitAnd {
    template <class T>
    T operator()(T a, T b) const { return T(a & b); }
};
struct BitOr {
    template <class T>
    T operator()(T a, T b) const { return T(a | b); }
};
struct BitXor {
    template <class T>
    T operator()(T a, T b) const { return T(a ^ b); }
};

// -- atomic operations on 4 or 8 bytes ----------------------------------------------------------------------------------

template <class T>
struct same_size {
    using type = u32;
};
template <class T>
    requires(sizeof(T) == 8)
struct same_size<T> {
    using type = u64;
};

template <class T>
constexpr u32 kAddOf = Real<T> ? kAddFloat : kAdd;
template <class T>
constexpr u32 kMinOf = Real<T> ? kMinFloat : T(-1) < T(0) ? kMinSigned : kMinUnsigned;
template <class T>
constexpr u32 kMaxOf = Real<T> ? kMaxFloat : T(-1) < T(0) ? kMaxSigned : kMaxUnsigned;

template <class T>
[[gnu::always_inline]] inline T atomically(u32 operation, const volatile void* where, T operand, T expected = T()) {
    using U = typename same_size<T>::type;
    void* place = const_cast<void*>(where);
    U given = __builtin_bit_cast(U, operand), wanted = __builtin_bit_cast(U, expected), old;
    if constexpr (sizeof(T) == 8) old = kforge_atomic_u64(operation, place, given, wanted, nullptr);
    else old = kforge_atomic_u32(operation, place, given, wanted, nullptr);
    return __builtin_bit_cast(T, old);
}

// -- calling a kernel with what its parameters are ----------------------------------------------------------------------

template <class T>
struct bare {
    using type = T;
    static constexpr bool pointer = false, reference = false;
};
template <class T>
struct bare<T*> {
    using type = T;
    static constexpr bool pointer = true, reference = false;
};
template <class T>
struct bare<T&> {
    using type = T;
    static constexpr bool pointer = false, reference = true;
};

template <class T>
struct from_index {
    static T get(const Index3& index) { return T(index.x); }
};
template <class T, int N>
struct from_index<vec<T, N>> {
    static vec<T, N> get(const Index3& index) {
        vec<T, N> value;
        const u32 all[3] = {index.x, index.y, index.z};
        for (int i = 0; i < N && i < 3; ++i) value.at[i] = T(all[i]);
        return value;
    }
};

}  // namespace kforge
