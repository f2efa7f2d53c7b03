// The mLSTM's layer between its two projections, a chunk of steps of one row of the batch at a time, so that what is between
// stays in the cache: convolution, q, k, v and gates, recurrence, norm, skip and gate. Compiled once for each instruction set.
#include <cmath>
#include <initializer_list>

#include "conv.h"
#include "mlstm.h"

namespace LATCHWORK_ISA {

template <int J>
LATCHWORK_INLINE Lanes quad(Lanes a) {  // each lane takes the J-th of its four
#if defined(__AVX512F__)
    return _mm512_maskz_permute_ps(0xffff, a, J * 0x55);
#elif defined(__AVX__)
    return _mm256_permute_ps(a, J * 0x55);
#else
    return Lanes{a[J], a[J], a[J], a[J]};
#endif
}
// A map of four numbers to four, w[j], lane l: what the j-th of its four gives it.
struct Quads {
    Lanes w[4];
    explicit Quads(const float* from) {
        for (int64_t j = 0; j < 4; ++j) w[j] = load(from + j * LANES);
    }
    LATCHWORK_INLINE Lanes operator()(Lanes a) const {
        return w[0] * quad<0>(a) + w[1] * quad<1>(a) + w[2] * quad<2>(a) + w[3] * quad<3>(a);
    }
};

// Weights as the loops want them. A head has `vectors` vectors; tables of it have d_row numbers.
struct Mixer {
    const MlstmMixer& p;
    const int64_t d, W, H, vectors, d_row, W_row, both_row, gate_row, table;
    const bool back;
    const ConvWeights conv;
    Scratch<float> memory;
    float *forth_quads[3], *back_quads[3], *norm, *skip, *gates, *gate_bias;
    static int64_t size(const Mixer& x) {
        return 6 * x.H * x.table + 2 * x.H * x.d_row + 2 * x.W * padded(2 * x.H) +
               2 * x.H * x.both_row + x.gate_row + 16 * 13;
    }
    Mixer(const MlstmMixer& p, bool back)
        : p(p), d(p.width), W(p.heads * d), H(p.heads), vectors((d + LANES - 1) / LANES), d_row(vectors * LANES),
          W_row(round_up(W, LANES)), both_row(padded(2 * W)), gate_row(padded(2 * H)), table(4 * d_row), back(back),
          conv(p.conv, p.conv_bias, W, p.taps), memory(size(*this)) {
        std::memset(memory.data, 0, size(*this) * sizeof(float));
        Arena arena{memory.data};
        const float* weights[] = {p.of_q, p.of_k, p.of_v};
        for (int64_t map = 0; map < 3; ++map) {
            forth_quads[map] = arena.take(H * table), back_quads[map] = arena.take(H * table);
            const float scale = map == 1 ? static_cast<float>(p.scale) : 1.0f;
            for (int64_t at = 0; at < W; ++at)
                for (int64_t j = 0; j < 4; ++j) {
                    const float* four = weights[map] + at / 4 * 16;
                    forth_quads[map][place(at, j)] = scale * four[at % 4 * 4 + j];
                    back_quads[map][place(at, j)] = scale * four[j * 4 + at % 4];
                }
        }
        norm = arena.take(H * d_row), skip = arena.take(H * d_row);
        for (int64_t head = 0; head < H; ++head) {
            std::memcpy(norm + head * d_row, p.norm + head * d, d * sizeof(float));
            std::memcpy(skip + head * d_row, p.skip + head * d, d * sizeof(float));
        }
        gates = arena.take(2 * W * padded(2 * H)), gate_bias = arena.take(gate_row);
        pack(p.gates, 2 * W, 2 * H, 1, 2 * W, gates);
        std::memcpy(gate_bias, p.gate_bias, 2 * H * sizeof(float));
        back_gates = arena.take(packed_size(2 * H, 2 * W));
        pack(p.gates, 2 * H, 2 * W, 2 * W, 1, back_gates);
    }
    float* back_gates;
    // Where in a table of quads what the j-th of its four gives column `at` of all heads stands.
    int64_t place(int64_t at, int64_t j) const {
        const int64_t here = at % d;
        return at / d * table + here / LANES * 4 * LANES + j * LANES + here % LANES;
    }
    // A thread's sums, in the order of `add`.
    int64_t sums() const {
        return conv.size() + 3 * H * table + 2 * H * d_row + tiles(2 * H) * both_row + gate_row + 16 * 8;
    }
};

struct MixerSums {
    float *conv, *quads[3], *norm, *skip, *gates, *gate_bias;
    MixerSums(const Mixer& x, float* data) {
        Arena arena{data};
        conv = arena.take(x.conv.size());
        for (float*& each : quads) each = arena.take(x.H * x.table);
        norm = arena.take(x.H * x.d_row), skip = arena.take(x.H * x.d_row);
        gates = arena.take(tiles(2 * x.H) * x.both_row), gate_bias = arena.take(x.gate_row);
    }
    void add(const Mixer& x) const {
        const MlstmMixer& p = x.p;
        float* to[] = {p.grad_of_q, p.grad_of_k, p.grad_of_v};
        x.conv.add(conv, p.grad_conv, p.grad_conv_bias);
        for (int64_t at = 0; at < x.W; ++at) {
            for (int64_t map = 0; map < 3; ++map)
                for (int64_t j = 0; j < 4; ++j)
                    to[map][at * 4 + j] += (map == 1 ? static_cast<float>(p.scale) : 1.0f) * quads[map][x.place(at, j)];
            p.grad_norm[at] += norm[at / x.d * x.d_row + at % x.d];
            p.grad_skip[at] += skip[at / x.d * x.d_row + at % x.d];
        }
        for (int64_t g = 0; g < 2 * x.H; ++g) add_to(gates + g * x.both_row, 2 * x.W, p.grad_gates + g * 2 * x.W);
        add_to(gate_bias, 2 * x.H, p.grad_gate_bias);
    }
};

// The buffers of one row of the batch. both: (CHUNK, both_row), what the convolution gives and its input side by side.
struct MixerRow {
    const Mixer& x;
    const MlstmMixer& p;
    const int64_t b, chunks, size;
    const ConvRow conv;
    MlstmChunk c;
    Scratch<float> memory;
    float *both, *slopes, *gates, *states, *room;
    MixerRow(const Mixer& x, int64_t b)
        : x(x), p(x.p), b(b), chunks(chunks_of(p.time)), size(line(state_size(x.d, x.d))),
          conv{x.conv, p.mapped, p.before + b * (p.taps - 1) * x.W, b}, c(x.d, x.d, p.epsilon),
          memory(CHUNK * (x.both_row + x.W_row + x.gate_row + c.k_row) + x.H * size) {
        std::memset(memory.data, 0, CHUNK * x.both_row * sizeof(float));
        both = memory.data, slopes = both + CHUNK * x.both_row, gates = slopes + CHUNK * x.W_row;
        room = gates + CHUNK * x.gate_row, states = room + CHUNK * c.k_row;
    }
    float* tape(int64_t head, int64_t chunk) const {
        return p.tape + ((b * x.H + head) * chunks + chunk) * state_size(x.d, x.d);
    }
    int64_t steps_from(int64_t begin) const { return p.time - begin < CHUNK ? p.time - begin : CHUNK; }
    // The convolution, with the slope of silu for the way back; and the gates.
    void load_steps(int64_t begin) {
        const int64_t steps = steps_from(begin);
        conv.forth(begin, steps, [&](int64_t t, int64_t j, int64_t lanes, Lanes input, Lanes y) {
            const Lanes opened = sigmoid(y);
            store_part(both + t * x.both_row + j, y * opened, lanes);
            store_part(both + t * x.both_row + x.W + j, input, lanes);
            if (x.back) store(slopes + t * x.W_row + j, opened * (1.0f + y * (1.0f - opened)));
        });
        for (int64_t t = steps; t < CHUNK; ++t) std::memset(both + t * x.both_row, 0, x.both_row * sizeof(float));
        multiply(both, x.both_row, x.gates, CHUNK, 2 * x.W, 2 * x.H, x.gate_bias, gates, x.gate_row);
    }
    void load_head(int64_t head, int64_t steps) {
        c.start(steps);
        for (int64_t j = 0; j < x.d; j += LANES) {
            const int64_t table = head * x.table + 4 * j, at = head * x.d + j, lanes = x.d - j;
            const Quads of_q(x.forth_quads[0] + table), of_k(x.forth_quads[1] + table), of_v(x.forth_quads[2] + table);
            for (int64_t t = 0; t < steps; ++t) {
                const float* from = both + t * x.both_row + at;
                const Lanes mixed = load_part(from, lanes);
                store(c.q + t * c.k_row + j, of_q(mixed)), store(c.k + t * c.k_row + j, of_k(mixed));
                store(c.values + t * c.v_row + j, of_v(load_part(from + x.W, lanes)));
            }
        }
        for (int64_t t = 0; t < steps; ++t)
            c.gate[t] = gates[t * x.gate_row + head], c.forget[t] = gates[t * x.gate_row + x.H + head];
    }
    // The normalised y of a step that was read, into hat (d_row); returns by what it was divided.
    float normalise(int64_t t, float* hat) const {
        const float* y = c.y + t * c.v_row;
        const float d = static_cast<float>(x.d), share = c.share[t];
        Lanes total{}, squares{};
        for (int64_t j = 0; j < x.d; j += LANES) total += load(y + j);
        const float mean = share * sum(total) / d;
        for (int64_t j = 0; j < x.d; j += LANES) {
            const Lanes centred = first_of(share * load(y + j) - mean, x.d - j);
            store(hat + j, centred);
            squares += centred * centred;
        }
        const float scale = 1.0f / std::sqrt(sum(squares) / d + static_cast<float>(p.norm_epsilon));
        scale_by(scale, x.d_row, hat);
        return scale;
    }
    void forth() {
        Scratch<float> hat(x.d_row);
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            const int64_t begin = chunk * CHUNK, steps = steps_from(begin);
            load_steps(begin);
            for (int64_t head = 0; head < x.H; ++head) {
                const int64_t place = b * x.H + head, at = head * x.d, table = head * x.d_row, quarter = CHUNK / 4;
                if (head < 4) ask_for(p.mapped, b, begin + CHUNK + head * quarter, quarter, p.time, 2 * x.W);
                if (head < 4) ask_for(p.y, b, begin + CHUNK + head * quarter, quarter, p.time, x.W);
                if (chunk)
                    c.load_state(p.tape ? tape(head, chunk) : states + head * size);
                else
                    c.load_state(p.c0 + place * x.d * x.d, p.n0 + place * x.d, p.m0[place]);
                if (p.tape && !chunk) c.store_state(tape(head, chunk));
                load_head(head, steps);
                const float m = c.read();
                for (int64_t t = 0; t < steps; ++t) {
                    normalise(t, hat.data);
                    const float *mixed = both + t * x.both_row + at, *gate = row(p.mapped, b, begin + t) + x.W + at;
                    each_part(x.d, row(p.y, b, begin + t) + at, [&](int64_t j, int64_t lanes) {
                        const Lanes a = load_part(gate + j, lanes), skipped = load(x.skip + table + j) * load_part(mixed + j, lanes);
                        return (load(hat.data + j) * load(x.norm + table + j) + skipped) * a * sigmoid(a);
                    });
                }
                c.move_on(room, m);
                if (chunk + 1 == chunks)
                    c.store_state(p.c + place * x.d * x.d, p.n + place * x.d, p.m + place);
                else
                    c.store_state(p.tape ? tape(head, chunk + 1) : states + head * size);
            }
        }
    }
};

