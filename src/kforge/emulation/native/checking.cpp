// What a checked build asks before every access. The compiler's own instrumentation for threads and bounds calls these;
// its run-time libraries are not used.

#include <stdio.h>
#include <string.h>

#include "memory.h"

using namespace kforge;

namespace {

// A mark: | group, from 1: 22 | thread: 10 | epoch: 14 | lane epoch: 13 | flags: 5 |. Epochs begin at 1; 0 is long ago.
constexpr u64 kSeveralGroups = 1, kSeveral = 2, kSeveralLaneGroups = 4, kAtomic = 8, kGuess = 16;
constexpr u64 kGroups = (1 << 22) - 1;
constexpr u32 kLastEpoch = (1 << 14) - 1, kLastLaneEpoch = (1 << 13) - 1;
constexpr int kEpochAt = 18, kLaneEpochAt = 5;
constexpr u64 group_of(u64 mark) { return mark >> 42; }
constexpr u32 thread_of(u64 mark) { return u32(mark >> 32) & 1023; }
constexpr u32 epoch_of(u64 mark) { return u32(mark >> kEpochAt) & kLastEpoch; }
constexpr u32 lane_epoch_of(u64 mark) { return u32(mark >> kLaneEpochAt) & kLastLaneEpoch; }
constexpr bool writes(Access how) { return how == kWrite || how >= kAtomicStore; }

}  // namespace

