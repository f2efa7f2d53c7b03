// Linear maps of rows, forth and back, at the speed of the multiply-add units where a BLAS is far from it, and what stands
// around them: a norm, a skip, a gate, dropout, a residual. Compiled once for each instruction set.
#include <cmath>
#include <initializer_list>

#include "lanes.h"

namespace LATCHWORK_ISA {

struct Curve {
    Lanes value, slope;
};
LATCHWORK_INLINE Curve curve(int64_t activation, Lanes a) {
    if (activation == GELU) {  // a times the normal distribution, by Abramowitz and Stegun 7.1.26, to 1.5e-7
        const Lanes t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * magnitude(a)), bell = exponential(a * a * -0.5f);
        constexpr float series[] = {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
        Lanes tail = all(1.061405429f);
        for (float coefficient : series) tail = tail * t + coefficient;
        tail *= 0.5f * t * bell;
        const Lanes below = a < 0.0f ? tail : 1.0f - tail;
        return {a * below, below + a * bell * 0.39894228f};
    }
    const Lanes s = sigmoid(a);
    if (activation == SIGMOID) return {s, s * (1.0f - s)};
    return {a * s, s * (1.0f + a * (1.0f - s))};  // SILU
}

inline float* row_of(const Rows& rows, int64_t r) { return row(rows, r, 0); }

// What comes before the product: (norm(dropout(x)) weight + skip mixed) activation(gate), each where there is one.
struct Dressing {
    const LinearMap& p;
    const int64_t width, size, d;  // of a row, with padding, of a head
    const bool drops, plain;
    explicit Dressing(const LinearMap& p)
        : p(p), width(p.blocks * p.inputs), size(padded(width)), d(p.norm ? width / p.heads : width),
          drops(p.dropout > 0 && p.drops_before), plain(!p.norm && !p.mixed.data && !p.gate.data && !drops) {}
    // Ask for a row before it is needed: rows may lie too far apart for the processor to guess.
    void ask_for(int64_t r) const {
        for (const Rows* rows : {&p.x, &p.mixed, &p.gate})
            for (int64_t j = 0; j < width && rows->data && r < p.rows; j += 16) __builtin_prefetch(row_of(*rows, r) + j);
    }
    void draw(int64_t r, float* mask) const {
        if (drops) draw_mask(row_key(p.seed, r), static_cast<float>(p.dropout), size, mask);
    }
    // A vector of row r before skip and gate.
    Lanes value(int64_t r, int64_t j, const float* hat, const float* mask) const {
        if (p.norm) return load(hat + j) * load_some(p.norm + j, width - j);
        const Lanes x = load_some(row_of(p.x, r) + j, width - j);
        return drops ? x * load(mask + j) : x;
    }
    Lanes mixed(int64_t r, int64_t j) const {
        return load_some(p.skip + j, width - j) * load_some(row_of(p.mixed, r) + j, width - j);
    }
    // Row r into x (size). hat (size): the normalised numbers. scales: of each head.
    void forth(int64_t r, float* x, float* hat, float* scales, float* mask) const {
        ask_for(r + 8);
        draw(r, mask);
        for (int64_t h = 0; h < p.heads && p.norm; ++h) normalise(row_of(p.x, r) + h * d, hat + h * d, scales + h, mask + h * d);
        for (int64_t j = p.norm ? width : size; j < size; ++j) hat[j] = 0.0f;
        for (int64_t j = 0; j < size; j += LANES) {
            if (j >= width) {
                store(x + j, Lanes{});
                continue;
            }
            Lanes z = value(r, j, hat, mask);
            if (p.mixed.data) z += mixed(r, j);
            if (p.gate.data) z *= curve(p.activation, load_some(row_of(p.gate, r) + j, width - j)).value;
            store(x + j, z);
        }
    }
    void normalise(const float* x, float* hat, float* scale, const float* mask) const {
        const auto at = [&](int64_t j) {
            const Lanes v = load_some(x + j, d - j);
            return drops ? v * load_some(mask + j, d - j) : v;
        };
        Lanes total{}, squares{};
        for (int64_t j = 0; j < d && p.centred; j += LANES) total += at(j);
        const float mean = sum(total) / static_cast<float>(d);
        for (int64_t j = 0; j < d; j += LANES) {
            const Lanes centred = first_of(at(j) - mean, d - j);
            squares += centred * centred;
        }
        *scale = 1.0f / std::sqrt(sum(squares) / static_cast<float>(d) + static_cast<float>(p.epsilon));
        for (int64_t j = 0; j < d; j += LANES) store_some(hat + j, (at(j) - mean) * *scale, d - j);
    }
    // grad (size): of x, written over. sums: of the norm's weight, and of skip behind it.
    void back(int64_t r, float* grad, const float* hat, const float* scales, float* mask, float* sums) const {
        draw(r, mask);
        for (int64_t j = 0; j < width; j += LANES) {
            const int64_t lanes = width - j;
            Lanes g = load(grad + j);
            if (p.gate.data) {
                const Curve c = curve(p.activation, load_some(row_of(p.gate, r) + j, lanes));
                Lanes z = value(r, j, hat, mask);
                if (p.mixed.data) z += mixed(r, j);
                store_some(row_of(p.grad_gate, r) + j, g * z * c.slope, lanes);
                g *= c.value;
            }
            if (p.mixed.data) {
                store_some(row_of(p.grad_mixed, r) + j, g * load_some(p.skip + j, lanes), lanes);
                store(sums + size + j, load(sums + size + j) + g * load_some(row_of(p.mixed, r) + j, lanes));
            }
            if (p.norm) {
                store(sums + j, load(sums + j) + g * load(hat + j));
                store(grad + j, g * load_some(p.norm + j, lanes));
            } else {
                store_some(row_of(p.grad_x, r) + j, drops ? g * load(mask + j) : g, lanes);
            }
        }
        for (int64_t h = 0; h < p.heads && p.norm; ++h) {
            const int64_t at = h * d;
            Lanes total{}, along{};
            for (int64_t j = at; j < at + d; j += LANES) {
                const Lanes g = load_some(grad + j, at + d - j);
                total += g, along += g * load_some(hat + j, at + d - j);
            }
            const float mean = p.centred ? sum(total) / static_cast<float>(d) : 0.0f, slope = sum(along) / static_cast<float>(d);
            for (int64_t j = at; j < at + d; j += LANES) {
                const int64_t lanes = at + d - j;
                const Lanes g = (load_some(grad + j, lanes) - mean - load_some(hat + j, lanes) * slope) * scales[h];
                store_some(row_of(p.grad_x, r) + j, drops ? g * load_some(mask + j, lanes) : g, lanes);
            }
        }
    }
};

// Some rows of x or grad_y as the products want them: where they stand if what is read behind them is theirs as well, else
// copied into `room`, with zeros behind each row and for the rows that fill up a tile.
struct Strip {
    const float* data;
    int64_t row;
    Strip(const float* data, int64_t row) : data(data), row(row) {}
    Strip(const Rows& of, int64_t width, int64_t begin, int64_t rows, int64_t all_rows, float* room)
        : data(row_of(of, begin)), row(of.batch) {
        if (rows == BLOCK && (all_rows - begin - rows) * row >= PANEL) return;
        const int64_t size = padded(width);
        for (int64_t r = 0; r < rows; ++r) copy_padded(data + r * row, width, size, room + r * size);
        fill_up(room, size, rows);
        data = room, row = size;
    }
    static void fill_up(float* room, int64_t size, int64_t rows) {
        std::memset(room + rows * size, 0, (round_up(rows, ROWS) - rows) * size * sizeof(float));
    }
};

struct PreparedLinear {
    const LinearMap& p;
    const Dressing dressing;
    const int64_t K, N, blocks, K_row, N_row, packed;  // K_row, N_row: with padding
    const int64_t X, Y;                                // the same for whole rows of x and of y
    const bool drops_after;
    Scratch<float> weight, bias;
    explicit PreparedLinear(const LinearMap& p)
        : p(p), dressing(p), K(p.inputs), N(p.outputs), blocks(p.blocks), K_row(padded(K)), N_row(padded(N)),
          packed(line(p.grad_y.data ? packed_size(N, K) : packed_size(K, N))), X(padded(blocks * K)), Y(padded(blocks * N)),
          drops_after(p.dropout > 0 && !p.drops_before), weight(p.weight ? blocks * packed : 0), bias(blocks * N_row) {
        for (int64_t h = 0; h < blocks && p.weight; ++h) {
            const float* from = p.weight + h * N * K;
            if (p.grad_y.data)
                pack(from, N, K, K, 1, weight.data + h * packed);
            else
                pack(from, K, N, 1, K, weight.data + h * packed);
            copy_padded(p.bias ? p.bias + h * N : nullptr, N, N_row, bias.data + h * N_row);
        }
    }
    // Where some rows of x are read, dressed in `room` if they are to be. hats, scales: for as many rows.
    Strip inputs(int64_t at, int64_t rows, float* room, float* hats, float* scales, float* mask) const {
        if (dressing.plain) return Strip(p.x, blocks * K, at, rows, p.rows, room);
        for (int64_t r = 0; r < rows; ++r)
            dressing.forth(at + r, room + r * X, hats + r * X, scales + r * p.heads, mask);
        Strip::fill_up(room, X, rows);
        return Strip(room, X);
    }
    // One block of columns of the product of some rows, straight to its place if what is written behind it comes later: if
    // the rows that follow, `behind`, are that long.
    void multiply_into(const Strip& x, int64_t at, int64_t rows, int64_t behind, const float* w, int64_t k, int64_t n,
                       const float* b, int64_t h, float* to, float* room) const {
        const int64_t to_row = blocks * n, size = padded(n);
        float* place = to + at * to_row + h * n;
        if (rows == BLOCK && behind * to_row >= PANEL && blocks == 1)
            return multiply(x.data, x.row, w, rows, k, n, b, place, to_row);
        multiply(x.data + h * k, x.row, w, round_up(rows, ROWS), k, n, b, room, size);
        for (int64_t r = 0; r < rows; ++r) std::memcpy(place + r * to_row, room + r * size, n * sizeof(float));
    }
    void forth(int64_t begin, int64_t end) const {
        Scratch<float> memory(BLOCK * (2 * X + N_row + line(p.heads)) + X + Y + 64);
        Arena arena{memory.data};
        float *room = arena.take(BLOCK * X), *hats = arena.take(BLOCK * X), *out = arena.take(BLOCK * N_row);
        float *scales = arena.take(BLOCK * p.heads), *mask = arena.take(X > Y ? X : Y);
        for (int64_t at = begin; at < end; at += BLOCK) {
            const int64_t rows = end - at < BLOCK ? end - at : BLOCK;
            const Strip x = inputs(at, rows, room, hats, scales, mask);
            for (int64_t h = 0; h < blocks && p.weight; ++h)
                multiply_into(x, at, rows, end - at - rows, weight.data + h * packed, K, N, bias.data + h * N_row, h, p.y, out);
            for (int64_t r = 0; r < rows; ++r) finish(at + r, p.weight ? nullptr : x.data + r * x.row, mask);
        }
    }
    // What comes after the product of row r, or after `from` where there is none.
    void finish(int64_t r, const float* from, float* mask) const {
        const int64_t width = blocks * N;
        if (!from && !drops_after && !p.residual.data) return;
        float* y = p.y + r * width;
        if (!from) from = y;
        if (drops_after) draw_mask(row_key(p.seed, r), static_cast<float>(p.dropout), width, mask);
        for (int64_t j = 0; j < width; j += LANES) {
            Lanes z = load_some(from + j, width - j);
            if (drops_after) z *= load_some(mask + j, width - j);
            if (p.residual.data) z += load_some(row_of(p.residual, r) + j, width - j);
            store_some(y + j, z, width - j);
        }
    }
    int64_t weight_sums() const { return p.weight ? line(blocks * padded(N) * K_row) : 0; }
    int64_t sums() const { return weight_sums() + line(Y) + 2 * X; }
    // The gradient of what the product gave.
    Strip gradients(int64_t at, int64_t rows, float* room, float* mask) const {
        if (!drops_after) return Strip(p.grad_y, blocks * N, at, rows, p.rows, room);
        for (int64_t r = 0; r < rows; ++r) {
            draw_mask(row_key(p.seed, at + r), static_cast<float>(p.dropout), blocks * N, mask);
            const float* from = row_of(p.grad_y, at + r);
            for (int64_t j = 0; j < Y; ++j) room[r * Y + j] = j < blocks * N ? from[j] * mask[j] : 0.0f;
        }
        Strip::fill_up(room, Y, rows);
        return Strip(room, Y);
    }
    // sums: of the weights (blocks, padded outputs, K_row), of the bias, of the norm's weight, of skip.
    void back(int64_t begin, int64_t end, float* sums) const {
        Scratch<float> memory(BLOCK * (3 * X + Y + line(p.heads)) + X + Y + 64);
        Arena arena{memory.data};
        float *room_x = arena.take(BLOCK * X), *room_grad = arena.take(BLOCK * Y), *out = arena.take(BLOCK * X);
        float *hats = arena.take(BLOCK * X), *scales = arena.take(BLOCK * p.heads), *mask = arena.take(X > Y ? X : Y);
        float *of_bias = sums + weight_sums(), *of_norm = of_bias + line(Y);
        for (int64_t at = begin; at < end; at += BLOCK) {
            const int64_t rows = end - at < BLOCK ? end - at : BLOCK;
            const Strip x = inputs(at, rows, room_x, hats, scales, mask), grad = gradients(at, rows, room_grad, mask);
            for (int64_t h = 0; h < blocks && p.weight; ++h) {
                accumulate(grad.data + h * N, grad.row, x.data + h * K, x.row, rows, N, K, sums + h * padded(N) * K_row, K_row);
                const float* w = weight.data + h * packed;
                if (!dressing.plain)
                    multiply(grad.data, grad.row, w, round_up(rows, ROWS), N, K, nullptr, out, X);
                else if (p.grad_x.data)
                    multiply_into(grad, at, rows, end - at - rows, w, N, K, nullptr, h, static_cast<float*>(p.grad_x.data), out);
            }
            if (p.grad_bias) add_rows(grad.data, grad.row, rows, round_up(blocks * N, LANES), of_bias);
            for (int64_t r = 0; r < rows && !dressing.plain; ++r) {
                if (!p.weight) copy_padded(grad.data + r * grad.row, blocks * K, X, out + r * X);
                dressing.back(at + r, out + r * X, hats + r * X, scales + r * p.heads, mask, of_norm);
            }
        }
    }
    void add(const float* sums, bool first) const {
        const float *of_bias = sums + weight_sums(), *of_norm = of_bias + line(Y);
        for (int64_t h = 0; h < blocks && p.weight; ++h)
            add_matrix(sums + h * padded(N) * K_row, K_row, N, K, p.grad_weight + h * N * K, first);
        if (p.grad_bias) add_matrix(of_bias, 0, 1, blocks * N, p.grad_bias, first);
        if (p.norm) add_matrix(of_norm, 0, 1, K, p.grad_norm, first);
        if (p.mixed.data) add_matrix(of_norm + X, 0, 1, K, p.grad_skip, first);
    }
};

int linear(const LinearMap& p) {
    const PreparedLinear w(p);
    const int64_t most = (p.rows + BLOCK - 1) / BLOCK, threads = p.threads < 1 ? 1 : p.threads < most ? p.threads : most;
    const auto bound = [&](int64_t thread) { return thread == threads ? p.rows : most * thread / threads * BLOCK; };
    const int64_t size = p.grad_y.data ? line(w.sums()) : 0;
    Scratch<float> memory(threads * size);
    std::memset(memory.data, 0, threads * size * sizeof(float));
    in_parallel(threads, threads, [&](int64_t thread) {
        if (p.grad_y.data)
            w.back(bound(thread), bound(thread + 1), memory.data + thread * size);
        else
            w.forth(bound(thread), bound(thread + 1));
    });
    for (int64_t thread = 0; thread < threads && size; ++thread) w.add(memory.data + thread * size, thread == 0);
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(linear, LinearMap)
