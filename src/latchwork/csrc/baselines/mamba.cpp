// Mamba's selective scan and the convolution before it. Compiled once for each instruction set.
#include <initializer_list>
#include <type_traits>

#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t SEGMENT = 8;  // steps whose states are held at once in the backward pass; baselines/kernel.py has it too
constexpr float LOG2_E = 1.44269504f;

// One vector of channels of one row of the batch: what forward and backward do alike.
template <int64_t STATES>
struct Channels {
    const SelectiveScan& p;
    const int64_t b, first, lanes;
    int64_t states() const { return STATES ? STATES : p.states; }
    Lanes at(const Rows& rows, int64_t t) const { return load_part(row(rows, b, t) + first, lanes); }
    void put(const Rows& rows, int64_t t, Lanes value) const { store_part(row(rows, b, t) + first, value, lanes); }
    Lanes at(const float* table, int64_t n) const { return load_part(table + n * p.width + first, lanes); }
    void put(float* table, int64_t n, Lanes value) const { store_part(table + n * p.width + first, value, lanes); }
};

// Ask for the rows of a segment before they are needed: the steps of one vector of channels lie too far apart for the
// processor to guess.
inline void prefetch(const Rows& rows, int64_t b, int64_t begin, int64_t time, int64_t width) {
    for (int64_t t = begin < 0 ? 0 : begin; t < begin + SEGMENT && t < time; ++t)
        for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(row(rows, b, t) + j);
}

// decay log2(e) of these channels, states vectors.
template <class C>
void load_decay(const C& c, float* to) {
    for (int64_t n = 0; n < c.states(); ++n) store(to + n * LANES, c.at(c.p.decay, n) * LOG2_E);
}

// Forward through one segment for one vector of channels, a few states at a time, which stay in registers.
template <int64_t STATES>
void scan_segment(const Channels<STATES>& c, int64_t begin, const float* decay, float* x) {
    const SelectiveScan& p = c.p;
    const int64_t N = c.states(), steps = p.time - begin < SEGMENT ? p.time - begin : SEGMENT;
    const Lanes skip = c.at(p.skip, 0);
    Lanes d[SEGMENT], du[SEGMENT], y[SEGMENT];
    for (int64_t i = 0; i < steps; ++i) {
        const Lanes u = c.at(p.u, begin + i);
        d[i] = softplus(c.at(p.dt, begin + i)), du[i] = d[i] * u, y[i] = skip * u;
    }
    const auto some = [&](auto count, int64_t n) {
        constexpr int64_t G = decltype(count)::value;
        Lanes state[G], rate[G];
        for (int64_t g = 0; g < G; ++g) state[g] = load(x + (n + g) * LANES), rate[g] = load(decay + (n + g) * LANES);
        for (int64_t i = 0; i < steps; ++i) {
            const float *write = row(p.write, c.b, begin + i) + n, *read = row(p.read, c.b, begin + i) + n;
            Lanes total = y[i];
#pragma GCC unroll 4
            for (int64_t g = 0; g < G; ++g) {
                state[g] = power_of_two(d[i] * rate[g]) * state[g] + write[g] * du[i];
                total += read[g] * state[g];
            }
            y[i] = total;
        }
        for (int64_t g = 0; g < G; ++g) store(x + (n + g) * LANES, state[g]);
    };
    int64_t n = 0;
    for (; n + 4 <= N; n += 4) some(std::integral_constant<int64_t, 4>(), n);
    for (; n < N; ++n) some(std::integral_constant<int64_t, 1>(), n);
    for (int64_t i = 0; i < steps; ++i) {
        const Lanes gate = c.at(p.gate, begin + i);
        c.put(p.y, begin + i, y[i] * gate * sigmoid(gate));
    }
}

// One row of the batch, a segment at a time for all channels, so that what is read and written stays in the cache.
template <int64_t STATES>
void scan_row(const SelectiveScan& p, int64_t b) {
    const int64_t N = STATES ? STATES : p.states, size = N * LANES, plane = N * p.width;
    const int64_t blocks = (p.width + LANES - 1) / LANES, segments = (p.time + SEGMENT - 1) / SEGMENT;
    Scratch<float> memory(2 * blocks * size);
    float *decays = memory.data, *states = decays + blocks * size;
    for (int64_t k = 0; k < blocks; ++k) {
        const Channels<STATES> c{p, b, k * LANES, p.width - k * LANES};
        load_decay(c, decays + k * size);
        for (int64_t n = 0; n < N; ++n) store(states + k * size + n * LANES, c.at(p.x0 + b * plane, n));
    }
    for (int64_t segment = 0; segment < segments; ++segment) {
        for (const Rows* rows : {&p.u, &p.dt, &p.gate, &p.y}) prefetch(*rows, b, (segment + 1) * SEGMENT, p.time, p.width);
        for (int64_t k = 0; k < blocks; ++k) {
            const Channels<STATES> c{p, b, k * LANES, p.width - k * LANES};
            const float* decay = decays + k * size;
            float* x = states + k * size;
            if (p.kept)
                for (int64_t n = 0; n < N; ++n) c.put(p.kept + (b * segments + segment) * plane, n, load(x + n * LANES));
            scan_segment(c, segment * SEGMENT, decay, x);
        }
    }
    for (int64_t k = 0; k < blocks; ++k) {
        const Channels<STATES> c{p, b, k * LANES, p.width - k * LANES};
        for (int64_t n = 0; n < N; ++n) c.put(p.x + b * plane, n, load(states + k * size + n * LANES));
    }
}

