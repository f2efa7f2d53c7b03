// A layer's norms, a row at a time.
#pragma once
#include <cmath>

#include "blocks.h"

namespace LATCHWORK_ISA {

struct Normaliser {
    int64_t kind, width, size;  // size: of a row with its padding
    float epsilon;
    float *weight, *bias;  // padded with zeros
    Mask mask;             // of the last vector

    // A row: hat (size, may be null) is x (width) centred and scaled; y (size, and again into `copy` if there is one) =
    // weight hat + bias; scale (may be null) is the scale. Up to LANES - 1 numbers after x are read, and not used; the
    // padding of what is written is zero.
    struct Row {
        const float* x;
        float *hat, *y, *copy = nullptr, *scale = nullptr;
    };
    void operator()(Row row) const {
        each(1, [&](int64_t) { return row; });
    }
    // row(r) for r < count. Some at a time, so that their sums do not wait for each other.
    template <class F>
    void each(int64_t count, F row) const {
        int64_t r = 0;
        for (; r + TOGETHER <= count; r += TOGETHER) some<TOGETHER>(r, row);
        for (; r < count; ++r) some<1>(r, row);
    }
    static constexpr int64_t TOGETHER = 4;
    template <int64_t COUNT, class F>
    LATCHWORK_INLINE void some(int64_t first, F row) const {
        const int64_t last = (width - 1) / LANES * LANES;  // where the last vector begins
        Row rows[COUNT];
        Lanes total[COUNT], squares[COUNT];
        float mean[COUNT], scale[COUNT];
#pragma GCC unroll 4
        for (int64_t i = 0; i < COUNT; ++i) rows[i] = row(first + i), total[i] = squares[i] = Lanes{};
        for (int64_t j = 0; j < last && kind == LAYER_NORM; j += LANES)
#pragma GCC unroll 4
            for (int64_t i = 0; i < COUNT; ++i) total[i] += load(rows[i].x + j);
#pragma GCC unroll 4
        for (int64_t i = 0; i < COUNT; ++i) total[i] += keep(load(rows[i].x + last), mask);
        sums<COUNT>(total, mean);
        for (int64_t i = 0; i < COUNT; ++i) mean[i] = kind == LAYER_NORM ? mean[i] / static_cast<float>(width) : 0.0f;
        for (int64_t j = 0; j < last; j += LANES)
#pragma GCC unroll 4
            for (int64_t i = 0; i < COUNT; ++i) {
                const Lanes centred = load(rows[i].x + j) - mean[i];
                squares[i] += centred * centred;
            }
#pragma GCC unroll 4
        for (int64_t i = 0; i < COUNT; ++i) {
            const Lanes centred = keep(load(rows[i].x + last) - mean[i], mask);
            squares[i] += centred * centred;
        }
        sums<COUNT>(squares, scale);
        for (int64_t i = 0; i < COUNT; ++i)
            scale[i] = kind == NO_NORM ? 1.0f : 1.0f / std::sqrt(scale[i] / static_cast<float>(width) + epsilon);
        for (int64_t i = 0; i < COUNT; ++i) write(rows[i], mean[i], scale[i]);
    }
    LATCHWORK_INLINE void write(Row row, float mean, float scale) const {
        const int64_t last = (width - 1) / LANES * LANES;
        const auto put = [&](int64_t j, Lanes scaled) {
            const Lanes value = scaled * load(weight + j) + load(bias + j);
            if (row.hat) store(row.hat + j, scaled);
            if (row.copy) store(row.copy + j, value);
            store(row.y + j, value);
        };
        for (int64_t j = 0; j < last; j += LANES) put(j, (load(row.x + j) - mean) * scale);
        put(last, keep(load(row.x + last) - mean, mask) * scale);
        for (int64_t j = last + LANES; j < size; j += LANES) put(j, Lanes{});
        if (row.scale) *row.scale = scale;
    }
    // grad_x += what grad_y brings; adds to grad_weight and grad_bias too.
    void back(const float* grad_y, const float* hat, float scale, float* grad_x, float* grad_weight,
              float* grad_bias) const {
        if (kind == NO_NORM) {
            for (int64_t j = 0; j < size; j += LANES) store(grad_x + j, load(grad_x + j) + load(grad_y + j));
            return;
        }
        Lanes total{}, along{};
        for (int64_t j = 0; j < size; j += LANES) {
            const Lanes grad = load(grad_y + j), h = load(hat + j);
            store(grad_weight + j, load(grad_weight + j) + grad * h);
            store(grad_bias + j, load(grad_bias + j) + grad);
            total += grad * load(weight + j);
            along += grad * load(weight + j) * h;
        }
        const float mean = kind == LAYER_NORM ? sum(total) / static_cast<float>(width) : 0.0f;
        const float slope = sum(along) / static_cast<float>(width);
        for (int64_t j = 0; j < size; j += LANES) {
            const Lanes inner = load(grad_y + j) * load(weight + j) - mean - load(hat + j) * slope;
            store(grad_x + j, load(grad_x + j) + inner * scale);
        }
        for (int64_t j = width; j < size; ++j) grad_x[j] = 0;
    }
};

// Takes room for two rows of `width` numbers with their padding.
inline Normaliser normaliser(const Norm& norm, int64_t width, Arena& arena) {
    const int64_t size = panels(width), kind = norm.kind;
    Normaliser made{kind, width, size, static_cast<float>(norm.epsilon), arena.take(size), arena.take(size), tail_mask(width)};
    copy_padded(norm.weight, kind == NO_NORM ? 0 : width, size, made.weight);
    for (int64_t j = 0; j < width && kind == NO_NORM; ++j) made.weight[j] = 1.0f;
    copy_padded(norm.bias, kind == LAYER_NORM ? width : 0, size, made.bias);
    return made;
}

}  // namespace LATCHWORK_ISA
