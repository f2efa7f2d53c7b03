// The sLSTM and what drives its gates. Rows of the batch are taken a tile at a time, their steps a strip at a time: what
// drives the gates, and the gradients of the gates, are products of a whole strip and stay in the cache. Compiled once for
// each instruction set.
#include <initializer_list>

#include "cells.h"

namespace LATCHWORK_ISA {

// What a step keeps for the gradient, a vector each. SHARE: what is kept of the state before where nothing of the new is
// lost, or else, with a minus, what is taken of the new. CLOSED: 1 - sigmoid(f).
enum { SHARE, Z, O, C, N, CLOSED, KEPT };
constexpr int64_t STRIP = 12;  // steps, a multiple of ROWS

// The heads' weights, packed; first and second are the halves of `maps`.
struct SlstmWeights {
    const Slstm& p;
    const int64_t d, width, packed_y, packed_half;
    Scratch<float> recurrent, first, second, bias;
    SlstmWeights(const Slstm& p, bool back)
        : p(p), d(p.width), width(p.heads * 4 * d), packed_y(line(back ? packed_size(4 * d, d) : packed_size(d, 4 * d))),
          packed_half(line(back ? packed_size(2 * d, d) : packed_size(d, 2 * d))), recurrent(p.heads * packed_y),
          first(p.heads * packed_half), second(p.heads * packed_half), bias(width + PANEL) {
        copy_padded(p.bias, width, width + PANEL, bias.data);
        for (int64_t head = 0; head < p.heads; ++head) {
            const auto put = [&](const float* from, int64_t columns, float* to) {
                if (back)
                    pack(from, columns, d, 1, 4 * d, to);
                else
                    pack(from, d, columns, 4 * d, 1, to);
            };
            put(p.recurrent + head * 4 * d * d, 4 * d, recurrent.data + head * packed_y);
            put(p.maps + head * 4 * d * d, 2 * d, first.data + head * packed_half);
            put(p.maps + head * 4 * d * d + 2 * d, 2 * d, second.data + head * packed_half);
        }
    }
};

// A tile of rows of the batch: its states, (heads, rows, width) with whole vectors.
struct SlstmTile {
    const SlstmWeights& w;
    const Slstm& p;
    const int64_t begin, rows, whole, d, W, H, G;
    SlstmTile(const SlstmWeights& w, int64_t begin, int64_t rows)
        : w(w), p(w.p), begin(begin), rows(rows), whole(round_up(rows, TILE)), d(p.width), W(round_up(d, LANES)), H(padded(d)),
          G(padded(4 * d) + LANES) {}
    void load_rows(const float* from, int64_t head, int64_t size, float* to) const {
        for (int64_t r = 0; r < rows; ++r)
            copy_padded(from ? from + (head * p.batch + begin + r) * d : nullptr, d, size, to + r * size);
    }
    void store_rows(float* to, int64_t head, int64_t size, const float* from) const {
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(to + (head * p.batch + begin + r) * d, from + r * size, d * sizeof(float));
    }
    int64_t steps_from(int64_t t) const { return p.time - t < STRIP ? p.time - t : STRIP; }
    // The inputs of a row's strip, where they stand, or in `room` with zeros behind the last step.
    const float* inputs(const Rows& of, int64_t r, int64_t t, int64_t* apart, float* room) const {
        const int64_t steps = steps_from(t), size = p.heads * d;
        *apart = steps == STRIP ? of.time : size;
        if (steps == STRIP) return row(of, begin + r, t);
        for (int64_t s = 0; s < STRIP; ++s) copy_padded(s < steps ? row(of, begin + r, t + s) : nullptr, size, size, room + s * size);
        return room;
    }
};

struct SlstmForth : SlstmTile {
    const int64_t drive_row;
    Zeros ys, cs, ns, ms, gates;
    Scratch<float> drives, room;  // drives: (rows, STRIP, drive_row)
    SlstmForth(const SlstmWeights& w, int64_t begin, int64_t rows)
        : SlstmTile(w, begin, rows), drive_row(w.width + PANEL), ys(p.heads * whole * H), cs(p.heads * rows * W),
          ns(p.heads * rows * W), ms(p.heads * rows * W), gates(whole * G), drives(rows * STRIP * drive_row),
          room(2 * STRIP * p.heads * d) {
        for (int64_t head = 0; head < p.heads; ++head) {
            load_rows(p.y0, head, H, ys.data + head * whole * H), load_rows(p.c0, head, W, cs.data + head * rows * W);
            load_rows(p.n0, head, W, ns.data + head * rows * W), load_rows(p.m0, head, W, ms.data + head * rows * W);
        }
    }
    // What drives the gates of a strip. What a product writes behind its columns, the next one writes over.
    void drive(int64_t t) {
        for (int64_t r = 0; r < rows; ++r) {
            int64_t apart[2];
            const float* from[] = {inputs(p.first, r, t, apart, room.data),
                                   inputs(p.second, r, t, apart + 1, room.data + STRIP * p.heads * d)};
            for (int64_t head = 0; head < p.heads; ++head)
                for (int64_t half = 0; half < 2; ++half) {
                    const int64_t column = (2 * head + half) * 2 * d;
                    multiply(from[half] + head * d, apart[half], (half ? w.second : w.first).data + head * w.packed_half, STRIP,
                             d, 2 * d, w.bias.data + column, drives.data + r * STRIP * drive_row + column, drive_row);
                }
        }
    }
    void step(int64_t t, int64_t head, const float* drives_now) {
        float* y = ys.data + head * whole * H;
        multiply_rows(y, H, w.recurrent.data + head * w.packed_y, rows, d, 4 * d, nullptr, gates.data, G);
        for (int64_t r = 0; r < rows; ++r) {
            const float *gate = gates.data + r * G, *drive = drives_now + r * STRIP * drive_row + head * 4 * d;
            float* tape = p.tape.data ? row(p.tape, begin + r, t) + head * KEPT * d : nullptr;
            if (!head) ask_for(p.first, begin + r, t + STRIP, p.time, p.heads * d);
            if (!head) ask_for(p.second, begin + r, t + STRIP, p.time, p.heads * d);
            if (!head && tape) ask_for(p.tape, begin + r, t + AHEAD, p.time, p.heads * KEPT * d);
            for (int64_t j = 0; j < d; j += LANES) {
                const int64_t lanes = d - j, here = (head * rows + r) * W + j;
                const Lanes i = load(gate + j) + load(drive + j), f = load(gate + d + j) + load(drive + d + j);
                const Lanes z = hyperbolic_tangent(load(gate + 2 * d + j) + load(drive + 2 * d + j));
                const Lanes o = sigmoid(load(gate + 3 * d + j) + load(drive + 3 * d + j));
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
    void run() {
        for (int64_t t = 0; t < p.time; ++t) {
            if (t % STRIP == 0) drive(t);
            for (int64_t head = 0; head < p.heads; ++head) step(t, head, drives.data + t % STRIP * drive_row);
        }
        for (int64_t head = 0; head < p.heads; ++head) {
            store_rows(p.c, head, W, cs.data + head * rows * W), store_rows(p.n, head, W, ns.data + head * rows * W);
            store_rows(p.m, head, W, ms.data + head * rows * W);
        }
    }
};

// The sums of a thread: of `recurrent` and of both halves of `maps` for each head, (tiles of d, row), and of the bias.
struct SlstmSums {
    const int64_t d, row, each;
    float *recurrent, *maps[2], *bias;
    static int64_t size(const Slstm& p) {
        const int64_t row = padded(4 * p.width);
        return 3 * p.heads * tiles(p.width) * row + line(p.heads * 4 * p.width) + PANEL;
    }
    SlstmSums(const Slstm& p, float* data)
        : d(p.width), row(padded(4 * d)), each(tiles(d) * row), recurrent(data),
          maps{data + p.heads * each, data + 2 * p.heads * each}, bias(data + 3 * p.heads * each) {}
    void add(const Slstm& p) const {
        add_to(bias, p.heads * 4 * d, p.grad_bias);
        for (int64_t head = 0; head < p.heads; ++head)
            for (int64_t k = 0; k < d; ++k) {
                const int64_t to = (head * d + k) * 4 * d, from = head * each + k * row;
                add_to(recurrent + from, 4 * d, p.grad_recurrent + to);
                add_to(maps[0] + from, 2 * d, p.grad_maps + to), add_to(maps[1] + from, 2 * d, p.grad_maps + to + 2 * d);
            }
    }
};

struct SlstmBack : SlstmTile {
    const int64_t grad_row, in_row;
    SlstmSums sums;
    Zeros carries, cs, ns, grads, before;  // grads: (whole, STRIP, grad_row), of the gates. before: what they were made of
    Scratch<float> out;
    SlstmBack(const SlstmWeights& w, int64_t begin, int64_t rows, float* sums)
        : SlstmTile(w, begin, rows), grad_row(w.width + PANEL), in_row(p.heads * d), sums(p, sums), carries(p.heads * whole * H),
          cs(p.heads * rows * W), ns(p.heads * rows * W), grads(whole * STRIP * grad_row), before(rows * STRIP * in_row + ROWS),
          out(STRIP * (in_row + PANEL)) {
        for (int64_t head = 0; head < p.heads; ++head) {
            load_rows(p.grad_c, head, W, cs.data + head * rows * W), load_rows(p.grad_n, head, W, ns.data + head * rows * W);
        }
    }
    void step(int64_t t, int64_t head) {
        float *carry = carries.data + head * whole * H, *grads_now = grads.data + t % STRIP * grad_row + head * 4 * d;
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t b = begin + r, start = (head * p.batch + b) * d;
            const float *tape = row(p.tape, b, t) + head * KEPT * d, *past = row(p.tape, b, t - (t > 0)) + head * KEPT * d;
            const float *c_before = t ? past + C * d : p.c0 + start, *n_before = t ? past + N * d : p.n0 + start;
            float* grad = grads_now + r * STRIP * grad_row;
            if (!head) ask_for(p.tape, b, t - AHEAD, p.time, p.heads * KEPT * d);
            if (!head) ask_for(p.grad_y, b, t - AHEAD, p.time, p.heads * d);
            for (const Rows* rows : {&p.y, &p.first, &p.second})
                if (!head) ask_for(*rows, b, t - AHEAD, p.time, p.heads * d);
            // From the last vector on: what one writes behind its gate, a later one writes over.
            for (int64_t j = W - LANES; j >= 0; j -= LANES) {
                const int64_t lanes = d - j, here = (head * rows + r) * W + j;
                Lanes kept[KEPT];
                for (int64_t q = 0; q < KEPT; ++q) kept[q] = load_part(tape + q * d + j, lanes);
                const Lanes o = kept[O], z = kept[Z], n = kept[N], one = all(1.0f);
                const Lanes write = kept[SHARE] < 0.0f ? -kept[SHARE] : one, keep = kept[SHARE] < 0.0f ? one : kept[SHARE];
                const Lanes inverse = 1.0f / (lanes < LANES ? (n == 0.0f ? one : n) : n);
                const Lanes given = load(carry + r * H + j) + load_part(row(p.grad_y, b, t) + head * d + j, lanes);
                const Lanes ratio = kept[C] * inverse, share = given * o * inverse;
                const Lanes of_o = given * ratio * o * (1.0f - o);
                const Lanes of_c = load(cs.data + here) + share, of_n = load(ns.data + here) - share * ratio;
                const Lanes of_i = (of_c * z + of_n) * write, of_z = of_c * write * (1.0f - z * z);
                const Lanes of_keep = of_c * load_part(c_before + j, lanes) + of_n * load_part(n_before + j, lanes);
                store(cs.data + here, of_c * keep), store(ns.data + here, of_n * keep);
                store(grad + j, of_i), store(grad + d + j, of_keep * keep * kept[CLOSED]);
                store(grad + 2 * d + j, of_z), store(grad + 3 * d + j, of_o);
            }
        }
        multiply_rows(grads_now, STRIP * grad_row, w.recurrent.data + head * w.packed_y, rows, 4 * d, d, nullptr, carry, H);
    }
    // The strip's rows of an input, or of y one step before, as (rows, STRIP, in_row).
    void load_before(const Rows& of, int64_t t, bool y) {
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t s = 0; s < steps_from(t); ++s) {
                float* to = before.data + (r * STRIP + s) * in_row;
                if (!y || t + s)
                    std::memcpy(to, row(of, begin + r, t + s - y), in_row * sizeof(float));
                else
                    for (int64_t head = 0; head < p.heads; ++head)
                        std::memcpy(to + head * d, p.y0 + (head * p.batch + begin + r) * d, d * sizeof(float));
            }
    }
    // The gradients of the strip's inputs and of the weights.
    void finish(int64_t t) {
        const int64_t out_row = in_row + PANEL, count = rows * STRIP;
        add_rows(grads.data, grad_row, count, round_up(w.width, LANES), sums.bias);
        load_before(p.y, t, true);
        for (int64_t head = 0; head < p.heads; ++head)
            accumulate(before.data + head * d, in_row, grads.data + head * 4 * d, grad_row, count, d, 4 * d,
                       sums.recurrent + head * sums.each, sums.row);
        for (int64_t half = 0; half < 2; ++half) {
            load_before(half ? p.second : p.first, t, false);
            for (int64_t head = 0; head < p.heads; ++head)
                accumulate(before.data + head * d, in_row, grads.data + (2 * head + half) * 2 * d, grad_row, count, d, 2 * d,
                           sums.maps[half] + head * sums.each, sums.row);
            for (int64_t r = 0; r < rows; ++r) {
                for (int64_t head = 0; head < p.heads; ++head)
                    multiply(grads.data + r * STRIP * grad_row + (2 * head + half) * 2 * d, grad_row,
                             (half ? w.second : w.first).data + head * w.packed_half, STRIP, 2 * d, d, nullptr,
                             out.data + head * d, out_row);
                for (int64_t s = 0; s < steps_from(t); ++s)
                    std::memcpy(row(half ? p.grad_second : p.grad_first, begin + r, t + s), out.data + s * out_row,
                                in_row * sizeof(float));
            }
        }
    }
    void run() {
        for (int64_t t = p.time - 1; t >= 0; --t) {
            for (int64_t head = 0; head < p.heads; ++head) step(t, head);
            if (t % STRIP == 0) finish(t);
        }
        for (int64_t head = 0; head < p.heads; ++head) {
            store_rows(p.grad_y0, head, H, carries.data + head * whole * H);
            store_rows(p.grad_c0, head, W, cs.data + head * rows * W), store_rows(p.grad_n0, head, W, ns.data + head * rows * W);
        }
    }
};

inline int64_t slstm_tiles(const Slstm& p) { return (p.batch + TILE - 1) / TILE; }
inline int64_t rows_of_tile(const Slstm& p, int64_t i) { return p.batch - i * TILE < TILE ? p.batch - i * TILE : TILE; }

int slstm(const Slstm& p) {
    const SlstmWeights w(p, false);
    in_parallel(slstm_tiles(p), p.threads, [&](int64_t i) { SlstmForth(w, i * TILE, rows_of_tile(p, i)).run(); });
    return DONE;
}

// The gradients of recurrent, maps and bias must be zeros.
int slstm_back(const Slstm& p) {
    const SlstmWeights w(p, true);
    with_sums(slstm_tiles(p), p.threads, SlstmSums::size(p),
              [&](int64_t i, float* sums) { SlstmBack(w, i * TILE, rows_of_tile(p, i), sums).run(); },
              [&](float* sums) { SlstmSums(p, sums).add(p); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(slstm, Slstm)
ENTRY(slstm_back, Slstm)
