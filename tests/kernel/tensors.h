// Random tensors for the kernel to read and write, in memory where every wrong access shows.
#pragma once
#include "cases.h"
#include "definition.h"

namespace {

constexpr int64_t BOOL = -1, WHOLE = -2;  // the dtypes of reset and of choices, int64

// A tensor (B, T, inner) in a heap block that ends with its last element, so that the address sanitizer sees one
// element too far. Between rows there is padding: NaN for who reads it, and checked for who writes it.
struct Tensor {
    int64_t dtype, batch, time, inner, size, batch_stride, time_stride;  // size: bytes of an element
    std::vector<uint8_t> block;

    Tensor(Random& random, int64_t dtype, int64_t batch, int64_t time, int64_t inner, bool input)
        : dtype(dtype), batch(batch), time(time), inner(inner), size(dtype == BOOL ? 1 : dtype == WHOLE ? 8 : definition::bytes(dtype)) {
        const int64_t row = inner + random.pick({0, 0, 1, 3, 8, 13}), gap = random.pick({0, 0, 1, 7, 16});
        batch_stride = row, time_stride = batch * row + gap;  // (T, B, ...) in memory
        if (random.percent(70)) time_stride = row, batch_stride = time * row + gap;
        if (input && random.percent(10)) batch_stride = 0;  // expanded
        if (input && random.percent(5)) time_stride = 0;
        const int64_t last = (batch - 1) * batch_stride + (time - 1) * time_stride;
        block.assign(time ? (last + inner) * size : 0, 0xff);
    }
    Rows rows() { return {block.data(), batch_stride, time_stride}; }
    uint8_t* at(int64_t b, int64_t t, int64_t e) { return &block[(b * batch_stride + t * time_stride + e) * size]; }
    template <class F>
    void fill(F&& draw) {
        for (int64_t b = 0; b < batch; ++b)
            for (int64_t t = 0; t < time; ++t)
                for (int64_t e = 0; e < inner; ++e) put(at(b, t, e), draw());
    }
    void put(uint8_t* to, double value) const {
        const int64_t whole = dtype == WHOLE ? static_cast<int64_t>(value) : 0;
        if (dtype == WHOLE)
            std::memcpy(to, &whole, 8);
        else if (dtype == BOOL)
            *to = value != 0;
        else
            definition::write(dtype, to, value);
    }
    template <class C>
    void append(int64_t b, int64_t t, int64_t unit, int64_t count, std::vector<C>& to) {
        for (int64_t e = unit * count; e < (unit + 1) * count; ++e)
            to.push_back(static_cast<C>(definition::read(dtype, at(b, t, e))));
    }
    bool padding_untouched() {  // asked last: it wipes out the rows
        for (int64_t b = 0; b < batch; ++b)
            for (int64_t t = 0; t < time; ++t) std::memset(at(b, t, 0), 0xff, inner * size);
        return std::all_of(block.begin(), block.end(), [](uint8_t byte) { return byte == 0xff; });
    }
};

}  // namespace
