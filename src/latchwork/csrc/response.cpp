// Gate, output and residual of a layer, after its recurrence. Compiled once for each instruction set.
#include "abi.h"
#include "blocks.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

LATCHWORK_INLINE Lanes sigmoid(Lanes a) { return 1.0f / (1.0f + exponential(-a)); }

struct PreparedResponse {
    const Response& p;
    const int64_t D, S;  // padded
    Scratch<float> memory;
    float *weight, *bias;
    PreparedResponse(const Response& p, bool backward)
        : p(p), D(padded(p.width)), S(padded(p.state)), memory(line(D) + packed_room(p.width, p.state)) {
        Arena arena{memory.data};
        bias = padded_bias(p.output, p.width, D, arena);
        weight = packed_weight(p.output, p.width, p.state, arena, backward);
    }
    // The state behind its gate, and the gate.
    void behind_gate(int64_t row, float* to, float* gate) const {
        const float *x = p.x + row * p.state, *logits = p.z + (row + 1) * p.outputs - p.state;
        for (int64_t j = 0; j < p.state; j += LANES) {
            const int64_t lanes = p.state - j;
            Lanes value = load_part<float>(x + j, lanes);
            if (p.gated) {
                const Lanes opened = sigmoid(load_part<float>(logits + j, lanes));
                store(gate + j, opened);
                value *= opened;
            }
            store(to + j, value);
        }
    }
};

inline void respond_rows(const PreparedResponse& w, int64_t begin, int64_t end) {
    const Response& p = w.p;
    Scratch<float> memory(BLOCK * (w.S + w.D) + line(w.S));
    Arena arena{memory.data};
    float *a = arena.take(BLOCK * w.S), *y = arena.take(BLOCK * w.D), *gate = arena.take(w.S);
    std::memset(memory.data, 0, (arena.next - memory.data) * sizeof(float));
    for (int64_t row = begin; row < end; row += BLOCK) {
        const int64_t rows = end - row < BLOCK ? end - row : BLOCK;
        for (int64_t r = 0; r < rows; ++r) w.behind_gate(row + r, a + r * w.S, gate);
        multiply(a, w.S, w.weight, round_up(rows, ROWS), p.state, p.width, w.bias, y, w.D);
        for (int64_t r = 0; r < rows; ++r) {
            const float* u = p.u + (row + r) * p.width;
            each_part(p.width, p.y + (row + r) * p.width, [&](int64_t j, int64_t lanes) {
                return load(y + r * w.D + j) + load_part<float>(u + j, lanes);
            });
        }
    }
}

inline void respond_rows_back(const PreparedResponse& w, int64_t begin, int64_t end, float* grad_weight, float* grad_bias) {
    const Response& p = w.p;
    Scratch<float> memory(BLOCK * (3 * w.S + w.D));
    Arena arena{memory.data};
    float *a = arena.take(BLOCK * w.S), *gate = arena.take(BLOCK * w.S), *grad_a = arena.take(BLOCK * w.S);
    float* grad_y = arena.take(BLOCK * w.D);
    std::memset(memory.data, 0, (arena.next - memory.data) * sizeof(float));
    for (int64_t row = begin; row < end; row += BLOCK) {
        const int64_t rows = end - row < BLOCK ? end - row : BLOCK;
        for (int64_t r = 0; r < rows; ++r) {
            w.behind_gate(row + r, a + r * w.S, gate + r * w.S);
            std::memcpy(grad_y + r * w.D, p.grad_y + (row + r) * p.width, p.width * sizeof(float));
        }
        accumulate(grad_y, w.D, a, w.S, rows, p.width, p.state, grad_weight, w.S);
        add_rows(grad_y, w.D, rows, w.D, grad_bias);
        multiply(grad_y, w.D, w.weight, round_up(rows, ROWS), p.width, p.state, nullptr, grad_a, w.S);
        for (int64_t r = 0; r < rows; ++r) {
            const float *behind = a + r * w.S, *open = gate + r * w.S, *grad = grad_a + r * w.S;
            float *to = p.grad_x + (row + r) * p.state, *logits = p.grad_z + (row + r + 1) * p.outputs - p.state;
            each_part(p.state, to, [&](int64_t j, int64_t) { return p.gated ? load(grad + j) * load(open + j) : load(grad + j); });
            if (p.gated)
                each_part(p.state, logits, [&](int64_t j, int64_t) {
                    return load(grad + j) * load(behind + j) * (1.0f - load(open + j));
                });
        }
    }
}

inline int64_t response_threads(const Response& p) {
    const int64_t most = p.rows / (4 * BLOCK), threads = p.threads < most ? p.threads : most;
    return threads < 1 ? 1 : threads;
}

int respond(const Response& p) {
    const PreparedResponse w(p, false);
    const int64_t threads = response_threads(p);
    in_parallel(threads, threads, [&](int64_t part) {
        respond_rows(w, p.rows * part / threads, p.rows * (part + 1) / threads);
    });
    return DONE;
}

int respond_back(const Response& p) {
    const PreparedResponse w(p, true);
    const int64_t threads = response_threads(p), size = line(w.D * w.S + w.D);
    Scratch<float> memory(threads * size);
    std::memset(memory.data, 0, threads * size * sizeof(float));
    in_parallel(threads, threads, [&](int64_t part) {
        float* sums = memory.data + part * size;
        respond_rows_back(w, p.rows * part / threads, p.rows * (part + 1) / threads, sums, sums + w.D * w.S);
    });
    for (int64_t part = 0; part < threads; ++part) {
        const float* sums = memory.data + part * size;
        add_matrix(sums, w.S, p.width, p.state, p.output.grad_weight, part == 0);
        add_matrix(sums + w.D * w.S, p.width, 1, p.width, p.output.grad_bias, part == 0);
    }
    return DONE;
}

}  // namespace LATCHWORK_ISA

extern "C" {
int JOIN(latchwork_respond_, LATCHWORK_ISA)(const Response* p) { return LATCHWORK_ISA::respond(*p); }
int JOIN(latchwork_respond_back_, LATCHWORK_ISA)(const Response* p) { return LATCHWORK_ISA::respond_back(*p); }
}
