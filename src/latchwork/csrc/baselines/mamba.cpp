// Mamba's layer between its two projections, a strip of steps of one row of the batch at a time, so that what is between
// stays in the cache: convolution, what it gives the recurrence, selective scan and gate. Compiled once for each instruction
// set.
#include <type_traits>

#include "conv.h"

namespace LATCHWORK_ISA {

constexpr int64_t SEGMENT = 8;  // steps whose states are held at once in the backward pass; baselines/mamba_mixer.py has it too
constexpr int64_t MAMBA_STRIP = 24;  // a multiple of SEGMENT and of ROWS
constexpr float LOG2_E = 1.44269504f;

// Weights as the loops want them: tables (vectors of channels, states, LANES) and packed matrices.
struct MambaWeights {
    const MambaMixer& p;
    const int64_t D, N, R, M, vectors, size, wide, mixed_row;  // M: R + 2 N. size: of a table's part. wide: D with padding
    const ConvWeights conv;
    Scratch<float> decay, skip, bias, of_mixed, of_dt;
    MambaWeights(const MambaMixer& p, bool back)
        : p(p), D(p.width), N(p.states), R(p.rank), M(R + 2 * N), vectors((D + LANES - 1) / LANES), size(N * LANES),
          wide(padded(D)), mixed_row(padded(M)), conv(p.conv, p.conv_bias, D, p.taps), decay(vectors * size), skip(wide), bias(wide),
          of_mixed(back ? packed_size(M, D) : 0), of_dt(back ? packed_size(D, R) : 0), of_v(packed_size(D, M)),
          of_rank(packed_size(R, D)) {
        for (int64_t i = 0; i < vectors * size; ++i) {
            const int64_t at = i / size * LANES + i % LANES;
            decay.data[i] = at < D ? p.decay[i % size / LANES * D + at] * LOG2_E : 0.0f;
        }
        copy_padded(p.skip, D, wide, skip.data), copy_padded(p.dt_bias, D, wide, bias.data);
        pack(p.x_proj, D, M, 1, D, of_v.data), pack(p.dt_proj, R, D, 1, R, of_rank.data);
        if (back) pack(p.x_proj, M, D, D, 1, of_mixed.data), pack(p.dt_proj, D, R, R, 1, of_dt.data);
    }
    Scratch<float> of_v, of_rank;
};

// A strip of one row: v, what the convolution gives; mixed, for each step what dt is made of, write and read; dt.
struct MambaRow {
    const MambaWeights& w;
    const MambaMixer& p;
    const int64_t b, segments;
    const ConvRow conv;
    Zeros v, mixed, dt;
    Scratch<float> slopes, states;
    MambaRow(const MambaWeights& w, int64_t b)
        : w(w), p(w.p), b(b), segments((p.time + SEGMENT - 1) / SEGMENT),
          conv{w.conv, p.mapped, p.before + b * (p.taps - 1) * w.D, b}, v(MAMBA_STRIP * w.wide), mixed(MAMBA_STRIP * w.mixed_row),
          dt(MAMBA_STRIP * w.wide), slopes(MAMBA_STRIP * w.conv.row), states(w.vectors * w.size) {}
    int64_t steps_from(int64_t begin) const { return p.time - begin < MAMBA_STRIP ? p.time - begin : MAMBA_STRIP; }
    float* kept(int64_t t, int64_t k) const { return p.kept + ((b * segments + t / SEGMENT) * w.vectors + k) * w.size; }
    const float* write(int64_t t) const { return mixed.data + t * w.mixed_row + w.R; }
    const float* read(int64_t t) const { return write(t) + w.N; }
    void load_states(const float* from, float* to) const {
        for (int64_t k = 0; k < w.vectors; ++k)
            for (int64_t n = 0; n < w.N; ++n)
                store(to + k * w.size + n * LANES,
                      from ? load_part(from + (b * w.N + n) * w.D + k * LANES, w.D - k * LANES) : Lanes{});
    }
    void store_states(const float* from, float* to) const {
        for (int64_t k = 0; k < w.vectors; ++k)
            for (int64_t n = 0; n < w.N; ++n)
                store_part(to + (b * w.N + n) * w.D + k * LANES, load(from + k * w.size + n * LANES), w.D - k * LANES);
    }
    // What the recurrence is given for a strip; with `back` also the slopes of silu.
    void load_strip(int64_t begin, bool back) {
        conv.forth(begin, steps_from(begin), [&](int64_t t, int64_t j, int64_t lanes, Lanes, Lanes y) {
            const Lanes opened = sigmoid(y);
            store(v.data + t * w.wide + j, first_of(y * opened, lanes));
            if (back) store(slopes.data + t * w.conv.row + j, opened * (1.0f + y * (1.0f - opened)));
        });
        multiply(v.data, w.wide, w.of_v.data, MAMBA_STRIP, w.D, w.M, nullptr, mixed.data, w.mixed_row);
        multiply(mixed.data, w.mixed_row, w.of_rank.data, MAMBA_STRIP, w.R, w.D, w.bias.data, dt.data, w.wide);
    }
    // Forward through one segment for one vector of channels, a few states at a time, which stay in registers. t: in the strip.
    template <int64_t STATES>
    void scan_segment(int64_t begin, int64_t t, int64_t steps, int64_t k) {
        const int64_t N = STATES ? STATES : w.N, first = k * LANES, lanes = w.D - first;
        const Lanes skip = load(w.skip.data + first);
        const float* decay = w.decay.data + k * w.size;
        float* x = states.data + k * w.size;
        Lanes d[SEGMENT], du[SEGMENT], y[SEGMENT];
        for (int64_t i = 0; i < steps; ++i) {
            const Lanes u = load(v.data + (t + i) * w.wide + first);
            d[i] = softplus(load(dt.data + (t + i) * w.wide + first)), du[i] = d[i] * u, y[i] = skip * u;
        }
        const auto some = [&](auto count, int64_t n) {
            constexpr int64_t G = decltype(count)::value;
            Lanes state[G], rate[G];
            for (int64_t g = 0; g < G; ++g) state[g] = load(x + (n + g) * LANES), rate[g] = load(decay + (n + g) * LANES);
            for (int64_t i = 0; i < steps; ++i) {
                const float *in = write(t + i) + n, *out = read(t + i) + n;
                Lanes total = y[i];
#pragma GCC unroll 4
                for (int64_t g = 0; g < G; ++g) {
                    state[g] = power_of_two(d[i] * rate[g]) * state[g] + in[g] * du[i];
                    total += out[g] * state[g];
                }
                y[i] = total;
            }
            for (int64_t g = 0; g < G; ++g) store(x + (n + g) * LANES, state[g]);
        };
        int64_t n = 0;
        for (; n + 4 <= N; n += 4) some(std::integral_constant<int64_t, 4>(), n);
        for (; n < N; ++n) some(std::integral_constant<int64_t, 1>(), n);
        for (int64_t i = 0; i < steps; ++i) {
            const Lanes gate = load_part(row(p.mapped, b, begin + i) + w.D + first, lanes);
            store_part(row(p.y, b, begin + i) + first, y[i] * gate * sigmoid(gate), lanes);
        }
    }
    void forth() {
        load_states(p.x0, states.data);
        for (int64_t begin = 0; begin < p.time; begin += MAMBA_STRIP) {
            load_strip(begin, false);
            for (int64_t t = 0, steps = steps_from(begin); t < steps; t += SEGMENT) {
                ask_for(p.mapped, b, begin + t + MAMBA_STRIP, SEGMENT, p.time, 2 * w.D);
                ask_for(p.y, b, begin + t + SEGMENT, SEGMENT, p.time, w.D);
                for (int64_t k = 0; k < w.vectors; ++k) {
                    if (p.kept) std::memcpy(kept(begin + t, k), states.data + k * w.size, w.size * sizeof(float));
                    const int64_t some = steps - t < SEGMENT ? steps - t : SEGMENT;
                    w.N == 16 ? scan_segment<16>(begin + t, t, some, k) : scan_segment<0>(begin + t, t, some, k);
                }
            }
        }
        store_states(states.data, p.x);
    }
};

// The sums of a thread. of_rank: (tiles of R, wide), of dt_proj, transposed. of_v: (tiles of M, wide), of x_proj.
struct MambaSums {
    float *conv, *decay, *skip, *bias, *of_rank, *of_v;
    static int64_t size(const MambaWeights& w) {
        return w.conv.size() + w.vectors * w.size + 2 * w.wide + (tiles(w.R) + tiles(w.M)) * w.wide;
    }
    MambaSums(const MambaWeights& w, float* data)
        : conv(data), decay(conv + w.conv.size()), skip(decay + w.vectors * w.size), bias(skip + w.wide), of_rank(bias + w.wide),
          of_v(of_rank + tiles(w.R) * w.wide) {}
    void add(const MambaWeights& w) const {
        const MambaMixer& p = w.p;
        w.conv.add(conv, p.grad_conv, p.grad_conv_bias);
        add_to(skip, w.D, p.grad_skip), add_to(bias, w.D, p.grad_dt_bias);
        for (int64_t m = 0; m < w.M; ++m) add_to(of_v + m * w.wide, w.D, p.grad_x_proj + m * w.D);
        for (int64_t j = 0; j < w.D; ++j) {
            for (int64_t r = 0; r < w.R; ++r) p.grad_dt_proj[j * w.R + r] += of_rank[r * w.wide + j];
            for (int64_t n = 0; n < w.N; ++n) p.grad_decay[n * w.D + j] += decay[j / LANES * w.size + n * LANES + j % LANES];
        }
    }
};

struct MambaRowBack : MambaRow {
    MambaSums sums;
    Zeros grad_v, grad_dt, grad_mixed, later;
    Scratch<float> lanes_of, through, of_rank;  // lanes_of: of read and write, (states, SEGMENT, 2, LANES), to be summed over lanes
    float* carry = states.data;        // the gradient of the state after the segment, and then before it
    MambaRowBack(const MambaWeights& w, int64_t b, float* sums)
        : MambaRow(w, b), sums(w, sums), grad_v(MAMBA_STRIP * w.wide), grad_dt(MAMBA_STRIP * w.wide),
          grad_mixed(MAMBA_STRIP * w.mixed_row), later(MOST_TAPS * w.conv.row), lanes_of(w.N * SEGMENT * 2 * LANES),
          through(MAMBA_STRIP * w.wide), of_rank(MAMBA_STRIP * w.mixed_row) {}

