// The mLSTM, chunk by chunk: within one all steps at once, by matrix products; from one to the next goes the state.
// Compiled once for each instruction set.
#include <cmath>

#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t CHUNK = 24;  // steps; baselines/mlstm_scan.py has it too. A multiple of ROWS

// The buffers of one chunk of one head. Rows are steps; values carry a column of ones behind them, so that the
// normaliser n is the last column of the state. All have room for whole tiles, with zeros there.
struct ChunkOf {
    const Mlstm& p;
    const int64_t K, V, k_row, v_row, steps_row;  // widths, V with its ones; row lengths with padding
    Scratch<float> memory;
    float *q, *k, *v, *scores, *weights, *y, *past, *state, *packed;
    float kept[CHUNK], gate[CHUNK], most[CHUNK], keep[CHUNK], last[CHUNK];  // see weigh
    int64_t steps = 0;
    static int64_t size(int64_t k_row, int64_t v_row, int64_t steps_row) {
        const int64_t side = k_row > v_row ? k_row : v_row, most = side > steps_row ? side : steps_row;
        return CHUNK * (2 * k_row + 3 * v_row + 2 * steps_row) + k_row * v_row + most * most + 16 * 9;
    }
    explicit ChunkOf(const Mlstm& p)
        : p(p), K(p.keys), V(p.values + 1), k_row(padded(K)), v_row(padded(V)), steps_row(padded(CHUNK)),
          memory(size(k_row, v_row, steps_row)) {
        Arena arena{memory.data};
        q = arena.take(CHUNK * k_row), k = arena.take(CHUNK * k_row), v = arena.take(CHUNK * v_row);
        y = arena.take(CHUNK * v_row), past = arena.take(CHUNK * v_row);
        scores = arena.take(CHUNK * steps_row), weights = arena.take(CHUNK * steps_row);
        state = arena.take(k_row * v_row), packed = arena.next;
        std::memset(memory.data, 0, size(k_row, v_row, steps_row) * sizeof(float));
    }
    void load_state(const float* from) {
        for (int64_t r = 0; r < K; ++r) std::memcpy(state + r * v_row, from + r * V, V * sizeof(float));
    }
    void store_state(float* to) const {
        for (int64_t r = 0; r < K; ++r) std::memcpy(to + r * V, state + r * v_row, V * sizeof(float));
    }
    void load_steps(int64_t b, int64_t head, int64_t begin) {
        steps = p.time - begin < CHUNK ? p.time - begin : CHUNK;
        const float scale = static_cast<float>(p.scale);
        for (int64_t t = 0; t < steps; ++t) {
            std::memcpy(q + t * k_row, row(p.q, b, begin + t) + head * K, K * sizeof(float));
            const float* from = row(p.k, b, begin + t) + head * K;
            for (int64_t j = 0; j < K; ++j) k[t * k_row + j] = scale * from[j];
            std::memcpy(v + t * v_row, row(p.v, b, begin + t) + head * p.values, p.values * sizeof(float));
            v[t * v_row + p.values] = 1.0f;
            gate[t] = row(p.i, b, begin + t)[head];
            const float f = row(p.f, b, begin + t)[head];
            const float log_f = (f < 0 ? f : 0.0f) - std::log1p(std::exp(f < 0 ? f : -f));
            kept[t] = (t ? kept[t - 1] : 0.0f) + log_f;
        }
        for (int64_t t = steps; t < CHUNK; ++t) {
            std::memset(q + t * k_row, 0, K * sizeof(float)), std::memset(k + t * k_row, 0, K * sizeof(float));
            std::memset(v + t * v_row, 0, V * sizeof(float));
        }
    }
    // weights[t, s] = exp(kept_t - kept_s + gate_s - m_t) for s up to t, and keep_t of the state before, whose m is
    // `before`. most_t = m_t - kept_t. Returns m of the last step. Then scores = q k' weights.
    float weigh(float before) {
        float running = before;
        for (int64_t t = 0; t < steps; ++t) {
            const float here = gate[t] - kept[t];
            running = here > running ? here : running;
            most[t] = running;
            keep[t] = std::exp(before - running);
        }
        float exponents[CHUNK + 64 / sizeof(float)] = {};
        for (int64_t s = 0; s < steps; ++s) exponents[s] = gate[s] - kept[s];
        pack(k, K, CHUNK, 1, k_row, packed);
        multiply(q, k_row, packed, CHUNK, K, CHUNK, nullptr, scores, steps_row);
        for (int64_t t = 0; t < CHUNK; ++t) {
            float *score = scores + t * steps_row, *weight = weights + t * steps_row;
            const int64_t end = t < steps ? t + 1 : 0, rounded = round_up(end, LANES);
            for (int64_t s = 0; s < rounded; s += LANES) {
                Lanes w = exponential(load(exponents + s) - most[t]);
                if (s + LANES > end) w = load_part<float>(reinterpret_cast<const float*>(&w), end - s);
                store(weight + s, w), store(score + s, load(score + s) * w);
            }
            for (int64_t s = rounded; s < steps_row; ++s) weight[s] = score[s] = 0.0f;
        }
        return kept[steps - 1] + most[steps - 1];
    }
    // y = scores v + keep (q state), its last column the sum for the denominator.
    void read() {
        pack(v, CHUNK, V, v_row, 1, packed);
        multiply(scores, steps_row, packed, CHUNK, CHUNK, V, nullptr, y, v_row);
        pack(state, K, V, v_row, 1, packed);
        multiply(q, k_row, packed, CHUNK, K, V, nullptr, past, v_row);
        for (int64_t t = 0; t < steps; ++t)
            for (int64_t j = 0; j < V; ++j) y[t * v_row + j] += keep[t] * past[t * v_row + j];
    }
    float denominator(int64_t t, bool* open) const {
        const float total = std::fabs(y[t * v_row + p.values]), least = std::exp(-(kept[t] + most[t]));
        *open = total > least;
        return (total > least || total != total ? total : least) + static_cast<float>(p.epsilon);
    }
    // k weighed by what is left of each step at the end of the chunk, into `to` (CHUNK, k_row).
    void written(float* to) const {
        for (int64_t s = 0; s < CHUNK; ++s) {
            const float w = s < steps ? weights[(steps - 1) * steps_row + s] : 0.0f;
            for (int64_t j = 0; j < k_row; ++j) to[s * k_row + j] = w * k[s * k_row + j];
        }
    }
};

