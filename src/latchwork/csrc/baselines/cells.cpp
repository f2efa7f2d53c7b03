// The GRU and the sLSTM: cells whose gates see the output before. Compiled once for each instruction set.
#include "lanes.h"

namespace LATCHWORK_ISA {

// A weight (outputs of `gates` gates of `width`, inputs) whose gates begin at vectors, so that each has whole ones.
inline int64_t whole_lanes(int64_t width) { return round_up(width, LANES); }

// The matrix (inputs, gates W) packed for h -> gates, or (gates W, inputs) for the way back; W = whole_lanes(width).
// Element (gate g, column j, input k) of the weight is at g * gate + j * column + k * input.
struct Recurrent {
    const int64_t inputs, columns;
    Scratch<float> wide, packed;
    Recurrent(const float* weight, int64_t gates, int64_t width, int64_t inputs, int64_t gate, int64_t column, int64_t input,
              bool back)
        : inputs(inputs), columns(gates * whole_lanes(width)), wide(inputs * columns),
          packed(back ? packed_size(columns, inputs) : packed_size(inputs, columns)) {
        std::memset(wide.data, 0, inputs * columns * sizeof(float));
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t g = 0; g < gates; ++g)
                for (int64_t j = 0; j < width; ++j)
                    wide.data[k * columns + g * whole_lanes(width) + j] = weight[g * gate + j * column + k * input];
        if (back)
            pack(wide.data, columns, inputs, 1, columns, packed.data);
        else
            pack(wide.data, inputs, columns, columns, 1, packed.data);
    }
};

// part(begin, end) for the rows of the batch, spread over threads.
template <class Part>
void over_rows(int64_t rows, int64_t threads, Part part) {
    threads = threads < 1 ? 1 : threads < rows ? threads : rows;
    in_parallel(threads, threads, [&](int64_t i) { part(rows * i / threads, rows * (i + 1) / threads); });
}
struct Zeros : Scratch<float> {
    explicit Zeros(int64_t size) : Scratch(size) { std::memset(data, 0, size * sizeof(float)); }
};

int gru(const Gru& p) {
    const int64_t D = p.width, W = whole_lanes(D);
    const Recurrent weight(p.weight, 3, D, D, D * D, D, 1, false);
    Zeros bias(padded(3 * W));
    for (int64_t g = 0; g < 3; ++g) copy_padded(p.bias + g * D, D, W, bias.data + g * W);
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, ROWS), H = padded(W), G = padded(3 * W);
        Zeros h(whole * H), gates(whole * G);
        for (int64_t r = 0; r < rows; ++r) copy_padded(p.h0 + (begin + r) * D, D, H, h.data + r * H);
        for (int64_t t = 0; t < p.time; ++t) {
            multiply(h.data, H, weight.packed.data, whole, D, 3 * W, bias.data, gates.data, G);
            for (int64_t r = 0; r < rows; ++r) {
                const float* drive = row(p.drive, begin + r, t);
                const float* gate = gates.data + r * G;
                float* tape = p.tape.data ? row(p.tape, begin + r, t) : nullptr;
                for (int64_t j = 0; j < D; j += LANES) {
                    const int64_t n = D - j;
                    const Lanes reset = sigmoid(load(gate + j) + load_some(drive + j, n));
                    const Lanes update = sigmoid(load(gate + W + j) + load_some(drive + D + j, n));
                    const Lanes hidden = load(gate + 2 * W + j);
                    const Lanes fresh = hyperbolic_tangent(load_some(drive + 2 * D + j, n) + reset * hidden);
                    const Lanes before = load(h.data + r * H + j), y = fresh + update * (before - fresh);
                    store_some(h.data + r * H + j, y, n);
                    store_some(row(p.y, begin + r, t) + j, y, n);
                    if (!tape) continue;
                    store_some(tape + j, reset, n), store_some(tape + D + j, update, n);
                    store_some(tape + 2 * D + j, fresh, n), store_some(tape + 3 * D + j, hidden, n);
                }
            }
        }
    });
    return DONE;
}

