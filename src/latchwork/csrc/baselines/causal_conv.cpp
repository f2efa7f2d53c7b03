// A causal convolution of each channel by itself, and silu of it. Compiled once for each instruction set.
#include "conv.h"

namespace LATCHWORK_ISA {

constexpr int64_t PIECE = 64;  // steps at a time for all channels: what is read and written stays in the cache

int causal_conv(const CausalConv& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const ConvWeights w(p.weight, p.bias, p.width, p.taps);
    in_parallel(p.batch, p.threads, [&](int64_t b) {
        const ConvRow conv{w, p.u, p.before + b * (p.taps - 1) * p.width, b};
        for (int64_t begin = 0; begin < p.time; begin += PIECE)
            conv.forth(begin, p.time - begin < PIECE ? p.time - begin : PIECE,
                       [&](int64_t t, int64_t j, int64_t lanes, Lanes, Lanes y) {
                           store_part(row(p.y, b, begin + t) + j, p.silu ? y * sigmoid(y) : y, lanes);
                       });
    });
    return DONE;
}

// grad_weight and grad_bias must be zeros.
int causal_conv_back(const CausalConv& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const ConvWeights w(p.weight, p.bias, p.width, p.taps);
    const auto part = [&](int64_t b, float* sums) {
        const ConvRow conv{w, p.u, p.before + b * (p.taps - 1) * p.width, b};
        Scratch<float> slopes(PIECE * w.row), later(MOST_TAPS * w.row);
        std::memset(later.data, 0, MOST_TAPS * w.row * sizeof(float));
        for (int64_t begin = (p.time - 1) / PIECE * PIECE; begin >= 0; begin -= PIECE) {
            const int64_t steps = p.time - begin < PIECE ? p.time - begin : PIECE;
            if (p.silu)
                conv.forth(begin, steps, [&](int64_t t, int64_t j, int64_t, Lanes, Lanes y) {
                    const Lanes opened = sigmoid(y);
                    store(slopes.data + t * w.row + j, opened * (1.0f + y * (1.0f - opened)));
                });
            conv.back(
                begin, steps, later.data, sums, p.grad_before + b * (p.taps - 1) * p.width,
                [&](int64_t t, int64_t j, int64_t lanes) {
                    const Lanes grad = load_part(row(p.grad_y, b, begin + t) + j, lanes);
                    return p.silu ? grad * load(slopes.data + t * w.row + j) : grad;
                },
                [&](int64_t t, int64_t j, int64_t lanes, Lanes grad) { store_part(row(p.grad_u, b, begin + t) + j, grad, lanes); });
        }
    };
    with_sums(p.batch, p.threads, w.size(), part, [&](const float* sums) { w.add(sums, p.grad_weight, p.grad_bias); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(causal_conv, CausalConv)
ENTRY(causal_conv_back, CausalConv)
