// Gate, output and residual of a layer, after its recurrence, for a block of rows at a time.
#pragma once
#include "blocks.h"

namespace LATCHWORK_ISA {

LATCHWORK_INLINE Lanes sigmoid(Lanes a) { return 1.0f / (1.0f + exponential(-a)); }

struct Response {
    const Layer& p;
    const int64_t block, D, S;  // block: rows at a time; D, S: row lengths with padding
    Scratch<float> memory;
    float *weight, *bias;
    Response(const Layer& p, int64_t block, bool backward)
        : p(p), block(block), D(panels(p.width)), S(panels(p.state)),
          memory(p.output.weight ? line(D) + packed_room(p.width, p.state) : 0) {
        if (!p.output.weight) return;
        Arena arena{memory.data};
        bias = padded_bias(p.output, p.width, D, arena);
        weight = packed_weight(p.output, p.width, p.state, arena, backward);
    }
    // The state x behind its gate, and the gate, of a row z.
    void behind_gate(const float* x, const float* z, float* to, float* gate) const {
        const float* logits = z + p.outputs - p.state;
        for (int64_t j = 0; j < p.state; j += LANES) {
            const int64_t lanes = p.state - j;
            Lanes value = load_part<float>(x + j, lanes);
            if (p.gated_output) {
                const Lanes opened = sigmoid(load_part<float>(logits + j, lanes));
                store(gate + j, opened);
                value *= opened;
            }
            store(to + j, value);
        }
    }
};

// One thread's pass over rows, forward.
struct ResponseForward {
    const Response& w;
    float *a, *y, *gate;
    static int64_t size(const Response& w) { return w.block * (w.S + w.D) + line(w.S); }
    ResponseForward(const Response& w, Arena arena) : w(w) {
        a = arena.take(w.block * w.S), y = arena.take(w.block * w.D), gate = arena.take(w.S);
    }
    void operator()(int64_t row, int64_t rows, Place x, Place z) {
        const Layer& p = w.p;
        for (int64_t r = 0; r < rows; ++r) w.behind_gate(x.row(r), z.row(r), a + r * w.S, gate);
        multiply(a, w.S, w.weight, round_up(rows, ROWS), p.state, p.width, w.bias, y, w.D);
        for (int64_t r = 0; r < rows; ++r) {
            const float* u = p.u + (row + r) * p.width;
            each_part(p.width, p.y + (row + r) * p.width, [&](int64_t j, int64_t lanes) {
                return load(y + r * w.D + j) + load_part<float>(u + j, lanes);
            });
        }
    }
};

// One thread's pass over rows, backward, and its sums of the gradients of the weights.
struct ResponseBackward {
    const Response& w;
    Place grad_x;  // what it finds for the state, before the recurrence
    float *a, *gate, *grad_y, *grad_weight, *grad_bias, *copies;
    static int64_t size(const Response& w) {
        return w.block * (3 * w.S + w.D) + line(room_for_copies(w.p, w.block, w.p.state));
    }
    static int64_t zero_size(const Response& w) { return line(tiles(w.p.width) * w.S) + line(w.D); }
    ResponseBackward(const Response& w, Arena arena, Arena& zero) : w(w), grad_x{arena.take(w.block * w.S), w.S} {
        a = arena.take(w.block * w.S), gate = arena.take(w.block * w.S), grad_y = arena.take(w.block * w.D);
        const int64_t room = room_for_copies(w.p, w.block, w.p.state);
        copies = room ? arena.take(room) : nullptr;
        grad_weight = zero.take(tiles(w.p.width) * w.S), grad_bias = zero.take(w.D);
    }
    // Of grad_z only the gate's columns are written.
    void operator()(int64_t row, int64_t rows, Place x, Place z, Place grad_z) {
        const Layer& p = w.p;
        for (int64_t r = 0; r < rows; ++r) {
            x.prefetch(r + 2), z.prefetch(r + 2);
            w.behind_gate(x.row(r), z.row(r), a + r * w.S, gate + r * w.S);
            std::memcpy(grad_y + r * w.D, p.grad_y + (row + r) * p.width, p.width * sizeof(float));
        }
        accumulate(grad_y, w.D, a, w.S, rows, p.width, p.state, grad_weight, w.S, copies);
        add_rows(grad_y, w.D, rows, w.D, grad_bias);
        multiply(grad_y, w.D, w.weight, round_up(rows, ROWS), p.width, p.state, nullptr, grad_x.at, w.S);
        for (int64_t r = 0; r < rows && p.gated_output; ++r) {
            const float *behind = a + r * w.S, *open = gate + r * w.S;
            float* grad = grad_x.row(r);
            each_part(p.state, grad_z.row(r) + p.outputs - p.state, [&](int64_t j, int64_t) {
                const Lanes before = load(grad + j), opened = load(open + j);
                store(grad + j, before * opened);
                return before * load(behind + j) * (1.0f - opened);
            });
        }
    }
    // The sums into the gradients: written by the first thread, added by the others.
    void hand_out(bool first) const {
        if (!w.p.output.weight) return;
        add_matrix(grad_weight, w.S, w.p.width, w.p.state, w.p.output.grad_weight, first);
        add_matrix(grad_bias, w.p.width, 1, w.p.width, w.p.output.grad_bias, first);
    }
};

}  // namespace LATCHWORK_ISA