// Backward through one segment for one vector of channels: for each state the steps forth, and back again, so that it
// stays in registers. carry: the gradient of the state after the segment, and then before it. grad_read, grad_write: for
// each step and state a vector to be summed over lanes. sums: of decay, and of skip behind it.
template <int64_t STATES>
void segment_back(const Channels<STATES>& c, int64_t begin, int64_t end, float* carry, float* grad_read, float* grad_write,
                  float* sums) {
    const SelectiveScan& p = c.p;
    const int64_t N = c.states(), plane = N * p.width, segments = (p.time + SEGMENT - 1) / SEGMENT, steps = end - begin;
    const float* kept = p.kept + (c.b * segments + begin / SEGMENT) * plane;
    const Lanes skip = c.at(p.skip, 0);
    Lanes d[SEGMENT] = {}, du[SEGMENT] = {}, out[SEGMENT] = {}, y[SEGMENT] = {}, grad_du[SEGMENT] = {}, grad_d[SEGMENT] = {};
    const float *write[SEGMENT], *read[SEGMENT];
    for (int64_t i = 0; i < SEGMENT; ++i) {  // a segment that is cut short goes on with steps that change nothing
        const int64_t t = i < steps ? begin + i : begin;
        write[i] = row(p.write, c.b, t), read[i] = row(p.read, c.b, t);
        if (i >= steps) continue;
        const Lanes gate = c.at(p.gate, t);
        d[i] = softplus(c.at(p.dt, t));
        du[i] = d[i] * c.at(p.u, t);
        out[i] = c.at(p.grad_y, t) * gate * sigmoid(gate);
    }
    for (int64_t n = 0; n < N; ++n) {
        const Lanes decay = c.at(p.decay, n) * LOG2_E;
        Lanes factors[SEGMENT], states[SEGMENT + 1];
        states[0] = c.at(kept, n);
#pragma GCC unroll 8
        for (int64_t i = 0; i < SEGMENT; ++i) {
            factors[i] = power_of_two(d[i] * decay);
            states[i + 1] = factors[i] * states[i] + write[i][n] * du[i];
            y[i] += read[i][n] * states[i + 1];
        }
        Lanes grad = load(carry + n * LANES), grad_decay = load(sums + n * LANES);
#pragma GCC unroll 8
        for (int64_t i = SEGMENT - 1; i >= 0; --i) {
            float *of_read = grad_read + (i * N + n) * LANES, *of_write = grad_write + (i * N + n) * LANES;
            grad += read[i][n] * out[i];
            store(of_read, load(of_read) + states[i + 1] * out[i]);
            store(of_write, load(of_write) + grad * du[i]);
            grad_du[i] += write[i][n] * grad;
            grad *= factors[i];
            const Lanes of_exponent = grad * states[i];
            grad_decay += of_exponent * d[i];
            grad_d[i] += of_exponent * decay;
        }
        store(carry + n * LANES, grad), store(sums + n * LANES, grad_decay);
    }
    Lanes grad_skip = load(sums + N * LANES);
    for (int64_t i = 0; i < steps; ++i) {
        const int64_t t = begin + i;
        const Lanes u = c.at(p.u, t), gate = c.at(p.gate, t), opened = sigmoid(gate);
        c.put(p.grad_gate, t, c.at(p.grad_y, t) * (y[i] + skip * u) * opened * (1.0f + gate * (1.0f - opened)));
        c.put(p.grad_u, t, grad_du[i] * d[i] + skip * out[i]);
        c.put(p.grad_dt, t, (grad_d[i] * (1.0f / LOG2_E) + grad_du[i] * u) * sigmoid(c.at(p.dt, t)));
        grad_skip += out[i] * u;
    }
    store(sums + N * LANES, grad_skip);
}

