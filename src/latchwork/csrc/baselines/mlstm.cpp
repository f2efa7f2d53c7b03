// The mLSTM: each head of each row of the batch, chunk by chunk. Compiled once for each instruction set.
#include "mlstm.h"

namespace LATCHWORK_ISA {

inline void load_steps(const Mlstm& p, int64_t b, int64_t head, int64_t begin, MlstmChunk& c) {
    c.start(p.time - begin < CHUNK ? p.time - begin : CHUNK);
    const float scale = static_cast<float>(p.scale);
    for (int64_t t = 0; t < c.steps; ++t) {
        std::memcpy(c.q + t * c.k_row, row(p.q, b, begin + t) + head * c.K, c.K * sizeof(float));
        const float* from = row(p.k, b, begin + t) + head * c.K;
        each_part(c.K, c.k + t * c.k_row, [&](int64_t j, int64_t lanes) { return scale * load_part(from + j, lanes); });
        std::memcpy(c.values + t * c.v_row, row(p.v, b, begin + t) + head * c.V, c.V * sizeof(float));
        c.gate[t] = row(p.i, b, begin + t)[head], c.forget[t] = row(p.f, b, begin + t)[head];
    }
}

inline void mlstm_head(const Mlstm& p, int64_t b, int64_t head) {
    MlstmChunk c(p.keys, p.values, p.epsilon);
    Scratch<float> room(CHUNK * c.k_row);
    const int64_t place = b * p.heads + head, size = state_size(c.K, c.V), chunks = chunks_of(p.time);
    c.load_state(p.c0 + place * c.K * c.V, p.n0 + place * c.K, p.m0[place]);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        if (p.tape) c.store_state(p.tape + (place * chunks + chunk) * size);
        load_steps(p, b, head, chunk * CHUNK, c);
        const float m = c.read();
        for (int64_t t = 0; t < c.steps; ++t)
            each_part(c.V, row(p.y, b, chunk * CHUNK + t) + head * c.V,
                      [&](int64_t j, int64_t) { return c.share[t] * load(c.y + t * c.v_row + j); });
        c.move_on(room.data, m);
    }
    c.store_state(p.c + place * c.K * c.V, p.n + place * c.K, p.m + place);
}

inline void mlstm_head_back(const Mlstm& p, int64_t b, int64_t head) {
    MlstmChunk c(p.keys, p.values, p.epsilon);
    MlstmChunkBack back(c);
    const int64_t place = b * p.heads + head, K = c.K, V = c.V, chunks = chunks_of(p.time);
    const float scale = static_cast<float>(p.scale);
    back.load_carry(p.grad_c ? p.grad_c + place * K * V : nullptr, p.grad_n ? p.grad_n + place * K : nullptr);
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        const int64_t begin = chunk * CHUNK;
        load_steps(p, b, head, begin, c);
        c.load_state(p.tape + (place * chunks + chunk) * state_size(K, V));
        c.read();
        for (int64_t t = 0; t < c.steps; ++t)
            std::memcpy(back.grad + t * c.v_row, row(p.grad_y, b, begin + t) + head * V, V * sizeof(float));
        back.run();
        for (int64_t t = 0; t < c.steps; ++t) {
            std::memcpy(row(p.grad_q, b, begin + t) + head * K, back.grad_q + t * c.k_row, K * sizeof(float));
            each_part(K, row(p.grad_k, b, begin + t) + head * K,
                      [&](int64_t j, int64_t) { return scale * load(back.grad_k + t * c.k_row + j); });
            std::memcpy(row(p.grad_v, b, begin + t) + head * V, back.grad_values + t * c.v_row, V * sizeof(float));
            row(p.grad_i, b, begin + t)[head] = back.grad_gate[t], row(p.grad_f, b, begin + t)[head] = back.grad_forget[t];
        }
    }
    back.store_carry(p.grad_c0 + place * K * V, p.grad_n0 + place * K);
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
