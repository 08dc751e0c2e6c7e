// Runs a kernel's threads on the processor: one fibre for each thread that has to wait, groups of threads spread over
// the cores. A thread that never waits costs a call.

#include "runtime.h"

#if defined(__linux__)
#include <link.h>
#endif
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "memory.h"

using namespace kforge;

// -- switching ----------------------------------------------------------------------------------------------------------

extern "C" void kforge_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl kforge_switch
.globl _kforge_switch
kforge_switch:
_kforge_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
constexpr int kSavedWords = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl kforge_switch
.globl _kforge_switch
.p2align 2
kforge_switch:
_kforge_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "the emulator has no context switch for this processor"
#endif

namespace kforge {

// -- one worker: the threads of one group at a time ---------------------------------------------------------------------

enum State : u8 { kUnstarted, kReady, kTogether, kBarrier, kDone };

struct Fibre {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    size_t stagger = 0;  // stacks at the same distance from each other would share a few sets of the cache
};

constexpr size_t kStackBytes = 256 << 10;
// A frame may reach so far below the last address it has touched: GCC counts on it on Arm, and it is the largest page.
constexpr size_t kGuardBytes = 64 << 10;

struct Lane {
    State state;
    Fibre* fibre;
    u32 line, column;
    Resolve resolve;
    void* value;
    u32 fences;
};

// Where a library lies in this process: its text and its constants, and its variables.
struct Image {
    const char* begin = nullptr;
    const char* end = nullptr;
    const char* variables_begin = nullptr;
    const char* variables_end = nullptr;
};

struct Shared {
    const Launch* launch;
    Image image;
    std::atomic<u64> next_group{0};
    std::atomic<bool> stop{false};
    std::mutex telling;
    Report* report;
    Memory* memory;
};

static void fibre_main();

struct Worker {
    Shared* shared = nullptr;
    Where where{};
    Call call{};
    Entry entry = nullptr;
    Lane lanes[kMostThreads];
    std::vector<Fibre*> free_fibres;
    std::vector<Fibre*> all_fibres;
    Fibre* running = nullptr;
    void* home = nullptr;  // the scheduler's own stack pointer
    u32 current = 0;
    u32 count = 0;
    u32 lanes_first = 0, lanes_end = 0;  // of the lane group that runs
    u32 next = 0, next_end = 0;          // of its threads, how many have begun, and how many may
    GroupMemory group;
    Threads threads;
    sigjmp_buf out;
    char* signal_stack = nullptr;

    Fibre* take_fibre() {
        if (!free_fibres.empty()) {
            Fibre* fibre = free_fibres.back();
            free_fibres.pop_back();
            return fibre;
        }
        void* place = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED) {
            fail("there is no memory for the stacks of so many threads", 0);
        }
        mprotect(place, kGuardBytes, PROT_NONE);
        Fibre* fibre = new Fibre;
        fibre->stack = static_cast<char*>(place);
        fibre->stagger = all_fibres.size() % 61 * 64;
        all_fibres.push_back(fibre);
        return fibre;
    }

    void start(Fibre* fibre) {
        u64 top = (reinterpret_cast<u64>(fibre->stack) + kGuardBytes + kStackBytes - fibre->stagger) & ~63ull;
        void** pointer = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
        *--pointer = nullptr;
        *--pointer = reinterpret_cast<void*>(&fibre_main);
        for (int i = 0; i < kSavedWords; ++i) *--pointer = nullptr;
#else
        pointer -= 20;
        memset(pointer, 0, 160);
        pointer[11] = reinterpret_cast<void*>(&fibre_main);
#endif
        fibre->stack_pointer = pointer;
    }

    void enter(Fibre* fibre) {
        running = fibre;
        kforge_switch(&home, fibre->stack_pointer);
        running = nullptr;
    }

    // The calling thread waits: on to whoever schedules.
    void leave() {
        Fibre* fibre = lanes[current].fibre = running;
        u32 mine = current;
        kforge_switch(&fibre->stack_pointer, home);
        current = mine;
        place(mine);
    }

    void place(u32 index) {
        const Launch& launch = *shared->launch;
        const Index3& size = where.threads_per_group;
        where.index_in_group = index;
        where.thread_in_group = {index % size.x, index / size.x % size.y, index / (size.x * size.y)};
        where.thread_in_grid = {where.group_in_grid.x * launch.group[0] + where.thread_in_group.x,
                                where.group_in_grid.y * launch.group[1] + where.thread_in_group.y,
                                where.group_in_grid.z * launch.group[2] + where.thread_in_group.z};
        where.lane = index % kLanes;
        where.lane_group = index / kLanes;
        current = index;
        if (launch.checked) threads.enter(index);
    }

