// What a checked build asks before every access. The compiler's own instrumentation for threads and bounds calls these;
// its run-time libraries are not used.

#include <stdio.h>
#include <string.h>

#include "memory.h"

using namespace kforge;

namespace {

// A mark: | group + 1: 24 | thread: 10 | epoch: 14 | lane epoch: 13 | several lane groups: 1 | several threads: 1 |
// several groups: 1 |
constexpr u64 kSeveralGroups = 1, kSeveral = 2, kSeveralLaneGroups = 4;
constexpr u64 group_of(u64 mark) { return mark >> 40; }
constexpr u32 thread_of(u64 mark) { return u32(mark >> 30) & 1023; }
constexpr u32 epoch_of(u64 mark) { return u32(mark >> 16) & 16383; }
constexpr u32 lane_epoch_of(u64 mark) { return u32(mark >> 3) & 8191; }

}  // namespace

namespace kforge {

void Threads::prepare(GroupMemory* its_group, Memory* its_memory) {
    group = its_group;
    memory = its_memory;
    pending.place = nullptr;
}

void Threads::begin(u64 its_number, u32 count) {
    settle();
    number = its_number;
    group_epoch = device_epoch = 0;
    memset(lane_group_epoch, 0, sizeof(u32) * count);
    memset(lane_device_epoch, 0, sizeof(u32) * count);
}

void Threads::enter(u32 index) {
    settle();
    current = index;
}

void Threads::group_fence(u32 fences) {
    settle();
    if (fences & kFenceGroup) ++group_epoch;
    if (fences & kFenceDevice) ++device_epoch;
}

void Threads::lane_fence(u32 index, u32 fences) {
    settle();
    if (fences & kFenceGroup) ++lane_group_epoch[index];
    if (fences & kFenceDevice) ++lane_device_epoch[index];
}

void Threads::settle() {
    if (pending.place == nullptr) return;
    char* place = pending.place;
    pending.place = nullptr;
    if (memcmp(place, pending.before, pending.bytes) == 0) return;
    u64 other = (pending.other_group ? number + 2 : number + 1) << 40 | u64(pending.other) << 30;
    race(other, true, true, pending.in_group_memory, pending.pc);
}

u64 Threads::mark(bool group_memory) const {
    u32 epoch = group_memory ? group_epoch : device_epoch;
    u32 lanes = group_memory ? lane_group_epoch[current] : lane_device_epoch[current];
    return (number + 1) << 40 | u64(current) << 30 | u64(epoch & 16383) << 16 | u64(lanes & 8191) << 3;
}

// Whether an access marked `before` and mine happen in no order.
bool Threads::clash(u64 before, u64 mine) const {
    if (before == 0) return false;
    if (group_of(before) != group_of(mine) || before & kSeveralGroups) return true;
    if (epoch_of(before) != epoch_of(mine)) return false;
    if (before & kSeveralLaneGroups) return true;
    u32 other = thread_of(before);
    if (other == current && !(before & kSeveral)) return false;
    if (other / kLanes == current / kLanes) return lane_epoch_of(before) == lane_epoch_of(mine);
    return true;
}

void Threads::race(u64 before, bool writes, bool wrote, bool group_memory, const void* pc) const {
    char text[300];
    const char* memory_words = group_memory ? "the group's memory" : "device memory";
    const char* mine = writes ? "writes" : "reads";
    const char* its = wrote ? "wrote" : "read";
    if (group_of(before) != number + 1 || before & kSeveralGroups) {
        snprintf(text, sizeof text,
                 "race: it %s %s that a thread of another group %s in the same launch; groups run in no order", mine,
                 memory_words, its);
    } else {
        snprintf(text, sizeof text,
                 "race: it %s %s that thread %u of its group %s, with no barrier for that memory in between", mine,
                 memory_words, thread_of(before), its);
    }
    kforge_fail_at(text, pc);
}

void Threads::record(Touch& touch, char* place, u32 bytes, bool write, bool group_memory, const void* pc) {
    u64 mine = mark(group_memory);
    if (write) {
        if (clash(touch.read, mine)) race(touch.read, true, false, group_memory, pc);
        if (clash(touch.wrote, mine) && pending.place == nullptr && bytes <= sizeof pending.before) {
            pending.place = place;
            pending.bytes = bytes;
            pending.other = thread_of(touch.wrote);
            pending.other_group = group_of(touch.wrote) != group_of(mine);
            pending.in_group_memory = group_memory;
            pending.pc = pc;
            memcpy(pending.before, place, bytes);
        }
        touch.wrote = mine;
        return;
    }
    if (clash(touch.wrote, mine)) race(touch.wrote, false, true, group_memory, pc);
    u64 before = touch.read;
    if (before != 0 && group_of(before) != group_of(mine)) mine |= kSeveralGroups;
    mine |= before & kSeveralGroups;
    bool same_lanes = thread_of(before) / kLanes == current / kLanes && !(before & kSeveralLaneGroups);
    bool in_order = same_lanes && lane_epoch_of(before) != lane_epoch_of(mine);
    if (before != 0 && group_of(before) == group_of(mine) && epoch_of(before) == epoch_of(mine) && !in_order) {
        if (thread_of(before) != current) mine |= kSeveral;
        if (thread_of(before) / kLanes != current / kLanes) mine |= kSeveralLaneGroups;
        mine |= before & (kSeveral | kSeveralLaneGroups);
    }
    touch.read = mine;
}

void Threads::access(void* where, u32 bytes, bool write, bool atomic, const void* pc) {
    settle();
    char* place = static_cast<char*>(where);
    if (group->holds(place)) {
        u64 offset = u64(place - group->base);
        if (group->find(offset, bytes) == nullptr) {
            kforge_fail_at(write ? "out of bounds: it writes outside the group's shared variables"
                                 : "out of bounds: it reads outside the group's shared variables",
                           pc);
        }
        if (!write) {
            for (u32 i = 0; i < bytes; ++i) {
                if (!group->written[offset + i]) {
                    kforge_fail_at("uninitialised: it reads the group's memory where no thread has written", pc);
                }
            }
        }
        if (write) memset(group->written + offset, 1, bytes);
        if (!atomic) {
            // Neighbouring bytes may be two threads' own; wider than that, every second byte tells.
            for (u32 i = 0; i < bytes; i += 2) record(group->touches[offset + i], place, bytes, write, true, pc);
        }
        return;
    }
    if (kforge_is_private(place)) return;
    const Launch& launch = *memory->launch;
    for (u32 i = 0; i < launch.storage_count; ++i) {
        Placed& buffer = memory->placed[i];
        if (place < buffer.map || place >= buffer.map + buffer.map_bytes) continue;
        if (place < buffer.begin || place + bytes > buffer.end) {
            char text[300];
            memory->describe(place < buffer.begin || place >= buffer.end ? place : buffer.end, text, sizeof text);
            kforge_fail_at(text, pc);
        }
        if (!atomic) {
            u64 offset = u64(place - buffer.begin);
            for (u32 i = 0; i < bytes; i += 2) record(buffer.touches[offset + i], place, bytes, write, false, pc);
        }
        return;
    }
    if (kforge_is_known(place)) return;
    char text[300];
    memory->describe(place, text, sizeof text);
    kforge_fail_at(text, pc);
}

}  // namespace kforge