template <int64_t STATES>
void scan_row_back(const SelectiveScan& p, int64_t b, float* sums) {
    const int64_t N = STATES ? STATES : p.states, size = N * LANES, plane = N * p.width;
    const int64_t blocks = (p.width + LANES - 1) / LANES;
    Scratch<float> memory(2 * SEGMENT * size + blocks * size);
    float *grad_read = memory.data, *grad_write = grad_read + SEGMENT * size;
    float* carries = grad_write + SEGMENT * size;
    for (int64_t k = 0; k < blocks; ++k) {
        const Channels<STATES> c{p, b, k * LANES, p.width - k * LANES};
        for (int64_t n = 0; n < N; ++n)
            store(carries + (k * N + n) * LANES, p.grad_x ? c.at(p.grad_x + b * plane, n) : Lanes{});
    }
    for (int64_t begin = (p.time - 1) / SEGMENT * SEGMENT; begin >= 0; begin -= SEGMENT) {
        const int64_t end = begin + SEGMENT < p.time ? begin + SEGMENT : p.time;
        std::memset(grad_read, 0, 2 * SEGMENT * size * sizeof(float));
        for (const Rows* rows : {&p.u, &p.dt, &p.gate, &p.grad_y, &p.grad_u, &p.grad_dt, &p.grad_gate})
            prefetch(*rows, b, begin - SEGMENT, p.time, p.width);
        const float* kept = p.kept + (b * ((p.time + SEGMENT - 1) / SEGMENT) + begin / SEGMENT - 1) * plane;
        for (int64_t j = 0; j < plane && begin; j += 16) __builtin_prefetch(kept + j);
        for (int64_t k = 0; k < blocks; ++k)
            segment_back(Channels<STATES>{p, b, k * LANES, p.width - k * LANES}, begin, end, carries + k * size, grad_read,
                         grad_write, sums + k * (size + LANES));
        for (int64_t t = begin; t < end; ++t)
            for (int64_t n = 0; n < N; ++n) {
                row(p.grad_read, b, t)[n] = sum(load(grad_read + ((t - begin) * N + n) * LANES));
                row(p.grad_write, b, t)[n] = sum(load(grad_write + ((t - begin) * N + n) * LANES));
            }
    }
    for (int64_t k = 0; k < blocks; ++k) {
        const Channels<STATES> c{p, b, k * LANES, p.width - k * LANES};
        for (int64_t n = 0; n < N; ++n) c.put(p.grad_x0 + b * plane, n, load(carries + (k * N + n) * LANES));
    }
}

int selective_scan(const SelectiveScan& p) {
    in_parallel(p.batch, p.threads, [&](int64_t b) { (p.states == 16 ? scan_row<16> : scan_row<0>)(p, b); });
    return DONE;
}

// grad_decay and grad_skip must be zeros.
int selective_scan_back(const SelectiveScan& p) {
    const int64_t blocks = (p.width + LANES - 1) / LANES, size = (p.states + 1) * LANES;
    const auto add = [&](const float* sums) {
        for (int64_t k = 0; k < blocks; ++k)
            for (int64_t n = 0; n <= p.states; ++n)
                for (int64_t l = 0, j = k * LANES; l < LANES && j < p.width; ++l, ++j)
                    (n < p.states ? p.grad_decay + n * p.width : p.grad_skip)[j] += sums[k * size + n * LANES + l];
    };
    with_sums(p.batch, p.threads, blocks * size, [&](int64_t b, float* sums) {
        (p.states == 16 ? scan_row_back<16> : scan_row_back<0>)(p, b, sums);
    }, add);
    return DONE;
}

// The convolution. A few steps before the first are read from `before`. Steps are taken PIECE at a time for all channels, so
// that what is read and written stays in the cache.
constexpr int64_t MOST_TAPS = 8, PIECE = 64;
template <class Part>
void over_pieces(int64_t time, int64_t width, Part part) {
    for (int64_t begin = 0; begin < time; begin += PIECE)
        for (int64_t first = 0; first < width; first += LANES) part(begin, begin + PIECE < time ? begin + PIECE : time, first);
}

template <int64_t TAPS>  // or 0, if it is not known
struct ConvChannels {
    const CausalConv& p;
    const int64_t b, first, lanes;
    Lanes weights[MOST_TAPS], bias;
    ConvChannels(const CausalConv& p, int64_t b, int64_t first) : p(p), b(b), first(first), lanes(p.width - first), bias{} {
        const int64_t count = lanes < LANES ? lanes : LANES;
        for (int64_t k = 0; k < p.taps; ++k) {
            float w[LANES] = {};
            for (int64_t l = 0; l < count; ++l) w[l] = p.weight[(first + l) * p.taps + k];
            weights[k] = load(w);
        }
        if (p.bias) bias = load_part(p.bias + first, lanes);
    }
    Lanes input(int64_t t) const {
        const int64_t past = p.taps - 1;
        return load_part(t >= 0 ? row(p.u, b, t) + first : p.before + (b * past + t + past) * p.width + first, lanes);
    }
};

