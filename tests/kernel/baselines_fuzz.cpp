// baselines_fuzz [COUNT [SEED [INDEX]]]: runs the kernels of the baselines on COUNT random cases, or only on case INDEX. What
// forward writes is compared with a definition in double, and all gradients at once with the slope of that definition along a
// random direction. LATCHWORK_ISA in the environment chooses the instruction set.
#include <cmath>
#include <functional>
#include <vector>

#include "cases.h"

namespace {

using Block = std::vector<float>;  // exactly of its size, so that the address sanitizer sees one element too far
using Numbers = std::vector<double>;
using Given = std::vector<Numbers>;

// Inputs that the kernel reads, gradients that it writes, and the definition of y. `uncertain`: some number stands so near to
// where the slope jumps that it is not to be compared.
struct Case {
    Random& random;
    std::vector<Block> in, grads;
    Block y, grad_y;
    bool uncertain = false;
    double worst = 0;
    explicit Case(Random& random) : random(random) { in.reserve(20), grads.reserve(20); }  // addresses stay
    Block draw(int64_t size, double scale = 1) {
        Block block(size);
        for (float& each : block) each = static_cast<float>((2 * random.uniform() - 1) * scale);
        return block;
    }
    // An input, and the place for its gradient.
    float* input(int64_t size, double scale = 1, double add = 0) {
        in.push_back(draw(size, scale));
        for (float& each : in.back()) each += static_cast<float>(add);
        grads.emplace_back(size, NAN);
        return in.back().data();
    }
    float* grad() { return grads.back().data(); }
    void output(int64_t size) { y = Block(size, NAN), grad_y = draw(size); }

