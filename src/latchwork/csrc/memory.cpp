// Memory of the system, for the kernels and for what they write.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
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

// Large blocks for what the kernels write. The system hands out large memory afresh, a page at a time, and clears each: that
// costs as much as what a kernel does. So a block that is given back waits for the next that asks, and fresh ones come in
// pages of 2 MB.
namespace {

// A tensor of one dimension as DLPack describes it (github.com/dmlc/dlpack, DLManagedTensor).
struct Lent {
    void* data;
    int32_t device[2], dimensions;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
    void* context;
    void (*give_back)(Lent*);
};

struct Block {
    Lent lent;
    int64_t count, size, most;  // most: see latchwork_lend
    void* data;
    Block *older, *newer;  // of those that wait
};

class Store {
    std::mutex mutex;
    Block ends{};  // newer: the one that waits longest; older: the one that came last
    int64_t waiting = 0;  // bytes

    void take_out(Block* block) {
        block->older->newer = block->newer, block->newer->older = block->older;
        waiting -= block->size;
    }
    void drop(int64_t bytes) {  // at least so many, or all; the oldest first
        for (const int64_t rest = waiting - bytes; waiting > rest && waiting > 0;) {
            Block* block = ends.newer;
            take_out(block);
            latchwork::release(block->data);
            delete block;
        }
    }

  public:
    Store() { ends.older = ends.newer = &ends; }
    // The smallest that waits and is large enough, but not of twice the size. If there is none, as much as is asked for goes
    // back to the system: with those in use, there is never more than was in use at one time.
    Block* take(int64_t size) {
        const std::lock_guard<std::mutex> lock(mutex);
        Block* found = nullptr;
        for (Block* block = ends.newer; block != &ends; block = block->newer)
            if (size <= block->size && block->size / 2 <= size && (!found || block->size < found->size)) found = block;
        if (found)
            take_out(found);
        else
            drop(size);
        return found;
    }
    void keep(Block* block, int64_t most) {  // most: bytes that wait then
        const std::lock_guard<std::mutex> lock(mutex);
        block->older = ends.older, block->newer = &ends;
        ends.older->newer = block, ends.older = block;
        waiting += block->size;
        if (waiting > most) drop(waiting - most);
    }
    int64_t drop_to(int64_t most) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (waiting > most) drop(waiting - most);
        return waiting;
    }
};
Store& store() {
    static Store& only = *new Store;  // for ever: tensors may go after the statics of this library
    return only;
}

void use_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice only: no is no error
#endif
}

}  // namespace

static void give_back(Lent* lent) {
    Block* block = static_cast<Block*>(lent->context);
    store().keep(block, block->most);
}

// A DLPack tensor of `count` numbers of a kind (DLPack's code) and so many bits, or null without memory. When
// it is given back, at most `most` bytes wait with it.
EXPORT void* latchwork_lend(int64_t count, int64_t kind, int64_t bits, int64_t most) try {
    if (count < 0 || count > PTRDIFF_MAX / bits) return nullptr;
    const int64_t size = count * bits / 8;
    Block* block = store().take(size);
    if (!block) {
        void* data = latchwork::allocate(size, 1);
        block = new (std::nothrow) Block{};
        if (!block) latchwork::release(data), latchwork::out_of_memory();
        use_huge_pages(data, size);
        block->size = size, block->data = data;
    }
    block->count = count, block->most = most;
    block->lent = {block->data, {1, 0}, 1, static_cast<uint8_t>(kind), static_cast<uint8_t>(bits), 1, &block->count, nullptr,
                   0, block, give_back};
    return &block->lent;
} catch (const std::bad_alloc&) {
    return nullptr;
}

// Bytes that wait, after all beyond `most` went back to the system.
EXPORT int64_t latchwork_idle_bytes(int64_t most) { return store().drop_to(most); }
