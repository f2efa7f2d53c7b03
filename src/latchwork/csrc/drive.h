// Convolution, feed-forward and projections of a layer, for a block of rows at a time: what a row needs is read and written
// once.
#pragma once
#include <algorithm>

#include "norm.h"

namespace LATCHWORK_ISA {

// Rows of what backward needs: m, ups and q of the drive, z, and the state x.
struct Kept {
    Place m, ups, q, z, x;
    Kept rows_from(int64_t r) const {
        return {m.rows_from(r), ups.rows_from(r), q.rows_from(r), z.rows_from(r), x.rows_from(r)};
    }
};

// Where they are in the tape: one after the other, so that a pass over rows reads each without gaps. z is not there if it
// is given, or the result.
struct Tape {
    int64_t drive, ups, z, x;  // how many numbers of each in a row, padded but for x; drive: of m and of q
    int64_t size() const { return 2 * drive + ups + z + x; }
    static Tape of(const Layer& p) {
        const bool before = p.up.weight, after = p.output.weight;
        return {before ? panels(p.width) : 0, before ? panels((p.gated_ffn ? 2 : 1) * p.hidden) : 0,
                before && after ? panels(p.outputs) : 0, after ? p.state : 0};
    }
    Kept rows(float* data, int64_t count) const {
        float *of_ups = data + count * drive, *of_q = of_ups + count * ups, *of_z = of_q + count * drive;
        return {{data, drive}, {of_ups, ups}, {of_q, drive}, {of_z, z}, {of_z + count * z, x}};
    }
};

// A row's sequence and step, found by one division, and then by going on or back.
struct Step {
    const Layer& p;
    int64_t b, t;
    Step(const Layer& p, int64_t row) : p(p), b(row / p.time), t(row % p.time) {}
    void next() {
        if (++t == p.time) t = 0, ++b;
    }
    void back() {
        if (t-- == 0) t = p.time - 1, --b;
    }
    bool is_first() const { return t == 0; }  // before it comes `first`
    bool is_last() const { return t == (p.last ? p.last[b] : p.time - 1); }
};

// Sizes, and the weights as the products want them.
struct Drive {
    const Layer& p;
    const int64_t block, d, ups, D, UP, H, Z, PAIR, INPUTS;  // block: rows at a time; capitals: row lengths with padding
    const Tape tape;
    Scratch<float> memory;
    Normaliser norm_conv, norm_ffn, norm_neuron;
    const Mask mask_hidden;
    float *conv, *conv_bias, *gate, *up, *up_bias, *down, *down_bias, *projection, *projection_bias;

    Drive(const Layer& p, bool backward)
        : p(p), block(rows_at_a_time(p, backward)), d(p.width), ups(p.gated_ffn ? 2 * p.hidden : p.hidden), D(panels(d)), UP(panels(ups)),
          H(panels(p.hidden)), Z(panels(p.outputs)), PAIR(panels(d + D)), INPUTS(Normaliser::TOGETHER * D), tape(Tape::of(p)),
          memory(p.up.weight ? 8 * line(D) + line(UP) + line(Z) + packed_room(d, 2 * d) + packed_room(ups, d) +
                                   packed_room(d, p.hidden) + packed_room(p.outputs, d)
                             : 0),
          mask_hidden(tail_mask(p.hidden)) {
        if (!p.up.weight) return;  // z is given
        Arena arena{memory.data};
        norm_conv = normaliser(p.norm_conv, d, arena);
        norm_ffn = normaliser(p.norm_ffn, d, arena);
        norm_neuron = normaliser(p.norm_neuron, d, arena);
        conv = conv_bias = gate = nullptr;
        if (p.gated_conv) {
            gate = arena.take(D);
            copy_padded(p.conv.weight, d, D, gate);
            for (int64_t j = 0; j < d; ++j) gate[j] = 1.0f / (1.0f + std::exp(-gate[j]));
        } else {
            conv_bias = padded_bias(p.conv, d, D, arena);
            conv = packed_weight(p.conv, d, 2 * d, arena, backward);
        }
        up_bias = padded_bias(p.up, ups, UP, arena);
        down_bias = padded_bias(p.down, d, D, arena);
        projection_bias = padded_bias(p.projection, p.outputs, Z, arena);
        up = packed_weight(p.up, ups, d, arena, backward);
        down = packed_weight(p.down, d, p.hidden, arena, backward);
        projection = packed_weight(p.projection, p.outputs, d, arena, backward);
    }
    bool begins(int64_t row) const { return p.reset && p.reset[row]; }  // nothing before it is seen

