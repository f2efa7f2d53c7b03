// A causal convolution of each channel by itself over some steps of one row of the batch, forth and back. Strips of steps are
// taken in order, and back again from the last to the first.
#pragma once
#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t MOST_TAPS = 8;

// The weights (taps, row), by steps, with the bias behind them; and their sums in the same form.
struct ConvWeights {
    const int64_t width, taps, row;
    Scratch<float> memory;
    ConvWeights(const float* weight, const float* given_bias, int64_t width, int64_t taps)
        : width(width), taps(taps), row(round_up(width, LANES)), memory(size()) {
        std::memset(memory.data, 0, size() * sizeof(float));
        for (int64_t j = 0; j < width; ++j)
            for (int64_t k = 0; k < taps; ++k) memory.data[k * row + j] = weight[j * taps + k];
        if (given_bias) std::memcpy(memory.data + taps * row, given_bias, width * sizeof(float));
    }
    int64_t size() const { return line((taps + 1) * row); }
    void add(const float* sums, float* grad_weight, float* grad_bias) const {
        for (int64_t j = 0; j < width; ++j)
            for (int64_t k = 0; k < taps; ++k) grad_weight[j * taps + k] += sums[k * row + j];
        add_to(sums + taps * row, width, grad_bias);
    }
};

struct ConvRow {
    const ConvWeights& w;
    const Rows& inputs;
    const float* before;  // (taps - 1, width), the inputs before the first
    const int64_t b;
    const float* input(int64_t t) const { return t >= 0 ? row(inputs, b, t) : before + (t + w.taps - 1) * w.width; }

    // put(t, j, lanes, input, sum) for each of some steps, t counted from `begin`, and each vector of channels.
    template <class Put>
    void forth(int64_t begin, int64_t steps, Put put) const {
        w.taps == 4 ? forth_by<4>(begin, steps, put) : forth_by<0>(begin, steps, put);
    }
    // The way back, from the last step to the first. grad(t, j, lanes): of the sum; put(t, j, lanes, grad) takes that of the
    // input. later: (taps - 1, row), of the sums at the steps behind, zeros at first. sums: as of ConvWeights.
    template <class Grad, class Put>
    void back(int64_t begin, int64_t steps, float* later, float* sums, float* grad_before, Grad grad, Put put) const {
        w.taps == 4 ? back_by<4>(begin, steps, later, sums, grad_before, grad, put)
                    : back_by<0>(begin, steps, later, sums, grad_before, grad, put);
    }

  private:
    template <int64_t TAPS, class Put>  // 0: not known
    void forth_by(int64_t begin, int64_t steps, Put put) const {
        const int64_t K = TAPS ? TAPS : w.taps;
        for (int64_t j = 0; j < w.width; j += LANES) {
            const int64_t lanes = w.width - j;
            Lanes past[MOST_TAPS] = {}, weights[MOST_TAPS] = {};
            for (int64_t k = 0; k < K; ++k) weights[k] = load(w.memory.data + k * w.row + j);
            for (int64_t k = 1; k < K; ++k) past[k] = load_part(input(begin + k - K) + j, lanes);
            const Lanes bias = load(w.memory.data + K * w.row + j);
            for (int64_t t = 0; t < steps; ++t) {
                for (int64_t k = 0; k + 1 < K; ++k) past[k] = past[k + 1];
                past[K - 1] = load_part(row(inputs, b, begin + t) + j, lanes);
                Lanes total = bias;
                for (int64_t k = 0; k < K; ++k) total += weights[k] * past[k];
                put(t, j, lanes, past[K - 1], total);
            }
        }
    }
    template <int64_t TAPS, class Grad, class Put>
    void back_by(int64_t begin, int64_t steps, float* later, float* sums, float* grad_before, Grad grad, Put put) const {
        const int64_t K = TAPS ? TAPS : w.taps;
        for (int64_t j = 0; j < w.width; j += LANES) {
            const int64_t lanes = w.width - j;
            Lanes window[MOST_TAPS] = {}, weights[MOST_TAPS] = {}, of_weights[MOST_TAPS] = {};  // window[k]: of step t + k
            Lanes of_bias = load(sums + K * w.row + j);
            for (int64_t k = 0; k < K; ++k)
                weights[k] = load(w.memory.data + k * w.row + j), of_weights[k] = load(sums + k * w.row + j);
            for (int64_t k = 0; k + 1 < K; ++k) window[k] = load(later + k * w.row + j);
            const auto step = [&](const float* from, Lanes now) {
                for (int64_t k = K - 1; k > 0; --k) window[k] = window[k - 1];
                window[0] = now;
                const Lanes u = load_part(from + j, lanes);
                Lanes of_input{};
                for (int64_t k = 0; k < K; ++k) of_input += weights[K - 1 - k] * window[k], of_weights[K - 1 - k] += u * window[k];
                return of_input;
            };
            for (int64_t t = steps - 1; t >= 0; --t) {
                const Lanes now = grad(t, j, lanes);
                of_bias += now;
                put(t, j, lanes, step(row(inputs, b, begin + t), now));
            }
            for (int64_t t = -1; t > -K && !begin; --t)
                store_part(grad_before + (t + K - 1) * w.width + j, step(input(t), Lanes{}), lanes);
            for (int64_t k = 0; k < K; ++k) store(sums + k * w.row + j, of_weights[k]);
            for (int64_t k = 0; k + 1 < K; ++k) store(later + k * w.row + j, window[k]);
            store(sums + K * w.row + j, of_bias);
        }
    }
};

}  // namespace LATCHWORK_ISA
