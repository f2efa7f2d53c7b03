// Convolution, feed-forward and projections of a layer, for as many rows at a time as lie in the cache, all in one pass:
// what a row needs is read and written once. Compiled once for each instruction set.
#include <cmath>

#include "abi.h"
#include "blocks.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

struct Normaliser {
    int64_t kind, width, size;  // size: of a row with its padding
    float epsilon;
    float *weight, *bias;  // padded with zeros
    Mask mask;             // of the last vector

    // hat (size, may be null): the input (width) centred and scaled; y (size, and again into `copy` if there is one) =
    // weight hat + bias. Returns the scale. Up to LANES - 1 numbers after x are read, and not used; the padding of what is
    // written is zero.
    float operator()(const float* x, float* hat, float* y, float* copy = nullptr) const {
        const int64_t last = (width - 1) / LANES * LANES;  // where the last vector begins
        Lanes total{}, squares{};
        for (int64_t j = 0; j < last; j += LANES) total += load(x + j);
        total += keep(load(x + last), mask);
        const float mean = kind == LAYER_NORM ? sum(total) / static_cast<float>(width) : 0.0f;
        for (int64_t j = 0; j < last; j += LANES) {
            const Lanes centred = load(x + j) - mean;
            squares += centred * centred;
        }
        const Lanes ending = keep(load(x + last) - mean, mask);
        squares += ending * ending;
        const float scale = kind == NO_NORM ? 1.0f : 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
        const auto put = [&](int64_t j, Lanes scaled) {
            const Lanes value = scaled * load(weight + j) + load(bias + j);
            if (hat) store(hat + j, scaled);
            if (copy) store(copy + j, value);
            store(y + j, value);
        };
        for (int64_t j = 0; j < last; j += LANES) put(j, (load(x + j) - mean) * scale);
        put(last, ending * scale);
        for (int64_t j = last + LANES; j < size; j += LANES) put(j, Lanes{});
        return scale;
    }
    // grad_x += what grad_y brings; adds to grad_weight and grad_bias too.
    void back(const float* grad_y, const float* hat, float scale, float* grad_x, float* grad_weight,
              float* grad_bias) const {
        if (kind == NO_NORM) {
            for (int64_t j = 0; j < size; j += LANES) store(grad_x + j, load(grad_x + j) + load(grad_y + j));
            return;
        }
        Lanes total{}, along{};
        for (int64_t j = 0; j < size; j += LANES) {
            const Lanes grad = load(grad_y + j), h = load(hat + j);
            store(grad_weight + j, load(grad_weight + j) + grad * h);
            store(grad_bias + j, load(grad_bias + j) + grad);
            total += grad * load(weight + j);
            along += grad * load(weight + j) * h;
        }
        const float mean = kind == LAYER_NORM ? sum(total) / static_cast<float>(width) : 0.0f;
        const float slope = sum(along) / static_cast<float>(width);
        for (int64_t j = 0; j < size; j += LANES) {
            const Lanes inner = load(grad_y + j) * load(weight + j) - mean - load(hat + j) * slope;
            store(grad_x + j, load(grad_x + j) + inner * scale);
        }
        for (int64_t j = width; j < size; ++j) grad_x[j] = 0;
    }
};

// Sizes, and the weights as the products want them.
struct Prepared {
    const Layer& p;
    const int64_t d, ups, D, UP, H, Z, PAIR, TAPE;  // capitals: row lengths with padding
    Scratch<float> memory;
    Normaliser norm_conv, norm_ffn, norm_neuron;
    const Mask mask_hidden;
    float *conv, *conv_bias, *gate, *up, *up_bias, *down, *down_bias, *projection, *projection_bias;

