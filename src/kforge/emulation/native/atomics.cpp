// Atomic operations of checked builds, out of the compiler's sight: in order with each other, and with what else happens
// only as far as barriers and fences say so.

#include <stdio.h>

#include "memory.h"

using namespace kforge;

extern "C" void kforge_check_atomic(void* place, u32 bytes, u32 operation, const void* pc);
extern "C" void kforge_after_atomic(u32 operation);

namespace {

template <class To, class From>
To bits(From value) {
    return __builtin_bit_cast(To, value);
}

template <class U, class S, class F>
U changed(u32 operation, U old, U operand) {
    switch (operation) {
        case kLoad: return old;
        case kStore:
        case kExchange: return operand;
        case kAdd: return old + operand;
        case kSub: return old - operand;
        case kAnd: return old & operand;
        case kOr: return old | operand;
        case kXor: return old ^ operand;
        case kMinSigned: return S(operand) < S(old) ? operand : old;
        case kMaxSigned: return S(operand) > S(old) ? operand : old;
        case kMinUnsigned: return operand < old ? operand : old;
        case kMaxUnsigned: return operand > old ? operand : old;
        case kAddFloat: return bits<U>(F(bits<F>(old) + bits<F>(operand)));
        case kMinFloat: return bits<F>(operand) < bits<F>(old) ? operand : old;
        case kMaxFloat: return bits<F>(operand) > bits<F>(old) ? operand : old;
        case kIncrement: return old >= operand ? 0 : old + 1;
        case kDecrement: return old == 0 || old > operand ? operand : old - 1;
        default: return old;
    }
}

// Processors differ here too, and devices refuse it.
void aligned(const void* place, u32 bytes, const void* pc) {
    u64 past = reinterpret_cast<u64>(place) % bytes;
    if (past == 0) return;
    char text[120];
    snprintf(text, sizeof text, "misaligned address: an atomic operation on %u bytes, %u past a multiple of %u", bytes, u32(past), bytes);
    kforge_fail_at(text, pc);
}

template <class U, class S, class F>
U apply(u32 operation, void* where, U operand, U expected, U* seen) {
    U* place = static_cast<U*>(where);
    U old = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    for (;;) {
        if (operation == kCompareExchange && old != expected) break;
        U next = operation == kCompareExchange ? operand : changed<U, S, F>(operation, old, operand);
        if (__atomic_compare_exchange_n(place, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
    }
    if (seen != nullptr) *seen = old;
    return old;
}

}  // namespace

extern "C" {

u32 kforge_atomic_u32(u32 operation, void* place, u32 operand, u32 expected, u32* seen) {
    aligned(place, 4, __builtin_return_address(0));
    kforge_check_atomic(place, 4, operation, __builtin_return_address(0));
    u32 old = apply<u32, int, float>(operation, place, operand, expected, seen);
    kforge_after_atomic(operation);
    return old;
}

u64 kforge_atomic_u64(u32 operation, void* place, u64 operand, u64 expected, u64* seen) {
    aligned(place, 8, __builtin_return_address(0));
    kforge_check_atomic(place, 8, operation, __builtin_return_address(0));
    u64 old = apply<u64, long long, double>(operation, place, operand, expected, seen);
    kforge_after_atomic(operation);
    return old;
}
}