    // For each pair of states the steps forth, and back again. A segment that is cut short goes on with steps that change
    // nothing.
    template <int64_t STATES>
    void segment_back(int64_t begin, int64_t t, int64_t steps, int64_t k) {
        const int64_t N = STATES ? STATES : w.N, first = k * LANES, lanes = w.D - first;
        const float *start = kept(begin, k), *decays = w.decay.data + k * w.size;
        const Lanes skip = load(w.skip.data + first);
        float *of_decay = sums.decay + k * w.size, *carries = carry + k * w.size;
        Lanes d[SEGMENT], du[SEGMENT], out[SEGMENT], y[SEGMENT], grad_du[SEGMENT], grad_d[SEGMENT], slope[SEGMENT], opened[SEGMENT];
        const float *in[SEGMENT], *reads[SEGMENT];
        for (int64_t i = 0; i < SEGMENT; ++i) {
            y[i] = grad_du[i] = grad_d[i] = d[i] = du[i] = out[i] = Lanes{};
            in[i] = write(i < steps ? t + i : t), reads[i] = read(i < steps ? t + i : t);
            if (i >= steps) continue;
            const Lanes gate = load_part(row(p.mapped, b, begin + i) + w.D + first, lanes);
            const Lanes given = load(dt.data + (t + i) * w.wide + first), e = exponential(-magnitude(given));
            d[i] = positive(given) + log_of_one_and(e), slope[i] = (given < 0.0f ? e : all(1.0f)) / (1.0f + e);
            du[i] = d[i] * load(v.data + (t + i) * w.wide + first), opened[i] = sigmoid(gate);
            out[i] = load_part(row(p.grad_y, b, begin + i) + first, lanes) * gate * opened[i];
        }
        const auto some = [&](auto count, int64_t n) {
            constexpr int64_t G = decltype(count)::value;
            Lanes decay[G], factors[SEGMENT][G], before[SEGMENT + 1][G], grad[G], grad_decay[G];
            for (int64_t g = 0; g < G; ++g) {
                decay[g] = load(decays + (n + g) * LANES), before[0][g] = load(start + (n + g) * LANES);
                grad[g] = load(carries + (n + g) * LANES), grad_decay[g] = load(of_decay + (n + g) * LANES);
            }
#pragma GCC unroll 8
            for (int64_t i = 0; i < SEGMENT; ++i)
#pragma GCC unroll 2
                for (int64_t g = 0; g < G; ++g) {
                    factors[i][g] = power_of_two(d[i] * decay[g]);
                    before[i + 1][g] = factors[i][g] * before[i][g] + in[i][n + g] * du[i];
                    y[i] += reads[i][n + g] * before[i + 1][g];
                }
#pragma GCC unroll 8
            for (int64_t i = SEGMENT - 1; i >= 0; --i)
#pragma GCC unroll 2
                for (int64_t g = 0; g < G; ++g) {
                    float *of_read = lanes_of.data + ((n + g) * SEGMENT + i) * 2 * LANES, *of_write = of_read + LANES;
                    grad[g] += reads[i][n + g] * out[i];
                    store(of_read, load(of_read) + before[i + 1][g] * out[i]);
                    store(of_write, load(of_write) + grad[g] * du[i]);
                    grad_du[i] += in[i][n + g] * grad[g];
                    grad[g] *= factors[i][g];
                    const Lanes of_exponent = grad[g] * before[i][g];
                    grad_decay[g] += of_exponent * d[i];
                    grad_d[i] += of_exponent * decay[g];
                }
            for (int64_t g = 0; g < G; ++g)
                store(carries + (n + g) * LANES, grad[g]), store(of_decay + (n + g) * LANES, grad_decay[g]);
        };
        int64_t n = 0;
        for (; n + 2 <= N; n += 2) some(std::integral_constant<int64_t, 2>(), n);
        if (n < N) some(std::integral_constant<int64_t, 1>(), n);
        Lanes of_skip = load(sums.skip + first);
        for (int64_t i = 0; i < steps; ++i) {
            const int64_t here = (t + i) * w.wide + first;
            const Lanes u = load(v.data + here), gate = load_part(row(p.mapped, b, begin + i) + w.D + first, lanes);
            const Lanes given = load_part(row(p.grad_y, b, begin + i) + first, lanes);
            store_part(row(p.grad_mapped, b, begin + i) + w.D + first,
                       given * (y[i] + skip * u) * opened[i] * (1.0f + gate * (1.0f - opened[i])), lanes);
            store(grad_v.data + here, grad_du[i] * d[i] + skip * out[i]);
            store(grad_dt.data + here, (grad_d[i] * (1.0f / LOG2_E) + grad_du[i] * u) * slope[i]);
            of_skip += out[i] * u;
        }
        store(sums.skip + first, of_skip);
    }
    void scan_back(int64_t begin, int64_t t, int64_t steps) {
        std::memset(lanes_of.data, 0, w.N * SEGMENT * 2 * LANES * sizeof(float));
        ask_for(p.mapped, b, begin - MAMBA_STRIP, SEGMENT, p.time, 2 * w.D);
        ask_for(p.grad_y, b, begin - SEGMENT, SEGMENT, p.time, w.D);
        ask_for(p.grad_mapped, b, begin - SEGMENT, SEGMENT, p.time, 2 * w.D);
        for (int64_t j = 0; j < w.vectors * w.size && begin; j += 16) __builtin_prefetch(kept(begin - SEGMENT, 0) + j);
        for (int64_t k = 0; k < w.vectors; ++k)
            w.N == 16 ? segment_back<16>(begin, t, steps, k) : segment_back<0>(begin, t, steps, k);
        for (int64_t i = 0; i < steps; ++i)
            for (int64_t n = 0; n < w.N; ++n) {
                const float* from = lanes_of.data + (n * SEGMENT + i) * 2 * LANES;
                float* to = grad_mixed.data + (t + i) * w.mixed_row + w.R + n;
                to[w.N] = sum(load(from)), to[0] = sum(load(from + LANES));
            }
    }
    void run() {
        load_states(p.grad_x, carry);
        for (int64_t begin = (p.time - 1) / MAMBA_STRIP * MAMBA_STRIP; begin >= 0; begin -= MAMBA_STRIP) {
            const int64_t steps = steps_from(begin), M = w.M, R = w.R, wide = w.wide;
            load_strip(begin, true);
            for (int64_t t = (steps - 1) / SEGMENT * SEGMENT; t >= 0; t -= SEGMENT)
                scan_back(begin + t, t, steps - t < SEGMENT ? steps - t : SEGMENT);
            // Of what dt is made of, by way of a buffer: whole panels are written.
            multiply(grad_dt.data, wide, w.of_dt.data, MAMBA_STRIP, w.D, R, nullptr, of_rank.data, w.mixed_row);
            for (int64_t t = 0; t < steps; ++t)
                std::memcpy(grad_mixed.data + t * w.mixed_row, of_rank.data + t * w.mixed_row, R * sizeof(float));
            add_rows(grad_dt.data, wide, steps, w.vectors * LANES, sums.bias);
            accumulate(mixed.data, w.mixed_row, grad_dt.data, wide, steps, R, w.D, sums.of_rank, wide);
            accumulate(grad_mixed.data, w.mixed_row, v.data, wide, steps, M, w.D, sums.of_v, wide);
            multiply(grad_mixed.data, w.mixed_row, w.of_mixed.data, MAMBA_STRIP, M, w.D, nullptr, through.data, wide);
            conv.back(
                begin, steps, later.data, sums.conv, p.grad_before + b * (p.taps - 1) * w.D,
                [&](int64_t t, int64_t j, int64_t) {
                    return (load(grad_v.data + t * wide + j) + load(through.data + t * wide + j)) * load(slopes.data + t * w.conv.row + j);
                },
                [&](int64_t t, int64_t j, int64_t lanes, Lanes grad) { store_part(row(p.grad_mapped, b, begin + t) + j, grad, lanes); });
        }
        store_states(carry, p.grad_x0);
    }
};

int mamba_mixer(const MambaMixer& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const MambaWeights w(p, false);
    in_parallel(p.batch, p.threads, [&](int64_t b) { MambaRow(w, b).forth(); });
    return DONE;
}

// The gradients of all weights must be zeros.
int mamba_mixer_back(const MambaMixer& p) {
    if (p.taps > MOST_TAPS) return NO_SUCH_CHOICE;
    const MambaWeights w(p, true);
    with_sums(p.batch, p.threads, MambaSums::size(w), [&](int64_t b, float* sums) { MambaRowBack(w, b, sums).run(); },
              [&](float* sums) { MambaSums(w, sums).add(w); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(mamba_mixer, MambaMixer)
ENTRY(mamba_mixer_back, MambaMixer)