    Prepared(const Layer& p, bool backward)
        : p(p), d(p.width), ups(p.gated_ffn ? 2 * p.hidden : p.hidden), D(panels(d)), UP(panels(ups)),
          H(panels(p.hidden)), Z(panels(p.outputs)), PAIR(panels(d + D)), TAPE(2 * D + UP),
          memory(8 * line(D) + line(UP) + line(Z) + packed_room(d, 2 * d) + packed_room(ups, d) +
                 packed_room(d, p.hidden) + packed_room(p.outputs, d)),
          mask_hidden(tail_mask(p.hidden)) {
        Arena arena{memory.data};
        norm_conv = normaliser(p.norm_conv, arena);
        norm_ffn = normaliser(p.norm_ffn, arena);
        norm_neuron = normaliser(p.norm_neuron, arena);
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
    Normaliser normaliser(const Norm& norm, Arena& arena) const {
        Normaliser made{norm.kind, d, D, static_cast<float>(norm.epsilon), arena.take(D), arena.take(D), tail_mask(d)};
        copy_padded(norm.weight, norm.kind == NO_NORM ? 0 : d, D, made.weight);
        for (int64_t j = 0; j < d && norm.kind == NO_NORM; ++j) made.weight[j] = 1.0f;
        copy_padded(norm.bias, norm.kind == LAYER_NORM ? d : 0, D, made.bias);
        return made;
    }
    bool begins(int64_t row) const { return p.reset && p.reset[row]; }  // nothing before it is seen
    bool is_first(int64_t row) const { return row % p.time == 0; }      // before it comes `first`

    // Row `row` of u, with numbers after it that may be read; x (D) is for the last one, which has none.
    const float* input(int64_t row, float* x) const {
        if (row * d + round_up(d, LANES) <= p.batch * p.time * d) return p.u + row * d;
        copy_padded(p.u + row * d, d, D, x);
        return x;
    }
    // pair[r] = [v before, v] for the rows from `row` on; hats and scales of the norm where wanted (not null). The norm writes each
    // v to its own row and to the next: pair has PAIR_ROWS rows.
    static constexpr int64_t PAIR_ROWS = BLOCK + 1;
    void pairs(int64_t row, int64_t rows, float* x, float* hat, float* scales, float* pair) const {
        if (!is_first(row) && !begins(row)) norm_conv(input(row - 1, x), nullptr, pair);
        for (int64_t r = 0; r < rows; ++r) {
            float* own = pair + r * PAIR;
            if (begins(row + r) || (is_first(row + r) && !p.first))
                std::memset(own, 0, d * sizeof(float));
            else if (is_first(row + r))
                std::memcpy(own, p.first + (row + r) / p.time * d, d * sizeof(float));
            const float scale = norm_conv(input(row + r, x), hat ? hat + r * D : nullptr, own + d, own + PAIR);
            if (scales) scales[r] = scale;
        }
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

inline void forward_rows(const Prepared& w, int64_t begin, int64_t end) {
    const Layer& p = w.p;
    Scratch<float> memory(line(w.PAIR_ROWS * w.PAIR) + BLOCK * (w.D + w.H + w.Z + w.TAPE) + 2 * line(w.D));
    Arena arena{memory.data};
    float* pair = arena.take(w.PAIR_ROWS * w.PAIR);
    float* y = arena.take(BLOCK * w.D);
    float* a = arena.take(BLOCK * w.H);
    float* z = arena.take(BLOCK * w.Z);
    float* own_tape = arena.take(BLOCK * w.TAPE);
    float *x = arena.take(w.D), *mask = arena.take(w.D);
    std::memset(memory.data, 0, (arena.next - memory.data) * sizeof(float));
    for (int64_t row = begin; row < end; row += BLOCK) {
        const int64_t rows = end - row < BLOCK ? end - row : BLOCK, whole = round_up(rows, ROWS);
        // The last rows of a block may be computed for nothing; they must not be written to the tape.
        float* tape = p.tape && whole == rows ? p.tape + row * w.TAPE : own_tape;
        float *m = tape, *ups = tape + w.D, *q = tape + w.D + w.UP;
        w.pairs(row, rows, x, nullptr, nullptr, pair);
        if (p.gated_conv)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t j = 0; j < w.D; j += LANES) {  // the padding too, which is kept in the tape
                    const float* own = pair + r * w.PAIR + j;
                    const int64_t lanes = w.d > j ? w.d - j : 0;
                    const Lanes before = load_part<float>(own, lanes), now = load_part<float>(own + w.d, lanes);
                    store(m + r * w.TAPE + j, now + load(w.gate + j) * (before - now));
                }
        else
            multiply(pair, w.PAIR, w.conv, whole, 2 * w.d, w.d, w.conv_bias, m, w.TAPE);
        for (int64_t r = 0; r < rows; ++r) {
            float* own = m + r * w.TAPE;
            const float* u = p.u + (row + r) * w.d;
            for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) + load_part<float>(u + j, w.d - j));
            w.norm_ffn(own, nullptr, y + r * w.D);
        }
        multiply(y, w.D, w.up, whole, w.d, w.ups, w.up_bias, ups, w.TAPE);
        for (int64_t r = 0; r < rows; ++r) w.activate(ups + r * w.TAPE, a + r * w.H);
        multiply(a, w.H, w.down, whole, p.hidden, w.d, w.down_bias, q, w.TAPE);
        for (int64_t r = 0; r < rows; ++r) {
            float *own = q + r * w.TAPE, *before = m + r * w.TAPE;
            if (p.dropout > 0) {
                draw_mask(row_key(p.seed, row + r), static_cast<float>(p.dropout), w.d, mask);
                for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) * load(mask + j) + load(before + j));
            } else {
                for (int64_t j = 0; j < w.d; j += LANES) store(own + j, load(own + j) + load(before + j));
            }
            w.norm_neuron(own, nullptr, y + r * w.D);
        }
        float* to = whole == rows ? p.z + row * p.outputs : z;
        multiply(y, w.D, w.projection, whole, w.d, p.outputs, w.projection_bias, to, p.outputs, true);
        if (to == z) std::memcpy(p.z + row * p.outputs, z, rows * p.outputs * sizeof(float));
        if (p.tape && tape == own_tape) std::memcpy(p.tape + row * w.TAPE, tape, rows * w.TAPE * sizeof(float));
    }
}