struct MixerRowBack : MixerRow {
    MixerSums sums;
    MlstmChunkBack back;
    Scratch<float> more;
    float *own, *through, *grad_gates, *carries, *later, *hat;  // own, through: of both, by the heads, by the gates
    MixerRowBack(const Mixer& x, int64_t b, float* sums)
        : MixerRow(x, b), sums(x, sums), back(c),
          more(CHUNK * (2 * x.both_row + x.gate_row) + x.H * size + MOST_TAPS * x.W_row + x.d_row) {
        own = more.data, through = own + CHUNK * x.both_row, grad_gates = through + CHUNK * x.both_row;
        carries = grad_gates + CHUNK * x.gate_row, later = carries + x.H * size, hat = later + MOST_TAPS * x.W_row;
        std::memset(later, 0, MOST_TAPS * x.W_row * sizeof(float));
    }
    // From the gradient of a step of a head's output to that of its y; what skip and gate take is written.
    void undress(int64_t t, int64_t begin, int64_t head) {
        const int64_t at = head * x.d, table = head * x.d_row;
        const float scale = normalise(t, hat), d = static_cast<float>(x.d);
        const float *mixed = both + t * x.both_row + at, *gate = row(p.mapped, b, begin + t) + x.W + at;
        const float* from = row(p.grad_y, b, begin + t) + at;
        float *grad = back.grad + t * c.v_row, *to_gate = row(p.grad_mapped, b, begin + t) + x.W + at;
        float *of_norm = sums.norm + table, *of_skip = sums.skip + table;
        Lanes total{}, along{};
        for (int64_t j = 0; j < x.d; j += LANES) {
            const int64_t lanes = x.d - j;
            const Lanes a = load_part(gate + j, lanes), opened = sigmoid(a), m = load_part(mixed + j, lanes);
            const Lanes h = load(hat + j), w = load(x.norm + table + j), skip = load(x.skip + table + j);
            Lanes g = load_part(from + j, lanes);
            store_part(to_gate + j, g * (h * w + skip * m) * opened * (1.0f + a * (1.0f - opened)), lanes);
            g *= a * opened;
            store_part(own + t * x.both_row + at + j, g * skip, lanes);
            store(of_skip + j, load(of_skip + j) + g * m), store(of_norm + j, load(of_norm + j) + g * h);
            g *= w;
            store(grad + j, g);
            total += g, along += g * h;
        }
        const float mean = sum(total) / d, slope = sum(along) / d;
        for (int64_t j = 0; j < x.d; j += LANES)
            store(grad + j, first_of(load(grad + j) - mean - load(hat + j) * slope, x.d - j) * scale);
    }
    // The gradients of q, k and v to those of what they were made of, and of the maps.
    void unmap(int64_t head, int64_t steps) {
        for (int64_t j = 0; j < x.d; j += LANES) {
            const int64_t table = head * x.table + 4 * j, at = head * x.d + j, lanes = x.d - j;
            const float* grads[] = {back.grad_q + j, back.grad_k + j, back.grad_values + j};
            const int64_t apart[] = {c.k_row, c.k_row, c.v_row};
            for (int64_t map = 0; map < 3; ++map) {
                const Quads transposed(x.back_quads[map] + table);
                float* to = sums.quads[map] + table;
                Quads of_map(to);
                for (int64_t t = 0; t < steps; ++t) {
                    const int64_t here = t * x.both_row + at + (map == 2 ? x.W : 0);
                    const Lanes g = load(grads[map] + t * apart[map]), u = load_part(both + here, lanes);
                    const Lanes given = transposed(g);
                    store_part(own + here, map == 2 ? given : given + load_part(own + here, lanes), lanes);
                    of_map.w[0] += g * quad<0>(u), of_map.w[1] += g * quad<1>(u);
                    of_map.w[2] += g * quad<2>(u), of_map.w[3] += g * quad<3>(u);
                }
                for (int64_t i = 0; i < 4; ++i) store(to + i * LANES, of_map.w[i]);
            }
        }
    }
    // Back through the convolution, and all of the input's gradient.
    void unconvolve(int64_t begin, int64_t steps) {
        const auto both_parts = [&](int64_t here, int64_t lanes) { return load_part(own + here, lanes) + load_part(through + here, lanes); };
        conv.back(
            begin, steps, later, sums.conv, p.grad_before + b * (p.taps - 1) * x.W,
            [&](int64_t t, int64_t j, int64_t lanes) { return both_parts(t * x.both_row + j, lanes) * load(slopes + t * x.W_row + j); },
            [&](int64_t t, int64_t j, int64_t lanes, Lanes grad) {
                store_part(row(p.grad_mapped, b, begin + t) + j, grad + both_parts(t * x.both_row + x.W + j, lanes), lanes);
            });
    }
    void run() {
        for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
            const int64_t begin = chunk * CHUNK, steps = steps_from(begin);
            load_steps(begin);
            std::memset(grad_gates, 0, CHUNK * x.gate_row * sizeof(float));
            for (int64_t head = 0; head < x.H; ++head) {
                const int64_t place = b * x.H + head, square = x.d * x.d;
                const int64_t quarter = CHUNK / 4, next = begin - CHUNK + head * quarter;
                float *carry = carries + head * size, *carry_n = carry + square;
                for (const Rows* rows : {&p.mapped, &p.grad_mapped})
                    if (head < 4) ask_for(*rows, b, next, quarter, p.time, 2 * x.W);
                if (head < 4) ask_for(p.grad_y, b, next, quarter, p.time, x.W);
                if (chunk + 1 < chunks)
                    back.load_carry(carry, carry_n);
                else
                    back.load_carry(p.grad_c ? p.grad_c + place * square : nullptr, p.grad_n ? p.grad_n + place * x.d : nullptr);
                load_head(head, steps);
                c.load_state(tape(head, chunk));
                c.read();
                for (int64_t t = 0; t < steps; ++t) undress(t, begin, head);
                back.run();
                unmap(head, steps);
                for (int64_t t = 0; t < steps; ++t) {
                    grad_gates[t * x.gate_row + head] = back.grad_gate[t];
                    grad_gates[t * x.gate_row + x.H + head] = back.grad_forget[t];
                }
                if (chunk)
                    back.store_carry(carry, carry_n);
                else
                    back.store_carry(p.grad_c0 + place * square, p.grad_n0 + place * x.d);
            }
            multiply(grad_gates, x.gate_row, x.back_gates, CHUNK, 2 * x.H, 2 * x.W, nullptr, through, x.both_row);
            accumulate(grad_gates, x.gate_row, both, x.both_row, steps, 2 * x.H, 2 * x.W, sums.gates, x.both_row);
            add_rows(grad_gates, x.gate_row, steps, x.gate_row, sums.gate_bias);
            unconvolve(begin, steps);
        }
    }
};

int mlstm_mixer(const MlstmMixer& p) {
    if (p.taps > MOST_TAPS || p.width % 4) return NO_SUCH_CHOICE;
    const Mixer x(p, false);
    in_parallel(p.batch, p.threads, [&](int64_t b) { MixerRow(x, b).forth(); });
    return DONE;
}

// The gradients of all weights must be zeros.
int mlstm_mixer_back(const MlstmMixer& p) {
    if (p.taps > MOST_TAPS || p.width % 4) return NO_SUCH_CHOICE;
    const Mixer x(p, true);
    with_sums(p.batch, p.threads, x.sums(), [&](int64_t b, float* sums) { MixerRowBack(x, b, sums).run(); },
              [&](float* sums) { MixerSums(x, sums).add(x); });
    return DONE;
}

}  // namespace LATCHWORK_ISA

ENTRY(mlstm_mixer, MlstmMixer)
ENTRY(mlstm_mixer_back, MlstmMixer)