int gru_back(const Gru& p) {
    const int64_t D = p.width, W = whole_lanes(D);
    const Recurrent weight(p.weight, 3, D, D, D * D, D, 1, true);
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, ROWS), H = padded(W), G = padded(3 * W);
        Zeros carry(whole * H), through(whole * H), grads(whole * G);  // through: what of h goes past the weight
        for (int64_t t = p.time - 1; t >= 0; --t) {
            for (int64_t r = 0; r < rows; ++r) {
                const float* tape = row(p.tape, begin + r, t);
                const float* h = t ? row(p.y, begin + r, t - 1) : p.h0 + (begin + r) * D;
                float *drive = row(p.grad_drive, begin + r, t), *all_hidden = row(p.grad_hidden, begin + r, t);
                float* grad = grads.data + r * G;
                for (int64_t j = 0; j < D; j += LANES) {
                    const int64_t n = D - j;
                    const Lanes reset = load_some(tape + j, n), update = load_some(tape + D + j, n);
                    const Lanes fresh = load_some(tape + 2 * D + j, n), hidden = load_some(tape + 3 * D + j, n);
                    const Lanes out = load(carry.data + r * H + j) + load(through.data + r * H + j) +
                                      load_some(row(p.grad_y, begin + r, t) + j, n);
                    const Lanes of_update = out * (load_some(h + j, n) - fresh) * update * (1.0f - update);
                    const Lanes of_fresh = out * (1.0f - update) * (1.0f - fresh * fresh);
                    const Lanes of_reset = of_fresh * hidden * reset * (1.0f - reset), of_hidden = of_fresh * reset;
                    store(through.data + r * H + j, out * update);
                    store(grad + j, of_reset), store(grad + W + j, of_update), store(grad + 2 * W + j, of_hidden);
                    store_some(drive + j, of_reset, n), store_some(drive + D + j, of_update, n);
                    store_some(drive + 2 * D + j, of_fresh, n);
                    store_some(all_hidden + j, of_reset, n), store_some(all_hidden + D + j, of_update, n);
                    store_some(all_hidden + 2 * D + j, of_hidden, n);
                }
            }
            multiply(grads.data, G, weight.packed.data, whole, 3 * W, D, nullptr, carry.data, H);
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < D; ++j)
                p.grad_h0[(begin + r) * D + j] = carry.data[r * H + j] + through.data[r * H + j];
    });
    return DONE;
}

// What a step of the sLSTM keeps for the gradient, a vector each.
enum { WRITE, KEEP, Z, O, C, N, CLOSED, KEPT };  // CLOSED: 1 - sigmoid(f)

int slstm(const Slstm& p) {
    const int64_t d = p.width, W = whole_lanes(d);
    for (int64_t head = 0; head < p.heads; ++head) {
        const Recurrent weight(p.recurrent + head * 4 * d * d, 4, d, d, d, 1, 4 * d, false);
        Zeros bias(padded(4 * W));
        for (int64_t g = 0; g < 4; ++g) copy_padded(p.bias + (head * 4 + g) * d, d, W, bias.data + g * W);
        over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
            const int64_t rows = end - begin, whole = round_up(rows, ROWS), H = padded(W), G = padded(4 * W);
            Zeros y(whole * H), c(rows * W), n(rows * W), m(rows * W), gates(whole * G);
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t from = (head * p.batch + begin + r) * d;
                copy_padded(p.y0 + from, d, H, y.data + r * H), copy_padded(p.c0 + from, d, W, c.data + r * W);
                copy_padded(p.n0 + from, d, W, n.data + r * W), copy_padded(p.m0 + from, d, W, m.data + r * W);
            }
            for (int64_t t = 0; t < p.time; ++t) {
                multiply(y.data, H, weight.packed.data, whole, d, 4 * W, bias.data, gates.data, G);
                for (int64_t r = 0; r < rows; ++r) {
                    const int64_t place = (head * p.batch + begin + r) * p.time + t;
                    const float *first = p.first + place * 2 * d, *second = p.second + place * 2 * d;
                    const float* gate = gates.data + r * G;
                    float* tape = p.tape ? p.tape + place * KEPT * d : nullptr;
                    for (int64_t j = 0; j < d; j += LANES) {
                        const int64_t lanes = d - j;
                        float *here_c = c.data + r * W + j, *here_n = n.data + r * W + j, *here_m = m.data + r * W + j;
                        const Lanes i = load(gate + j) + load_some(first + j, lanes);
                        const Lanes f = load(gate + W + j) + load_some(first + d + j, lanes);
                        const Lanes z = hyperbolic_tangent(load(gate + 2 * W + j) + load_some(second + j, lanes));
                        const Lanes o = sigmoid(load(gate + 3 * W + j) + load_some(second + d + j, lanes));
                        const Lanes log_f = -softplus(-f), before = load(here_n), kept = log_f + load(here_m);
                        Lanes scale = kept > i ? kept : i;
                        scale = before == 0.0f ? i : scale;
                        const Lanes write = exponential(i - scale);
                        const Lanes keep = exponential(kept - scale);
                        const Lanes now_c = keep * load(here_c) + write * z, now_n = keep * before + write;
                        const Lanes out = o * now_c / now_n;
                        store(here_c, now_c), store(here_n, now_n), store(here_m, scale);
                        store_some(y.data + r * H + j, out, lanes);
                        store_some(row(p.y, begin + r, t) + head * d + j, out, lanes);
                        if (!tape) continue;
                        const Lanes all_kept[KEPT] = {write, keep, z, o, now_c, now_n, sigmoid(-f)};
                        for (int64_t q = 0; q < KEPT; ++q) store_some(tape + q * d + j, all_kept[q], lanes);
                    }
                }
            }
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t to = (head * p.batch + begin + r) * d;
                std::memcpy(p.c + to, c.data + r * W, d * sizeof(float));
                std::memcpy(p.n + to, n.data + r * W, d * sizeof(float));
                std::memcpy(p.m + to, m.data + r * W, d * sizeof(float));
            }
        });
    }
    return DONE;
}