namespace kforge {

void Threads::prepare(GroupMemory* its_group, Memory* its_memory) {
    group = its_group;
    memory = its_memory;
    pending.place = nullptr;
}

void Threads::begin(u64 its_number, u32 count) {
    number = its_number;
    group_epoch = device_epoch = 1;
    for (u32 i = 0; i < count; ++i) lane_group_epoch[i] = lane_device_epoch[i] = 1;
    memset(fenced, 0, sizeof(u32) * count);
    if (seen_by_one != 0) memset(seen, 0, sizeof seen);
    seen_by_all = seen_by_one = 0;
    if (any_here) memset(fenced_here, 0, sizeof fenced_here), memset(released_here, 0, sizeof released_here);
    any_here = false;
}

void Threads::enter(u32 index) {
    settle();
    current = index;
}

void Threads::group_fence(u32 fences) {
    settle();
    seen_by_all = seen_by_one;
    if (fences & kFenceGrid) {
        for (u32& one : fenced) one = device_epoch;
    }
    if (fences & kFenceGroup && ++group_epoch > kLastEpoch) age(true, kMostThreads), group_epoch = 1;
    if (fences & kFenceDevice && ++device_epoch > kLastEpoch) {
        age(false, kMostThreads), device_epoch = 1;
        memset(fenced, 0, sizeof fenced);
    }
}

// Lanes that wait for each other: what one has seen, all know.
void Threads::lanes_meet(u32 first, u32 active, u32 fences) {
    settle();
    if (seen_by_one != seen_by_all) {
        u64 most = 0;
        for (u32 i = 0; i < kLanes; ++i) most = active >> i & 1 && seen[first + i] > most ? seen[first + i] : most;
        for (u32 i = 0; i < kLanes; ++i) {
            if (active >> i & 1) seen[first + i] = most;
        }
    }
    auto next = [&](u32* epochs, bool group_memory) {
        bool old = false;
        for (u32 i = 0; i < kLanes; ++i) old |= active >> i & 1 && ++epochs[first + i] > kLastLaneEpoch;
        if (!old) return;
        age(group_memory, first);
        for (u32 i = 0; i < kLanes; ++i) epochs[first + i] = 1;
    };
    if (fences & kFenceGroup) next(lane_group_epoch, true);
    if (fences & kFenceDevice) next(lane_device_epoch, false);
}

void Threads::own_fence(bool for_other_groups) {
    fenced_here[current] = any_here = true;
    if (for_other_groups) fenced[current] = device_epoch;
}

void Threads::release() {
    u32 fence = fenced[current];
    if (fence == 0 && !fenced_here[current]) return;
    u64 turn = __atomic_add_fetch(&memory->turns, 1, __ATOMIC_SEQ_CST);
    if (fenced_here[current]) released_here[current] = turn;
    if (fence == 0) return;
    Released& mine = memory->released[number % kGroups];
    bool all = fence < device_epoch || (mine.turn != 0 && mine.epoch == fence && (mine.all || mine.thread != current));
    mine.epoch = fence, mine.thread = current, mine.all = all;
    if (mine.turn == 0) __atomic_store_n(&mine.turn, turn, __ATOMIC_SEQ_CST);
}

void Threads::acquire() {
    u64 turns = __atomic_load_n(&memory->turns, __ATOMIC_SEQ_CST);
    seen[current] = turns;
    if (turns > seen_by_one) seen_by_one = turns;
}

// Before an epoch's number comes a second time: this group's marks are from long ago now; of one lane group, if one is
// named, only in the order of its lanes.
void Threads::age(bool group_memory, u32 lanes_from) {
    bool lanes = lanes_from < kMostThreads;
    u64 field = lanes ? u64(kLastLaneEpoch) << kLaneEpochAt : u64(kLastEpoch) << kEpochAt;
    auto old = [&](u64& mark) {
        u64 now = __atomic_load_n(&mark, __ATOMIC_RELAXED);
        bool its = now != 0 && group_of(now) == number % kGroups + 1 && (!lanes || thread_of(now) / kLanes == lanes_from / kLanes);
        // Another group may mark it meanwhile: then it is no longer this one's.
        if (its) __atomic_compare_exchange_n(&mark, &now, now & ~field, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    };
    auto all = [&](Touch* touches, u64 count) {
        for (u64 i = 0; touches != nullptr && i < count; ++i) old(touches[i].wrote), old(touches[i].read);
    };
    if (group_memory) return all(group->touches, group->reached);
    for (Placed& buffer : memory->placed) all(buffer.touches, buffer.touch_bytes / sizeof(Touch));
    all(memory->variables.touches, memory->variables.touch_bytes / sizeof(Touch));
}

void Threads::settle() {
    if (pending.place == nullptr) return;
    char* place = pending.place;
    pending.place = nullptr;
    if (memcmp(place, pending.before, pending.bytes) == 0) return;
    race(pending.other, kWrite, true, pending.in_group_memory, pending.pc);
}

u64 Threads::mark(bool group_memory) const {
    u32 epoch = group_memory ? group_epoch : device_epoch;
    u32 lanes = group_memory ? lane_group_epoch[current] : lane_device_epoch[current];
    return (number % kGroups + 1) << 42 | u64(current) << 32 | u64(epoch) << kEpochAt | u64(lanes) << kLaneEpochAt;
}

// Whether an access of another group comes before this one: it was followed by a fence and an atomic operation, and
// this thread knows of that.
bool Threads::seen_from(u64 before) const {
    if (known() == 0) return false;
    if (before & kSeveralGroups) return true;
    const Released& its = memory->released[group_of(before) - 1];
    u64 turn = __atomic_load_n(&its.turn, __ATOMIC_SEQ_CST);
    if (turn == 0 || turn > known()) return false;
    u32 epoch = epoch_of(before);
    return epoch < its.epoch || (epoch == its.epoch && (its.all || its.thread == thread_of(before)));
}

// The same within a group, with no barrier in between.
bool Threads::seen_here(u64 before) const {
    if (!any_here || known() == 0) return false;
    if (before & (kSeveral | kSeveralLaneGroups)) return released_here[current] != 0;
    u64 turn = released_here[thread_of(before)];
    return turn != 0 && turn <= known();
}

// Whether an access marked `before` and mine happen in no order.
bool Threads::clash(u64 before, u64 mine) const {
    if (before == 0) return false;
    if (group_of(before) != group_of(mine) || before & kSeveralGroups) return !seen_from(before);
    if (epoch_of(before) != epoch_of(mine)) return false;
    u32 other = thread_of(before);
    if (!(before & kSeveralLaneGroups)) {
        if (other == current && !(before & kSeveral)) return false;
        if (other / kLanes == current / kLanes && lane_epoch_of(before) != lane_epoch_of(mine)) return false;
    }
    return !seen_here(before);
}

// A mark that stands for those before it too, as far as they are in no order with mine.
u64 Threads::merged(u64 before, u64 mine) const {
    if (before == 0) return mine;
    bool other_group = group_of(before) != group_of(mine);
    if (other_group) mine |= kSeveralGroups;
    mine |= before & kSeveralGroups;
    bool same_lanes = thread_of(before) / kLanes == current / kLanes && !(before & kSeveralLaneGroups);
    bool in_order = same_lanes && lane_epoch_of(before) != lane_epoch_of(mine);
    bool together = !other_group && epoch_of(before) == epoch_of(mine) && !in_order;
    if (together) {
        if (thread_of(before) != current) mine |= kSeveral;
        if (thread_of(before) / kLanes != current / kLanes) mine |= kSeveralLaneGroups;
        mine |= before & (kSeveral | kSeveralLaneGroups);
    }
    if (together || other_group) mine &= before | ~(kAtomic | kGuess);
    return mine;
}

void Threads::race(u64 before, Access how, bool wrote, bool group_memory, const void* pc) const {
    char text[300];
    const char* memory_words = group_memory ? "the group's memory" : "device memory";
    const char* mine = how == kWrite         ? "writes"
                       : how == kAtomicRead  ? "atomically reads"
                       : how >= kAtomicStore ? "atomically changes"
                                             : "reads";
    const char* its = !wrote ? "read" : before & kAtomic ? "atomically changed" : "wrote";
    if (group_of(before) != number % kGroups + 1 || before & kSeveralGroups) {
        snprintf(text, sizeof text,
                 "race: it %s %s that a thread of another group %s in the same launch; groups run in no order", mine,
                 memory_words, its);
    } else if (thread_of(before) == current) {
        snprintf(text, sizeof text,
                 "race: it %s %s that other threads of its group %s, with no barrier for that memory in between", mine,
                 memory_words, its);
    } else {
        snprintf(text, sizeof text,
                 "race: it %s %s that thread %u of its group %s, with no barrier for that memory in between", mine,
                 memory_words, thread_of(before), its);
    }
    kforge_fail_at(text, pc);
}

void Threads::record(Touch& touch, char* place, u32 bytes, Access how, bool group_memory, const void* pc) {
    u64 mine = mark(group_memory), wrote = touch.wrote;
    switch (how) {
        case kRead:
            if (clash(wrote, mine) && !(wrote & kGuess)) race(wrote, how, true, group_memory, pc);
            touch.read = merged(touch.read, mine);
            return;
        case kWrite:
            if (clash(touch.read, mine)) race(touch.read, how, false, group_memory, pc);
            if (clash(wrote, mine) && pending.place == nullptr) {
                pending.place = place;
                pending.bytes = bytes < sizeof pending.before ? bytes : u32(sizeof pending.before);
                pending.other = wrote;
                pending.in_group_memory = group_memory;
                pending.pc = pc;
                memcpy(pending.before, place, pending.bytes);
            }
            touch.wrote = mine;
            return;
        case kVolatileRead:
        case kAtomicRead:
            if (clash(wrote, mine) && !(wrote & kAtomic)) race(wrote, how, true, group_memory, pc);
            touch.read = merged(touch.read, mine | kAtomic);
            return;
        default:
            if (how != kAtomicGuess && clash(touch.read, mine) && !(touch.read & kAtomic)) {
                race(touch.read, how, false, group_memory, pc);
            }
            if (clash(wrote, mine) && !(wrote & kAtomic)) race(wrote, how, true, group_memory, pc);
            mine |= how == kAtomicGuess ? kAtomic | kGuess : kAtomic;
            // This thread's own plain write is still in no order with what others do.
            if (!(wrote & kAtomic) && wrote >> kLaneEpochAt == mine >> kLaneEpochAt) return;
            touch.wrote = wrote & kAtomic ? merged(wrote, mine) : mine;
    }
}

// Neighbouring bytes may be two threads' own; wider than that, every second byte tells.
void Threads::record_all(Touch* touches, u64 offset, char* place, u32 bytes, Access how, bool group_memory, const void* pc) {
    for (u32 i = 0; i < bytes; i += 2) record(touches[offset + i], place, bytes, how, group_memory, pc);
}

void Threads::access(void* where, u32 bytes, Access how, const void* pc) {
    settle();
    char* place = static_cast<char*>(where);
    if (group->holds(place)) {
        u64 offset = u64(place - group->base);
        if (group->find(offset, bytes) == nullptr) {
            kforge_fail_at(writes(how) ? "out of bounds: it writes outside the group's shared variables"
                                       : "out of bounds: it reads outside the group's shared variables",
                           pc);
        }
        if (how == kWrite || how == kAtomicStore) {
            memset(group->written + offset, 1, bytes);
        } else {
            for (u32 i = 0; i < bytes; ++i) {
                if (!group->written[offset + i]) {
                    kforge_fail_at("uninitialised: it reads the group's memory where no thread has written yet: is a barrier missing?", pc);
                }
            }
        }
        return record_all(group->touches, offset, place, bytes, how == kVolatileRead ? kRead : how, true, pc);
    }
    if (kforge_is_private(place)) return;
    const Launch& launch = *memory->launch;
    for (u32 tried = 0, i = recent; tried < launch.storage_count; ++tried, ++i) {
        if (i >= launch.storage_count) i = 0;
        Placed& buffer = memory->placed[i];
        if (place < buffer.map || place >= buffer.map + buffer.map_bytes) continue;
        recent = i;
        if (place < buffer.begin || place + bytes > buffer.end) {
            char text[300];
            memory->describe(place < buffer.begin || place >= buffer.end ? place : buffer.end, text, sizeof text);
            kforge_fail_at(text, pc);
        }
        return record_all(buffer.touches, u64(place - buffer.begin), place, bytes, how, false, pc);
    }
    Placed& variables = memory->variables;
    if (place >= variables.begin && place + bytes <= variables.end) {
        return record_all(variables.touches, u64(place - variables.begin), place, bytes, how, false, pc);
    }
    if (kforge_is_known(place)) return;
    char text[300];
    memory->describe(place, text, sizeof text);
    kforge_fail_at(text, pc);
}

}  // namespace kforge

namespace {

inline void check(void* place, u32 bytes, Access how, const void* pc) {
    Threads* threads = kforge_threads();
    if (threads != nullptr && threads->group != nullptr && !kforge_is_private(place)) threads->access(place, bytes, how, pc);
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

// In the emulator's own headers the caller's line is what counts.
[[noreturn]] void fail_where(const SourceLocation& at, const char* text, const void* pc) {
    if (strstr(at.file, "/native/") == nullptr) kforge_fail(text, at.line);
    kforge_fail_at(text, pc);
}

// Some processors stop at it, and some go on with 0.
[[noreturn]] void bad_division(const SourceLocation* at, const void* pc) {
    fail_where(*at, "an integer was divided by zero", pc);
}

struct Mismatch {
    SourceLocation at;
    const void* type;
    u8 log_alignment;
    u8 kind;
};

void bad_address(const Mismatch* data, u64 address, const void* pc) {
    u64 needed = 1ull << data->log_alignment;
    if (address != 0 && needed < kforge_least_alignment()) return;
    char text[200];
    if (address == 0) {
        snprintf(text, sizeof text, "a kernel used a buffer that nothing is bound to, or a null pointer");
    } else {
        snprintf(text, sizeof text,
                 "misaligned address: it reads or writes %llu bytes at once, %llu past a multiple of %llu",
                 (unsigned long long)needed, (unsigned long long)(address % needed), (unsigned long long)needed);
    }
    fail_where(data->at, text, pc);
}

}  // namespace

#define PC __builtin_return_address(0)
#define HOOKS(size)                                                                                    \
    void __tsan_read##size(void* place) { check(place, size, kRead, PC); }                             \
    void __tsan_write##size(void* place) { check(place, size, kWrite, PC); }                           \
    void __tsan_unaligned_read##size(void* place) { check(place, size, kRead, PC); }                   \
    void __tsan_unaligned_write##size(void* place) { check(place, size, kWrite, PC); }                 \
    void __tsan_volatile_read##size(void* place) { check(place, size, kVolatileRead, PC); }              \
    void __tsan_volatile_write##size(void* place) { check(place, size, kWrite, PC); }                  \
    void __tsan_unaligned_volatile_read##size(void* place) { check(place, size, kVolatileRead, PC); }    \
    void __tsan_unaligned_volatile_write##size(void* place) { check(place, size, kWrite, PC); }        \
    void __tsan_read_write##size(void* place) {                                                        \
        check(place, size, kRead, PC);                                                                 \
        check(place, size, kWrite, PC);                                                                \
    }                                                                                                  \
    void __tsan_unaligned_read_write##size(void* place) {                                              \
        check(place, size, kRead, PC);                                                                 \
        check(place, size, kWrite, PC);                                                                \
    }

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
void __tsan_read_range(void* place, unsigned long bytes) { check(place, u32(bytes), kRead, PC); }
void __tsan_write_range(void* place, unsigned long bytes) { check(place, u32(bytes), kWrite, PC); }

