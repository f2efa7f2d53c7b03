// Memory for the length of a call, aligned for vectors.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace LATCHWORK_ISA {

template <class C>
struct Scratch {
    C* data;
    explicit Scratch(int64_t size) {  // exactly so many: the address sanitizer sees one too far
        void* block = nullptr;
        if (posix_memalign(&block, 64, size * sizeof(C))) std::abort();
        data = static_cast<C*>(block);
    }
    ~Scratch() { std::free(data); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

}  // namespace LATCHWORK_ISA