    // Row `row` of u, with numbers after it that may be read; x (INPUTS) is for the last ones, which have none.
    const float* input(int64_t row, float* x) const {
        if (row * d + round_up(d, LANES) <= p.batch * p.time * d) return p.u + row * d;
        x += row % Normaliser::TOGETHER * D;
        copy_padded(p.u + row * d, d, D, x);
        return x;
    }
    // pair[r] = [v before, v] for the rows from `row` on; hats and scales of the norm where wanted (not null). The norm
    // writes each v to its own row and to the next: pair has a row more than the others.
    void pairs(int64_t row, int64_t rows, float* x, float* hat, float* scales, float* pair) const {
        Step step(p, row);
        if (!step.is_first() && !begins(row)) norm_conv({input(row - 1, x), nullptr, pair});
        norm_conv.each(rows, [&](int64_t r) {
            float* own = pair + r * PAIR;
            return Normaliser::Row{input(row + r, x), hat ? hat + r * D : nullptr, own + d, own + PAIR,
                                   scales ? scales + r : nullptr};
        });
        for (int64_t r = 0; r < rows; ++r, step.next())
            if (begins(row + r) || (step.is_first() && !p.first))
                std::memset(pair + r * PAIR, 0, d * sizeof(float));
            else if (step.is_first())
                std::memcpy(pair + r * PAIR, p.first + step.b * d, d * sizeof(float));
    }
    // f(j, activation, slope, mask) for each vector of `hidden` numbers, the last first; the mask is of its lanes.
    template <class F>
    LATCHWORK_INLINE void each_activation(const float* from, F f) const {
        const Lanes zero{}, one = all(1.0f);
        const auto each = [&](auto curve) {
            const int64_t last = (p.hidden - 1) / LANES * LANES;
            for (int64_t j = last; j >= 0; j -= LANES) {
                Lanes a, s;
                curve(load(from + j), a, s);
                f(j, a, s, j == last ? mask_hidden : ~Mask{});
            }
        };
        if (p.activation == SWISH)
            each([&](Lanes x, Lanes& a, Lanes& s) {
                const Lanes open = one / (one + exponential(-x));
                a = x * open;
                s = open + a * (one - open);
            });
        else if (p.activation == RELU_SQUARED)
            each([&](Lanes x, Lanes& a, Lanes& s) {
                const Lanes positive = x < zero ? zero : x;
                a = positive * positive, s = positive + positive;
            });
        else
            each([&](Lanes x, Lanes& a, Lanes& s) {
                a = x < zero ? zero : x, s = x <= zero ? zero : one;  // a NaN comes through, as in torch
            });
    }
    // to (H) = act(gate) value, or act of all. After ups_row there is room for whole vectors, here and below.
    void activate(const float* ups_row, float* to) const {
        const float* value = p.gated_ffn ? ups_row + p.hidden : nullptr;
        each_activation(ups_row, [&](int64_t j, Lanes a, Lanes, Mask mask) {
            store(to + j, keep(value ? a * load(value + j) : a, mask));
        });
    }
    // to: the gradient of ups_row. From the last vector on, so that the padding of one half goes before the other half.
    void activate_back(const float* ups_row, const float* grad, float* to) const {
        const float* value = p.gated_ffn ? ups_row + p.hidden : nullptr;
        each_activation(ups_row, [&](int64_t j, Lanes a, Lanes slope, Mask mask) {
            const Lanes g = load(grad + j);
            store(to + j, keep(value ? g * load(value + j) * slope : g * slope, mask));
            if (value) store(to + p.hidden + j, keep(g * a, mask));
        });
    }
};

// One thread's pass over rows, forward.
struct DriveForward {
    const Drive& w;
    float *own, *pair, *y, *a, *z, *x, *mask;
    static int64_t size(const Drive& w) {
        return w.p.up.weight ? line((w.block + 1) * w.PAIR) + w.block * (w.D + w.H + w.Z) + w.INPUTS + line(w.D) : 0;
    }
    DriveForward(const Drive& w, Arena arena, float* own) : w(w), own(own) {  // own: room for w.block rows of the tape
        if (!w.p.up.weight) return;
        pair = arena.take((w.block + 1) * w.PAIR), y = arena.take(w.block * w.D), a = arena.take(w.block * w.H);
        z = arena.take(w.block * w.Z), x = arena.take(w.INPUTS), mask = arena.take(w.D);
    }
    // Computes `rows` rows and keeps them in `to`, or where there is no such place in one of its own, which the next block
    // overwrites. Returns where. z goes to p.z if it is the result. If z is given, nothing is done.
    Kept operator()(int64_t row, int64_t rows, const Kept* to) {
        const Layer& p = w.p;
        if (!p.up.weight) return to ? *to : w.tape.rows(own, w.block);
        const int64_t whole = round_up(rows, ROWS);
        // The last rows of a block may be computed for nothing; they must not be written to the tape.
        const Kept kept = to && whole == rows ? *to : w.tape.rows(own, w.block);
        const Place m = kept.m, ups = kept.ups, q = kept.q, kept_z = kept.z;
        w.pairs(row, rows, x, nullptr, nullptr, pair);
        if (p.gated_conv)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < w.D; j += LANES) {  // the padding too, which is kept
                    const float* own = pair + r * w.PAIR + j;
                    const int64_t lanes = w.d > j ? w.d - j : 0;
                    const Lanes before = load_part<float>(own, lanes), now = load_part<float>(own + w.d, lanes);
                    store(m.row(r) + j, now + load(w.gate + j) * (before - now));
                }
        else
            multiply(pair, w.PAIR, w.conv, whole, 2 * w.d, w.d, w.conv_bias, m.at, m.apart);
        Step step(p, row);
        for (int64_t r = 0; r < rows; ++r, step.next()) {
            float* own = m.row(r);
            const float* u = p.u + (row + r) * w.d;
            for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) + load_part<float>(u + j, w.d - j));
            if (p.v_last && step.is_last())
                std::memcpy(p.v_last + step.b * w.d, pair + r * w.PAIR + w.d, w.d * sizeof(float));
        }
        w.norm_ffn.each(rows, [&](int64_t r) { return Normaliser::Row{m.row(r), nullptr, y + r * w.D}; });
        multiply(y, w.D, w.up, whole, w.d, w.ups, w.up_bias, ups.at, ups.apart);
        for (int64_t r = 0; r < rows; ++r) w.activate(ups.row(r), a + r * w.H);
        multiply(a, w.H, w.down, whole, p.hidden, w.d, w.down_bias, q.at, q.apart);
        for (int64_t r = 0; r < rows; ++r) {
            float *own = q.row(r), *before = m.row(r);
            if (p.dropout > 0) {
                draw_mask(row_key(p.seed, row + r), static_cast<float>(p.dropout), w.D, mask);
                for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) * load(mask + j) + load(before + j));
            } else {
                for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) + load(before + j));
            }
        }
        w.norm_neuron.each(rows, [&](int64_t r) { return Normaliser::Row{q.row(r), nullptr, y + r * w.D}; });
        if (w.tape.z) {
            multiply(y, w.D, w.projection, whole, w.d, p.outputs, w.projection_bias, kept_z.at, kept_z.apart);
        } else {
            float* out = whole == rows ? p.z + row * p.outputs : z;
            multiply(y, w.D, w.projection, whole, w.d, p.outputs, w.projection_bias, out, p.outputs, true);
            if (out == z) std::memcpy(p.z + row * p.outputs, z, rows * p.outputs * sizeof(float));
        }
        if (!to || kept.m.at == to->m.at) return kept;
        to->m.copy(m, rows), to->ups.copy(ups, rows), to->q.copy(q, rows), to->z.copy(kept_z, rows);
        return *to;
    }
};

