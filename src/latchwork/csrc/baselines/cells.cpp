// The GRU and the sLSTM: cells whose gates see the output before. Compiled once for each instruction set.
#include "lanes.h"

namespace LATCHWORK_ISA {

constexpr int64_t TILE = LANES == 16 ? 8 : ROWS;  // rows of a product: batches are multiples of 8 more often than of 12

// A weight packed for h -> gates, (inputs, gates width), or for the way back, (gates width, inputs). Element (gate g, column
// j, input k) is at g * gate + j * column + k * input.
struct Recurrent {
    const int64_t inputs, columns;
    Scratch<float> whole, packed;
    Recurrent(const float* weight, int64_t gates, int64_t width, int64_t inputs, int64_t gate, int64_t column, int64_t input,
              bool back)
        : inputs(inputs), columns(gates * width), whole(inputs * columns),
          packed(back ? packed_size(columns, inputs) : packed_size(inputs, columns)) {
        for (int64_t k = 0; k < inputs; ++k)
            for (int64_t g = 0; g < gates; ++g)
                for (int64_t j = 0; j < width; ++j)
                    whole.data[k * columns + g * width + j] = weight[g * gate + j * column + k * input];
        if (back)
            pack(whole.data, columns, inputs, 1, columns, packed.data);
        else
            pack(whole.data, inputs, columns, columns, 1, packed.data);
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
// Ask for the numbers of a step before it comes: as many rows as the batch has are read side by side.
inline void ask_for(const Rows& rows, int64_t b, int64_t t, int64_t time, int64_t width) {
    for (int64_t j = 0; j < width && t >= 0 && t < time; j += 16) __builtin_prefetch(row(rows, b, t) + j);
}
constexpr int64_t AHEAD = 3;  // steps

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
            multiply<TILE>(h.data, H, weight.packed.data, whole, D, 3 * D, bias.data, gates.data, G);
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
            multiply<TILE>(grads.data, G, weight.packed.data, whole, 3 * D, D, nullptr, carry.data, H);
        }
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < D; ++j)
                p.grad_h0[(begin + r) * D + j] = carry.data[r * H + j] + through.data[r * H + j];
    });
    return DONE;
}

// What a step of the sLSTM keeps for the gradient, a vector each. SHARE: what is kept of the state before where nothing of
// the new is lost, or else, with a minus, what is taken of the new. CLOSED: 1 - sigmoid(f).
enum { SHARE, Z, O, C, N, CLOSED, KEPT };

// The heads' weights, packed, and a row of a state (heads, B, width) in a buffer whose vectors are whole.
struct Heads {
    const Slstm& p;
    const int64_t d, W, H, G, packed;
    Scratch<float> weight;
    Heads(const Slstm& p, bool back)
        : p(p), d(p.width), W(round_up(d, LANES)), H(padded(d)), G(padded(4 * d) + LANES),
          packed(line(back ? packed_size(4 * d, d) : packed_size(d, 4 * d))), weight(p.heads * packed) {
        for (int64_t head = 0; head < p.heads; ++head) {
            const Recurrent one(p.recurrent + head * 4 * d * d, 4, d, d, d, 1, 4 * d, back);
            std::memcpy(weight.data + head * packed, one.packed.data,
                        (back ? packed_size(4 * d, d) : packed_size(d, 4 * d)) * sizeof(float));
        }
    }
    void load_rows(const float* from, int64_t begin, int64_t end, int64_t head, int64_t size, float* to) const {
        for (int64_t b = begin; b < end; ++b)
            copy_padded(from ? from + (head * p.batch + b) * d : nullptr, d, size, to + (b - begin) * size);
    }
    void store_rows(float* to, int64_t begin, int64_t end, int64_t head, int64_t size, const float* from) const {
        for (int64_t b = begin; b < end; ++b)
            std::memcpy(to + (head * p.batch + b) * d, from + (b - begin) * size, d * sizeof(float));
    }
};

