// Memory of the system, for the kernels and for what they write.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#ifdef _WIN32
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
int64_t until_failure = -1;  // allocations that succeed before one fails; below 0: none fails
}

// For tests: after so many more, one allocation fails as if there were no memory. A negative number: none does. Returns
// the number that was left.
EXPORT int64_t latchwork_fail_allocation(int64_t after) {
    return __atomic_exchange_n(&until_failure, after, __ATOMIC_RELAXED);
}

namespace latchwork {

[[noreturn]] void out_of_memory() { throw std::bad_alloc(); }

void* allocate(int64_t count, int64_t size) {
    if (__atomic_load_n(&until_failure, __ATOMIC_RELAXED) >= 0 &&
        __atomic_fetch_sub(&until_failure, 1, __ATOMIC_RELAXED) == 0)
        out_of_memory();
    if (count < 0 || count > PTRDIFF_MAX / size) out_of_memory();
    void* block = nullptr;
#ifdef _WIN32
    block = _aligned_malloc(count * size + 1, 64);  // + 1: of nothing there is an address too
    if (!block) out_of_memory();
#else
    if (posix_memalign(&block, 64, count * size)) out_of_memory();
#endif
    return block;
}

void release(void* block) {
#ifdef _WIN32
    _aligned_free(block);
#else
    std::free(block);
#endif
}

}  // namespace latchwork

// Fresh memory from the system comes a page at a time, at the first write to each: for a large output that costs several
// times what the kernel does. In pages of 2 MB it costs little.
EXPORT void latchwork_huge_pages(void* data, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice only: no is no error
#else
    (void)data, (void)bytes;
#endif
}
