// What cells whose gates see the output before share: their weights, products of a few rows, and loops over rows.
#pragma once
#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t TILE = LANES == 16 ? 8 : ROWS;  // rows of a product: batches are multiples of 8 more often than of 12

// A weight packed for h -> gates, (inputs, gates width), or for the way back, (gates width, inputs). Element (gate g, column
// j, input k) is at g * gate + j * column + k * input.
struct Recurrent {
    const int64_t inputs, columns;
    Scratch<float> whole, packed;
    Recurrent(const float* weight, int64_t gates, int64_t width, int64_t inputs, int64_t gate, int64_t column, int64_t input,
              bool back)
        : inputs(inputs), columns(gates * width), whole(inputs * columns),
          packed(back ? packed_size(columns, inputs) : packed_size(inputs, columns)) {
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t g = 0; g < gates; ++g)
                for (int64_t j = 0; j < width; ++j)
                    whole.data[k * columns + g * width + j] = weight[g * gate + j * column + k * input];
        if (back)
            pack(whole.data, columns, inputs, 1, columns, packed.data);
        else
            pack(whole.data, inputs, columns, columns, 1, packed.data);
    }
};

// part(begin, end) for the rows of the batch, spread over threads.
template <class Part>
void over_rows(int64_t rows, int64_t threads, Part part) {
    threads = threads < 1 ? 1 : threads < rows ? threads : rows;
    in_parallel(threads, threads, [&](int64_t i) { part(rows * i / threads, rows * (i + 1) / threads); });
}
constexpr int64_t AHEAD = 3;  // steps that numbers are asked for before they are read

// C = x B + bias of one row, B packed; a few panels at a time, so that the multiply-add units do not wait.
template <int64_t PANELS>
LATCHWORK_INLINE void multiply_row(const float* x, const float* b, int64_t k, const float* bias, float* c) {
    Lanes total[2 * PANELS];
#pragma GCC unroll 8
    for (int64_t v = 0; v < 2 * PANELS; ++v) total[v] = bias ? load(bias + v * LANES) : Lanes{};
    for (int64_t i = 0; i < k; ++i) {
        const Lanes factor = all(x[i]);
#pragma GCC unroll 8
        for (int64_t v = 0; v < 2 * PANELS; ++v) total[v] += factor * load(b + v / 2 * k * PANEL + i * PANEL + v % 2 * LANES);
    }
#pragma GCC unroll 8
    for (int64_t v = 0; v < 2 * PANELS; ++v) store(c + v * LANES, total[v]);
}
// C (rows, n) = X B + bias, with room for whole tiles and panels.
inline void multiply_rows(const float* x, int64_t ldx, const float* b, int64_t rows, int64_t k, int64_t n, const float* bias,
                          float* c, int64_t ldc) {
    if (rows > 1) return multiply<TILE>(x, ldx, b, round_up(rows, TILE), k, n, bias, c, ldc);
    for (int64_t j = 0; j < n; j += 4 * PANEL) {
        const int64_t left = (n - j + PANEL - 1) / PANEL;
        (left > 3 ? multiply_row<4> : left > 2 ? multiply_row<3> : left > 1 ? multiply_row<2> : multiply_row<1>)(
            x, b + j * k, k, bias ? bias + j : nullptr, c + j);
    }
}

}  // namespace LATCHWORK_ISA
