// bank_fuzz [COUNT [SEED [INDEX]]]: runs banks of latches on COUNT random cases, or only on case INDEX, and compares
// every number they write, bit for bit, with the loops here. LATCHWORK_ISA chooses the instruction set.
#include <cstdio>
#include <cstdlib>

#include "bank.h"
#include "tensors.h"

extern "C" {
int latchwork_bank(const Bank*);
int latchwork_bank_back(const Bank*);
}

namespace {

char now[200];  // the case that runs, for whoever reports an error
void say_case() { std::fprintf(stderr, "in case %s\n", now); }

void same(const char* name, float is, float must) {  // but for which NaN it is
    if (std::isnan(is) ? std::isnan(must) : is == must && std::signbit(is) == std::signbit(must)) return;
    std::fprintf(stderr, "%s is %.9g, must be %.9g\n", name, double(is), double(must));
    say_case();
    std::exit(1);
}
float value(Tensor& a, int64_t b, int64_t t, int64_t e) { return static_cast<float>(definition::read(FLOAT32, a.at(b, t, e))); }

float share(float a, float b, double blur) {  // of max(a, b) what goes to a: ops/blur.py
    if (blur <= 0) return a == b ? 0.5f : a > b ? 1.0f : 0.0f;
    const float apart = (a == b ? 0.0f : a - b) * static_cast<float>(0.5 / blur) + 0.5f;
    return apart < 0 ? 0.0f : apart > 1 ? 1.0f : apart;
}

struct Case {
    Bank p{};
    Tensor r, s, shift_r, shift_s, weight, state, x0, reset, grad, grad_x;
    Tensor x, read, grad_r, grad_s, grad_state, grad_x0, grad_shift_r, grad_shift_s, grad_weight;
    bool resets(int64_t b, int64_t t) { return p.reset.data && *reset.at(b, t, 0); }

