// A chunk of steps of one head of an mLSTM: all steps at once, by matrix products; from one chunk to the next goes the state.
#pragma once
#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t CHUNK = 24;       // steps; baselines/mlstm_scan.py has it too. A multiple of ROWS
constexpr int64_t CHUNK_ROOM = 32;  // whole vectors

inline int64_t chunks_of(int64_t time) { return (time + CHUNK - 1) / CHUNK; }
// Numbers of a state: c (keys, values), n (keys), m.
inline int64_t state_size(int64_t keys, int64_t values) { return keys * (values + 1) + 1; }

// to[0 .. n) += scale * from, for whole vectors of buffers.
LATCHWORK_INLINE void add_scaled(const float* from, float scale, int64_t n, float* to) {
    for (int64_t j = 0; j < n; j += LANES) store(to + j, load(to + j) + scale * load(from + j));
}
LATCHWORK_INLINE float dot(const float* a, const float* b, int64_t n) {
    Lanes total{};
    for (int64_t j = 0; j < n; j += LANES) total += load(a + j) * load(b + j);
    return sum(total);
}
LATCHWORK_INLINE void scale_by(float factor, int64_t n, float* to) {
    for (int64_t j = 0; j < n; j += LANES) store(to + j, factor * load(to + j));
}

// Rows are steps, with zeros behind the last of them and behind each row. `filled` by the caller: q, k times its scale,
// values, gate (i) and forget (f) of `steps` steps; begin with start().
struct MlstmChunk {
    const int64_t K, V, k_row, v_row, a_row, steps_row, depth;  // row lengths with padding; depth: rows of values
    const float epsilon;
    Scratch<float> memory;
    float *q, *k, *values, *state, *n;  // values (CHUNK, v_row), and behind them the state's c (K, v_row); n (k_row)
    float *mixture, *weights, *y, *packed;  // mixture: (CHUNK, a_row), scores and keep q side by side
    float gate[CHUNK_ROOM], forget[CHUNK_ROOM], total[CHUNK_ROOM], share[CHUNK_ROOM], keep[CHUNK_ROOM], least[CHUNK_ROOM];
    float m = 0;
    int64_t steps = 0;