namespace {

inline void check(void* place, u32 bytes, bool write, bool atomic, const void* pc) {
    Threads* threads = kforge_threads();
    if (threads != nullptr && threads->group != nullptr && !kforge_is_private(place)) {
        threads->access(place, bytes, write, atomic, pc);
    }
}

struct SourceLocation {
    const char* file;
    u32 line, column;
};

[[noreturn]] void bad_index(const SourceLocation* at, u64 index) {
    char text[200];
    snprintf(text, sizeof text, "out of bounds: index %lld of an array", (long long)index);
    kforge_fail(text, at->line);
}

}  // namespace

#define PC __builtin_return_address(0)
#define HOOKS(size)                                                                                    \
    void __tsan_read##size(void* place) { check(place, size, false, false, PC); }                      \
    void __tsan_write##size(void* place) { check(place, size, true, false, PC); }                      \
    void __tsan_unaligned_read##size(void* place) { check(place, size, false, false, PC); }            \
    void __tsan_unaligned_write##size(void* place) { check(place, size, true, false, PC); }            \
    void __tsan_volatile_read##size(void* place) { check(place, size, false, false, PC); }             \
    void __tsan_volatile_write##size(void* place) { check(place, size, true, false, PC); }             \
    void __tsan_unaligned_volatile_read##size(void* place) { check(place, size, false, false, PC); }   \
    void __tsan_unaligned_volatile_write##size(void* place) { check(place, size, true, false, PC); }   \
    void __tsan_read_write##size(void* place) { check(place, size, true, false, PC); }                 \
    void __tsan_unaligned_read_write##size(void* place) { check(place, size, true, false, PC); }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* place, unsigned long bytes) { check(place, u32(bytes), false, false, PC); }
void __tsan_write_range(void* place, unsigned long bytes) { check(place, u32(bytes), true, false, PC); }

void __ubsan_handle_out_of_bounds(SourceLocation* at, u64 index) { bad_index(at, index); }
void __ubsan_handle_out_of_bounds_abort(SourceLocation* at, u64 index) { bad_index(at, index); }

void kforge_no_component(int number) {
    char text[200];
    snprintf(text, sizeof text, "out of bounds: component %d of a vector", number);
    kforge_fail_at(text, PC);
}

void kforge_check_atomic(void* place, u32 bytes, u32 operation, const void* pc) {
    // Whoever stores need not know what was there.
    check(place, bytes, operation == kStore, true, pc);
}
}
