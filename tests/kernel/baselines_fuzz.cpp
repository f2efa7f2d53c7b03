// baselines_fuzz [COUNT [SEED [INDEX]]]: runs the kernels of the baselines on COUNT random cases, or only on case INDEX.
// LATCHWORK_ISA in the environment chooses the instruction set.
#include "gradient_cases.h"

namespace {

// The sum of a causal convolution of u (B, T, row), of its first D channels: (B, T, D).
Numbers convolve(const Numbers& u, int64_t row, const Numbers& before, const Numbers& weight, const Numbers& bias, int64_t B,
                 int64_t T, int64_t D, int64_t K) {
    Numbers y(B * T * D);
    for (int64_t i = 0; i < B * T * D; ++i) {
        const int64_t d = i % D, t = i / D % T, b = i / D / T;
        y[i] = bias[d];
        for (int64_t k = 0, at = t - K + 1; k < K; ++k, ++at)
            y[i] += weight[d * K + k] * (at < 0 ? before[(b * (K - 1) + at + K - 1) * D + d] : u[(b * T + at) * row + d]);
    }
    return y;
}

void try_mamba_mixer(Random& random, const char* number) {
    const Sizes s(random, 60);
    const int64_t B = s.B, T = s.T, D = s.D, N = random.percent(50) ? 16 : 1 + random.below(9), R = 1 + random.below(9), M = R + 2 * N;
    const int64_t K = 2 + random.below(7);
    s.say("mamba_mixer", number, N);
    Case c(random);
    MambaMixer p{};
    p.batch = B, p.time = T, p.width = D, p.states = N, p.rank = R, p.taps = K;
    c.put(p.mapped, p.grad_mapped, B, T, 2 * D);
    p.before = c.input(B * (K - 1) * D), p.grad_before = c.grad();
    c.put(p.conv, p.grad_conv, D * K, 0.5), c.put(p.conv_bias, p.grad_conv_bias, D);
    c.put(p.x_proj, p.grad_x_proj, M * D, 1 / std::sqrt(double(D))), c.put(p.dt_proj, p.grad_dt_proj, D * R, 0.5);
    c.put(p.dt_bias, p.grad_dt_bias, D), c.put(p.decay, p.grad_decay, N * D, 1, -1.1), c.put(p.skip, p.grad_skip, D);
    p.x0 = c.input(B * N * D), p.grad_x0 = c.grad();
    c.output(B * T * D);
    Block x(B * N * D), kept(B * ((T + 7) / 8) * N * ((D + 15) / 16 * 16));
    p.y = rows(c.y.data(), T, D), p.x = x.data(), p.kept = kept.data();
    c.check(p, latchwork_mamba_mixer, latchwork_mamba_mixer_back, p.grad_y, rows(c.grad_y.data(), T, D),
            [&](const Given& in) {
                Numbers state = in[9], y(B * T * D), u = convolve(in[0], 2 * D, in[1], in[2], in[3], B, T, D, K);
                for (double& each : u) each = silu(each);
                for (int64_t r = 0; r < B * T; ++r) {
                    Numbers mixed(M);
                    for (int64_t i = 0; i < M * D; ++i) mixed[i / D] += in[4][i] * u[r * D + i % D];
                    for (int64_t d = 0; d < D; ++d) {
                        double dt = in[6][d], total = in[8][d] * u[r * D + d];
                        for (int64_t i = 0; i < R; ++i) dt += in[5][d * R + i] * mixed[i];
                        dt = std::log1p(std::exp(dt));
                        for (int64_t n = 0; n < N; ++n) {
                            double& x = state[(r / T * N + n) * D + d];
                            x = std::exp(dt * in[7][n * D + d]) * x + mixed[R + n] * dt * u[r * D + d];
                            total += mixed[R + N + n] * x;
                        }
                        y[r * D + d] = total * silu(in[0][r * 2 * D + D + d]);
                    }
                }
                return y;
            });
}

// Not in a check of its own type: the rows lie one after another.
void try_linear(Random& random, const char* number) {
    const Sizes s(random, 120);
    // some rows more than a block of 96, and few outputs: what is written behind the block must stay within y
    const bool tail = random.percent(20);
    const int64_t R = tail ? 97 + random.below(4) : s.B * s.T, heads = 1 + random.below(tail ? 1 : 3), D = s.D * heads;
    const int64_t plain = random.percent(40);
    const int64_t blocks = plain ? heads : 1, K = D / blocks;
    const bool weighs = plain || random.percent(70);
    const int64_t N = weighs ? 1 + random.below(tail ? 10 : 70) : K;
    s.say(plain ? "linear" : weighs ? "dressed linear" : "dressed", number, N);
    Case c(random);
    LinearMap p{};
    p.rows = R, p.inputs = K, p.outputs = N, p.blocks = blocks, p.heads = heads, p.epsilon = 0.1;
    p.centred = random.below(2), p.activation = random.below(3), p.drops_before = random.below(2);
    p.dropout = !plain && random.percent(20) ? 0.3 : 0, p.seed = 5;
    const auto flat = [](float* data, int64_t width) { return Rows{data, width, 1}; };
    p.x = flat(c.input(R * D), D), p.grad_x = flat(c.grad(), D);
    const auto maybe = [&](bool there, int64_t size, auto set) {
        float* data = c.input(there ? size : 0);
        if (there) set(data, c.grad());
    };
    const bool norms = !plain && random.percent(60), skips = !plain && random.percent(40);
    const bool gates = !plain && (random.percent(60) || !(norms || skips));
    maybe(norms, D, [&](float* a, float* g) { p.norm = a, p.grad_norm = g; });
    maybe(skips, D, [&](float* a, float* g) { p.skip = a, p.grad_skip = g; });
    maybe(skips, R * D, [&](float* a, float* g) { p.mixed = flat(a, D), p.grad_mixed = flat(g, D); });
    maybe(gates, R * D, [&](float* a, float* g) { p.gate = flat(a, D), p.grad_gate = flat(g, D); });
    maybe(weighs, blocks * N * K, [&](float* a, float* g) { p.weight = a, p.grad_weight = g; });
    maybe(weighs && random.percent(50), blocks * N, [&](float* a, float* g) { p.bias = a, p.grad_bias = g; });
    Block residual = c.draw(R * blocks * N);
    if (random.percent(50)) p.residual = flat(residual.data(), blocks * N);
    c.output(R * blocks * N), p.y = c.y.data();
    const auto definition = [&](const Given& in) {
        Numbers y(R * blocks * N);
        for (int64_t r = 0; r < R; ++r) {
            Numbers z(in[0].begin() + r * D, in[0].begin() + (r + 1) * D);
            for (int64_t h = 0, d = D / heads; h < heads && norms; ++h) {
                double mean = 0, square = 0;
                for (int64_t j = h * d; j < (h + 1) * d && p.centred; ++j) mean += z[j] / double(d);
                for (int64_t j = h * d; j < (h + 1) * d; ++j) square += (z[j] - mean) * (z[j] - mean) / double(d);
                for (int64_t j = h * d; j < (h + 1) * d; ++j) z[j] = in[1][j] * (z[j] - mean) / std::sqrt(square + 0.1);
            }
            for (int64_t j = 0; j < D && skips; ++j) z[j] += in[2][j] * in[3][r * D + j];
            for (int64_t j = 0; j < D && gates; ++j) {
                const double a = in[4][r * D + j];
                z[j] *= p.activation == SIGMOID ? sigmoid(a) : p.activation == SILU ? silu(a) : a * std::erfc(-a / std::sqrt(2.0)) / 2;
            }
            for (int64_t i = 0; i < blocks * N; ++i) {
                double& to = y[r * blocks * N + i];
                to = weighs ? (p.bias ? in[6][i] : 0) : z[i];
                for (int64_t k = 0; k < K && weighs; ++k) to += in[5][i * K + k] * z[i / N * K + k];
                if (p.residual.data) to += residual[r * blocks * N + i];
            }
        }
        return y;
    };
    c.check(p, latchwork_linear, latchwork_linear, p.grad_y, flat(c.grad_y.data(), blocks * N), definition,
            p.dropout == 0);
}

void try_feedforward(Random& random, const char* number) {
    const Sizes s(random, 120);
    const int64_t R = s.B * s.T, D = s.D, H = 1 + random.below(40);
    s.say("feedforward", number, H);
    Case c(random);
    FeedForward p{};
    LinearMap &up = p.up, &down = p.down;
    const auto flat = [](float* data, int64_t width) { return Rows{data, width, 1}; };
    up.rows = down.rows = R, up.blocks = down.blocks = up.heads = down.heads = 1, up.epsilon = 0.1;
    up.inputs = down.outputs = D, up.outputs = 2 * H, down.inputs = H, up.centred = random.below(2), down.activation = SILU;
    up.x = down.residual = flat(c.input(R * D), D), up.grad_x = flat(c.grad(), D);
    c.put(up.norm, up.grad_norm, D);
    c.put(up.weight, up.grad_weight, 2 * H * D, 0.3), c.put(up.bias, up.grad_bias, 2 * H);
    c.put(down.weight, down.grad_weight, D * H, 0.3), c.put(down.bias, down.grad_bias, D);
    c.output(R * D);
    Block both(R * 2 * H);
    up.y = both.data(), down.y = c.y.data();
    down.gate = flat(both.data(), 2 * H), down.x = flat(both.data() + H, 2 * H);
    const auto back = [](const FeedForward* given) {
        FeedForward with = *given;
        with.up.added = with.down.grad_y;
        return latchwork_feedforward(&with);
    };
    c.check(p, latchwork_feedforward, +back, down.grad_y, flat(c.grad_y.data(), D), [&](const Given& in) {
        Numbers y = in[0];
        for (int64_t r = 0; r < R; ++r) {
            Numbers z(in[0].begin() + r * D, in[0].begin() + (r + 1) * D), middle = in[3];
            double mean = 0, square = 0;
            for (int64_t j = 0; j < D && up.centred; ++j) mean += z[j] / double(D);
            for (int64_t j = 0; j < D; ++j) square += (z[j] - mean) * (z[j] - mean) / double(D);
            for (int64_t i = 0; i < 2 * H * D; ++i)
                middle[i / D] += in[2][i] * in[1][i % D] * (z[i % D] - mean) / std::sqrt(square + 0.1);
            for (int64_t j = 0; j < D; ++j) {
                y[r * D + j] += in[5][j];
                for (int64_t i = 0; i < H; ++i) y[r * D + j] += in[4][j * H + i] * silu(middle[i]) * middle[H + i];
            }
        }
        return y;
    });
}

void try_gru(Random& random, const char* number) {
    const Sizes s(random, 30);
    const int64_t B = s.B, T = s.T, D = s.D;
    s.say("gru", number);
    Case c(random);
    Gru p{};
    p.batch = B, p.time = T, p.width = D;
    c.put(p.drive, p.grad_drive, B, T, 3 * D);
    p.h0 = c.input(B * D), p.grad_h0 = c.grad();
    Block weight = c.draw(3 * D * D, 1 / std::sqrt(double(D))), bias = c.draw(3 * D);
    Block tape(B * T * 4 * D), hidden(B * T * 3 * D);
    p.weight = weight.data(), p.bias = bias.data();
    p.tape = rows(tape.data(), T, 4 * D), p.grad_hidden = rows(hidden.data(), T, 3 * D);
    c.output(B * T * D), p.y = rows(c.y.data(), T, D);
    c.check(p, latchwork_gru, latchwork_gru_back, p.grad_y, rows(c.grad_y.data(), T, D), [&](const Given& in) {
        Numbers y(B * T * D);
        for (int64_t b = 0; b < B; ++b)
            for (int64_t t = 0; t < T; ++t) {
                const double* h = t ? &y[(b * T + t - 1) * D] : &in[1][b * D];
                for (int64_t j = 0; j < D; ++j) {
                    double gate[3], drive[3];
                    for (int64_t g = 0; g < 3; ++g) {
                        gate[g] = bias[g * D + j], drive[g] = in[0][((b * T + t) * 3 + g) * D + j];
                        for (int64_t k = 0; k < D; ++k) gate[g] += weight[(g * D + j) * D + k] * h[k];
                    }
                    const double update = sigmoid(gate[1] + drive[1]);
                    const double fresh = std::tanh(drive[2] + sigmoid(gate[0] + drive[0]) * gate[2]);
                    y[(b * T + t) * D + j] = (1 - update) * fresh + update * h[j];
                }
            }
        return y;
    });
}

void try_attention(Random& random, const char* number) {
    const Sizes s(random, 120);
    const int64_t B = s.B, T = s.T, d = s.D, H = 1 + random.below(3), W = H * d;
    const int64_t N = T + random.below(2) * random.below(100), window = 1 + random.below(2 * N);
    s.say("attention", number, H);
    Case c(random);
    Attention p{};
    p.batch = B, p.time = T, p.keys = N, p.heads = H, p.width = d, p.window = window, p.scale = 0.7;
    c.put(p.q, p.grad_q, B, T, W), c.put(p.k, p.grad_k, B, N, W), c.put(p.v, p.grad_v, B, N, W);
    Block logs(B * H * T);
    p.logs = logs.data();
    c.output(B * T * W), p.y = rows(c.y.data(), T, W);
    c.check(p, latchwork_attention, latchwork_attention_back, p.grad_y, rows(c.grad_y.data(), T, W), [&](const Given& in) {
        Numbers y(B * T * W);
        for (int64_t i = 0; i < B * T * H; ++i) {  // one step of one head
            const int64_t b = i / H / T, t = i / H % T, j0 = i % H * d, q = (b * T + t) * W + j0, keys = b * N * W + j0;
            const int64_t last = N - T + t, first = last < window ? 0 : last - window + 1;
            double total = 0;
            Numbers weights(N);
            for (int64_t u = first; u <= last; ++u) {
                for (int64_t j = 0; j < d; ++j) weights[u] += 0.7 * in[0][q + j] * in[1][keys + u * W + j];
                total += weights[u] = std::exp(weights[u]);
            }
            for (int64_t u = first; u <= last; ++u)
                for (int64_t j = 0; j < d; ++j) y[q + j] += weights[u] / total * in[2][keys + u * W + j];
        }
        return y;
    });
}

void try_slstm(Random& random, const char* number) {
    const Sizes s(random, 30);
    const int64_t B = s.B, T = s.T, d = s.D, H = 1 + random.below(3), W = H * d;
    const int64_t K = random.percent(50) ? 4 : 2 + random.below(7);
    s.say("slstm", number, K);
    Case c(random);
    Slstm p{};
    p.batch = B, p.time = T, p.heads = H, p.width = d, p.taps = K;
    c.put(p.mapped, p.grad_mapped, B, T, W);
    p.before = c.input(B * (K - 1) * W), p.grad_before = c.grad();
    p.y0 = c.input(B * W), p.grad_y0 = c.grad();
    p.c0 = c.input(B * W), p.grad_c0 = c.grad();
    p.n0 = c.input(B * W, 1, 1.5), p.grad_n0 = c.grad();
    c.put(p.conv, p.grad_conv, W * K), c.put(p.conv_bias, p.grad_conv_bias, W);
    c.put(p.maps, p.grad_maps, 4 * W * d, 1 / std::sqrt(double(d))), c.put(p.bias, p.grad_bias, 4 * W);
    c.put(p.recurrent, p.grad_recurrent, 4 * W * d, 1 / std::sqrt(double(d)));
    Block m0 = c.draw(B * W);
    Block last[3] = {Block(B * W), Block(B * W), Block(B * W)}, tape(B * T * 6 * W);
    p.m0 = m0.data(), p.tape = rows(tape.data(), T, 6 * W);
    p.c = last[0].data(), p.n = last[1].data(), p.m = last[2].data();
    c.output(B * T * W), p.y = rows(c.y.data(), T, W);
    c.check(p, latchwork_slstm, latchwork_slstm_back, p.grad_y, rows(c.grad_y.data(), T, W), [&](const Given& in) {
        Numbers y(B * T * W), cell(B * W), sum(B * W), convolved = convolve(in[0], W, in[1], in[5], in[6], B, T, W, K);
        for (double& each : convolved) each = silu(each);
        for (int64_t i = 0; i < B * W; ++i) cell[i] = in[3][i] * std::exp(m0[i]), sum[i] = in[4][i] * std::exp(m0[i]);
        for (int64_t t = 0; t < T; ++t)
            for (int64_t b = 0; b < B; ++b)
                for (int64_t i = 0; i < W; ++i) {
                    const int64_t h = i / d, j = i % d, state = (h * B + b) * d;
                    double gate[4];
                    for (int64_t g = 0; g < 4; ++g) {
                        gate[g] = in[8][(h * 4 + g) * d + j];
                        for (int64_t k = 0; k < d; ++k) {
                            const int64_t at = ((h * d + k) * 4 + g) * d + j;
                            const double before = t ? y[(b * T + t - 1) * W + h * d + k] : in[2][state + k];
                            const double input = (g < 2 ? convolved : in[0])[(b * T + t) * W + h * d + k];
                            gate[g] += in[7][at] * input + in[9][at] * before;
                        }
                    }
                    double &c = cell[state + j], &n = sum[state + j];
                    c = sigmoid(gate[1]) * c + std::exp(gate[0]) * std::tanh(gate[2]);
                    n = sigmoid(gate[1]) * n + std::exp(gate[0]);
                    y[(b * T + t) * W + i] = sigmoid(gate[3]) * c / n;
                }
        return y;
    });
}

// y (B, T, H V) of q, k times its scale, v, i, f and the state before. `uncertain`: its slope jumps nearby.
Numbers mlstm_definition(const Given& in, const Numbers& c0, const Numbers& n0, const Block& m0, int64_t B, int64_t T, int64_t H,
                         int64_t K, int64_t V, bool& uncertain) {
    Numbers y(B * T * H * V), c = c0, n = n0;
    for (int64_t i = 0; i < B * H; ++i) {
        for (int64_t j = 0; j < K * V; ++j) c[i * K * V + j] *= std::exp(m0[i]);
        for (int64_t j = 0; j < K; ++j) n[i * K + j] *= std::exp(m0[i]);
        for (int64_t t = 0, b = i / H, h = i % H; t < T; ++t) {
            const int64_t at = (b * T + t) * H + h;
            const double keep = sigmoid(in[4][at]), write = std::exp(in[3][at]);
            Numbers read(V);
            double total = 0;
            for (int64_t k = 0; k < K; ++k) {
                const double key = write * in[1][at * K + k], q = in[0][at * K + k];
                total += q * (n[i * K + k] = keep * n[i * K + k] + key);
                for (int64_t v = 0; v < V; ++v) {
                    double& x = c[(i * K + k) * V + v];
                    read[v] += q * (x = keep * x + key * in[2][at * V + v]);
                }
            }
            uncertain |= std::fabs(std::fabs(total) - 1) < 1e-3;
            for (int64_t v = 0; v < V; ++v) y[at * V + v] = read[v] / std::max(std::fabs(total), 1.0);
        }
    }
    return y;
}

struct MlstmState {  // where the last state and the tape go
    Block m0, c, n, m, tape;
    template <class Structure>
    MlstmState(Case& case_, Structure& p, int64_t K, int64_t V, double scale)
        : m0(case_.draw(p.batch * p.heads)), c(m0.size() * K * V), n(m0.size() * K), m(m0.size()),
          tape((p.time + 23) / 24 * m0.size() * (K * (V + 1) + 1)) {
        p.scale = scale, p.m0 = m0.data(), p.c = c.data(), p.n = n.data(), p.m = m.data(), p.tape = tape.data();
        p.c0 = case_.input(c.size()), p.grad_c0 = case_.grad(), p.n0 = case_.input(n.size()), p.grad_n0 = case_.grad();
    }
};

void try_mlstm(Random& random, const char* number) {
    const Sizes s(random, 60);
    const int64_t B = s.B, T = s.T, K = s.D, H = 1 + random.below(3), V = 1 + random.below(40);
    s.say("mlstm", number, V);
    Case c(random);
    Mlstm p{};
    p.batch = B, p.time = T, p.heads = H, p.keys = K, p.values = V;
    c.put(p.q, p.grad_q, B, T, H * K), c.put(p.k, p.grad_k, B, T, H * K), c.put(p.v, p.grad_v, B, T, H * V);
    c.put(p.i, p.grad_i, B, T, H), c.put(p.f, p.grad_f, B, T, H, 2);
    const MlstmState state(c, p, K, V, 0.5);
    c.output(B * T * H * V), p.y = rows(c.y.data(), T, H * V);
    c.check(p, latchwork_mlstm, latchwork_mlstm_back, p.grad_y, rows(c.grad_y.data(), T, H * V), [&](Given in) {
        for (double& each : in[1]) each *= 0.5;
        return mlstm_definition(in, in[5], in[6], state.m0, B, T, H, K, V, c.uncertain);
    });
}

void try_mlstm_mixer(Random& random, const char* number) {
    const Sizes s(random, 60);
    const int64_t B = s.B, T = s.T, d = 4 * (1 + s.D / 4), H = 1 + random.below(3), W = H * d, taps = 2 + random.below(7);
    s.say("mlstm_mixer", number, taps);
    Case c(random);
    MlstmMixer p{};
    p.batch = B, p.time = T, p.heads = H, p.width = d, p.taps = taps, p.norm_epsilon = 0.1;
    c.put(p.mapped, p.grad_mapped, B, T, 2 * W);
    p.before = c.input(B * (taps - 1) * W), p.grad_before = c.grad();
    c.put(p.conv, p.grad_conv, W * taps, 0.5), c.put(p.conv_bias, p.grad_conv_bias, W);
    c.put(p.of_q, p.grad_of_q, 4 * W, 0.5), c.put(p.of_k, p.grad_of_k, 4 * W, 0.5), c.put(p.of_v, p.grad_of_v, 4 * W);
    c.put(p.gates, p.grad_gates, 4 * H * W, 0.1), c.put(p.gate_bias, p.grad_gate_bias, 2 * H);
    c.put(p.norm, p.grad_norm, W), c.put(p.skip, p.grad_skip, W);
    const MlstmState state(c, p, d, d, 0.5);
    c.output(B * T * W), p.y = rows(c.y.data(), T, W);
    const auto definition = [&](const Given& in) {
        Given parts{Numbers(B * T * W), Numbers(B * T * W), Numbers(B * T * W), Numbers(B * T * H), Numbers(B * T * H)};
        Numbers mixed = convolve(in[0], 2 * W, in[1], in[2], in[3], B, T, W, taps);
        for (double& each : mixed) each = silu(each);
        for (int64_t r = 0; r < B * T; ++r) {
            const double* input = &in[0][r * 2 * W];
            const int64_t at = r * W;
            for (int64_t j = 0; j < W; ++j)
                for (int64_t i = 0; i < 4; ++i) {
                    const int64_t from = j / 4 * 4 + i;
                    parts[0][at + j] += in[4][j * 4 + i] * mixed[at + from];
                    parts[1][at + j] += 0.5 * in[5][j * 4 + i] * mixed[at + from];
                    parts[2][at + j] += in[6][j * 4 + i] * input[from];
                }
            for (int64_t g = 0; g < 2 * H; ++g) {
                double& to = parts[g < H ? 3 : 4][r * H + g % H] = in[8][g];
                for (int64_t j = 0; j < W; ++j)
                    to += in[7][g * 2 * W + j] * mixed[at + j] + in[7][g * 2 * W + W + j] * input[j];
            }
        }
        Numbers y = mlstm_definition(parts, in[11], in[12], state.m0, B, T, H, d, d, c.uncertain);
        for (int64_t r = 0; r < B * T * H; ++r) {
            double mean = 0, square = 0;
            for (int64_t j = 0; j < d; ++j) mean += y[r * d + j] / double(d);
            for (int64_t j = 0; j < d; ++j) square += (y[r * d + j] - mean) * (y[r * d + j] - mean) / double(d);
            for (int64_t j = 0; j < d; ++j) {
                const int64_t column = r % H * d + j;
                const double hat = (y[r * d + j] - mean) / std::sqrt(square + 0.1);
                y[r * d + j] = (hat * in[9][column] + in[10][column] * mixed[r * d + j]) * silu(in[0][r / H * 2 * W + W + column]);
            }
        }
        return y;
    };
    c.check(p, latchwork_mlstm_mixer, latchwork_mlstm_mixer_back, p.grad_y, rows(c.grad_y.data(), T, W), definition);
}

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 2000, [](Random& random, int64_t index, int64_t seed) {
        char number[100];
        std::snprintf(number, sizeof number, "%ld of seed %ld, %s", long(index), long(seed), latchwork_isa());
        for (auto each : {try_mamba_mixer, try_linear, try_feedforward, try_gru, try_attention, try_slstm, try_mlstm, try_mlstm_mixer})
            each(random, number);
    });
}
