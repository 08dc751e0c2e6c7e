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

enum Fence : u32 { kFenceNone = 0, kFenceDevice = 1, kFenceGroup = 2 };

extern "C" {
const Where* kforge_where();
void kforge_together(Resolve resolve, void* value, u32 line, u32 column);
void kforge_barrier(u32 fences, u32 line, u32 column);
void kforge_lane_barrier(u32 fences, u32 line, u32 column);
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

template <class T>
inline T& group_memory(u32 id, u32 line) {
    return *static_cast<T*>(kforge_group_memory(id, sizeof(T), alignof(T), line));
}

// What a kernel is called with: its buffers by number.
struct Call {
    void* const* buffers;
};

using Entry = void (*)(const Call*, const Where*);

}  // namespace kforge