// A thread's sums of the gradients of all weights.
struct Sums {
    float *conv, *conv_bias, *up, *up_bias, *down, *down_bias, *projection, *projection_bias, *norms;  // norms: 6 rows
    static int64_t size(const Prepared& w) {
        return line(tiles(w.d) * w.PAIR) + line(tiles(w.ups) * w.D) + line(tiles(w.d) * w.H) +
               line(tiles(w.p.outputs) * w.D) + line(w.UP) + line(w.Z) + 2 * line(w.D) + line(6 * w.D);
    }
    Sums(const Prepared& w, float* memory) {
        Arena arena{memory};
        conv = arena.take(tiles(w.d) * w.PAIR), conv_bias = arena.take(w.D);
        up = arena.take(tiles(w.ups) * w.D), up_bias = arena.take(w.UP);
        down = arena.take(tiles(w.d) * w.H), down_bias = arena.take(w.D);
        projection = arena.take(tiles(w.p.outputs) * w.D), projection_bias = arena.take(w.Z);
        norms = arena.take(6 * w.D);
    }
};

// Rows from the last block to the first: what a row's convolution sends to the row before is carried along. What is left
// at `begin` goes to carry (width), if the row before belongs to another thread.
inline bool backward_rows(const Prepared& w, int64_t begin, int64_t end, Sums& sums, float* carry) {
    const Layer& p = w.p;
    Scratch<float> memory(line(w.PAIR_ROWS * w.PAIR) + BLOCK * (w.PAIR + 6 * w.D + w.UP + 2 * w.H + w.Z + 2) + 4 * line(w.D));
    Arena arena{memory.data};
    float *pair = arena.take(w.PAIR_ROWS * w.PAIR), *grad_pair = arena.take(BLOCK * w.PAIR);
    float *hat_conv = arena.take(BLOCK * w.D), *scale_conv = arena.take(BLOCK);
    float *y = arena.take(BLOCK * w.D), *grad_y = arena.take(BLOCK * w.D), *grad_m = arena.take(BLOCK * w.D);
    float *f = arena.take(BLOCK * w.D), *ups = arena.take(BLOCK * w.UP), *hats = arena.take(BLOCK * w.D);
    float *a = arena.take(BLOCK * w.H), *grad_a = arena.take(BLOCK * w.H), *z = arena.take(BLOCK * w.Z);
    float *x = arena.take(w.D), *mask = arena.take(w.D);
    float *grad_v = arena.take(w.D), *next = arena.take(w.D), *scales = arena.take(BLOCK);
    std::memset(memory.data, 0, (arena.next - memory.data) * sizeof(float));
    const float* carried = nullptr;  // what the row after sends to this one, if anything
    for (int64_t stop = end; stop > begin;) {
        const int64_t row = begin + (stop - begin - 1) / BLOCK * BLOCK, rows = stop - row, whole = round_up(rows, ROWS);
        const float *m = p.tape + row * w.TAPE, *ups_in = m + w.D, *q = m + w.D + w.UP;
        // z = projection(norm_neuron(q))
        for (int64_t r = 0; r < whole; ++r) {
            copy_padded(r < rows ? p.grad_z + (row + r) * p.outputs : nullptr, p.outputs, w.Z, z + r * w.Z);
            if (r < rows) scales[r] = w.norm_neuron(q + r * w.TAPE, hats + r * w.D, y + r * w.D);
        }
        accumulate(z, w.Z, y, w.D, rows, p.outputs, w.d, sums.projection, w.D);
        add_rows(z, w.Z, rows, w.Z, sums.projection_bias);
        multiply(z, w.Z, w.projection, whole, p.outputs, w.d, nullptr, grad_y, w.D);
        for (int64_t r = 0; r < rows; ++r) {
            float* grad = grad_m + r * w.D;
            std::memset(grad, 0, w.D * sizeof(float));
            w.norm_neuron.back(grad_y + r * w.D, hats + r * w.D, scales[r], grad, sums.norms + 4 * w.D,
                               sums.norms + 5 * w.D);
            // q = m + dropout(down(a))
            if (p.dropout > 0) {
                draw_mask(row_key(p.seed, row + r), static_cast<float>(p.dropout), w.D, mask);
                for (int64_t j = 0; j < w.D; j += LANES) store(f + r * w.D + j, load(grad + j) * load(mask + j));
            } else {
                std::memcpy(f + r * w.D, grad, w.D * sizeof(float));
            }
            w.activate(ups_in + r * w.TAPE, a + r * w.H);
            scales[r] = w.norm_ffn(m + r * w.TAPE, hats + r * w.D, y + r * w.D);
        }
        for (int64_t r = rows; r < whole; ++r) std::memset(f + r * w.D, 0, w.D * sizeof(float));
        accumulate(f, w.D, a, w.H, rows, w.d, p.hidden, sums.down, w.H);
        add_rows(f, w.D, rows, w.D, sums.down_bias);
        multiply(f, w.D, w.down, whole, w.d, p.hidden, nullptr, grad_a, w.H);
        for (int64_t r = 0; r < rows; ++r) w.activate_back(ups_in + r * w.TAPE, grad_a + r * w.H, ups + r * w.UP);
        for (int64_t r = rows; r < whole; ++r) std::memset(ups + r * w.UP, 0, w.UP * sizeof(float));
        accumulate(ups, w.UP, y, w.D, rows, w.ups, w.d, sums.up, w.D);
        add_rows(ups, w.UP, rows, w.UP, sums.up_bias);
        multiply(ups, w.UP, w.up, whole, w.ups, w.d, nullptr, grad_y, w.D);
        for (int64_t r = 0; r < rows; ++r)
            w.norm_ffn.back(grad_y + r * w.D, hats + r * w.D, scales[r], grad_m + r * w.D, sums.norms + 2 * w.D,
                            sums.norms + 3 * w.D);
        for (int64_t r = rows; r < whole; ++r) std::memset(grad_m + r * w.D, 0, w.D * sizeof(float));
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
            accumulate(grad_m, w.D, pair, w.PAIR, rows, w.d, 2 * w.d, sums.conv, w.PAIR);
            add_rows(grad_m, w.D, rows, w.D, sums.conv_bias);
            multiply(grad_m, w.D, w.conv, whole, w.d, 2 * w.d, nullptr, grad_pair, w.PAIR);
        }
        for (int64_t r = rows - 1; r >= 0; --r) {
            const float* sent = grad_pair + r * w.PAIR;
            for (int64_t j = 0; j < w.d; j += LANES) {
                const Lanes own = load_part<float>(sent + w.d + j, w.d - j);
                store(grad_v + j, carried ? own + load_part<float>(carried + j, w.d - j) : own);
            }
            float* grad_u = grad_m + r * w.D;
            w.norm_conv.back(grad_v, hat_conv + r * w.D, scale_conv[r], grad_u, sums.norms, sums.norms + w.D);
            std::memcpy(p.grad_u + (row + r) * w.d, grad_u, w.d * sizeof(float));
            carried = !w.begins(row + r) && !w.is_first(row + r) ? sent : nullptr;
            if (p.grad_first && w.is_first(row + r) && !w.begins(row + r))
                std::memcpy(p.grad_first + (row + r) / p.time * w.d, sent, w.d * sizeof(float));
        }
        if (carried) {  // to the block before, which overwrites it
            std::memcpy(next, carried, w.d * sizeof(float));
            carried = next;
        }
        stop = row;
    }
    if (carried) std::memcpy(carry, next, w.d * sizeof(float));
    return carried != nullptr;
}