    // Checked, threads run by their number; else the other way round, so that what depends on their order shows.
    u32 turn(u32 number, u32 first, u32 end) const {
        return shared->launch->checked ? first + number : end - 1 - number;
    }

    void run_lane_group(u32 first, u32 end, bool begun) {
        lanes_first = first, lanes_end = end;
        next = begun ? end - first : 0;
        for (;;) {
            bool moved = false;
            if (next < end - first) {
                Fibre* fibre = take_fibre();
                start(fibre);
                next_end = end - first;
                enter(fibre);
                moved = true;
            }
            for (u32 k = 0; k < end - first; ++k) {
                u32 i = turn(k, first, end);
                if (lanes[i].state == kReady) {
                    next_end = 0;  // nothing new is begun by a thread that goes on
                    enter(lanes[i].fibre);
                    moved = true;
                }
            }
            if (moved) continue;
            u32 chosen = end;
            for (u32 i = first; i < end; ++i) {
                if (lanes[i].state != kTogether) continue;
                if (chosen == end || lanes[i].line < lanes[chosen].line ||
                    (lanes[i].line == lanes[chosen].line && lanes[i].column < lanes[chosen].column)) {
                    chosen = i;
                }
            }
            if (chosen == end) return;
            resolve(first, end, chosen);
        }
    }

    // What the lanes do that wait at one place, and only those: the others are elsewhere in the program.
    void resolve(u32 first, u32 end, u32 chosen) {
        Part parts[kLanes];
        u32 count = 0, active = 0;
        u32 line = lanes[chosen].line, column = lanes[chosen].column;
        Resolve how = lanes[chosen].resolve;
        for (u32 i = first; i < end; ++i) {
            Lane& lane = lanes[i];
            if (lane.state != kTogether || lane.line != line || lane.column != column || lane.resolve != how) continue;
            parts[count++] = {i - first, lane.value};
            active |= 1u << (i - first);
            lane.state = kReady;
        }
        if (shared->launch->checked) threads.lanes_meet(first, active, lanes[chosen].fences);
        if (how != nullptr) how(parts, count, active);
    }

    void run_group(u64 number) {
        const Launch& launch = *shared->launch;
        Index3& groups = where.groups_per_grid;
        where.group_in_grid = {u32(number % groups.x), u32(number / groups.x % groups.y), u32(number / groups.x / groups.y)};
        auto size = [&](int axis, u32 at) {
            u32 left = launch.grid[axis] - at * launch.group[axis];
            return left < launch.group[axis] ? left : launch.group[axis];
        };
        where.threads_per_group = {size(0, where.group_in_grid.x), size(1, where.group_in_grid.y),
                                   size(2, where.group_in_grid.z)};
        count = where.threads_per_group.x * where.threads_per_group.y * where.threads_per_group.z;
        where.lane_groups = (count + kLanes - 1) / kLanes;
        where.lanes = kLanes;
        for (u32 i = 0; i < count; ++i) lanes[i].state = kUnstarted;
        group.begin();
        if (launch.checked) threads.begin(number, count);
        bool waited = false;
        for (;;) {
            for (u32 k = 0; k < where.lane_groups; ++k) {
                u32 first = turn(k, 0, where.lane_groups) * kLanes;
                run_lane_group(first, first + kLanes < count ? first + kLanes : count, waited);
            }
            u32 at_barrier = 0, done = 0;
            for (u32 i = 0; i < count; ++i) {
                at_barrier += lanes[i].state == kBarrier;
                done += lanes[i].state == kDone;
            }
            if (at_barrier == 0) break;
            check_barrier(done);
            u32 fences = 0;
            for (u32 i = 0; i < count; ++i) {
                if (lanes[i].state != kBarrier) continue;
                lanes[i].state = kReady;
                fences |= lanes[i].fences;
            }
            if (launch.checked) threads.group_fence(fences);
            waited = true;
        }
        if (launch.checked) threads.settle();
    }

