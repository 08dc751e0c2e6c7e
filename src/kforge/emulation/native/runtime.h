// What emulated kernels ask of the runtime. It knows threads, groups of lanes, groups of threads and memory; it does not
// know any language's names for them.
#pragma once

#include <source_location>

namespace kforge {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;
using Location = std::source_location;

constexpr u32 kLanes = 32;
constexpr u32 kMostThreads = 1024;

struct Index3 {
    u32 x, y, z;
};

// Where a thread is, and in what it runs.
struct Where {
    Index3 thread_in_grid;
    Index3 thread_in_group;
    Index3 group_in_grid;
    Index3 threads_per_grid;
    Index3 threads_per_group;       // of this group: one at an edge may be smaller
    Index3 full_threads_per_group;  // as it was asked for
    Index3 groups_per_grid;
    Index3 grid_origin;
    u32 index_in_group;
    u32 lane;
    u32 lane_group;
    u32 lanes;
    u32 lane_groups;
};

// One thread's part in something that its lane group does together.
struct Part {
    u32 lane;
    void* value;  // what it brings, and what it takes away
};

// Called once for all the lanes that wait at one place: `parts[i].value` is read and written.
using Resolve = void (*)(Part* parts, u32 count, u32 active);

// What a barrier orders: memory among those that wait, and device memory towards whoever sees a later atomic operation.
enum Fence : u32 { kFenceNone = 0, kFenceDevice = 1, kFenceGroup = 2, kFenceGrid = 4 };

extern "C" {
const Where* kforge_where();
void kforge_together(Resolve resolve, void* value, u32 line, u32 column);
void kforge_barrier(u32 fences, u32 line, u32 column);
void kforge_lane_barrier(u32 fences, u32 line, u32 column);
// What this thread did so far is seen before its next atomic operation is: by its group, or by others too.
void kforge_fence(bool for_other_groups);
void* kforge_group_memory(u32 id, u64 bytes, u64 align, u32 line);
void* kforge_dynamic_group_memory(u32 line);
[[noreturn]] void kforge_fail(const char* message, u32 line);
// For checked builds, where the compiler must not see the access itself.
u32 kforge_atomic_u32(u32 operation, void* place, u32 operand, u32 expected, u32* seen);
u64 kforge_atomic_u64(u32 operation, void* place, u64 operand, u64 expected, u64* seen);
}

enum Atomic : u32 {
    kLoad, kStore, kExchange, kCompareExchange, kAdd, kSub, kAnd, kOr, kXor, kMinSigned, kMaxSigned, kMinUnsigned,
    kMaxUnsigned, kAddFloat, kMinFloat, kMaxFloat, kIncrement, kDecrement
};

template <class T>
inline void together(Resolve resolve, T& value, const Location& at) {
    kforge_together(resolve, &value, at.line(), at.column());
}

// The bytes of each shared variable of this library, by its number; 0: none of that number is ever asked for.
constexpr u32 kMostShared = 512;
[[gnu::visibility("hidden")]] inline u64 shared_bytes[kMostShared];

[[gnu::visibility("hidden")]] inline bool note_shared(u32 id, u64 bytes) {
    u64& known = shared_bytes[id % kMostShared];
    // Instances of a template may differ: what each of them needs at least.
    if (known == 0 || bytes < known) known = bytes;
    return true;
}

template <class T, u32 id>
struct [[gnu::visibility("hidden")]] SharedVariable {
    static inline const bool noted = note_shared(id, sizeof(T));
};

template <class T, u32 id>
inline T& group_memory(u32 line, u64 align = alignof(T)) {
    (void)&SharedVariable<T, id>::noted;
    return *static_cast<T*>(kforge_group_memory(id, sizeof(T), align > alignof(T) ? align : alignof(T), line));
}

// The line of the variable with which those of a kernel are more than the limit, and their bytes then; 0: they fit.
struct Declared {
    u32 id, line;
};
[[gnu::visibility("hidden")]] inline u32 excess(const Declared* variables, u32 count, u64 limit, u64* bytes) {
    *bytes = 0;
    for (u32 i = 0; i < count; ++i) {
        *bytes += shared_bytes[variables[i].id % kMostShared];
        if (*bytes > limit) return variables[i].line;
    }
    return 0;
}

// What a kernel is called with: its buffers by number.
struct Call {
    void* const* buffers;
};

using Entry = void (*)(const Call*, const Where*);

}  // namespace kforge