inline int thread_count(const Layer& p) {
    const int64_t most = p.batch * p.time / (2 * BLOCK);
    const int64_t threads = p.threads < most ? p.threads : most;
    return threads < 1 ? 1 : static_cast<int>(threads);
}

int forward(const Layer& p) {
    const Prepared w(p, false);
    const int64_t rows = p.batch * p.time, threads = thread_count(p);
    in_parallel(threads, threads, [&](int64_t part) {
        forward_rows(w, rows * part / threads, rows * (part + 1) / threads);
    });
    return DONE;
}

int backward(const Layer& p) {
    const Prepared w(p, true);
    const int64_t rows = p.batch * p.time, threads = thread_count(p), size = round_up(Sums::size(w), 16);
    Scratch<float> memory(threads * (size + w.D + 16));
    std::memset(memory.data, 0, threads * (size + w.D + 16) * sizeof(float));
    Scratch<int64_t> carried(threads);
    float* carries = memory.data + threads * size;
    in_parallel(threads, threads, [&](int64_t part) {
        Sums sums(w, memory.data + part * size);
        carried.data[part] = backward_rows(w, rows * part / threads, rows * (part + 1) / threads, sums, carries + part * w.D);
    });
    for (int64_t part = 0; part < threads; ++part) {
        Sums sums(w, memory.data + part * size);
        if (carried.data[part]) {  // to the last row of the part before; its norm is linear in what it is sent
            const int64_t row = rows * part / threads - 1;
            Scratch<float> line(4 * w.D);
            float *x = line.data, *hat = x + w.D, *y = hat + w.D, *grad_u = y + w.D;
            copy_padded(p.u + row * w.d, w.d, w.D, x);
            const float scale = w.norm_conv(x, hat, y);
            std::memset(grad_u, 0, w.D * sizeof(float));
            w.norm_conv.back(carries + part * w.D, hat, scale, grad_u, sums.norms, sums.norms + w.D);
            for (int64_t j = 0; j < w.d; ++j) p.grad_u[row * w.d + j] += grad_u[j];
        }
        if (p.gated_conv) {
            add_matrix(sums.conv, w.d, 1, w.d, p.conv.grad_weight, part == 0);
        } else {
            add_matrix(sums.conv, w.PAIR, w.d, 2 * w.d, p.conv.grad_weight, part == 0);
            add_matrix(sums.conv_bias, w.d, 1, w.d, p.conv.grad_bias, part == 0);
        }
        add_matrix(sums.up, w.D, w.ups, w.d, p.up.grad_weight, part == 0);
        add_matrix(sums.up_bias, w.ups, 1, w.ups, p.up.grad_bias, part == 0);
        add_matrix(sums.down, w.H, w.d, p.hidden, p.down.grad_weight, part == 0);
        add_matrix(sums.down_bias, w.d, 1, w.d, p.down.grad_bias, part == 0);
        add_matrix(sums.projection, w.D, p.outputs, w.d, p.projection.grad_weight, part == 0);
        add_matrix(sums.projection_bias, p.outputs, 1, p.outputs, p.projection.grad_bias, part == 0);
        const Norm* norms[] = {&p.norm_conv, &p.norm_ffn, &p.norm_neuron};
        for (int64_t n = 0; n < 3; ++n) {
            if (norms[n]->kind != NO_NORM) add_matrix(sums.norms + 2 * n * w.D, w.d, 1, w.d, norms[n]->grad_weight, part == 0);
            if (norms[n]->kind == LAYER_NORM)
                add_matrix(sums.norms + (2 * n + 1) * w.D, w.d, 1, w.d, norms[n]->grad_bias, part == 0);
        }
    }
    return DONE;
}

int64_t tape(const Layer& p) { return 2 * panels(p.width) + panels((p.gated_ffn ? 2 : 1) * p.hidden); }

}  // namespace LATCHWORK_ISA

extern "C" {
int JOIN(latchwork_layer_forward_, LATCHWORK_ISA)(const Layer* p) { return LATCHWORK_ISA::forward(*p); }
int JOIN(latchwork_layer_backward_, LATCHWORK_ISA)(const Layer* p) { return LATCHWORK_ISA::backward(*p); }
int64_t JOIN(latchwork_layer_tape_, LATCHWORK_ISA)(const Layer* p) { return LATCHWORK_ISA::tape(*p); }
}