// One thread's pass over rows, backward, and its sums of the gradients of the weights.
struct DriveBackward {
    const Drive& w;
    float *pair, *grad_pair, *hat_conv, *scale_conv, *y, *grad_y, *grad_m, *f, *ups, *hats, *a, *grad_a, *x, *mask, *grad_v,
        *next, *scales, *copies;
    struct {
        float *conv, *conv_bias, *up, *up_bias, *down, *down_bias, *projection, *projection_bias, *norms;  // norms: 6 rows
    } sums;
    const float* carried = nullptr;  // what the convolution of the row after sends to the row before it, if anything

    static int64_t size(const Drive& w) {
        if (!w.p.up.weight) return 0;
        return w.block * (6 * w.D + 2) + line(room_for_copies(w.p, w.block, std::max(2 * w.d, w.p.hidden)));
    }
    // Of the memory that grad_z may lie in: it is needed no longer when this is.
    static int64_t late_size(const Drive& w) {
        if (!w.p.up.weight) return 0;
        const int64_t hidden = w.block * (w.UP + 2 * w.H), pairs = line((w.block + 1) * w.PAIR) + w.block * w.PAIR;
        return hidden > pairs ? hidden : pairs;
    }
    static int64_t zero_size(const Drive& w) {
        if (!w.p.up.weight) return 0;
        return line(tiles(w.d) * w.PAIR) + line(tiles(w.ups) * w.D) + line(tiles(w.d) * w.H) +
               line(tiles(w.p.outputs) * w.D) + line(w.UP) + line(w.Z) + 5 * line(w.D) + w.INPUTS + line(6 * w.D);
    }
    // Where nothing is needed any longer, the next takes its place: less memory is more of it in the cache. late: of
    // late_size. zero: memory that is zero at first.
    DriveBackward(const Drive& w, Arena arena, Arena late, Arena& zero) : w(w) {
        if (!w.p.up.weight) return;
        hat_conv = arena.take(w.block * w.D), scale_conv = arena.take(w.block), y = arena.take(w.block * w.D);
        grad_y = arena.take(w.block * w.D), grad_m = arena.take(w.block * w.D), f = arena.take(w.block * w.D);
        hats = arena.take(w.block * w.D), scales = arena.take(w.block);
        const int64_t room = room_for_copies(w.p, w.block, std::max(2 * w.d, w.p.hidden));
        copies = room ? arena.take(room) : nullptr;
        Arena then = late;  // when ups is done with
        ups = late.take(w.block * w.UP), a = late.take(w.block * w.H), grad_a = late.take(w.block * w.H);
        pair = then.take((w.block + 1) * w.PAIR), grad_pair = then.take(w.block * w.PAIR);
        x = zero.take(w.INPUTS), mask = zero.take(w.D), grad_v = zero.take(w.D), next = zero.take(w.D);
        sums.conv = zero.take(tiles(w.d) * w.PAIR), sums.conv_bias = zero.take(w.D);
        sums.up = zero.take(tiles(w.ups) * w.D), sums.up_bias = zero.take(w.UP);
        sums.down = zero.take(tiles(w.d) * w.H), sums.down_bias = zero.take(w.D);
        sums.projection = zero.take(tiles(w.p.outputs) * w.D), sums.projection_bias = zero.take(w.Z);
        sums.norms = zero.take(6 * w.D);
    }