    void check_barrier(u32 done) {
        u32 here = 0, there = count;
        while (lanes[here].state != kBarrier) ++here;
        for (u32 i = here; i < count && there == count; ++i) {
            if (lanes[i].state == kBarrier && (lanes[i].line != lanes[here].line || lanes[i].column != lanes[here].column)) {
                there = i;
            }
        }
        bool exited = done > 0 && !shared->launch->exited_threads_count;
        if (there == count && !exited) return;
        char list[160];
        describe_waiting(here, list, sizeof list);
        if (there != count && lanes[there].line == lanes[here].line) {
            failf(lanes[here].line,
                  "divergent barrier: %s of a group of %u wait at one barrier in line %u, and thread %u at another one in "
                  "that line; every thread of a group must reach the same barrier",
                  list, count, lanes[here].line, there);
        }
        if (there != count) {
            failf(lanes[here].line,
                  "divergent barrier: %s of a group of %u wait at the barrier in line %u, and thread %u at the one in "
                  "line %u; every thread of a group must reach the same barrier",
                  list, count, lanes[here].line, there, lanes[there].line);
        }
        failf(lanes[here].line,
              "divergent barrier: %s of a group of %u wait at the barrier in line %u, and the other %u have returned; "
              "every thread of a group must reach it",
              list, count, lanes[here].line, done);
    }

    void describe_waiting(u32 here, char* text, size_t size) {
        u32 last = here, total = 0;
        bool row = true;
        for (u32 i = here; i < count; ++i) {
            const Lane& lane = lanes[i];
            if (lane.state != kBarrier || lane.line != lanes[here].line || lane.column != lanes[here].column) continue;
            row = row && (i == here || i == last + 1);
            last = i;
            ++total;
        }
        if (total == 1) snprintf(text, size, "thread %u", here);
        else if (row) snprintf(text, size, "threads %u to %u", here, last);
        else snprintf(text, size, "%u threads (the first is %u)", total, here);
    }

    [[noreturn]] void failf(u32 line, const char* format, ...) __attribute__((format(printf, 3, 4))) {
        char text[900];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        fail(text, line);
    }

    [[noreturn]] void fail(const char* message, u32 line) {
        tell(message, line, nullptr);
        siglongjmp(out, 1);
    }

    void tell(const char* message, u32 line, const void* pc) {
        std::lock_guard<std::mutex> lock(shared->telling);
        Report& report = *shared->report;
        if (report.status == 0) {
            report.status = 1;
            snprintf(report.message, sizeof report.message, "%s", message);
            report.line = line;
            report.pc = reinterpret_cast<u64>(pc);
            report.group[0] = where.group_in_grid.x, report.group[1] = where.group_in_grid.y;
            report.group[2] = where.group_in_grid.z;
            report.thread[0] = where.thread_in_group.x, report.thread[1] = where.thread_in_group.y;
            report.thread[2] = where.thread_in_group.z;
        }
        shared->stop = true;
    }

    void work() {
        const Launch& launch = *shared->launch;
        where.threads_per_grid = {launch.grid[0], launch.grid[1], launch.grid[2]};
        where.full_threads_per_group = {launch.group[0], launch.group[1], launch.group[2]};
        auto groups = [&](int axis) { return (launch.grid[axis] + launch.group[axis] - 1) / launch.group[axis]; };
        where.groups_per_grid = {groups(0), groups(1), groups(2)};
        where.grid_origin = {0, 0, 0};
        entry = launch.entry;
        call.buffers = shared->memory->bound;
        group.prepare(launch.group_memory_bytes, launch.dynamic_group_bytes, launch.checked);
        threads.prepare(launch.checked ? &group : nullptr, shared->memory);
        u64 total = u64(where.groups_per_grid.x) * where.groups_per_grid.y * where.groups_per_grid.z;
        if (sigsetjmp(out, 0) == 0) {
            while (!shared->stop.load(std::memory_order_relaxed)) {
                u64 number = shared->next_group.fetch_add(1, std::memory_order_relaxed);
                if (number >= total) break;
                run_group(number);
            }
        }
        // After a failure threads are left in the middle: their stacks are used again from the start.
        free_fibres = all_fibres;
        running = nullptr;
    }

    ~Worker() {
        for (Fibre* fibre : all_fibres) {
            munmap(fibre->stack, kStackBytes + kGuardBytes);
            delete fibre;
        }
        group.release();
    }
};

static thread_local Worker* worker;

