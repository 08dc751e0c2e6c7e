// Buffers between guard pages, and a group's own memory.

#include "memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

using namespace kforge;

namespace {

constexpr u64 kAlign = 64;
constexpr u64 kGuard = 64 << 20;

char* reserve(u64 bytes, int protection) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void* place = mmap(nullptr, bytes, protection, flags, -1, 0);
    return place == MAP_FAILED ? nullptr : static_cast<char*>(place);
}

u64 up(u64 value, u64 step) { return (value + step - 1) / step * step; }

}  // namespace

namespace kforge {

bool Memory::bind(const Launch& asked, u64 groups, const char* variables_begin, const char* variables_end, Report* report) {
    launch = &asked;
    if (asked.checked) {
        released_bytes = groups * sizeof(Released);
        released = reinterpret_cast<Released*>(reserve(released_bytes, PROT_READ | PROT_WRITE));
        variables.begin = const_cast<char*>(variables_begin);
        variables.end = const_cast<char*>(variables_end);
        variables.touch_bytes = u64(variables.end - variables.begin) * sizeof(Touch);
        if (variables.touch_bytes) {
            variables.touches = reinterpret_cast<Touch*>(reserve(variables.touch_bytes, PROT_READ | PROT_WRITE));
        }
        if (released == nullptr || (variables.touch_bytes && variables.touches == nullptr)) {
            report->status = 1;
            snprintf(report->message, sizeof report->message, "there is no memory to check so many groups: use smaller shapes");
            return false;
        }
    }
    u64 page = u64(sysconf(_SC_PAGESIZE));
    for (u32 i = 0; i < asked.storage_count; ++i) {
        const Storage& storage = asked.storages[i];
        Placed& place = placed[i];
        u64 room = up(up(storage.bytes, kAlign), page) + page;
        place.map_bytes = room + 2 * kGuard;
        place.map = reserve(place.map_bytes, PROT_NONE);
        if (place.map == nullptr || mprotect(place.map + kGuard, room, PROT_READ | PROT_WRITE) != 0) {
            report->status = 1;
            snprintf(report->message, sizeof report->message, "there is no memory for a buffer of %llu bytes",
                     (unsigned long long)storage.bytes);
            return false;
        }
        // Its end is at the guard, as far as alignment allows.
        place.begin = place.map + kGuard + room - up(storage.bytes, kAlign);
        place.end = place.begin + storage.bytes;
        memset(place.map + kGuard, 0xFF, size_t(place.begin - place.map - kGuard));
        memset(place.end, 0xFF, size_t(place.map + kGuard + room - place.end));
        if (storage.bytes) memcpy(place.begin, storage.host, storage.bytes);
        if (asked.checked && storage.bytes) {
            place.touch_bytes = storage.bytes * sizeof(Touch);
            place.touches = reinterpret_cast<Touch*>(reserve(place.touch_bytes, PROT_READ | PROT_WRITE));
            if (place.touches == nullptr) {
                report->status = 1;
                snprintf(report->message, sizeof report->message,
                         "there is no memory to check a buffer of %llu bytes: use smaller shapes",
                         (unsigned long long)storage.bytes);
                return false;
            }
        }
    }
    for (u32 i = 0; i < asked.address_count; ++i) {
        const StoredAddress& address = asked.addresses[i];
        char* there = placed[address.target].begin + address.offset;
        memcpy(placed[address.storage].begin + address.at, &there, sizeof there);
    }
    for (u32 i = 0; i < asked.binding_count; ++i) {
        const Binding& binding = asked.bindings[i];
        bound[i] = binding.storage < 0 ? nullptr : placed[binding.storage].begin + binding.offset;
    }
    return true;
}

void Memory::tell_addresses() {
    if (launch->address_count == 0) return;
    const StoredAddress& first = launch->addresses[0];
    u64 told;
    memcpy(&told, static_cast<const char*>(launch->storages[first.storage].host) + first.at, sizeof told);
    const u64 above = told - (reinterpret_cast<u64>(launch->storages[first.target].host) + first.offset);
    u64 lowest = ~0ull, highest = 0;
    for (u32 i = 0; i < launch->storage_count; ++i) {
        lowest = std::min(lowest, reinterpret_cast<u64>(placed[i].begin));
        highest = std::max(highest, reinterpret_cast<u64>(placed[i].end));
    }
    for (u32 i = 0; i < launch->storage_count; ++i) {
        for (char* word = placed[i].begin; word + 8 <= placed[i].end; word += 8) {
            u64 value;
            memcpy(&value, word, sizeof value);
            if (value < lowest || value > highest) continue;
            for (u32 j = 0; j < launch->storage_count; ++j) {
                const u64 begin = reinterpret_cast<u64>(placed[j].begin), end = reinterpret_cast<u64>(placed[j].end);
                if (value < begin || value > end) continue;
                value = above + reinterpret_cast<u64>(launch->storages[j].host) + (value - begin);
                memcpy(word, &value, sizeof value);
                break;
            }
        }
    }
}

void Memory::give_back(bool written) {
    if (written) tell_addresses();
    for (u32 i = 0; i < launch->storage_count; ++i) {
        const Storage& storage = launch->storages[i];
        if (written && storage.bytes && memcmp(storage.host, placed[i].begin, storage.bytes) != 0) {
            memcpy(storage.host, placed[i].begin, storage.bytes);
        }
    }
}

Memory::~Memory() {
    for (Placed& place : placed) {
        if (place.map != nullptr) munmap(place.map, place.map_bytes);
        if (place.touches != nullptr) munmap(place.touches, place.touch_bytes);
    }
    if (variables.touches != nullptr) munmap(variables.touches, variables.touch_bytes);
    if (released != nullptr) munmap(released, released_bytes);
}

void Memory::describe(const void* where, char* text, size_t size) const {
    const char* at = static_cast<const char*>(where);
    u64 nearest = ~0ull;
    u32 number = 0;
    bool behind = false;
    for (u32 i = 0; i < launch->binding_count; ++i) {
        const Binding& binding = launch->bindings[i];
        if (binding.storage < 0) continue;
        const Placed& place = placed[binding.storage];
        u64 far = at >= place.end ? u64(at - place.end) : at < place.begin ? u64(place.begin - at) : 0;
        if (far < nearest) nearest = far, number = i, behind = at >= place.end;
    }
    if (at < reinterpret_cast<const char*>(4096)) {
        snprintf(text, size, "a kernel used a buffer that nothing is bound to, or a null pointer");
    } else if (nearest < kGuard) {
        const Binding& binding = launch->bindings[number];
        char far[40] = "right ";
        if (nearest > 0) snprintf(far, sizeof far, "%llu bytes ", (unsigned long long)nearest);
        snprintf(text, size, "out of bounds: %s%s buffer %u, which has %llu bytes", far,
                 behind ? "past the end of" : "before the start of", number, (unsigned long long)binding.bytes);
    } else if (const char* beside = end_beside(at)) {
        snprintf(text, size, "out of bounds: %s memory that an address in a buffer leads to", beside);
    } else {
        snprintf(text, size, "out of bounds: a kernel touched memory that is none of its buffers");
    }
}

const char* Memory::end_beside(const char* at) const {
    for (u32 i = 0; i < launch->storage_count; ++i) {
        if (at < placed[i].map || at >= placed[i].map + placed[i].map_bytes) continue;
        return at < placed[i].begin ? "before the start of" : "past the end of";
    }
    return nullptr;
}

void GroupMemory::prepare(u32 bytes, u32 its_dynamic, bool checked) {
    dynamic = its_dynamic;
    limit = bytes - dynamic;
    u64 wanted = bytes + u64(kMostVariables) * 2 * kGap;
    if (base == nullptr || capacity < wanted) {
        release();
        capacity = wanted;
        base = reserve(capacity, PROT_READ | PROT_WRITE);
    }
    if (checked && touches == nullptr) {
        written = reinterpret_cast<u8*>(reserve(capacity, PROT_READ | PROT_WRITE));
        touches = reinterpret_cast<Touch*>(reserve(capacity * sizeof(Touch), PROT_READ | PROT_WRITE));
    }
    if (!checked) drop_checks();
}

void GroupMemory::drop_checks() {
    if (written != nullptr) munmap(written, capacity);
    if (touches != nullptr) munmap(touches, capacity * sizeof(Touch));
    written = nullptr;
    touches = nullptr;
}

void GroupMemory::begin() {
    if (reached != 0) {
        memset(base, 0xFF, reached);
        if (touches != nullptr) {
            memset(written, 0, reached);
            memset(static_cast<void*>(touches), 0, reached * sizeof(Touch));
        }
    }
    count = used = reached = 0;
}

void* GroupMemory::get(u32 id, u64 bytes, u64 align, char* text, size_t size) {
    for (u32 i = 0; i < count; ++i) {
        if (variables[i].id == id) return base + variables[i].begin;
    }
    // The launch's own size was looked at before.
    if (id != 0) used += u32(bytes);
    if ((id != 0 && bytes > limit) || used > limit || count == kMostVariables) {
        snprintf(text, size, "a group's shared variables take %u bytes, and it may have %u", used, limit);
        return nullptr;
    }
    u32 step = align > 1024 ? 1024 : align > 16 ? u32(align) : 16;
    u32 begin = (reached + kGap + step - 1) / step * step;
    if (begin + bytes > capacity) {
        snprintf(text, size, "a group's shared variables need more room than there is, aligned as they are");
        return nullptr;
    }
    variables[count++] = {id, begin, u32(bytes)};
    memset(base + reached, 0xFF, begin + bytes - reached);
    reached = u32(begin + bytes);
    return base + begin;
}

const GroupMemory::Variable* GroupMemory::find(u64 offset, u64 bytes) const {
    for (u32 i = 0; i < count; ++i) {
        const Variable& variable = variables[i];
        if (offset >= variable.begin && offset + bytes <= u64(variable.begin) + variable.bytes) return &variable;
    }
    return nullptr;
}

void GroupMemory::release() {
    drop_checks();
    if (base != nullptr) munmap(base, capacity);
    base = nullptr;
}

}  // namespace kforge
