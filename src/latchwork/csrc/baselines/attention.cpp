// Causal attention of each head: for some steps at a time the weights of all keys, which are used and forgotten. Compiled
// once for each instruction set.
#include <cmath>

#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t STEPS = 48;  // at a time, a multiple of ROWS

// One head of one sequence: its keys as the products want them, and its queries and weights for some steps.
struct Head {
    const Attention& p;
    const int64_t b, h, d, N, D, K;  // d: width; N: keys; D, K: the lengths of rows of d numbers and of weights, with padding
    Scratch<float> memory;
    float *keys, *q, *weights;  // (d, N) packed, (STEPS, D), (STEPS, K)

    Head(const Attention& p, int64_t index)
        : p(p), b(index / p.heads), h(index % p.heads), d(p.width), N(p.keys), D(panels(d)),
          K(padded(N < p.window + STEPS + PANEL ? N : p.window + STEPS + PANEL) + PANEL),
          memory(line(packed_size(d, N)) + STEPS * (D + K)) {
        Arena arena{memory.data};
        keys = arena.take(packed_size(d, N)), q = arena.take(STEPS * D), weights = arena.take(STEPS * K);
        std::memset(q, 0, STEPS * (D + K) * sizeof(float));
        pack(at(p.k, 0), d, N, 1, p.k.time, keys);
    }
    float* at(const Rows& rows, int64_t t) const { return row(rows, b, t) + h * d; }
    float* log(int64_t t) const { return p.logs + (b * p.heads + h) * p.time + t; }
    // Step t sees the keys from first(t) to last(t).
    int64_t last(int64_t t) const { return t + N - p.time; }
    int64_t first(int64_t t) const { return last(t) < p.window ? 0 : last(t) - p.window + 1; }
    // For some steps from t on, the key of the first weight: where a panel begins.
    int64_t begin(int64_t t) const { return first(t) / PANEL * PANEL; }
    // Rows of the head from step t on, into `to` (steps, D) times a factor, or from there.
    void read(const Rows& from, int64_t t, int64_t steps, float* to, float factor = 1.0f) const {
        for (int64_t r = 0; r < steps; ++r)
            for (int64_t j = 0; j < d; ++j) to[r * D + j] = at(from, t + r)[j] * factor;
    }
    void write(const float* from, int64_t t, int64_t steps, const Rows& to, float factor = 1.0f) const {
        for (int64_t r = 0; r < steps; ++r)
            for (int64_t j = 0; j < d; ++j) at(to, t + r)[j] = from[r * D + j] * factor;
    }
    // The queries of some steps, and what each says of the keys up to the last of these. Returns how many keys.
    int64_t ask(int64_t t, int64_t steps) const {
        const int64_t from = begin(t), count = last(t + steps - 1) + 1 - from;
        read(p.q, t, steps, q, static_cast<float>(p.scale));
        multiply(q, D, keys + from * d, round_up(steps, ROWS), d, count, nullptr, weights, K);
        return count;
    }
    // Of a row of `count` weights, those from `low` to `high` become e^(they - most), all others 0. Returns the sum.
    float expose(float* own, int64_t low, int64_t high, int64_t count, float most) const {
        Lanes total{};
        for (int64_t j = 0; j < count; j += LANES) {
            Lanes e{};
            if (j + LANES > low && j <= high) e = exponential(load(own + j) - most);
            if (j < low && j + LANES > low) e = keep(e, ~tail_mask(low - j));
            if (j <= high && j + LANES > high) e = keep(e, tail_mask(high - j + 1));
            total += e;
            store(own + j, e);
        }
        return sum(total);
    }
    float largest_of(const float* own, int64_t low, int64_t high) const {
        Lanes all_most = all(own[high]);
        for (; low + LANES <= high; low += LANES) {
            const Lanes a = load(own + low);
            all_most = a > all_most ? a : all_most;
        }
        float most = largest(all_most);
        for (; low < high; ++low) most = own[low] > most ? own[low] : most;
        return most;
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
        const int64_t T = p.time, N = head.N, d = head.d, D = head.D, K = head.K;
        Scratch<float> values(packed_size(N, d)), y(STEPS * D);
        pack(head.at(p.v, 0), N, d, p.v.time, 1, values.data);
        for (int64_t t = 0; t < T; t += STEPS) {
            const int64_t steps = T - t < STEPS ? T - t : STEPS, from = head.begin(t), count = head.ask(t, steps);
            float sums[STEPS];
            for (int64_t r = 0; r < steps; ++r) {
                float* own = head.weights + r * K;
                const int64_t low = head.first(t + r) - from, high = head.last(t + r) - from;
                const float most = head.largest_of(own, low, high);
                sums[r] = head.expose(own, low, high, count, most);
                *head.log(t + r) = most + std::log(sums[r]);
            }
            multiply_first(head.weights, K, values.data + from * PANEL, N, round_up(steps, ROWS), count, d, y.data, D);
            for (int64_t r = 0; r < steps; ++r) head.write(y.data + r * D, t + r, 1, p.y, 1.0f / sums[r]);
        }
    });
    return DONE;
}

int attention_back(const Attention& p) {
    in_parallel(p.batch * p.heads, p.threads, [&](int64_t index) {
        const Head head(p, index);
        const int64_t T = p.time, N = head.N, d = head.d, D = head.D, K = head.K, sums = padded(N + ROWS) * D;
        Scratch<float> memory(line(packed_size(d, N)) + line(packed_size(N, d)) + STEPS * (2 * D + K) + 2 * line(sums));
        Arena arena{memory.data};
        float *values = arena.take(packed_size(d, N)), *keys = arena.take(packed_size(N, d));
        float *grad_y = arena.take(STEPS * D), *grad_q = arena.take(STEPS * D), *grad = arena.take(STEPS * K);
        float *grad_k = arena.take(sums), *grad_v = arena.take(sums);
        std::memset(grad_y, 0, (arena.next - grad_y) * sizeof(float));
        pack(head.at(p.v, 0), d, N, 1, p.v.time, values);
        pack(head.at(p.k, 0), N, d, p.k.time, 1, keys);
        for (int64_t t = 0; t < T; t += STEPS) {
            const int64_t steps = T - t < STEPS ? T - t : STEPS, whole = round_up(steps, ROWS);
            const int64_t from = head.begin(t), count = head.ask(t, steps);
            head.read(p.grad_y, t, steps, grad_y);
            multiply(grad_y, D, values + from * d, whole, d, count, nullptr, grad, K);
            for (int64_t r = 0; r < steps; ++r) {
                float *own = head.weights + r * K, *of_own = grad + r * K;
                head.expose(own, head.first(t + r) - from, head.last(t + r) - from, count, *head.log(t + r));
                float along = 0;
                for (int64_t j = 0; j < d; ++j) along += grad_y[r * D + j] * head.at(p.y, t + r)[j];
                for (int64_t j = 0; j < count; j += LANES) store(of_own + j, (load(of_own + j) - along) * load(own + j));
            }
            accumulate(head.weights, K, grad_y, D, steps, count, d, grad_v + from * D, D);
            accumulate(grad, K, head.q, D, steps, count, d, grad_k + from * D, D);
            multiply_first(grad, K, keys + from * PANEL, N, whole, count, d, grad_q, D);
            head.write(grad_q, t, steps, p.grad_q, static_cast<float>(p.scale));
        }
        head.write(grad_k, 0, N, p.grad_k);
        head.write(grad_v, 0, N, p.grad_v);
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(attention, Attention)
ENTRY(attention_back, Attention)