// The first thing on a fibre: threads of its lane group one after the other, as long as none waits.
static void fibre_main() {
    for (;;) {
        Worker& mine = *worker;
        Fibre* me = mine.running;
        while (mine.next < mine.next_end) {
            u32 index = mine.turn(mine.next++, mine.lanes_first, mine.lanes_end);
            mine.place(index);
            mine.lanes[index].fibre = me;
            mine.entry(&mine.call, &mine.where);
            mine.lanes[mine.current].state = kDone;
        }
        mine.free_fibres.push_back(me);
        kforge_switch(&me->stack_pointer, mine.home);
    }
}

// -- faults -------------------------------------------------------------------------------------------------------------

static struct sigaction before_segv, before_bus, before_fpe;

#if defined(__x86_64__) && defined(__linux__)
constexpr int kNoAddress = SI_KERNEL;  // the processor does not say where
#else
constexpr int kNoAddress = ~0;
#endif

static void on_fault(int number, siginfo_t* info, void* context) {
    Worker* mine = worker;
    if (mine == nullptr || mine->running == nullptr) {
        const struct sigaction& old = number == SIGFPE ? before_fpe : number == SIGBUS ? before_bus : before_segv;
        sigaction(number, &old, nullptr);
        return;
    }
    const void* pc = nullptr;
#if defined(__x86_64__) && defined(__linux__)
    pc = reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__) && defined(__linux__)
    pc = reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#endif
    char text[300];
    if (number == SIGFPE) {
        // By zero is noticed before.
        snprintf(text, sizeof text, "an integer division has no result: the least number there is, divided by -1");
    } else {
        const char* at = static_cast<const char*>(info->si_addr);
        const char* stack = mine->running->stack;
        bool misaligned = number == SIGBUS && info->si_code == BUS_ADRALN;
        if (misaligned || (number == SIGSEGV && info->si_code == kNoAddress)) {
            snprintf(text, sizeof text, "a kernel used an address that is misaligned for a vector, or that no memory can have");
        } else if (at >= stack && at < stack + kGuardBytes) {
            snprintf(text, sizeof text, "a thread's private memory is more than its stack of %zu KiB", kStackBytes >> 10);
        } else {
            mine->shared->memory->describe(at, text, sizeof text);
        }
    }
    mine->tell(text, 0, pc);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    siglongjmp(mine->out, 1);
}

static void catch_faults() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
    sigaction(SIGFPE, &action, &before_fpe);
}

static void release_faults() {
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGBUS, &before_bus, nullptr);
    sigaction(SIGFPE, &before_fpe, nullptr);
}

#if defined(__linux__)
static Image image_of(const void* inside) {
    struct Search {
        u64 wanted;
        Image found;
    } search{reinterpret_cast<u64>(inside), {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* given) {
            Search& search = *static_cast<Search*>(given);
            u64 low = ~0ull, high = 0, written = 0, written_end = 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                if (header.p_type != PT_LOAD) continue;
                u64 begin = info->dlpi_addr + header.p_vaddr;
                low = begin < low ? begin : low;
                high = begin + header.p_memsz > high ? begin + header.p_memsz : high;
                if (header.p_flags & PF_W) written = begin, written_end = begin + header.p_memsz;
            }
            if (search.wanted < low || search.wanted >= high) return 0;
            search.found = {reinterpret_cast<const char*>(low), reinterpret_cast<const char*>(high),
                            reinterpret_cast<const char*>(written), reinterpret_cast<const char*>(written_end)};
            return 1;
        },
        &search);
    return search.found;
}
#else
static Image image_of(const void* inside) {
    // Wide enough for a kernel's library, which is small.
    const char* at = static_cast<const char*>(inside);
    return {at - (1 << 20), at + (1 << 20), nullptr, nullptr};
}
#endif

static std::mutex one_launch;
static std::vector<Worker*> rested;

static void run_worker(Worker* mine) {
    worker = mine;
    stack_t alternate{}, old{};
    constexpr size_t kSignalStack = 64 << 10;
    if (mine->signal_stack == nullptr) mine->signal_stack = static_cast<char*>(malloc(kSignalStack));
    alternate.ss_sp = mine->signal_stack;
    alternate.ss_size = kSignalStack;
    sigaltstack(&alternate, &old);
    // Whatever the caller set: rounding to nearest, and small numbers kept.
    fenv_t its_own;
    fegetenv(&its_own);
    fesetenv(FE_DFL_ENV);
    mine->work();
    fesetenv(&its_own);
    sigaltstack(&old, nullptr);
    worker = nullptr;
}

}  // namespace kforge