inline int64_t chunks_of(const Mlstm& p) { return (p.time + CHUNK - 1) / CHUNK; }

inline void mlstm_head(const Mlstm& p, int64_t b, int64_t head) {
    ChunkOf c(p);
    const int64_t place = b * p.heads + head, size = c.K * c.V, chunks = chunks_of(p);
    Scratch<float> memory(CHUNK * c.k_row);
    c.load_state(p.cn0 + place * size);
    float m = p.m0[place];
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        if (p.tape_cn) {
            c.store_state(p.tape_cn + (place * chunks + chunk) * size);
            p.tape_m[place * chunks + chunk] = m;
        }
        c.load_steps(b, head, chunk * CHUNK);
        m = c.weigh(m);
        c.read();
        for (int64_t t = 0; t < c.steps; ++t) {
            bool open;
            const float share = 1.0f / c.denominator(t, &open);
            float* to = row(p.y, b, chunk * CHUNK + t) + head * p.values;
            for (int64_t j = 0; j < p.values; ++j) to[j] = share * c.y[t * c.v_row + j];
        }
        c.written(memory.data);
        const float left = c.keep[c.steps - 1];
        for (int64_t j = 0; j < c.K * c.v_row; ++j) c.state[j] *= left;
        accumulate(memory.data, c.k_row, c.v, c.v_row, CHUNK, c.K, c.V, c.state, c.v_row);
    }
    c.store_state(p.cn + place * size);
    p.m[place] = m;
}