    void check_forward() {
        const int64_t P = p.pairs;
        for (int64_t b = 0; b < p.batch; ++b)
            for (int64_t i = 0; i < P; ++i) {
                std::vector<float> now(p.size);
                for (int64_t k = 0; k < p.size; ++k) now[k] = value(state, b, 0, k * P + i);
                for (int64_t t = 0; t < p.time; ++t) {
                    float total = 0;
                    for (int64_t k = 0; k < p.size; ++k) {
                        const int64_t e = k * P + i;
                        if (resets(b, t)) now[k] = value(x0, b, 0, e);
                        const float r_k = value(r, b, t, i) + value(shift_r, 0, 0, e);
                        const float s_k = value(s, b, t, i) + value(shift_s, 0, 0, e);
                        now[k] = definition::maximum(definition::minimum(r_k, now[k]), s_k) + 0.0f;
                        same("x", value(x, b, t, e), now[k]);
                        total += value(weight, 0, 0, e) * now[k];
                    }
                    same("read", value(read, b, t, i), total);
                }
            }
    }
    void check_backward() {
        const int64_t P = p.pairs;
        std::vector<float> of_shift_r(p.size * P), of_shift_s(p.size * P), of_weight(p.size * P);
        for (int64_t b = 0; b < p.batch; ++b) {
            std::vector<float> carry(p.size * P), to_x0(p.size * P);
            for (int64_t t = p.time - 1; t >= 0; --t)
                for (int64_t i = 0; i < P; ++i) {
                    float total_r = 0, total_s = 0;
                    for (int64_t k = 0; k < p.size; ++k) {
                        const int64_t e = k * P + i;
                        const float before = resets(b, t) ? value(x0, b, 0, e) : t ? value(x, b, t - 1, e) : value(state, b, 0, e);
                        const float r_k = value(r, b, t, i) + value(shift_r, 0, 0, e);
                        const float s_k = value(s, b, t, i) + value(shift_s, 0, 0, e);
                        const float g = value(grad, b, t, i);
                        float all = g * value(weight, 0, 0, e) + carry[e];
                        if (p.grad_x.data) all += value(grad_x, b, t, e);
                        const float of_s = share(s_k, definition::minimum(r_k, before), p.blur);
                        const float of_r = share(before, r_k, p.blur);
                        const float to_s = all * of_s, to_m = all * (1.0f - of_s), to_r = to_m * of_r;
                        carry[e] = to_m * (1.0f - of_r);
                        of_shift_r[e] += to_r, of_shift_s[e] += to_s, of_weight[e] += g * value(x, b, t, e);
                        total_r += to_r, total_s += to_s;
                        if (resets(b, t)) to_x0[e] += carry[e], carry[e] = 0;
                    }
                    same("grad_r", value(grad_r, b, t, i), total_r);
                    same("grad_s", value(grad_s, b, t, i), total_s);
                }
            for (int64_t e = 0; e < p.size * P; ++e) {
                same("grad_state", value(grad_state, b, 0, e), carry[e]);
                if (p.reset.data) same("grad_x0", value(grad_x0, b, 0, e), to_x0[e]);
            }
        }
        for (int64_t e = 0; e < p.size * P; ++e) {
            same("grad_shift_r", value(grad_shift_r, 0, 0, e), of_shift_r[e]);
            same("grad_shift_s", value(grad_shift_s, 0, 0, e), of_shift_s[e]);
            same("grad_weight", value(grad_weight, 0, 0, e), of_weight[e]);
        }
    }
};

float* start(Tensor& a) { return reinterpret_cast<float*>(a.block.data()); }

void run(Random& random, int64_t index) {
    const int64_t B = 1 + random.below(3), P = random.pick({1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130});
    const int64_t K = random.pick({1, 2, 3, 4, 7}), T = 1 + random.below(P < 40 ? 30 : 6);
    const int64_t resets = random.pick({-1, -1, 0, 20, 100}), special = random.pick({0, 0, 5});
    auto make = [&](int64_t batch, int64_t time, int64_t inner, bool input) { return Tensor(random, FLOAT32, batch, time, inner, input); };
    Case c{{}, make(B, T, P, true), make(B, T, P, true), make(1, 1, K * P, true), make(1, 1, K * P, true),
           make(1, 1, K * P, true), make(B, 1, K * P, true), make(B, 1, K * P, true), Tensor(random, BOOL, B, T, 1, true),
           make(B, T, P, true), make(B, T, K * P, true), make(B, T, K * P, false), make(B, T, P, false),
           make(B, T, P, false), make(B, T, P, false), make(B, 1, K * P, false), make(B, 1, K * P, false),
           make(1, 1, K * P, false), make(1, 1, K * P, false), make(1, 1, K * P, false)};
    Bank& p = c.p;
    p.batch = B, p.time = T, p.pairs = P, p.size = K, p.threads = 1 + random.below(3);
    p.blur = random.percent(50) ? 0.0 : 0.1 + random.uniform();
    std::snprintf(now, sizeof now, "%ld: B %ld T %ld P %ld K %ld blur %g resets %ld", long(index), long(B), long(T), long(P),
                  long(K), p.blur, long(resets));
    auto number = [&] { return random.percent(30) ? double(random.below(5) - 2) / 2 : 4 * random.uniform() - 2; };
    auto signal = [&] {
        if (random.percent(special)) return random.percent(50) ? double(INFINITY) : -double(INFINITY);
        return number();
    };
    for (Tensor* each : {&c.r, &c.s, &c.state, &c.x0}) each->fill(signal);
    for (Tensor* each : {&c.shift_r, &c.shift_s, &c.weight, &c.grad, &c.grad_x}) each->fill(number);
    c.reset.fill([&] { return double(random.percent(resets)); });
    p.r = c.r.rows(), p.s = c.s.rows(), p.x = c.x.rows(), p.read = c.read.rows(), p.state = c.state.rows();
    p.shift_r = start(c.shift_r), p.shift_s = start(c.shift_s), p.weight = start(c.weight);
    if (resets >= 0) p.reset = c.reset.rows(), p.x0 = c.x0.rows();
    latchwork_bank(&p);
    c.check_forward();
    c.grad_x0.fill([] { return 0.0; });
    p.grad = c.grad.rows(), p.grad_r = c.grad_r.rows(), p.grad_s = c.grad_s.rows(), p.grad_state = c.grad_state.rows();
    if (random.percent(50)) p.grad_x = c.grad_x.rows();
    if (resets >= 0) p.grad_x0 = c.grad_x0.rows();
    p.grad_shift_r = start(c.grad_shift_r), p.grad_shift_s = start(c.grad_shift_s), p.grad_weight = start(c.grad_weight);
    latchwork_bank_back(&p);
    c.check_backward();
    for (Tensor* each : {&c.x, &c.read, &c.grad_r, &c.grad_s, &c.grad_state, &c.grad_shift_r, &c.grad_shift_s, &c.grad_weight})
        if (!each->padding_untouched()) same("padding: what the kernel wrote between rows", 0, 1);
}

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 20000, say_case, [](Random& random, int64_t index, int64_t) { run(random, index); });
}
