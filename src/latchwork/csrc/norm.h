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

    // hat (size, may be null): the input (width) centred and scaled; y (size, and again into `copy` if there is one) =
    // weight hat + bias. Returns the scale. Up to LANES - 1 numbers after x are read, and not used; the padding of what is
    // written is zero.
    float operator()(const float* x, float* hat, float* y, float* copy = nullptr) const {
        const int64_t last = (width - 1) / LANES * LANES;  // where the last vector begins
        Lanes total{}, squares{};
        for (int64_t j = 0; j < last; j += LANES) total += load(x + j);
        total += keep(load(x + last), mask);
        const float mean = kind == LAYER_NORM ? sum(total) / static_cast<float>(width) : 0.0f;
        for (int64_t j = 0; j < last; j += LANES) {
            const Lanes centred = load(x + j) - mean;
            squares += centred * centred;
        }
        const Lanes ending = keep(load(x + last) - mean, mask);
        squares += ending * ending;
        const float scale = kind == NO_NORM ? 1.0f : 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
        const auto put = [&](int64_t j, Lanes scaled) {
            const Lanes value = scaled * load(weight + j) + load(bias + j);
            if (hat) store(hat + j, scaled);
            if (copy) store(copy + j, value);
            store(y + j, value);
        };
        for (int64_t j = 0; j < last; j += LANES) put(j, (load(x + j) - mean) * scale);
        put(last, ending * scale);
        for (int64_t j = last + LANES; j < size; j += LANES) put(j, Lanes{});
        return scale;
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
