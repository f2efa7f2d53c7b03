// Memory for the length of a call, aligned for vectors.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace LATCHWORK_ISA {

template <class C>
struct Scratch {
    C* data;
    explicit Scratch(int64_t size) : data(static_cast<C*>(std::aligned_alloc(64, (size * sizeof(C) / 64 + 1) * 64))) {
        if (!data) std::abort();
    }
    ~Scratch() { std::free(data); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

}  // namespace LATCHWORK_ISA
