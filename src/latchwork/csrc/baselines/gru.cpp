// The GRU. Compiled once for each instruction set.
#include "cells.h"

namespace LATCHWORK_ISA {

int gru(const Gru& p) {
    const int64_t D = p.width;
    const Recurrent weight(p.weight, 3, D, D, D * D, D, 1, false);
    Scratch<float> bias(padded(3 * D));
    copy_padded(p.bias, 3 * D, padded(3 * D), bias.data);
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, TILE), H = padded(D), G = padded(3 * D) + LANES;
        Zeros h(whole * H), gates(whole * G);
        for (int64_t r = 0; r < rows; ++r) copy_padded(p.h0 + (begin + r) * D, D, H, h.data + r * H);
        for (int64_t t = 0; t < p.time; ++t) {
            multiply_rows(h.data, H, weight.packed.data, rows, D, 3 * D, bias.data, gates.data, G);
            for (int64_t r = 0; r < rows; ++r) {
                const float* drive = row(p.drive, begin + r, t);
                const float* gate = gates.data + r * G;
                float* tape = p.tape.data ? row(p.tape, begin + r, t) : nullptr;
                ask_for(p.drive, begin + r, t + AHEAD, p.time, 3 * D);
                for (int64_t j = 0; j < D; j += LANES) {
                    const int64_t n = D - j;
                    const Lanes reset = sigmoid(load(gate + j) + load_part(drive + j, n));
                    const Lanes update = sigmoid(load(gate + D + j) + load_part(drive + D + j, n));
                    const Lanes hidden = load(gate + 2 * D + j);
                    const Lanes fresh = hyperbolic_tangent(load_part(drive + 2 * D + j, n) + reset * hidden);
                    const Lanes before = load(h.data + r * H + j), y = fresh + update * (before - fresh);
                    store(h.data + r * H + j, first_of(y, n));
                    store_part(row(p.y, begin + r, t) + j, y, n);
                    if (!tape) continue;
                    store_part(tape + j, reset, n), store_part(tape + D + j, update, n);
                    store_part(tape + 2 * D + j, fresh, n), store_part(tape + 3 * D + j, hidden, n);
                }
            }
        }
    });
    return DONE;
}

int gru_back(const Gru& p) {
    const int64_t D = p.width;
    const Recurrent weight(p.weight, 3, D, D, D * D, D, 1, true);
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, TILE), H = padded(D), G = padded(3 * D);
        Zeros carry(whole * H), through(whole * H), grads(whole * G);  // through: what of h goes past the weight
        for (int64_t t = p.time - 1; t >= 0; --t) {
            for (int64_t r = 0; r < rows; ++r) {
                const float* tape = row(p.tape, begin + r, t);
                const float* h = t ? row(p.y, begin + r, t - 1) : p.h0 + (begin + r) * D;
                float *drive = row(p.grad_drive, begin + r, t), *all_hidden = row(p.grad_hidden, begin + r, t);
                float* grad = grads.data + r * G;
                ask_for(p.tape, begin + r, t - AHEAD, p.time, 4 * D);
                ask_for(p.grad_y, begin + r, t - AHEAD, p.time, D);
                for (int64_t j = 0; j < D; j += LANES) {
                    const int64_t n = D - j;
                    const Lanes reset = load_part(tape + j, n), update = load_part(tape + D + j, n);
                    const Lanes fresh = load_part(tape + 2 * D + j, n), hidden = load_part(tape + 3 * D + j, n);
                    const Lanes out = load(carry.data + r * H + j) + load(through.data + r * H + j) +
                                      load_part(row(p.grad_y, begin + r, t) + j, n);
                    const Lanes of_update = out * (load_part(h + j, n) - fresh) * update * (1.0f - update);
                    const Lanes of_fresh = out * (1.0f - update) * (1.0f - fresh * fresh);
                    const Lanes of_reset = of_fresh * hidden * reset * (1.0f - reset), of_hidden = of_fresh * reset;
                    store(through.data + r * H + j, first_of(out * update, n));
                    store_part(grad + j, of_reset, n), store_part(grad + D + j, of_update, n);
                    store_part(grad + 2 * D + j, of_hidden, n);
                    store_part(drive + j, of_reset, n), store_part(drive + D + j, of_update, n);
                    store_part(drive + 2 * D + j, of_fresh, n);
                    store_part(all_hidden + j, of_reset, n), store_part(all_hidden + D + j, of_update, n);
                    store_part(all_hidden + 2 * D + j, of_hidden, n);
                }
            }
            multiply_rows(grads.data, G, weight.packed.data, rows, 3 * D, D, nullptr, carry.data, H);
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < D; ++j)
                p.grad_h0[(begin + r) * D + j] = carry.data[r * H + j] + through.data[r * H + j];
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(gru, Gru)
ENTRY(gru_back, Gru)