    static int64_t packed_room(int64_t k_row, int64_t v_row, int64_t depth) {
        const int64_t side = k_row > v_row ? k_row : v_row;
        return side * panels(depth) + depth * v_row + CHUNK * k_row;
    }
    static int64_t size(const MlstmChunk& c) {
        return CHUNK * (2 * c.k_row + c.v_row + c.a_row + c.steps_row) + c.depth * c.v_row + c.k_row +
               packed_room(c.k_row, c.v_row, c.depth) + 16 * 9;
    }
    MlstmChunk(int64_t keys, int64_t width, double epsilon)
        : K(keys), V(width), k_row(padded(K)), v_row(padded(V)), a_row(padded(CHUNK + K)), steps_row(padded(CHUNK)),
          depth(tiles(CHUNK + K)), epsilon(static_cast<float>(epsilon)), memory(size(*this)) {
        Arena arena{memory.data};
        q = arena.take(CHUNK * k_row), k = arena.take(CHUNK * k_row), values = arena.take(depth * v_row);
        state = values + CHUNK * v_row, n = arena.take(k_row), y = arena.take(CHUNK * v_row);
        mixture = arena.take(CHUNK * a_row), weights = arena.take(CHUNK * steps_row), packed = arena.next;
        std::memset(memory.data, 0, size(*this) * sizeof(float));
    }
    void load_state(const float* c, const float* from_n, float from_m) {
        for (int64_t r = 0; r < K; ++r) std::memcpy(state + r * v_row, c + r * V, V * sizeof(float));
        std::memcpy(n, from_n, K * sizeof(float));
        m = from_m;
    }
    void load_state(const float* from) { load_state(from, from + K * V, from[K * (V + 1)]); }
    void store_state(float* c, float* to_n, float* to_m) const {
        for (int64_t r = 0; r < K; ++r) std::memcpy(c + r * V, state + r * v_row, V * sizeof(float));
        std::memcpy(to_n, n, K * sizeof(float));
        *to_m = m;
    }
    void store_state(float* to) const { store_state(to, to + K * V, to + K * (V + 1)); }
    // Before the steps are filled: those that are not there are 0.
    void start(int64_t count) {
        steps = count;
        for (int64_t t = steps; t < CHUNK; ++t) {
            std::memset(q + t * k_row, 0, k_row * sizeof(float)), std::memset(k + t * k_row, 0, k_row * sizeof(float));
            std::memset(values + t * v_row, 0, v_row * sizeof(float));
        }
        for (int64_t t = 0; t < CHUNK_ROOM; ++t) gate[t] = forget[t] = 0.0f;
    }
    // weights[t, s] = exp(kept_t - kept_s + gate_s - m_t) for s up to t, with kept_t the sum of log sigmoid(forget) so far,
    // and keep_t of the state before. Then y_t = share_t (scores values + keep q c), scores = q k' weights, and share_t is
    // 1 / (the larger of |total_t| and least_t), total_t = sum of scores + keep q n. Returns m of the last step.
    float read() {
        float kept[CHUNK_ROOM] = {}, most[CHUNK_ROOM] = {}, here[CHUNK_ROOM] = {}, running = m, sum_so_far = 0;
        for (int64_t t = 0; t < CHUNK_ROOM; t += LANES) {
            const Lanes f = load(forget + t);
            store(kept + t, (f < 0.0f ? f : Lanes{}) - log_of_one_and(exponential(-magnitude(f))));
        }
        for (int64_t t = 0; t < steps; ++t) {
            kept[t] = sum_so_far += kept[t];
            here[t] = gate[t] - kept[t];
            most[t] = running = here[t] > running || here[t] != here[t] ? here[t] : running;
        }
        for (int64_t t = 0; t < CHUNK_ROOM; t += LANES) {
            store(keep + t, exponential(m - load(most + t)));
            store(least + t, exponential(-(load(kept + t) + load(most + t))));
        }
        pack(k, K, CHUNK, 1, k_row, packed);
        multiply(q, k_row, packed, CHUNK, K, CHUNK, nullptr, mixture, a_row);
        for (int64_t t = 0; t < CHUNK; ++t) {
            float *score = mixture + t * a_row, *weight = weights + t * steps_row;
            const int64_t end = t < steps ? t + 1 : 0;
            Lanes scores_sum{};
            int64_t s = 0;
            for (; s < end; s += LANES) {
                const Lanes w = first_of(exponential(load(here + s) - most[t]), end - s), scored = load(score + s) * w;
                store(weight + s, w), store(score + s, scored);
                scores_sum += scored;
            }
            for (; s < CHUNK; s += LANES) store(weight + s, Lanes{}), store(score + s, Lanes{});
            const float kept_share = t < steps ? keep[t] : 0.0f;
            for (int64_t j = 0; j < K; j += LANES) {
                const Lanes past = kept_share * load(q + t * k_row + j);
                store_part(score + CHUNK + j, past, a_row - CHUNK - j);
                scores_sum += past * load(n + j);
            }
            total[t] = sum(scores_sum);
        }
        pack(values, CHUNK + K, V, v_row, 1, packed);
        multiply(mixture, a_row, packed, CHUNK, CHUNK + K, V, nullptr, y, v_row);
        for (int64_t t = 0; t < CHUNK; ++t) {
            const float size = total[t] < 0 ? -total[t] : total[t];
            share[t] = 1.0f / ((size > least[t] || size != size ? size : least[t]) + epsilon);
        }
        return kept[steps - 1] + most[steps - 1];
    }
    // k weighed by what is left of each step at the end of the chunk, into `to` (CHUNK, k_row).
    void written(float* to) const {
        for (int64_t s = 0; s < CHUNK; ++s) {
            const float w = s < steps ? weights[(steps - 1) * steps_row + s] : 0.0f;
            for (int64_t j = 0; j < K; j += LANES) store(to + s * k_row + j, w * load(k + s * k_row + j));
        }
    }
    // The state after the chunk. room: (CHUNK, k_row).
    void move_on(float* room, float m_after) {
        written(room);
        const float left = keep[steps - 1];
        scale_by(left, K * v_row, state), scale_by(left, round_up(K, LANES), n);
        for (int64_t s = 0; s < steps; ++s) add_scaled(room + s * k_row, 1.0f, K, n);
        accumulate(room, k_row, values, v_row, CHUNK, K, V, state, v_row);
        m = m_after;
    }
};

// The way back through a chunk that was read. grad (CHUNK, v_row), to be filled: of y. Then grad_q, grad_k (of k times its
// scale), grad_values, grad_gate and grad_forget are found. carry: of the state after the chunk, and then before it.
struct MlstmChunkBack {
    MlstmChunk& c;
    Scratch<float> memory;
    float *grad, *grad_q, *grad_k, *grad_values, *carry, *carry_n, *grad_mixture, *work;  // carry stands behind grad_values
    float grad_gate[CHUNK_ROOM], grad_forget[CHUNK_ROOM];