    template <class Structure, class Definition>
    void check(Structure& p, int (*forward)(const Structure*), int (*backward)(const Structure*), Rows Structure::*given,
               Rows rows, Definition definition, bool compares = true) {
        const std::vector<Block> before = in;
        p.threads = 1 + random.below(3);
        if (const int code = forward(&p)) fail("forward returned %d", code);
        const Block found = y;
        for (float each : found)
            if (each != each) fail("forward left a number out");
        p.*given = rows;
        if (const int code = backward(&p)) fail("backward returned %d", code);
        for (size_t i = 0; i < in.size(); ++i) {
            if (before[i] != in[i]) fail("input %zu was written to", i);
            for (float each : grads[i])
                if (each != each) fail("backward left a number of gradient %zu out", i);
        }
        Given at, direction, up, down;
        double slope = 0, size = 1, expected = 0;
        constexpr double step = 1e-6;
        for (size_t i = 0; i < in.size(); ++i) {
            at.emplace_back(in[i].begin(), in[i].end());
            direction.emplace_back();
            for (size_t j = 0; j < in[i].size(); ++j) {
                direction[i].push_back(2 * random.uniform() - 1);
                slope += direction[i][j] * grads[i][j], size += std::fabs(direction[i][j] * grads[i][j]);
            }
        }
        up = down = at;
        for (size_t i = 0; i < at.size(); ++i)
            for (size_t j = 0; j < at[i].size(); ++j)
                up[i][j] += step * direction[i][j], down[i][j] -= step * direction[i][j];
        const Numbers wanted = definition(at), above = definition(up), below = definition(down);
        double largest = 1;
        for (double each : wanted) largest = std::max(largest, std::fabs(each));
        for (size_t i = 0; i < wanted.size() && compares; ++i) {
            if (!(std::fabs(found[i] - wanted[i]) <= 1e-4 * largest))
                fail("y[%zu] is %.9g, must be %.9g (largest %g)", i, found[i], wanted[i], largest);
            expected += grad_y[i] * (above[i] - below[i]) / (2 * step);
        }
        if (compares && !uncertain && !(std::fabs(slope - expected) <= 1e-3 * size))
            fail("the slope is %.9g, must be %.9g (size %g)", slope, expected, size);
        p.*given = Rows{};
        if (random.percent(20) && !says_when_out_of_memory(random, forward, &p)) fail("forward hides that there is no memory");
    }
};

Rows rows(float* data, int64_t time, int64_t width) { return {data, time * width, width}; }
double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
double silu(double a) { return a * sigmoid(a); }
struct Sizes {
    int64_t B, T, D;
    explicit Sizes(Random& random, int64_t most_steps = 80)
        : B(1 + random.below(random.percent(20) ? 20 : 4)), T(1 + random.below(random.percent(50) ? 12 : most_steps)),
          D(random.percent(40) ? random.pick({1, 8, 15, 16, 17, 24, 32, 33, 48}) : 1 + random.below(40)) {}
    void say(const char* kind, const char* number, int64_t more = 0) const {
        std::snprintf(now, sizeof now, "%s: %s B %ld T %ld D %ld (%ld)", number, kind, long(B), long(T), long(D), long(more));
    }
};

void try_selective_scan(Random& random, const char* number) {
    const Sizes s(random, 40);
    const int64_t B = s.B, T = s.T, D = s.D, N = random.percent(50) ? 16 : 1 + random.below(9);
    s.say("selective_scan", number, N);
    Case c(random);
    SelectiveScan p{};
    p.batch = B, p.time = T, p.width = D, p.states = N;
    p.u = rows(c.input(B * T * D), T, D), p.grad_u = rows(c.grad(), T, D);
    p.dt = rows(c.input(B * T * D), T, D), p.grad_dt = rows(c.grad(), T, D);
    p.gate = rows(c.input(B * T * D), T, D), p.grad_gate = rows(c.grad(), T, D);
    p.write = rows(c.input(B * T * N), T, N), p.grad_write = rows(c.grad(), T, N);
    p.read = rows(c.input(B * T * N), T, N), p.grad_read = rows(c.grad(), T, N);
    p.decay = c.input(N * D, 1, -1.1), p.grad_decay = c.grad(), std::fill_n(p.grad_decay, N * D, 0.0f);
    p.skip = c.input(D), p.grad_skip = c.grad(), std::fill_n(p.grad_skip, D, 0.0f);
    p.x0 = c.input(B * N * D), p.grad_x0 = c.grad();
    c.output(B * T * D);
    Block x(B * N * D), kept(B * ((T + 7) / 8) * N * D);
    p.y = rows(c.y.data(), T, D), p.x = x.data(), p.kept = kept.data();
    c.check(p, latchwork_selective_scan, latchwork_selective_scan_back, &SelectiveScan::grad_y, rows(c.grad_y.data(), T, D),
            [&](const Given& in) {
                Numbers state = in[7], y(B * T * D);
                for (int64_t b = 0; b < B; ++b)
                    for (int64_t t = 0; t < T; ++t)
                        for (int64_t d = 0; d < D; ++d) {
                            const int64_t at = (b * T + t) * D + d;
                            const double dt = std::log1p(std::exp(in[1][at]));
                            double total = in[6][d] * in[0][at];
                            for (int64_t n = 0; n < N; ++n) {
                                double& x = state[(b * N + n) * D + d];
                                x = std::exp(dt * in[5][n * D + d]) * x + in[3][(b * T + t) * N + n] * dt * in[0][at];
                                total += in[4][(b * T + t) * N + n] * x;
                            }
                            y[at] = total * silu(in[2][at]);
                        }
                return y;
            });
}

void try_causal_conv(Random& random, const char* number) {
    const Sizes s(random, 200);
    const int64_t B = s.B, T = s.T, D = s.D, K = random.percent(50) ? 4 : 2 + random.below(7);
    s.say("causal_conv", number, K);
    Case c(random);
    CausalConv p{};
    p.batch = B, p.time = T, p.width = D, p.taps = K, p.silu = random.percent(70);
    p.u = rows(c.input(B * T * D), T, D), p.grad_u = rows(c.grad(), T, D);
    p.before = c.input(B * (K - 1) * D), p.grad_before = c.grad();
    p.weight = c.input(D * K), p.grad_weight = c.grad(), std::fill_n(p.grad_weight, D * K, 0.0f);
    p.bias = c.input(D), p.grad_bias = c.grad(), std::fill_n(p.grad_bias, D, 0.0f);
    c.output(B * T * D), p.y = rows(c.y.data(), T, D);
    c.check(p, latchwork_causal_conv, latchwork_causal_conv_back, &CausalConv::grad_y, rows(c.grad_y.data(), T, D),
            [&](const Given& in) {
                Numbers y(B * T * D);
                for (int64_t i = 0; i < B * T * D; ++i) {
                    const int64_t d = i % D, t = i / D % T, b = i / D / T;
                    y[i] = in[3][d];
                    for (int64_t k = 0, at = t - K + 1; k < K; ++k, ++at)
                        y[i] += in[2][d * K + k] *
                                (at < 0 ? in[1][(b * (K - 1) + at + K - 1) * D + d] : in[0][(b * T + at) * D + d]);
                    if (p.silu) y[i] = silu(y[i]);
                }
                return y;
            });
}

void try_quads(Random& random, const char* number) {
    const Sizes s(random, 200);
    const int64_t B = s.B, T = s.T, D = 4 * s.D;
    s.say("quads", number);
    Case c(random);
    Quads p{};
    p.batch = B, p.time = T, p.width = D;
    p.u = rows(c.input(B * T * D), T, D), p.grad_u = rows(c.grad(), T, D);
    p.weight = c.input(4 * D), p.grad_weight = c.grad(), std::fill_n(p.grad_weight, 4 * D, 0.0f);
    c.output(B * T * D), p.y = rows(c.y.data(), T, D);
    c.check(p, latchwork_quads, latchwork_quads, &Quads::grad_y, rows(c.grad_y.data(), T, D), [&](const Given& in) {
        Numbers y(B * T * D);
        for (int64_t i = 0; i < B * T * D; ++i)
            for (int64_t j = 0; j < 4; ++j) y[i] += in[1][i % D / 4 * 16 + i % 4 * 4 + j] * in[0][i / 4 * 4 + j];
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
    c.check(p, latchwork_linear, latchwork_linear, &LinearMap::grad_y, flat(c.grad_y.data(), blocks * N), definition,
            p.dropout == 0);
}

void try_gru(Random& random, const char* number) {
    const Sizes s(random, 30);
    const int64_t B = s.B, T = s.T, D = s.D;
    s.say("gru", number);
    Case c(random);
    Gru p{};
    p.batch = B, p.time = T, p.width = D;
    p.drive = rows(c.input(B * T * 3 * D), T, 3 * D), p.grad_drive = rows(c.grad(), T, 3 * D);
    p.h0 = c.input(B * D), p.grad_h0 = c.grad();
    Block weight = c.draw(3 * D * D, 1 / std::sqrt(double(D))), bias = c.draw(3 * D);
    Block tape(B * T * 4 * D), hidden(B * T * 3 * D);
    p.weight = weight.data(), p.bias = bias.data();
    p.tape = rows(tape.data(), T, 4 * D), p.grad_hidden = rows(hidden.data(), T, 3 * D);
    c.output(B * T * D), p.y = rows(c.y.data(), T, D);
    c.check(p, latchwork_gru, latchwork_gru_back, &Gru::grad_y, rows(c.grad_y.data(), T, D), [&](const Given& in) {
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

void try_slstm(Random& random, const char* number) {
    const Sizes s(random, 30);
    const int64_t B = s.B, T = s.T, d = s.D, H = 1 + random.below(3), W = H * d;
    s.say("slstm", number, H);
    Case c(random);
    Slstm p{};
    p.batch = B, p.time = T, p.heads = H, p.width = d;
    p.first = rows(c.input(B * T * 2 * W, 2), T, 2 * W), p.grad_first = rows(c.grad(), T, 2 * W);
    p.second = rows(c.input(B * T * 2 * W), T, 2 * W), p.grad_second = rows(c.grad(), T, 2 * W);
    p.y0 = c.input(B * W), p.grad_y0 = c.grad();
    p.c0 = c.input(B * W), p.grad_c0 = c.grad();
    p.n0 = c.input(B * W, 1, 1.5), p.grad_n0 = c.grad();
    Block bias = c.draw(4 * W), recurrent = c.draw(4 * W * d, 1 / std::sqrt(double(d))), m0 = c.draw(B * W);
    Block last[3] = {Block(B * W), Block(B * W), Block(B * W)}, tape(B * T * 6 * W);
    p.bias = bias.data(), p.recurrent = recurrent.data(), p.m0 = m0.data(), p.tape = rows(tape.data(), T, 6 * W);
    p.c = last[0].data(), p.n = last[1].data(), p.m = last[2].data();
    c.output(B * T * W), p.y = rows(c.y.data(), T, W);
    c.check(p, latchwork_slstm, latchwork_slstm_back, &Slstm::grad_y, rows(c.grad_y.data(), T, W), [&](const Given& in) {
        Numbers y(B * T * W), cell(B * W), sum(B * W);
        for (int64_t i = 0; i < B * W; ++i) cell[i] = in[3][i] * std::exp(m0[i]), sum[i] = in[4][i] * std::exp(m0[i]);
        for (int64_t t = 0; t < T; ++t)
            for (int64_t b = 0; b < B; ++b)
                for (int64_t i = 0; i < W; ++i) {
                    const int64_t h = i / d, j = i % d, state = (h * B + b) * d;
                    double gate[4];
                    for (int64_t g = 0; g < 4; ++g) {
                        gate[g] = bias[(h * 4 + g) * d + j] + in[g / 2][(b * T + t) * 2 * W + (h * 2 + g % 2) * d + j];
                        for (int64_t k = 0; k < d; ++k)
                            gate[g] += recurrent[((h * d + k) * 4 + g) * d + j] *
                                       (t ? y[(b * T + t - 1) * W + h * d + k] : in[2][state + k]);
                    }
                    double &c = cell[state + j], &n = sum[state + j];
                    c = sigmoid(gate[1]) * c + std::exp(gate[0]) * std::tanh(gate[2]);
                    n = sigmoid(gate[1]) * n + std::exp(gate[0]);
                    y[(b * T + t) * W + i] = sigmoid(gate[3]) * c / n;
                }
        return y;
    });
}

void try_mlstm(Random& random, const char* number) {
    const Sizes s(random, 60);
    const int64_t B = s.B, T = s.T, K = s.D, H = 1 + random.below(3), V = 1 + random.below(40), chunks = (T + 23) / 24;
    s.say("mlstm", number, V);
    Case c(random);
    Mlstm p{};
    p.batch = B, p.time = T, p.heads = H, p.keys = K, p.values = V, p.scale = 0.5;
    p.q = rows(c.input(B * T * H * K), T, H * K), p.grad_q = rows(c.grad(), T, H * K);
    p.k = rows(c.input(B * T * H * K), T, H * K), p.grad_k = rows(c.grad(), T, H * K);
    p.v = rows(c.input(B * T * H * V), T, H * V), p.grad_v = rows(c.grad(), T, H * V);
    p.i = rows(c.input(B * T * H), T, H), p.grad_i = rows(c.grad(), T, H);
    p.f = rows(c.input(B * T * H, 2), T, H), p.grad_f = rows(c.grad(), T, H);
    p.cn0 = c.input(B * H * K * (V + 1)), p.grad_cn0 = c.grad();
    Block m0 = c.draw(B * H), cn(B * H * K * (V + 1)), m(B * H), tape_cn(chunks * cn.size()), tape_m(chunks * m.size());
    p.m0 = m0.data(), p.cn = cn.data(), p.m = m.data(), p.tape_cn = tape_cn.data(), p.tape_m = tape_m.data();
    c.output(B * T * H * V), p.y = rows(c.y.data(), T, H * V);
    c.check(p, latchwork_mlstm, latchwork_mlstm_back, &Mlstm::grad_y, rows(c.grad_y.data(), T, H * V), [&](const Given& in) {
        Numbers y(B * T * H * V), state = in[5];
        for (int64_t i = 0; i < B * H; ++i)
            for (int64_t j = 0; j < K * (V + 1); ++j) state[i * K * (V + 1) + j] *= std::exp(m0[i]);
        for (int64_t i = 0; i < B * H; ++i)
            for (int64_t t = 0, b = i / H, h = i % H; t < T; ++t) {
                const int64_t at = (b * T + t) * H + h;
                Numbers read(V + 1);
                for (int64_t k = 0; k < K; ++k)
                    for (int64_t v = 0; v <= V; ++v) {
                        double& x = state[(i * K + k) * (V + 1) + v];
                        x = sigmoid(in[4][at]) * x + std::exp(in[3][at]) * 0.5 * in[1][at * K + k] * (v < V ? in[2][at * V + v] : 1);
                        read[v] += in[0][at * K + k] * x;
                    }
                c.uncertain |= std::fabs(std::fabs(read[V]) - 1) < 1e-3;
                for (int64_t v = 0; v < V; ++v) y[at * V + v] = read[v] / std::max(std::fabs(read[V]), 1.0);
            }
        return y;
    });
}

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 2000, [](Random& random, int64_t index, int64_t seed) {
        char number[100];
        std::snprintf(number, sizeof number, "%ld of seed %ld, %s", long(index), long(seed), latchwork_isa());
        for (auto each : {try_selective_scan, try_causal_conv, try_quads, try_linear, try_gru, try_slstm, try_mlstm})
            each(random, number);
    });
}
