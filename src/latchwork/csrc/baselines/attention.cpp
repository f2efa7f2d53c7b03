// Causal attention of each head: for some steps at a time the weights of all keys, which are used and forgotten. Compiled
// once for each instruction set.
#include <cmath>

#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t STEPS = 48;  // at a time, a multiple of ROWS

// One head of one sequence: its keys as the products want them, and its queries and weights for some steps.
struct Head {
    const Attention& p;
    const int64_t b, h, d, T, D, K;  // d: width; D, K: the lengths of rows of d numbers and of T, with padding
    Scratch<float> memory;
    float *keys, *q, *weights;  // (d, T) packed, (STEPS, D), (STEPS, K)

    Head(const Attention& p, int64_t index)
        : p(p), b(index / p.heads), h(index % p.heads), d(p.width), T(p.time), D(panels(d)), K(padded(T) + PANEL),
          memory(line(packed_size(d, T)) + STEPS * (D + K)) {
        Arena arena{memory.data};
        keys = arena.take(packed_size(d, T)), q = arena.take(STEPS * D), weights = arena.take(STEPS * K);
        std::memset(q, 0, STEPS * (D + K) * sizeof(float));
        pack(at(p.k, 0), d, T, 1, p.k.time, keys);
    }
    float* at(const Rows& rows, int64_t t) const { return row(rows, b, t) + h * d; }
    float* log(int64_t t) const { return p.logs + (b * p.heads + h) * T + t; }
    // Rows of the head from step t on, into `to` (steps, D) times a factor, or from there.
    void read(const Rows& from, int64_t t, int64_t steps, float* to, float factor = 1.0f) const {
        for (int64_t r = 0; r < steps; ++r)
            for (int64_t j = 0; j < d; ++j) to[r * D + j] = at(from, t + r)[j] * factor;
    }
    void write(const float* from, int64_t t, int64_t steps, const Rows& to, float factor = 1.0f) const {
        for (int64_t r = 0; r < steps; ++r)
            for (int64_t j = 0; j < d; ++j) at(to, t + r)[j] = from[r * D + j] * factor;
    }
    // The queries of some steps, and what each says of the keys up to the last of these.
    void ask(int64_t t, int64_t steps) const {
        read(p.q, t, steps, q, static_cast<float>(p.scale));
        multiply(q, D, keys, round_up(steps, ROWS), d, t + steps, nullptr, weights, K);
    }
    // Of the weights of step t, a row of `count`, those that it sees become e^(they - most), all others 0. Returns the sum.
    float expose(float* own, int64_t t, int64_t count, float most) const {
        Lanes total{};
        const Mask mask = tail_mask(t + 1);
        const int64_t last = t / LANES * LANES;
        for (int64_t j = 0; j < last; j += LANES) {
            const Lanes e = exponential(load(own + j) - most);
            total += e;
            store(own + j, e);
        }
        const Lanes e = keep(exponential(load(own + last) - most), mask);
        store(own + last, e);
        for (int64_t j = last + LANES; j < count; j += LANES) store(own + j, Lanes{});
        return sum(total + e);
    }
    float largest_seen(const float* own, int64_t t) const {
        float most = own[t];
        for (int64_t j = t / LANES * LANES; j < t; ++j) most = own[j] > most ? own[j] : most;
        Lanes all_most = all(most);
        for (int64_t j = 0; j + LANES <= t; j += LANES) {
            const Lanes a = load(own + j);
            all_most = a > all_most ? a : all_most;
        }
        return largest(all_most);
    }
};

// C (rows, n) = A (rows, k) B, of whose K rows the first k are taken; B packed.
inline void multiply_first(const float* a, int64_t lda, const float* b, int64_t K, int64_t rows, int64_t k, int64_t n, float* c,
                           int64_t ldc) {
    for (int64_t j = 0; j < n; j += PANEL)
        multiply(a, lda, b + j * K, rows, k, n - j < PANEL ? n - j : PANEL, nullptr, c + j, ldc);
}

int attention(const Attention& p) {
    in_parallel(p.batch * p.heads, p.threads, [&](int64_t index) {
        const Head head(p, index);
        const int64_t T = head.T, d = head.d, D = head.D, K = head.K;
        Scratch<float> values(packed_size(T, d)), y(STEPS * D);
        pack(head.at(p.v, 0), T, d, p.v.time, 1, values.data);
        for (int64_t t = 0; t < T; t += STEPS) {
            const int64_t steps = T - t < STEPS ? T - t : STEPS;
            head.ask(t, steps);
            float sums[STEPS];
            for (int64_t r = 0; r < steps; ++r) {
                float* own = head.weights + r * K;
                const float most = head.largest_seen(own, t + r);
                sums[r] = head.expose(own, t + r, t + steps, most);
                *head.log(t + r) = most + std::log(sums[r]);
            }
            multiply_first(head.weights, K, values.data, T, round_up(steps, ROWS), t + steps, d, y.data, D);
            for (int64_t r = 0; r < steps; ++r) head.write(y.data + r * D, t + r, 1, p.y, 1.0f / sums[r]);
        }
    });
    return DONE;
}

int attention_back(const Attention& p) {
    in_parallel(p.batch * p.heads, p.threads, [&](int64_t index) {
        const Head head(p, index);
        const int64_t T = head.T, d = head.d, D = head.D, K = head.K, sums = padded(T) * D;
        Scratch<float> memory(line(packed_size(d, T)) + line(packed_size(T, d)) + STEPS * (2 * D + K) + 2 * line(sums));
        Arena arena{memory.data};
        float *values = arena.take(packed_size(d, T)), *keys = arena.take(packed_size(T, d));
        float *grad_y = arena.take(STEPS * D), *grad_q = arena.take(STEPS * D), *grad = arena.take(STEPS * K);
        float *grad_k = arena.take(sums), *grad_v = arena.take(sums);
        std::memset(grad_y, 0, (arena.next - grad_y) * sizeof(float));
        pack(head.at(p.v, 0), d, T, 1, p.v.time, values);
        pack(head.at(p.k, 0), T, d, p.k.time, 1, keys);
        for (int64_t t = 0; t < T; t += STEPS) {
            const int64_t steps = T - t < STEPS ? T - t : STEPS, whole = round_up(steps, ROWS), seen = t + steps;
            head.ask(t, steps);
            head.read(p.grad_y, t, steps, grad_y);
            multiply(grad_y, D, values, whole, d, seen, nullptr, grad, K);
            for (int64_t r = 0; r < steps; ++r) {
                float *own = head.weights + r * K, *of_own = grad + r * K;
                head.expose(own, t + r, seen, *head.log(t + r));
                float along = 0;
                for (int64_t j = 0; j < d; ++j) along += grad_y[r * D + j] * head.at(p.y, t + r)[j];
                for (int64_t j = 0; j < seen; j += LANES) store(of_own + j, (load(of_own + j) - along) * load(own + j));
            }
            accumulate(head.weights, K, grad_y, D, steps, seen, d, grad_v, D);
            accumulate(grad, K, head.q, D, steps, seen, d, grad_k, D);
            multiply_first(grad, K, keys, T, whole, seen, d, grad_q, D);
            head.write(grad_q, t, steps, p.grad_q, static_cast<float>(p.scale));
        }
        head.write(grad_k, 0, T, p.grad_k);
        head.write(grad_v, 0, T, p.grad_v);
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(attention, Attention)
ENTRY(attention_back, Attention)