    static int64_t size(const MlstmChunk& c) {
        return CHUNK * (4 * c.k_row + c.v_row + c.a_row) + c.depth * c.v_row + c.k_row + 16 * 8;
    }
    explicit MlstmChunkBack(MlstmChunk& c) : c(c), memory(size(c)) {
        Arena arena{memory.data};
        grad = arena.take(CHUNK * c.v_row), grad_q = arena.take(CHUNK * c.k_row), grad_k = arena.take(CHUNK * c.k_row);
        grad_values = arena.take(c.depth * c.v_row), carry = grad_values + CHUNK * c.v_row, carry_n = arena.take(c.k_row);
        grad_mixture = arena.take(CHUNK * c.a_row), work = arena.take(CHUNK * 2 * c.k_row);
        std::memset(memory.data, 0, size(c) * sizeof(float));
    }
    void load_carry(const float* of_c, const float* of_n) {
        for (int64_t r = 0; r < c.K; ++r) copy_padded(of_c ? of_c + r * c.V : nullptr, c.V, c.v_row, carry + r * c.v_row);
        copy_padded(of_n, c.K, c.k_row, carry_n);
    }
    void store_carry(float* of_c, float* of_n) const {
        for (int64_t r = 0; r < c.K; ++r) std::memcpy(of_c + r * c.V, carry + r * c.v_row, c.V * sizeof(float));
        std::memcpy(of_n, carry_n, c.K * sizeof(float));
    }
    void run() {
        const int64_t K = c.K, V = c.V, k_row = c.k_row, v_row = c.v_row, a_row = c.a_row, last = c.steps - 1;
        float of_kept[CHUNK_ROOM] = {}, of_total[CHUNK_ROOM] = {};
        for (int64_t t = 0; t < CHUNK_ROOM; ++t) grad_gate[t] = 0.0f;
        // Of the numerator, and of the sum in the denominator.
        for (int64_t t = 0; t < CHUNK; ++t) {
            const float share = t < c.steps ? c.share[t] : 0.0f, size = c.total[t] < 0 ? -c.total[t] : c.total[t];
            scale_by(share, v_row, grad + t * v_row);
            if (t < c.steps && size > c.least[t])
                of_total[t] = dot(grad + t * v_row, c.y + t * v_row, V) * share * (c.total[t] < 0 ? 1.0f : -1.0f);
        }
        // What the state after asks of this chunk: v's, k's and the weights'.
        float *written = work, whole = dot(carry_n, c.n, K);
        for (int64_t r = 0; r < K; ++r) whole += dot(carry + r * v_row, c.state + r * v_row, V);
        of_kept[last] += whole * c.keep[last];
        c.written(written);
        pack(carry, K, V, v_row, 1, c.packed);
        multiply(written, k_row, c.packed, CHUNK, K, V, nullptr, grad_values, v_row);
        pack(carry, V, K, 1, v_row, c.packed);
        multiply(c.values, v_row, c.packed, CHUNK, V, K, nullptr, grad_k, k_row);
        for (int64_t s = 0; s < c.steps; ++s) {
            const float w = c.weights[last * c.steps_row + s];
            float* to = grad_k + s * k_row;
            for (int64_t j = 0; j < K; j += LANES) store(to + j, w * (load(to + j) + load(carry_n + j)));
            const float through = dot(to, c.k + s * k_row, K);
            grad_gate[s] += through, of_kept[s] -= through, of_kept[last] += through;
        }
        // The scores, and keep q.
        pack(c.values, V, CHUNK + K, 1, v_row, c.packed);
        multiply(grad, v_row, c.packed, CHUNK, V, CHUNK + K, nullptr, grad_mixture, a_row);
        scale_by(c.keep[last], K * v_row, carry), scale_by(c.keep[last], round_up(K, LANES), carry_n);
        Lanes columns[CHUNK_ROOM / LANES] = {};
        for (int64_t t = 0; t < c.steps; ++t) {
            float *here = grad_mixture + t * a_row, *to = grad_q + t * k_row;
            const float *scores = c.mixture + t * a_row, *weights = c.weights + t * c.steps_row;
            Lanes through{};
            for (int64_t j = 0; j < K; j += LANES) {
                const Lanes of_past = load_part(here + CHUNK + j, a_row - CHUNK - j) + of_total[t] * load(c.n + j);
                const Lanes past = c.keep[t] * load(c.q + t * k_row + j);
                store(to + j, of_past * c.keep[t]);
                through += of_past * past;
                store(carry_n + j, load(carry_n + j) + of_total[t] * past);
            }
            for (int64_t s = 0; s < CHUNK; s += LANES) {
                const Lanes of_score = load(here + s) + of_total[t], product = of_score * first_of(load(scores + s), CHUNK - s);
                through += product;
                columns[s / LANES] += product;
                store_part(here + s, of_score * load(weights + s), CHUNK - s);
            }
            of_kept[t] += sum(through);
        }
        accumulate(c.mixture, a_row, grad, v_row, CHUNK, CHUNK + K, V, grad_values, v_row);
        for (int64_t s = 0; s < c.steps; ++s) {
            const float through = columns[s / LANES][s % LANES];
            grad_gate[s] += through, of_kept[s] -= through;
        }
        pack(c.k, CHUNK, K, k_row, 1, c.packed);
        multiply(grad_mixture, a_row, c.packed, CHUNK, CHUNK, K, nullptr, work, k_row);
        accumulate(grad_mixture, a_row, c.q, k_row, c.steps, CHUNK, K, grad_k, k_row);
        for (int64_t t = 0; t < c.steps; ++t) add_scaled(work + t * k_row, 1.0f, K, grad_q + t * k_row);
        float later = 0, so_far[CHUNK_ROOM] = {};
        for (int64_t t = last; t >= 0; --t) so_far[t] = later += of_kept[t];
        for (int64_t t = 0; t < CHUNK_ROOM; t += LANES) store(grad_forget + t, load(so_far + t) * sigmoid(-load(c.forget + t)));
    }
};

}  // namespace LATCHWORK_ISA
