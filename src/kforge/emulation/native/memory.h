// The memory of emulated kernels: buffers between guard pages, a group's own memory, and who touched what since when.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime.h"

namespace kforge {

constexpr u32 kMostBuffers = 64;

// A stretch of the caller's memory; several buffers may lie in one.
struct Storage {
    void* host;
    u64 bytes;
};

struct Binding {
    int32_t storage;  // -1: nothing is bound to this number
    u32 unused;
    u64 offset;
    u64 bytes;  // from the offset to the end
};

struct Launch {
    Entry entry;
    const Storage* storages;
    const Binding* bindings;
    u32 storage_count, binding_count;
    u32 grid[3];   // in threads
    u32 group[3];  // in threads
    u32 workers;
    u32 checked;
    u32 group_memory_bytes;
    u32 exited_threads_count;  // whether a barrier counts threads that have returned as arrived
    u32 dynamic_group_bytes;   // of the group's memory, for a variable whose size the launch gives
};

struct Report {
    int32_t status;
    u32 line;
    u64 pc;
    u32 group[3];
    u32 thread[3];
    char message[1000];
};

// What is known of one byte: who wrote it last and who read it, packed.
struct Touch {
    u64 wrote, read;
};

struct Placed {
    char* begin = nullptr;
    char* end = nullptr;
    char* map = nullptr;
    u64 map_bytes = 0;
    Touch* touches = nullptr;
    u64 touch_bytes = 0;
};

// The buffers of one launch, copied to where an access past the end is noticed.
struct Memory {
    const Launch* launch = nullptr;
    Placed placed[kMostBuffers];
    void* bound[kMostBuffers] = {};

    bool bind(const Launch& launch, Report* report);
    void give_back(bool written);
    // Words for an address that is in none of the buffers.
    void describe(const void* at, char* text, size_t size) const;
    ~Memory();
};

// What the threads of a group share; each variable apart from the next.
struct GroupMemory {
    static constexpr u32 kMostVariables = 256;
    static constexpr u32 kGap = 64;

    char* base = nullptr;
    u8* written = nullptr;
    Touch* touches = nullptr;
    u64 capacity = 0;
    u32 limit = 0;
    u32 used = 0;     // by variables
    u32 reached = 0;  // with gaps
    struct Variable {
        u32 id, begin, bytes;
    } variables[kMostVariables];
    u32 count = 0;

    void prepare(u32 bytes, bool checked);
    void begin();
    void* get(u32 id, u64 bytes, u64 align, char* text, size_t size);
    bool holds(const void* at) const { return at >= base && at < base + capacity; }
    const Variable* find(u64 offset, u64 bytes) const;
    void drop_checks();
    void release();
};

// The checks of every access in a checked build.
struct Threads {
    GroupMemory* group = nullptr;
    Memory* memory = nullptr;
    u64 number = 0;
    u32 current = 0;
    u32 group_epoch = 0, device_epoch = 0;
    u32 lane_group_epoch[kMostThreads] = {}, lane_device_epoch[kMostThreads] = {};
    // A write to what another thread wrote: harmless if it is the same value, and known only after it.
    struct {
        char* place = nullptr;
        u32 bytes = 0;
        u32 other = 0;
        bool other_group = false, in_group_memory = false;
        const void* pc = nullptr;
        char before[64];
    } pending;

    void prepare(GroupMemory* group, Memory* memory);
    void begin(u64 number, u32 count);
    void enter(u32 index);
    void group_fence(u32 fences);
    void lane_fence(u32 index, u32 fences);
    void settle();
    void access(void* place, u32 bytes, bool write, bool atomic, const void* pc);

   private:
    u64 mark(bool group_memory) const;
    bool clash(u64 before, u64 mine) const;
    void record(Touch& touch, char* place, u32 bytes, bool write, bool group_memory, const void* pc);
    [[noreturn]] void race(u64 before, bool writes, bool wrote, bool group_memory, const void* pc) const;
};

}  // namespace kforge

extern "C" {
kforge::Threads* kforge_threads();
bool kforge_is_private(const void* place);
// Whether an address is the program's own text and constants, or the runtime's.
bool kforge_is_known(const void* place);
[[noreturn]] void kforge_fail_at(const char* message, const void* pc);
}