    // To be called from the last block to the first: what a row's convolution sends to the row before is carried along.
    // grad_z: rows of Z numbers, as many as whole tiles have; what is in those after the last is not used. residual: the
    // gradient of y, or null.
    void operator()(int64_t row, int64_t rows, const float* grad_z, const float* residual) {
        const Layer& p = w.p;
        const int64_t whole = round_up(rows, ROWS);
        const Kept kept = w.tape.rows(p.tape, p.batch * p.time).rows_from(row);
        const float* grad_f = p.dropout > 0 ? f : grad_m;
        // z = projection(norm_neuron(q))
        const auto again = [&](Place from) {
            return [=](int64_t r) {
                from.prefetch(r + 6);
                return Normaliser::Row{from.row(r), hats + r * w.D, y + r * w.D, nullptr, scales + r};
            };
        };
        w.norm_neuron.each(rows, again(kept.q));
        accumulate(grad_z, w.Z, y, w.D, rows, p.outputs, w.d, sums.projection, w.D, copies);
        add_rows(grad_z, w.Z, rows, w.Z, sums.projection_bias);
        multiply(grad_z, w.Z, w.projection, whole, p.outputs, w.d, nullptr, grad_y, w.D);
        for (int64_t r = 0; r < rows; ++r) {
            float* grad = grad_m + r * w.D;
            std::memset(grad, 0, w.D * sizeof(float));
            w.norm_neuron.back(grad_y + r * w.D, hats + r * w.D, scales[r], grad, sums.norms + 4 * w.D,
                               sums.norms + 5 * w.D);
            // q = m + dropout(down(a))
            if (p.dropout > 0) {
                draw_mask(row_key(p.seed, row + r), static_cast<float>(p.dropout), w.D, mask);
                for (int64_t j = 0; j < w.D; j += LANES) store(f + r * w.D + j, load(grad + j) * load(mask + j));
            }
            kept.ups.prefetch(r + 3);
            w.activate(kept.ups.row(r), a + r * w.H);
        }
        w.norm_ffn.each(rows, again(kept.m));
        accumulate(grad_f, w.D, a, w.H, rows, w.d, p.hidden, sums.down, w.H, copies);
        add_rows(grad_f, w.D, rows, w.D, sums.down_bias);
        multiply(grad_f, w.D, w.down, whole, w.d, p.hidden, nullptr, grad_a, w.H);
        for (int64_t r = 0; r < rows; ++r) w.activate_back(kept.ups.row(r), grad_a + r * w.H, ups + r * w.UP);
        accumulate(ups, w.UP, y, w.D, rows, w.ups, w.d, sums.up, w.D, copies);
        add_rows(ups, w.UP, rows, w.UP, sums.up_bias);
        multiply(ups, w.UP, w.up, whole, w.ups, w.d, nullptr, grad_y, w.D);
        for (int64_t r = 0; r < rows; ++r)
            w.norm_ffn.back(grad_y + r * w.D, hats + r * w.D, scales[r], grad_m + r * w.D, sums.norms + 2 * w.D,
                            sums.norms + 3 * w.D);
        // m = u + conv(v before, v)
        w.pairs(row, rows, x, hat_conv, scale_conv, pair);
        if (p.gated_conv) {
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < w.d; ++j) {
                    const float grad = grad_m[r * w.D + j], *own = pair + r * w.PAIR;
                    sums.conv[j] += grad * (own[j] - own[w.d + j]) * w.gate[j] * (1.0f - w.gate[j]);
                    grad_pair[r * w.PAIR + j] = grad * w.gate[j];
                    grad_pair[r * w.PAIR + w.d + j] = grad * (1.0f - w.gate[j]);
                }
        } else {
            accumulate(grad_m, w.D, pair, w.PAIR, rows, w.d, 2 * w.d, sums.conv, w.PAIR, copies);
            add_rows(grad_m, w.D, rows, w.D, sums.conv_bias);
            multiply(grad_m, w.D, w.conv, whole, w.d, 2 * w.d, nullptr, grad_pair, w.PAIR);
        }
        Step step(p, row + rows - 1);
        for (int64_t r = rows - 1; r >= 0; --r, step.back()) {
            const float* sent = grad_pair + r * w.PAIR;
            for (int64_t j = 0; j < w.d; j += LANES) {
                const Lanes own = load_part<float>(sent + w.d + j, w.d - j);
                store(grad_v + j, carried ? own + load_part<float>(carried + j, w.d - j) : own);
            }
            if (p.grad_v_last && step.is_last())
                for (int64_t j = 0; j < w.d; ++j) grad_v[j] += p.grad_v_last[step.b * w.d + j];
            float* grad_u = grad_m + r * w.D;
            w.norm_conv.back(grad_v, hat_conv + r * w.D, scale_conv[r], grad_u, sums.norms, sums.norms + w.D);
            each_part(w.d, p.grad_u + (row + r) * w.d, [&](int64_t j, int64_t lanes) {
                return residual ? load(grad_u + j) + load_part<float>(residual + r * w.d + j, lanes) : load(grad_u + j);
            });
            const bool sends = !w.begins(row + r);
            carried = sends && !step.is_first() ? sent : nullptr;
            if (p.grad_first && sends && step.is_first())
                std::memcpy(p.grad_first + step.b * w.d, sent, w.d * sizeof(float));
        }
        if (carried) {  // to the block before, which overwrites it
            std::memcpy(next, carried, w.d * sizeof(float));  // behind it are zeros
            carried = next;
        }
    }
    // What a part sends to the last row of the part before; its norm is linear in what it is sent.
    void send(int64_t row, const float* carry) {
        copy_padded(w.p.u + row * w.d, w.d, w.D, x);
        w.norm_conv({x, hat_conv, y, nullptr, scale_conv});
        std::memset(grad_m, 0, w.D * sizeof(float));
        w.norm_conv.back(carry, hat_conv, *scale_conv, grad_m, sums.norms, sums.norms + w.D);
        for (int64_t j = 0; j < w.d; ++j) w.p.grad_u[row * w.d + j] += grad_m[j];
    }
    // The sums into the gradients: written by the first thread, added by the others.
    void hand_out(bool first) const {
        const Layer& p = w.p;
        if (!p.up.weight) return;
        if (p.gated_conv) {
            add_matrix(sums.conv, w.d, 1, w.d, p.conv.grad_weight, first);
        } else {
            add_matrix(sums.conv, w.PAIR, w.d, 2 * w.d, p.conv.grad_weight, first);
            add_matrix(sums.conv_bias, w.d, 1, w.d, p.conv.grad_bias, first);
        }
        add_matrix(sums.up, w.D, w.ups, w.d, p.up.grad_weight, first);
        add_matrix(sums.up_bias, w.ups, 1, w.ups, p.up.grad_bias, first);
        add_matrix(sums.down, w.H, w.d, p.hidden, p.down.grad_weight, first);
        add_matrix(sums.down_bias, w.d, 1, w.d, p.down.grad_bias, first);
        add_matrix(sums.projection, w.D, p.outputs, w.d, p.projection.grad_weight, first);
        add_matrix(sums.projection_bias, p.outputs, 1, p.outputs, p.projection.grad_bias, first);
        const Norm* norms[] = {&p.norm_conv, &p.norm_ffn, &p.norm_neuron};
        for (int64_t n = 0; n < 3; ++n) {
            if (norms[n]->kind != NO_NORM) add_matrix(sums.norms + 2 * n * w.D, w.d, 1, w.d, norms[n]->grad_weight, first);
            if (norms[n]->kind == LAYER_NORM)
                add_matrix(sums.norms + (2 * n + 1) * w.D, w.d, 1, w.d, norms[n]->grad_bias, first);
        }
    }
};

}  // namespace LATCHWORK_ISA