inline void mlstm_head_back(const Mlstm& p, int64_t b, int64_t head) {
    ChunkOf c(p);
    const int64_t place = b * p.heads + head, K = c.K, V = c.V, size = K * V, chunks = chunks_of(p);
    const int64_t k_row = c.k_row, v_row = c.v_row, steps_row = c.steps_row;
    const int64_t room = CHUNK * (4 * k_row + 2 * v_row + steps_row) + k_row * v_row;
    Scratch<float> memory(room + 16 * 8);
    std::memset(memory.data, 0, (room + 16 * 8) * sizeof(float));
    Arena arena{memory.data};
    float *grad_q = arena.take(CHUNK * k_row), *grad_k = arena.take(CHUNK * k_row), *work = arena.take(CHUNK * k_row);
    float *written = arena.take(CHUNK * k_row), *grad_v = arena.take(CHUNK * v_row), *grad = arena.take(CHUNK * v_row);
    float *grad_scores = arena.take(CHUNK * steps_row), *carry = arena.take(k_row * v_row);
    if (p.grad_cn)
        for (int64_t r = 0; r < K; ++r) std::memcpy(carry + r * v_row, p.grad_cn + place * size + r * V, V * sizeof(float));
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        const int64_t begin = chunk * CHUNK;
        c.load_steps(b, head, begin);
        c.load_state(p.tape_cn + (place * chunks + chunk) * size);
        c.weigh(p.tape_m[place * chunks + chunk]);
        c.read();
        float of_kept[CHUNK] = {}, of_gate[CHUNK] = {};
        const int64_t last = c.steps - 1;
        // Of the numerator, and of the sum behind it.
        for (int64_t t = 0; t < CHUNK; ++t) {
            float* to = grad + t * v_row;
            if (t >= c.steps) {
                std::memset(to, 0, V * sizeof(float));
                continue;
            }
            bool open;
            const float share = 1.0f / c.denominator(t, &open), *y = c.y + t * v_row;
            const float* from = row(p.grad_y, b, begin + t) + head * p.values;
            float of_denominator = 0;
            for (int64_t j = 0; j < p.values; ++j) {
                to[j] = from[j] * share;
                of_denominator -= to[j] * y[j] * share;
            }
            to[p.values] = open ? (y[p.values] < 0 ? -of_denominator : of_denominator) : 0.0f;
        }
        // What goes through the state before: q's part, and keep's.
        pack(c.state, V, K, 1, v_row, c.packed);
        multiply(grad, v_row, c.packed, CHUNK, V, K, nullptr, grad_q, k_row);
        for (int64_t t = 0; t < c.steps; ++t) {
            float through = 0;
            for (int64_t j = 0; j < K; ++j) {
                grad_q[t * k_row + j] *= c.keep[t];
                through += grad_q[t * k_row + j] * c.q[t * k_row + j];
            }
            of_kept[t] += through;
        }
        // What the state after asks of this chunk: v's, k's and the weights'.
        float whole = 0;
        for (int64_t r = 0; r < K; ++r)
            for (int64_t j = 0; j < V; ++j) whole += carry[r * v_row + j] * c.state[r * v_row + j];
        of_kept[last] += whole * c.keep[last];
        c.written(written);
        pack(carry, K, V, v_row, 1, c.packed);
        multiply(written, k_row, c.packed, CHUNK, K, V, nullptr, grad_v, v_row);
        pack(carry, V, K, 1, v_row, c.packed);
        multiply(c.v, v_row, c.packed, CHUNK, V, K, nullptr, grad_k, k_row);
        for (int64_t s = 0; s < CHUNK; ++s) {
            const float w = s < c.steps ? c.weights[last * steps_row + s] : 0.0f;
            float through = 0;
            for (int64_t j = 0; j < K; ++j) {
                grad_k[s * k_row + j] *= w;
                through += grad_k[s * k_row + j] * c.k[s * k_row + j];
            }
            if (s >= c.steps) continue;
            of_gate[s] += through, of_kept[s] -= through, of_kept[last] += through;
        }
        // The scores.
        accumulate(c.scores, steps_row, grad, v_row, CHUNK, CHUNK, V, grad_v, v_row);
        pack(c.v, V, CHUNK, 1, v_row, c.packed);
        multiply(grad, v_row, c.packed, CHUNK, V, CHUNK, nullptr, grad_scores, steps_row);
        Lanes columns[CHUNK / 4 + 1] = {};
        for (int64_t t = 0; t < c.steps; ++t) {
            Lanes through{};
            for (int64_t s = 0; s < CHUNK; s += LANES) {
                float* here = grad_scores + t * steps_row + s;
                const Lanes product = load(here) * load(c.scores + t * steps_row + s);
                through += product;
                columns[s / LANES] += product;
                store(here, load(here) * load(c.weights + t * steps_row + s));
            }
            of_kept[t] += sum(through);
        }
        for (int64_t t = c.steps; t < CHUNK; ++t) std::memset(grad_scores + t * steps_row, 0, CHUNK * sizeof(float));
        for (int64_t s = 0; s < c.steps; ++s) {
            const float through = columns[s / LANES][s % LANES];
            of_gate[s] += through, of_kept[s] -= through;
        }
        pack(c.k, CHUNK, K, k_row, 1, c.packed);
        multiply(grad_scores, steps_row, c.packed, CHUNK, CHUNK, K, nullptr, work, k_row);
        accumulate(grad_scores, steps_row, c.q, k_row, CHUNK, CHUNK, K, grad_k, k_row);
        float later = 0;
        const float scale = static_cast<float>(p.scale);
        for (int64_t t = last; t >= 0; --t) {
            float *to_q = row(p.grad_q, b, begin + t) + head * K, *to_k = row(p.grad_k, b, begin + t) + head * K;
            for (int64_t j = 0; j < K; ++j) to_q[j] = grad_q[t * k_row + j] + work[t * k_row + j];
            for (int64_t j = 0; j < K; ++j) to_k[j] = scale * grad_k[t * k_row + j];
            std::memcpy(row(p.grad_v, b, begin + t) + head * p.values, grad_v + t * v_row, p.values * sizeof(float));
            later += of_kept[t];
            row(p.grad_i, b, begin + t)[head] = of_gate[t];
            row(p.grad_f, b, begin + t)[head] = later / (1.0f + std::exp(row(p.f, b, begin + t)[head]));
        }
        // And what it asks of the state before.
        for (int64_t j = 0; j < K * v_row; ++j) carry[j] *= c.keep[last];
        for (int64_t t = 0; t < c.steps; ++t)
            for (int64_t j = 0; j < K; ++j) c.q[t * k_row + j] *= c.keep[t];
        accumulate(c.q, k_row, grad, v_row, CHUNK, K, V, carry, v_row);
    }
    for (int64_t r = 0; r < K; ++r) std::memcpy(p.grad_cn0 + place * size + r * V, carry + r * v_row, V * sizeof(float));
}

int mlstm(const Mlstm& p) {
    in_parallel(p.batch * p.heads, p.threads, [&](int64_t i) { mlstm_head(p, i / p.heads, i % p.heads); });
    return DONE;
}

int mlstm_back(const Mlstm& p) {
    in_parallel(p.batch * p.heads, p.threads, [&](int64_t i) { mlstm_head_back(p, i / p.heads, i % p.heads); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(mlstm, Mlstm)
ENTRY(mlstm_back, Mlstm)