int slstm_back(const Slstm& p) {
    const int64_t d = p.width, W = whole_lanes(d);
    for (int64_t head = 0; head < p.heads; ++head) {
        const Recurrent weight(p.recurrent + head * 4 * d * d, 4, d, d, d, 1, 4 * d, true);
        over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
            const int64_t rows = end - begin, whole = round_up(rows, ROWS), H = padded(W), G = padded(4 * W);
            Zeros carry(whole * H), c(rows * W), n(rows * W), grads(whole * G);
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t from = (head * p.batch + begin + r) * d;
                if (p.grad_c) copy_padded(p.grad_c + from, d, W, c.data + r * W);
                if (p.grad_n) copy_padded(p.grad_n + from, d, W, n.data + r * W);
            }
            for (int64_t t = p.time - 1; t >= 0; --t) {
                for (int64_t r = 0; r < rows; ++r) {
                    const int64_t start = (head * p.batch + begin + r) * d;
                    const int64_t place = (head * p.batch + begin + r) * p.time + t;
                    const float* tape = p.tape + place * KEPT * d;
                    const float *c_before = t ? tape - (KEPT - C) * d : p.c0 + start;
                    const float *n_before = t ? tape - (KEPT - N) * d : p.n0 + start;
                    float *first = p.grad_first + place * 2 * d, *second = p.grad_second + place * 2 * d;
                    float* grad = grads.data + r * G;
                    for (int64_t j = 0; j < d; j += LANES) {
                        const int64_t lanes = d - j;
                        Lanes kept[KEPT];
                        for (int64_t q = 0; q < KEPT; ++q) kept[q] = load_some(tape + q * d + j, lanes);
                        const Lanes o = kept[O], z = kept[Z], write = kept[WRITE], keep = kept[KEEP];
                        const Lanes inverse = j + LANES <= d ? 1.0f / kept[N] : 1.0f / (kept[N] == 0.0f ? all(1.0f) : kept[N]);
                        const Lanes out = load(carry.data + r * H + j) +
                                          load_some(row(p.grad_y, begin + r, t) + head * d + j, lanes);
                        const Lanes ratio = kept[C] * inverse, share = out * o * inverse;
                        const Lanes of_o = out * ratio * o * (1.0f - o);
                        const Lanes of_c = load(c.data + r * W + j) + share, of_n = load(n.data + r * W + j) - share * ratio;
                        const Lanes of_i = (of_c * z + of_n) * write, of_z = of_c * write * (1.0f - z * z);
                        const Lanes of_keep = of_c * load_some(c_before + j, lanes) + of_n * load_some(n_before + j, lanes);
                        const Lanes of_f = of_keep * keep * kept[CLOSED];
                        store(c.data + r * W + j, of_c * keep), store(n.data + r * W + j, of_n * keep);
                        store(grad + j, of_i), store(grad + W + j, of_f);
                        store(grad + 2 * W + j, of_z), store(grad + 3 * W + j, of_o);
                        store_some(first + j, of_i, lanes), store_some(first + d + j, of_f, lanes);
                        store_some(second + j, of_z, lanes), store_some(second + d + j, of_o, lanes);
                    }
                }
                multiply(grads.data, G, weight.packed.data, whole, 4 * W, d, nullptr, carry.data, H);
            }
            for (int64_t r = 0; r < rows; ++r) {
                const int64_t to = (head * p.batch + begin + r) * d;
                std::memcpy(p.grad_y0 + to, carry.data + r * H, d * sizeof(float));
                std::memcpy(p.grad_c0 + to, c.data + r * W, d * sizeof(float));
                std::memcpy(p.grad_n0 + to, n.data + r * W, d * sizeof(float));
            }
        });
    }
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(gru, Gru)
ENTRY(gru_back, Gru)
ENTRY(slstm, Slstm)
ENTRY(slstm_back, Slstm)
