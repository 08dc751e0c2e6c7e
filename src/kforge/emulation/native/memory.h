// The memory of emulated kernels: buffers between guard pages, a group's own memory, and who touched what since when.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime.h"

namespace kforge {

constexpr u32 kMostBuffers = 256;
constexpr u32 kMostStorages = 1024;

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

// An address that stands in memory: in a table of pointers, or in a struct.
struct StoredAddress {
    u32 storage, target;  // where it stands, and what it leads to
    u64 at, offset;       // in the one and in the other
};

struct Launch {
    Entry entry;
    const Storage* storages;
    const Binding* bindings;
    const StoredAddress* addresses;
    u32 storage_count, binding_count, address_count;
    u32 grid[3];   // in threads
    u32 group[3];  // in threads
    u32 workers;
    u32 checked;
    u32 group_memory_bytes;
    u32 exited_threads_count;  // whether a barrier counts threads that have returned as arrived
    u32 dynamic_group_bytes;   // of the group's memory, for a variable whose size the launch gives
    u32 least_alignment;       // from how many bytes on a misaligned address is a fault
};

struct Report {
    int32_t status;
    u32 line;
    u64 pc;
    u32 group[3];
    u32 thread[3];
    char message[1000];
};

// What an access does, as far as others must be in order with it.
enum Access : u32 {
    kRead,
    kWrite,
    kVolatileRead,  // of device memory: as an atomic one
    kAtomicRead,
    kAtomicStore,
    kAtomicWrite,
    kAtomicGuess,  // what others read plainly is a first guess: compare-and-exchange, and what only grows or shrinks
};

// What is known of one byte: who wrote it last and who read it, packed.
struct Touch {
    u64 wrote, read;
};

// Up to where a group's accesses are seen by whoever saw its atomic operation.
struct Released {
    u64 turn;    // of the first such operation, among those of all groups; 0: none yet
    u32 epoch;
    u32 thread;
    u32 all;     // of the threads in that epoch, and not this one only
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
    Placed placed[kMostStorages];
    void* bound[kMostBuffers] = {};
    // The program's own variables in device memory.
    Placed variables;
    Released* released = nullptr;  // by group
    u64 released_bytes = 0;
    u64 turns = 0;  // how often something was released

    bool bind(const Launch& launch, u64 groups, const char* variables_begin, const char* variables_end, Report* report);
    void give_back(bool written);
    // Addresses of the copies, as the caller knows them: those that were put there, and those that the kernel wrote.
    void tell_addresses();
    // Words for an address that is in none of the buffers.
    void describe(const void* at, char* text, size_t size) const;
    // Which end of a storage an address lies beside; null where it lies beside none.
    const char* end_beside(const char* at) const;
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
    u32 limit = 0;    // of the variables whose size the program gives
    u32 dynamic = 0;  // of the one whose size the launch gives
    u32 used = 0;     // by variables
    u32 reached = 0;  // with gaps
    struct Variable {
        u32 id, begin, bytes;
    } variables[kMostVariables];
    u32 count = 0;

    void prepare(u32 bytes, u32 dynamic, bool checked);
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
    u32 recent = 0;  // the storage of the last access
    u64 number = 0;
    u32 current = 0;
    u32 group_epoch = 0, device_epoch = 0;
    u32 lane_group_epoch[kMostThreads] = {}, lane_device_epoch[kMostThreads] = {};
    // Of each thread: the device epoch of its last fence, and which releases of other groups it has seen.
    u32 fenced[kMostThreads] = {};
    u64 seen[kMostThreads] = {};
    u64 seen_by_all = 0, seen_by_one = 0;
    // The same within the group: whether it made a fence of its own, and when it released what came before.
    bool fenced_here[kMostThreads] = {};
    u64 released_here[kMostThreads] = {};
    bool any_here = false;
    // A write to what another thread wrote: harmless if it is the same value, and known only after it.
    struct {
        char* place = nullptr;
        u32 bytes = 0;
        u64 other = 0;  // its mark
        bool in_group_memory = false;
        const void* pc = nullptr;
        char before[64];
    } pending;

    void prepare(GroupMemory* group, Memory* memory);
    void begin(u64 number, u32 count);
    void enter(u32 index);
    void group_fence(u32 fences);
    void lanes_meet(u32 first, u32 active, u32 fences);
    void own_fence(bool for_other_groups);
    // Before an atomic operation that others may see, and after one that may have seen others'.
    void release();
    void acquire();
    void settle();
    void access(void* place, u32 bytes, Access how, const void* pc);

   private:
    u64 mark(bool group_memory) const;
    bool clash(u64 before, u64 mine) const;
    u64 known() const { return seen[current] > seen_by_all ? seen[current] : seen_by_all; }
    bool seen_from(u64 before) const;
    bool seen_here(u64 before) const;
    u64 merged(u64 before, u64 mine) const;
    void record(Touch& touch, char* place, u32 bytes, Access how, bool group_memory, const void* pc);
    void record_all(Touch* touches, u64 offset, char* place, u32 bytes, Access how, bool group_memory, const void* pc);
    void age(bool group_memory, u32 lanes_from);
    [[noreturn]] void race(u64 before, Access how, bool wrote, bool group_memory, const void* pc) const;
};

}  // namespace kforge

extern "C" {
kforge::Threads* kforge_threads();
kforge::u32 kforge_least_alignment();
bool kforge_is_private(const void* place);
// Whether an address is the program's own text and constants, or the runtime's.
bool kforge_is_known(const void* place);
[[noreturn]] void kforge_fail_at(const char* message, const void* pc);
}
