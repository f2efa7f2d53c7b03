// Linear maps of rows, forth and back, at the speed of the multiply-add units where a BLAS is far from it. Compiled once for
// each instruction set.
#include "lanes.h"

namespace LATCHWORK_ISA {

// Some rows of x or grad_y as the products want them: where they stand if what is read behind them is theirs as well, else
// copied into `room`, with zeros behind each row and for the rows that fill up a tile.
struct Strip {
    const float* data;
    int64_t row;
    Strip(const Rows& of, int64_t width, int64_t begin, int64_t rows, int64_t all_rows, float* room)
        : data(static_cast<const float*>(of.data) + begin * of.batch), row(of.batch) {
        if (rows == BLOCK && (all_rows - begin - rows) * row >= PANEL) return;
        const int64_t size = padded(width);
        for (int64_t r = 0; r < rows; ++r) copy_padded(data + r * row, width, size, room + r * size);
        std::memset(room + rows * size, 0, (round_up(rows, ROWS) - rows) * size * sizeof(float));
        data = room, row = size;
    }
};

struct PreparedLinear {
    const LinearMap& p;
    const int64_t K, N, blocks, K_row, N_row, packed;  // K_row, N_row: with padding
    Scratch<float> weight, bias;
    explicit PreparedLinear(const LinearMap& p)
        : p(p), K(p.inputs), N(p.outputs), blocks(p.blocks), K_row(padded(K)), N_row(padded(N)),
          packed(line(p.grad_y.data ? packed_size(N, K) : packed_size(K, N))), weight(blocks * packed),
          bias(blocks * N_row) {
        for (int64_t h = 0; h < blocks; ++h) {
            const float* from = p.weight + h * N * K;
            if (p.grad_y.data)
                pack(from, N, K, K, 1, weight.data + h * packed);
            else
                pack(from, K, N, 1, K, weight.data + h * packed);
            copy_padded(p.bias ? p.bias + h * N : nullptr, N, N_row, bias.data + h * N_row);
        }
    }
    // A block of columns of some rows, from a buffer.
    static void put(const float* from, int64_t from_row, int64_t rows, int64_t width, float* to, int64_t to_row) {
        for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * to_row, from + r * from_row, width * sizeof(float));
    }
    void forth(int64_t begin, int64_t end) const {
        Scratch<float> memory(BLOCK * (padded(blocks * K) + N_row));
        float* out = memory.data + BLOCK * padded(blocks * K);
        for (int64_t at = begin; at < end; at += BLOCK) {
            const int64_t rows = end - at < BLOCK ? end - at : BLOCK;
            const Strip x(p.x, blocks * K, at, rows, p.rows, memory.data);
            for (int64_t h = 0; h < blocks; ++h) {
                multiply(x.data + h * K, x.row, weight.data + h * packed, round_up(rows, ROWS), K, N, bias.data + h * N_row,
                         out, N_row);
                put(out, N_row, rows, N, p.y + at * blocks * N + h * N, blocks * N);
            }
        }
    }
    int64_t sums() const { return line(blocks * padded(N) * K_row) + padded(blocks * N); }
    // sums: of the weights (blocks, padded outputs, K_row), and of the bias behind them.
    void back(int64_t begin, int64_t end, float* sums) const {
        Scratch<float> memory(BLOCK * (padded(blocks * K) + padded(blocks * N) + K_row));
        Arena arena{memory.data};
        float *room_x = arena.take(BLOCK * padded(blocks * K)), *room_grad = arena.take(BLOCK * padded(blocks * N));
        float *out = arena.take(BLOCK * K_row), *of_bias = sums + line(blocks * padded(N) * K_row);
        for (int64_t at = begin; at < end; at += BLOCK) {
            const int64_t rows = end - at < BLOCK ? end - at : BLOCK;
            const Strip x(p.x, blocks * K, at, rows, p.rows, room_x), grad(p.grad_y, blocks * N, at, rows, p.rows, room_grad);
            for (int64_t h = 0; h < blocks; ++h) {
                accumulate(grad.data + h * N, grad.row, x.data + h * K, x.row, rows, N, K, sums + h * padded(N) * K_row, K_row);
                if (!p.grad_x) continue;
                multiply(grad.data + h * N, grad.row, weight.data + h * packed, round_up(rows, ROWS), N, K, nullptr, out, K_row);
                put(out, K_row, rows, K, p.grad_x + at * blocks * K + h * K, blocks * K);
            }
            if (p.grad_bias) add_rows(grad.data, grad.row, rows, round_up(blocks * N, LANES), of_bias);
        }
    }
    void add(const float* sums, bool first) const {
        for (int64_t h = 0; h < blocks; ++h)
            add_matrix(sums + h * padded(N) * K_row, K_row, N, K, p.grad_weight + h * N * K, first);
        if (p.grad_bias) add_matrix(sums + line(blocks * padded(N) * K_row), 0, 1, blocks * N, p.grad_bias, first);
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