void __ubsan_handle_out_of_bounds(SourceLocation* at, u64 index) { bad_index(at, index); }
void __ubsan_handle_out_of_bounds_abort(SourceLocation* at, u64 index) { bad_index(at, index); }

void __ubsan_handle_divrem_overflow(SourceLocation* at, u64, u64) { bad_division(at, PC); }
void __ubsan_handle_divrem_overflow_abort(SourceLocation* at, u64, u64) { bad_division(at, PC); }

void kforge_no_component(int number) {
    char text[200];
    snprintf(text, sizeof text, "out of bounds: component %d of a vector", number);
    kforge_fail_at(text, PC);
}

void __ubsan_handle_type_mismatch_v1(Mismatch* data, u64 address) { bad_address(data, address, PC); }
void __ubsan_handle_type_mismatch_v1_abort(Mismatch* data, u64 address) { bad_address(data, address, PC); }

void kforge_check_atomic(void* place, u32 bytes, u32 operation, const void* pc) {
    Threads* threads = kforge_threads();
    if (threads == nullptr || threads->group == nullptr || kforge_is_private(place)) return;
    Access how = kAtomicWrite;
    switch (operation) {
        case kLoad: how = kAtomicRead; break;
        case kStore: how = kAtomicStore; break;
        case kCompareExchange:
        case kAnd:
        case kOr:
        case kMinSigned:
        case kMaxSigned:
        case kMinUnsigned:
        case kMaxUnsigned:
        case kMinFloat:
        case kMaxFloat: how = kAtomicGuess; break;
        default: break;
    }
    threads->access(place, bytes, how, pc);
    if (operation != kLoad) threads->release();
}

void kforge_after_atomic(u32 operation) {
    Threads* threads = kforge_threads();
    if (threads != nullptr && threads->group != nullptr && operation != kStore) threads->acquire();
}
}