int slstm(const Slstm& p) {
    const Heads w(p, false);
    const int64_t d = p.width, W = w.W, H = w.H, G = w.G;
    Scratch<float> bias(p.heads * G);
    for (int64_t head = 0; head < p.heads; ++head) copy_padded(p.bias + head * 4 * d, 4 * d, G, bias.data + head * G);
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, TILE);
        Zeros ys(p.heads * whole * H), cs(p.heads * rows * W), ns(p.heads * rows * W), ms(p.heads * rows * W), gates(whole * G);
        for (int64_t head = 0; head < p.heads; ++head) {
            w.load_rows(p.y0, begin, end, head, H, ys.data + head * whole * H);
            w.load_rows(p.c0, begin, end, head, W, cs.data + head * rows * W);
            w.load_rows(p.n0, begin, end, head, W, ns.data + head * rows * W);
            w.load_rows(p.m0, begin, end, head, W, ms.data + head * rows * W);
        }
        for (int64_t t = 0; t < p.time; ++t)
            for (int64_t head = 0; head < p.heads; ++head) {
                float* y = ys.data + head * whole * H;
                multiply<TILE>(y, H, w.weight.data + head * w.packed, whole, d, 4 * d, bias.data + head * G, gates.data, G);
                for (int64_t r = 0; r < rows; ++r) {
                    const float *first = row(p.first, begin + r, t) + head * 2 * d;
                    const float *second = row(p.second, begin + r, t) + head * 2 * d, *gate = gates.data + r * G;
                    float* tape = p.tape.data ? row(p.tape, begin + r, t) + head * KEPT * d : nullptr;
                    if (!head) ask_for(p.first, begin + r, t + AHEAD, p.time, p.heads * 2 * d);
                    if (!head) ask_for(p.second, begin + r, t + AHEAD, p.time, p.heads * 2 * d);
                    for (int64_t j = 0; j < d; j += LANES) {
                        const int64_t lanes = d - j, here = (head * rows + r) * W + j;
                        const Lanes i = load(gate + j) + load_part(first + j, lanes);
                        const Lanes f = load(gate + d + j) + load_part(first + d + j, lanes);
                        const Lanes z = hyperbolic_tangent(load(gate + 2 * d + j) + load_part(second + j, lanes));
                        const Lanes o = sigmoid(load(gate + 3 * d + j) + load_part(second + d + j, lanes));
                        const Lanes small = exponential(-magnitude(f)), before = load(ns.data + here);
                        const Lanes kept = (f < 0.0f ? f : Lanes{}) - log_of_one_and(small) + load(ms.data + here);
                        // The larger of the two is the new scale, and its share 1; where there is no state, i is.
                        const auto fresh = (before == 0.0f) | (kept <= i);
                        const Lanes scale = fresh ? i : kept, one = all(1.0f);
                        const Lanes least = exponential((fresh ? kept : i) - scale);
                        const Lanes write = fresh ? one : least, keep = fresh ? least : one;
                        const Lanes now_c = keep * load(cs.data + here) + write * z, now_n = keep * before + write;
                        const Lanes out = o * now_c / now_n;
                        store(cs.data + here, now_c), store(ns.data + here, now_n), store(ms.data + here, scale);
                        store(y + r * H + j, first_of(out, lanes));
                        store_part(row(p.y, begin + r, t) + head * d + j, out, lanes);
                        if (!tape) continue;
                        const Lanes closed = (f < 0.0f ? one : small) / (1.0f + small);
                        const Lanes all_kept[KEPT] = {fresh ? least : -least, z, o, now_c, now_n, closed};
                        for (int64_t q = 0; q < KEPT; ++q) store_part(tape + q * d + j, all_kept[q], lanes);
                    }
                }
            }
        for (int64_t head = 0; head < p.heads; ++head) {
            w.store_rows(p.c, begin, end, head, W, cs.data + head * rows * W);
            w.store_rows(p.n, begin, end, head, W, ns.data + head * rows * W);
            w.store_rows(p.m, begin, end, head, W, ms.data + head * rows * W);
        }
    });
    return DONE;
}