extern "C" {

const Where* kforge_where() { return &worker->where; }

void kforge_together(Resolve resolve, void* value, u32 line, u32 column) {
    Worker& mine = *worker;
    Lane& lane = mine.lanes[mine.current];
    lane.state = kTogether;
    lane.resolve = resolve;
    lane.value = value;
    lane.line = line;
    lane.column = column;
    lane.fences = 0;
    mine.leave();
}

void kforge_lane_barrier(u32 fences, u32 line, u32 column) {
    Worker& mine = *worker;
    Lane& lane = mine.lanes[mine.current];
    lane.state = kTogether;
    lane.resolve = nullptr;
    lane.line = line;
    lane.column = column;
    lane.fences = fences;
    mine.leave();
}

void kforge_barrier(u32 fences, u32 line, u32 column) {
    Worker& mine = *worker;
    Lane& lane = mine.lanes[mine.current];
    lane.state = kBarrier;
    lane.line = line;
    lane.column = column;
    lane.fences = fences;
    mine.leave();
}

void kforge_fence(bool for_other_groups) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (worker->shared->launch->checked) worker->threads.own_fence(for_other_groups);
}

void* kforge_group_memory(u32 id, u64 bytes, u64 align, u32 line) {
    Worker& mine = *worker;
    char text[200];
    void* place = mine.group.get(id, bytes, align, text, sizeof text);
    if (place == nullptr) mine.fail(text, line);
    return place;
}

void* kforge_dynamic_group_memory(u32 line) {
    u32 bytes = worker->shared->launch->dynamic_group_bytes;
    if (bytes == 0) worker->fail("a shared variable without a size, and the launch gives none", line);
    return kforge_group_memory(0, bytes, 128, line);
}

void kforge_fail(const char* message, u32 line) { worker->fail(message, line); }

void kforge_fail_at(const char* message, const void* pc) {
    worker->tell(message, 0, pc);
    siglongjmp(worker->out, 1);
}

Threads* kforge_threads() { return worker == nullptr ? nullptr : &worker->threads; }

u32 kforge_least_alignment() { return worker == nullptr ? 0 : worker->shared->launch->least_alignment; }

bool kforge_is_private(const void* place) {
    Worker* mine = worker;
    if (mine == nullptr || mine->running == nullptr) return true;
    const char* at = static_cast<const char*>(place);
    // A thread's own stack, or that of another thread that handed it a pointer.
    const char* stack = mine->running->stack;
    return at >= stack && at < stack + kGuardBytes + kStackBytes;
}

bool kforge_is_known(const void* place) {
    const Worker& mine = *worker;
    const char* at = static_cast<const char*>(place);
    auto within = [&](const auto& thing) {
        const char* begin = reinterpret_cast<const char*>(&thing);
        return at >= begin && at < begin + sizeof thing;
    };
    if (at >= mine.shared->image.begin && at < mine.shared->image.end) return true;
    if (within(mine) || within(*mine.shared) || within(*mine.shared->memory)) return true;
    for (const Fibre* fibre : mine.all_fibres) {
        if (at >= fibre->stack && at < fibre->stack + kGuardBytes + kStackBytes) return true;
    }
    return false;
}

// 0, or 1 with the report filled in.
int kforge_launch(const Launch* launch, Report* report) {
    std::lock_guard<std::mutex> lock(one_launch);
    report->status = 0;
    u64 total = 1;
    for (int axis = 0; axis < 3; ++axis) total *= (u64(launch->grid[axis]) + launch->group[axis] - 1) / launch->group[axis];
    Memory memory;
    Shared shared;
    shared.launch = launch;
    shared.report = report;
    shared.memory = &memory;
    shared.image = image_of(reinterpret_cast<const void*>(launch->entry));
    if (!memory.bind(*launch, total, shared.image.variables_begin, shared.image.variables_end, report)) return 1;
    u32 wanted = launch->workers < 1 ? 1 : launch->workers;
    if (total < wanted) wanted = u32(total);
    while (rested.size() < wanted) rested.push_back(new Worker);
    catch_faults();
    std::vector<std::thread> others;
    for (u32 i = 0; i < wanted; ++i) rested[i]->shared = &shared;
    for (u32 i = 1; i < wanted; ++i) others.emplace_back(run_worker, rested[i]);
    if (wanted) run_worker(rested[0]);
    for (std::thread& other : others) other.join();
    release_faults();
    memory.give_back(report->status == 0);
    return report->status;
}
}