template <int64_t TAPS>
void conv_channels(const CausalConv& p, int64_t b, int64_t begin, int64_t end, int64_t first) {
    const ConvChannels<TAPS> c(p, b, first);
    const int64_t K = TAPS ? TAPS : p.taps;
    Lanes past[MOST_TAPS] = {};
    for (int64_t k = 1; k < K; ++k) past[k] = c.input(begin + k - K);
    for (int64_t t = begin; t < end; ++t) {
        for (int64_t k = 0; k + 1 < K; ++k) past[k] = past[k + 1];
        past[K - 1] = c.input(t);
        Lanes y = c.bias;
        for (int64_t k = 0; k < K; ++k) y += c.weights[k] * past[k];
        store_part(row(p.y, b, t) + first, p.silu ? y * sigmoid(y) : y, c.lanes);
    }
}

// sums: of each tap, and of the bias behind them. The last steps before `begin` are gone through once more.
template <int64_t TAPS>
void conv_channels_back(const CausalConv& p, int64_t b, int64_t begin, int64_t end, int64_t first, float* sums) {
    const ConvChannels<TAPS> c(p, b, first);
    const int64_t K = TAPS ? TAPS : p.taps;
    Lanes past[MOST_TAPS] = {}, grads[MOST_TAPS] = {}, grad_weights[MOST_TAPS] = {}, grad_bias{};
    const int64_t start = begin < K - 1 ? 0 : begin - (K - 1), stop = end < p.time ? end : p.time + K - 1;
    for (int64_t k = 1; k < K; ++k) past[k] = c.input(start + k - K);
    for (int64_t t = start; t < stop; ++t) {  // grads[k]: of the sum at step t - K + 1 + k
        for (int64_t k = 0; k + 1 < K; ++k) past[k] = past[k + 1], grads[k] = grads[k + 1];
        Lanes grad{};
        if (t < p.time) {
            past[K - 1] = c.input(t);
            grad = load_part(row(p.grad_y, b, t) + first, c.lanes);
            if (p.silu) {
                Lanes y = c.bias;
                for (int64_t k = 0; k < K; ++k) y += c.weights[k] * past[k];
                const Lanes opened = sigmoid(y);
                grad *= opened * (1.0f + y * (1.0f - opened));
            }
            for (int64_t k = 0; k < K && t >= begin; ++k) grad_weights[k] += grad * past[k];
            if (t >= begin) grad_bias += grad;
        }
        grads[K - 1] = grad;
        if (t < begin) continue;
        Lanes grad_u{};
        for (int64_t k = 0; k < K; ++k) grad_u += c.weights[K - 1 - k] * grads[k];
        const int64_t step = t - K + 1;  // all that it reached is known now
        store_part(step >= 0 ? row(p.grad_u, b, step) + first : p.grad_before + (b * (K - 1) + t) * p.width + first, grad_u,
                   c.lanes);
    }
    for (int64_t k = 0; k < K; ++k) store(sums + k * LANES, load(sums + k * LANES) + grad_weights[k]);
    store(sums + K * LANES, load(sums + K * LANES) + grad_bias);
}

int causal_conv(const CausalConv& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    in_parallel(p.batch, p.threads, [&](int64_t b) {
        over_pieces(p.time, p.width, [&](int64_t begin, int64_t end, int64_t first) {
            (p.taps == 4 ? conv_channels<4> : conv_channels<0>)(p, b, begin, end, first);
        });
    });
    return DONE;
}

// grad_weight and grad_bias must be zeros.
int causal_conv_back(const CausalConv& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const int64_t blocks = (p.width + LANES - 1) / LANES, size = (p.taps + 1) * LANES;
    const auto add = [&](const float* sums) {
        for (int64_t k = 0; k < blocks; ++k)
            for (int64_t l = 0, j = k * LANES; l < LANES && j < p.width; ++l, ++j) {
                for (int64_t tap = 0; tap < p.taps; ++tap)
                    p.grad_weight[j * p.taps + tap] += sums[k * size + tap * LANES + l];
                if (p.grad_bias) p.grad_bias[j] += sums[k * size + p.taps * LANES + l];
            }
    };
    with_sums(p.batch, p.threads, blocks * size, [&](int64_t b, float* sums) {
        over_pieces(p.time, p.width, [&](int64_t begin, int64_t end, int64_t first) {
            (p.taps == 4 ? conv_channels_back<4> : conv_channels_back<0>)(p, b, begin, end, first, sums + first / LANES * size);
        });
    }, add);
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(selective_scan, SelectiveScan)
ENTRY(selective_scan_back, SelectiveScan)
ENTRY(causal_conv, CausalConv)
ENTRY(causal_conv_back, CausalConv)
