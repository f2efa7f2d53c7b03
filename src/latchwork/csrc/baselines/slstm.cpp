// The sLSTM and what drives its gates: a convolution and linear maps. Rows of the batch are taken a tile at a time, their steps
// a strip at a time: what drives the gates, and the gradients of the gates, are products of a whole strip and stay in the
// cache. Compiled once for each instruction set.
#include <initializer_list>

#include "cells.h"
#include "conv.h"

namespace LATCHWORK_ISA {

// What a step keeps for the gradient, a vector each. SHARE: what is kept of the state before where nothing of the new is
// lost, or else, with a minus, what is taken of the new. CLOSED: 1 - sigmoid(f).
enum { SHARE, Z, O, C, N, CLOSED, KEPT };
constexpr int64_t STRIP = 12;  // steps, a multiple of ROWS

// The weights, those of the heads packed; first and second are the halves of `maps`.
struct SlstmWeights {
    const Slstm& p;
    const int64_t d, width, packed_y, packed_half;
    const ConvWeights conv;
    Scratch<float> recurrent, first, second, bias;
    SlstmWeights(const Slstm& p, bool back)
        : p(p), d(p.width), width(p.heads * 4 * d), packed_y(line(back ? packed_size(4 * d, d) : packed_size(d, 4 * d))),
          packed_half(line(back ? packed_size(2 * d, d) : packed_size(d, 2 * d))), conv(p.conv, p.conv_bias, p.heads * d, p.taps),
          recurrent(p.heads * packed_y), first(p.heads * packed_half), second(p.heads * packed_half),
          bias(width + PANEL) {
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

// A tile of rows of the batch: its states, (heads, rows, width) with whole vectors; and for some of the rows what a strip of the
// convolution gives and its input side by side, (STRIP, 2 wide), with the slopes of silu for the way back.
struct SlstmTile {
    const SlstmWeights& w;
    const Slstm& p;
    const int64_t begin, rows, whole, d, W, H, G, wide;  // wide: the channels of all heads
    Zeros both;
    SlstmTile(const SlstmWeights& w, int64_t begin, int64_t rows, int64_t convolved)
        : w(w), p(w.p), begin(begin), rows(rows), whole(round_up(rows, TILE)), d(p.width), W(round_up(d, LANES)), H(padded(d)),
          G(padded(4 * d) + LANES), wide(p.heads * d), both(convolved * STRIP * 2 * wide + ROWS) {}
    ConvRow conv(int64_t r) const { return {w.conv, p.mapped, p.before + (begin + r) * (p.taps - 1) * wide, begin + r}; }
    void convolve(int64_t r, int64_t t, float* to, float* slopes) const {
        conv(r).forth(t, steps_from(t), [&](int64_t s, int64_t j, int64_t lanes, Lanes input, Lanes y) {
            const Lanes opened = sigmoid(y);
            store_part(to + s * 2 * wide + j, y * opened, lanes);
            store_part(to + s * 2 * wide + wide + j, input, lanes);
            if (slopes) store(slopes + s * w.conv.row + j, opened * (1.0f + y * (1.0f - opened)));
        });
    }
    void load_rows(const float* from, int64_t head, int64_t size, float* to) const {
        for (int64_t r = 0; r < rows; ++r)
            copy_padded(from ? from + (head * p.batch + begin + r) * d : nullptr, d, size, to + r * size);
    }
    void store_rows(float* to, int64_t head, int64_t size, const float* from) const {
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(to + (head * p.batch + begin + r) * d, from + r * size, d * sizeof(float));
    }
    int64_t steps_from(int64_t t) const { return p.time - t < STRIP ? p.time - t : STRIP; }
};

struct SlstmForth : SlstmTile {
    const int64_t drive_row;
    Zeros ys, cs, ns, ms, gates;
    Scratch<float> drives;  // (rows, STRIP, drive_row)
    SlstmForth(const SlstmWeights& w, int64_t begin, int64_t rows)
        : SlstmTile(w, begin, rows, 1), drive_row(w.width + PANEL), ys(p.heads * whole * H), cs(p.heads * rows * W),
          ns(p.heads * rows * W), ms(p.heads * rows * W), gates(whole * G), drives(rows * STRIP * drive_row) {
        for (int64_t head = 0; head < p.heads; ++head) {
            load_rows(p.y0, head, H, ys.data + head * whole * H), load_rows(p.c0, head, W, cs.data + head * rows * W);
            load_rows(p.n0, head, W, ns.data + head * rows * W), load_rows(p.m0, head, W, ms.data + head * rows * W);
        }
    }
    // What drives the gates of a strip. What a product writes behind its columns, the next one writes over.
    void drive(int64_t t) {
        for (int64_t r = 0; r < rows; ++r) {
            convolve(r, t, both.data, nullptr);
            for (int64_t head = 0; head < p.heads; ++head)
                for (int64_t half = 0; half < 2; ++half) {
                    const int64_t column = (2 * head + half) * 2 * d;
                    multiply(both.data + half * wide + head * d, 2 * wide,
                             (half ? w.second : w.first).data + head * w.packed_half, STRIP, d, 2 * d, w.bias.data + column,
                             drives.data + r * STRIP * drive_row + column, drive_row);
                }
        }
    }
    void step(int64_t t, int64_t head, const float* drives_now) {
        float* y = ys.data + head * whole * H;
        multiply_rows(y, H, w.recurrent.data + head * w.packed_y, rows, d, 4 * d, nullptr, gates.data, G);
        for (int64_t r = 0; r < rows; ++r) {
            const float *gate = gates.data + r * G, *drive = drives_now + r * STRIP * drive_row + head * 4 * d;
            float* tape = p.tape.data ? row(p.tape, begin + r, t) + head * KEPT * d : nullptr;
            if (!head) ask_for(p.mapped, begin + r, t + STRIP, p.time, wide);
            if (!head && tape) ask_for(p.tape, begin + r, t + AHEAD, p.time, KEPT * wide);
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

// The sums of a thread: of `recurrent` and of both halves of `maps` for each head, (tiles of d, row), of the bias and of the
// convolution.
struct SlstmSums {
    const SlstmWeights& w;
    const int64_t d, row, each;
    float *recurrent, *maps[2], *bias, *conv;
    static int64_t size(const SlstmWeights& w) {
        return 3 * w.p.heads * tiles(w.d) * padded(4 * w.d) + line(w.width) + PANEL + w.conv.size();
    }
    SlstmSums(const SlstmWeights& w, float* data)
        : w(w), d(w.d), row(padded(4 * d)), each(tiles(d) * row), recurrent(data),
          maps{data + w.p.heads * each, data + 2 * w.p.heads * each}, bias(data + 3 * w.p.heads * each), conv(bias + line(w.width) + PANEL) {}
    void add() const {
        const Slstm& p = w.p;
        w.conv.add(conv, p.grad_conv, p.grad_conv_bias);
        add_to(bias, p.heads * 4 * d, p.grad_bias);
        for (int64_t head = 0; head < p.heads; ++head)
            for (int64_t k = 0; k < d; ++k) {
                const int64_t to = (head * d + k) * 4 * d, from = head * each + k * row;
                add_to(recurrent + from, 4 * d, p.grad_recurrent + to);
                add_to(maps[0] + from, 2 * d, p.grad_maps + to), add_to(maps[1] + from, 2 * d, p.grad_maps + to + 2 * d);
            }
    }
};

// grads: (whole, STRIP, grad_row), of the gates. before: (rows, STRIP, wide), y before each step. through: (STRIP, 2 wide), the
// gradient of `both` of one row.
struct SlstmBack : SlstmTile {
    const int64_t grad_row, through_row;
    SlstmSums sums;
    Zeros carries, cs, ns, grads, before, later;
    Scratch<float> through, slopes;
    SlstmBack(const SlstmWeights& w, int64_t begin, int64_t rows, float* sums)
        : SlstmTile(w, begin, rows, rows), grad_row(w.width + PANEL), through_row(2 * wide + PANEL), sums(w, sums),
          carries(p.heads * whole * H), cs(p.heads * rows * W), ns(p.heads * rows * W), grads(whole * STRIP * grad_row),
          before(rows * STRIP * wide + ROWS), later(rows * MOST_TAPS * w.conv.row), through(STRIP * through_row),
          slopes(rows * STRIP * w.conv.row) {
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
            float* after = (t + 1) % STRIP ? before.data + (r * STRIP + (t + 1) % STRIP) * wide + head * d : nullptr;
            if (!head) ask_for(p.tape, b, t - AHEAD, p.time, KEPT * wide);
            for (const Rows* rows : {&p.grad_y, &p.mapped, &p.grad_mapped})
                if (!head) ask_for(*rows, b, t - AHEAD, p.time, wide);
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
                if (after) store_part(after + j, o * ratio, lanes);
                store(cs.data + here, of_c * keep), store(ns.data + here, of_n * keep);
                store(grad + j, of_i), store(grad + d + j, of_keep * keep * kept[CLOSED]);
                store(grad + 2 * d + j, of_z), store(grad + 3 * d + j, of_o);
            }
        }
        multiply_rows(grads_now, STRIP * grad_row, w.recurrent.data + head * w.packed_y, rows, 4 * d, d, nullptr, carry, H);
    }
    // y before the first step of a strip; the others are found on the way.
    void load_before(int64_t r, int64_t t) {
        float* to = before.data + r * STRIP * wide;
        if (t) std::memcpy(to, row(p.y, begin + r, t - 1), wide * sizeof(float));
        for (int64_t head = 0; head < p.heads && !t; ++head)
            std::memcpy(to + head * d, p.y0 + (head * p.batch + begin + r) * d, d * sizeof(float));
    }
    // The gradients of the strip's inputs and of the weights.
    void finish(int64_t t) {
        const int64_t count = rows * STRIP;
        add_rows(grads.data, grad_row, count, round_up(w.width, LANES), sums.bias);
        for (int64_t r = 0; r < rows; ++r) {
            load_before(r, t);
            convolve(r, t, both.data + r * STRIP * 2 * wide, slopes.data + r * STRIP * w.conv.row);
        }
        for (int64_t head = 0; head < p.heads; ++head) {
            const float* of_head = grads.data + head * 4 * d;
            accumulate(before.data + head * d, wide, of_head, grad_row, count, d, 4 * d, sums.recurrent + head * sums.each,
                       sums.row);
            for (int64_t half = 0; half < 2; ++half)
                accumulate(both.data + half * wide + head * d, 2 * wide, of_head + half * 2 * d, grad_row, count, d, 2 * d,
                           sums.maps[half] + head * sums.each, sums.row);
        }
        for (int64_t r = 0; r < rows; ++r) unconvolve(r, t);
    }
    void unconvolve(int64_t r, int64_t t) {
        for (int64_t half = 0; half < 2; ++half)
            for (int64_t head = 0; head < p.heads; ++head)
                multiply(grads.data + r * STRIP * grad_row + (2 * head + half) * 2 * d, grad_row,
                         (half ? w.second : w.first).data + head * w.packed_half, STRIP, 2 * d, d, nullptr,
                         through.data + half * wide + head * d, through_row);
        conv(r).back(
            t, steps_from(t), later.data + r * MOST_TAPS * w.conv.row, sums.conv,
            p.grad_before + (begin + r) * (p.taps - 1) * wide,
            [&](int64_t s, int64_t j, int64_t) {
                return load(through.data + s * through_row + j) * load(slopes.data + (r * STRIP + s) * w.conv.row + j);
            },
            [&](int64_t s, int64_t j, int64_t lanes, Lanes grad) {
                const Lanes direct = load(through.data + s * through_row + wide + j);
                store_part(row(p.grad_mapped, begin + r, t + s) + j, grad + direct, lanes);
            });
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
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const SlstmWeights w(p, false);
    in_parallel(slstm_tiles(p), p.threads, [&](int64_t i) { SlstmForth(w, i * TILE, rows_of_tile(p, i)).run(); });
    return DONE;
}

// The gradients of all weights must be zeros.
int slstm_back(const Slstm& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const SlstmWeights w(p, true);
    with_sums(slstm_tiles(p), p.threads, SlstmSums::size(w),
              [&](int64_t i, float* sums) { SlstmBack(w, i * TILE, rows_of_tile(p, i), sums).run(); },
              [&](float* sums) { SlstmSums(w, sums).add(); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(slstm, Slstm)
ENTRY(slstm_back, Slstm)