int slstm_back(const Slstm& p) {
    const Heads w(p, true);
    const int64_t d = p.width, W = w.W, H = w.H, G = w.G;
    over_rows(p.batch, p.threads, [&](int64_t begin, int64_t end) {
        const int64_t rows = end - begin, whole = round_up(rows, TILE);
        Zeros carries(p.heads * whole * H), cs(p.heads * rows * W), ns(p.heads * rows * W), grads(whole * G);
        for (int64_t head = 0; head < p.heads; ++head) {
            w.load_rows(p.grad_c, begin, end, head, W, cs.data + head * rows * W);
            w.load_rows(p.grad_n, begin, end, head, W, ns.data + head * rows * W);
        }
        for (int64_t t = p.time - 1; t >= 0; --t)
            for (int64_t head = 0; head < p.heads; ++head) {
                float* carry = carries.data + head * whole * H;
                for (int64_t r = 0; r < rows; ++r) {
                    const int64_t b = begin + r, start = (head * p.batch + b) * d;
                    const float *tape = row(p.tape, b, t) + head * KEPT * d, *past = row(p.tape, b, t - (t > 0)) + head * KEPT * d;
                    const float *c_before = t ? past + C * d : p.c0 + start, *n_before = t ? past + N * d : p.n0 + start;
                    float *first = row(p.grad_first, b, t) + head * 2 * d, *second = row(p.grad_second, b, t) + head * 2 * d;
                    float* grad = grads.data + r * G;
                    if (!head) ask_for(p.tape, b, t - AHEAD, p.time, p.heads * KEPT * d);
                    if (!head) ask_for(p.grad_y, b, t - AHEAD, p.time, p.heads * d);
                    for (int64_t j = 0; j < d; j += LANES) {
                        const int64_t lanes = d - j, here = (head * rows + r) * W + j;
                        Lanes kept[KEPT];
                        for (int64_t q = 0; q < KEPT; ++q) kept[q] = load_part(tape + q * d + j, lanes);
                        const Lanes o = kept[O], z = kept[Z], n = kept[N], one = all(1.0f);
                        const Lanes write = kept[SHARE] < 0.0f ? -kept[SHARE] : one, keep = kept[SHARE] < 0.0f ? one : kept[SHARE];
                        const Lanes inverse = 1.0f / (lanes < LANES ? (n == 0.0f ? one : n) : n);
                        const Lanes out = load(carry + r * H + j) + load_part(row(p.grad_y, b, t) + head * d + j, lanes);
                        const Lanes ratio = kept[C] * inverse, share = out * o * inverse;
                        const Lanes of_o = out * ratio * o * (1.0f - o);
                        const Lanes of_c = load(cs.data + here) + share, of_n = load(ns.data + here) - share * ratio;
                        const Lanes of_i = (of_c * z + of_n) * write, of_z = of_c * write * (1.0f - z * z);
                        const Lanes of_keep = of_c * load_part(c_before + j, lanes) + of_n * load_part(n_before + j, lanes);
                        const Lanes of_f = of_keep * keep * kept[CLOSED];
                        store(cs.data + here, of_c * keep), store(ns.data + here, of_n * keep);
                        store_part(grad + j, of_i, lanes), store_part(grad + d + j, of_f, lanes);
                        store_part(grad + 2 * d + j, of_z, lanes), store_part(grad + 3 * d + j, of_o, lanes);
                        store_part(first + j, of_i, lanes), store_part(first + d + j, of_f, lanes);
                        store_part(second + j, of_z, lanes), store_part(second + d + j, of_o, lanes);
                    }
                }
                multiply<TILE>(grads.data, G, w.weight.data + head * w.packed, whole, 4 * d, d, nullptr, carry, H);
            }
        for (int64_t head = 0; head < p.heads; ++head) {
            w.store_rows(p.grad_y0, begin, end, head, H, carries.data + head * whole * H);
            w.store_rows(p.grad_c0, begin, end, head, W, cs.data + head * rows * W);
            w.store_rows(p.grad_n0, begin, end, head, W, ns.data + head * rows * W);
        }
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(gru, Gru)
ENTRY(gru_back, Gru)
ENTRY(slstm, Slstm)
ENTRY(slstm_back, Slstm)
