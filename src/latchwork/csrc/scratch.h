// Memory for the length of a call, aligned for vectors; loops over threads that may run out of it.
#pragma once
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

// In memory.cpp, which is compiled once: what is inline here is compiled for each instruction set.
namespace latchwork {
// Throws std::bad_alloc; to be given to `release`. That nothing else points there makes the matrix units 6% faster.
__attribute__((malloc, assume_aligned(64))) void* allocate(int64_t count, int64_t size);
void release(void* block);
[[noreturn]] void out_of_memory();  // throws std::bad_alloc
}  // namespace latchwork

namespace LATCHWORK_ISA {

template <class C>
struct Scratch {
    C* data;
    // Exactly so many: the address sanitizer sees one too far.
    explicit Scratch(int64_t size) : data(static_cast<C*>(latchwork::allocate(size, sizeof(C)))) {}
    ~Scratch() { latchwork::release(data); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

// part(i) for i < parts, spread over threads. No exception may leave a thread: one that is thrown there is thrown again
// after the last part.
template <class Part>
void in_parallel(int64_t parts, [[maybe_unused]] int64_t threads, Part part) {
    bool failed = false;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < parts; ++i) {
        try {
            part(i);
        } catch (...) {
            __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
        }
    }
    if (failed) latchwork::out_of_memory();
}

// part(thread, team) on all threads of a team at once, of so many threads or, where there are no more, fewer. They may wait
// for each other, so no part may throw.
template <class Part>
void in_team([[maybe_unused]] int64_t threads, Part part) {
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads(threads)
        part(omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    part(0, 1);
}

}  // namespace LATCHWORK_ISA
