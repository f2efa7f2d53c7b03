// moves_fuzz [COUNT [SEED [INDEX]]]: runs the moves of levels and the choice of rows on COUNT random cases, or only on
// case INDEX, and compares every number they write with the loops here. LATCHWORK_ISA chooses the instruction set.
#include <cstdio>
#include <cstdlib>

#include "tensors.h"

namespace {

void same(const char* name, Tensor& got, int64_t b, int64_t t, int64_t e, double wanted) {  // but for which NaN it is
    const double is = definition::read(got.dtype, got.at(b, t, e)), must = definition::rounded(got.dtype, wanted);
    if (std::isnan(is) ? std::isnan(must) : is == must && std::signbit(is) == std::signbit(must)) return;
    fail("%s[%ld, %ld, %ld] is %.17g, must be %.17g", name, long(b), long(t), long(e), is, must);
}
void near(const char* name, Tensor& got, int64_t b, int64_t e, double wanted, double size) {
    const double is = definition::read(got.dtype, got.at(b, 0, e));
    const double relative = got.dtype == FLOAT64 ? 1e-14 : got.dtype == FLOAT32 ? 2e-6 : 2e-2;
    if (std::fabs(is - wanted) <= relative * (size + std::fabs(wanted))) return;
    fail("%s[%ld, %ld] is %.17g, must be near %.17g", name, long(b), long(e), is, wanted);
}

int64_t draw_dtype(Random& random) {
#ifdef __FLT16_MANT_DIG__
    return random.below(4);
#else
    return random.below(3);
#endif
}
int64_t whole(Tensor& a, int64_t b, int64_t t, int64_t e) {
    int64_t value;
    std::memcpy(&value, a.at(b, t, e), 8);
    return value;
}

// One unit, as ops/torch/moves.py says it.
template <class C>
struct MovesCase {
    const Moves& p;
    Tensor &choice, &state, &x0, &s, &reset, &grad, &x, &grad_weights, &grad_state, &grad_x0, &grad_s;

    C read(Tensor& a, int64_t b, int64_t t, int64_t e) { return static_cast<C>(definition::read(a.dtype, a.at(b, t, e))); }
    void check(int64_t b, int64_t u) {
        const int64_t n = p.degree, width = n + (p.s.data != nullptr), first = u * n;
        std::vector<C> level(n), carry(n, C(0)), to_x0(n, C(0)), to_s(n, C(0));
        std::vector<std::vector<C>> before(p.time, std::vector<C>(n));
        for (int64_t i = 0; i < n; ++i) level[i] = read(state, b, 0, first + i);
        for (int64_t t = 0; t < p.time; ++t) {
            for (int64_t i = 0; i < n && resets(b, t); ++i) level[i] = read(x0, b, 0, first + i);
            before[t] = level;
            std::vector<C> after(n, C(0));
            for (int64_t i = 0; i < n; ++i) {
                const int64_t chosen = whole(choice, b, t, first + i);
                if (p.sends)
                    after[chosen] = definition::maximum(after[chosen], level[i]);
                else
                    after[i] = chosen == n ? read(s, b, 0, first + i) : level[chosen];
            }
            level = after;
            for (C& each : level) each += C(0);
            for (int64_t i = 0; i < n; ++i) same("x", x, b, t, first + i, level[i]);
        }
        for (int64_t t = p.time - 1; t >= 0; --t) {
            std::vector<C> total(n), back(n, C(0));
            for (int64_t i = 0; i < n; ++i) total[i] = read(grad, b, t, first + i) + carry[i];
            for (int64_t i = 0; i < n; ++i) {
                const int64_t chosen = whole(choice, b, t, first + i);
                if (p.sends)
                    back[i] = total[chosen];
                else
                    (chosen == n ? to_s[i] : back[chosen]) += total[i];
                for (int64_t k = 0; k < width; ++k) {
                    const C product = p.sends  ? before[t][i] * total[k]
                                      : k == n ? total[i] * read(s, b, 0, first + i)
                                               : total[i] * before[t][k];
                    same("grad_weights", grad_weights, b, t, (first + i) * width + k, product);
                }
            }
            carry = back;
            for (int64_t i = 0; i < n && resets(b, t); ++i) to_x0[i] += carry[i], carry[i] = C(0);
        }
        for (int64_t i = 0; i < n; ++i) {
            same("grad_state", grad_state, b, 0, first + i, carry[i]);
            if (p.s.data) same("grad_s", grad_s, b, 0, first + i, to_s[i]);
            if (p.reset.data) same("grad_x0", grad_x0, b, 0, first + i, to_x0[i]);
        }
    }
    bool resets(int64_t b, int64_t t) { return p.reset.data && *reset.at(b, t, 0); }
};

void run_moves(Random& random, int64_t index) {
    Moves p{};
    p.dtype = draw_dtype(random), p.batch = 1 + random.below(3), p.threads = 1 + random.below(3);
    p.degree = random.pick({1, 2, 3, 4, 5, 6, 8, 9, 17}), p.units = random.pick({1, 2, 7, 15, 16, 17, 33, 60});
    p.time = 1 + random.below(p.units * p.degree < 100 ? 40 : 6), p.sends = random.percent(40);
    const bool own = !p.sends && random.percent(50);
    const int64_t n = p.degree, t = p.time, resets = random.pick({-1, -1, 0, 20, 100}), nans = random.pick({0, 0, 5});
    std::snprintf(now, sizeof now, "%ld: moves, dtype %ld B %ld T %ld U %ld degree %ld sends %ld own %d resets %ld",
                  long(index), long(p.dtype), long(p.batch), long(t), long(p.units), long(n), long(p.sends), own,
                  long(resets));
    auto level = [&] {
        if (random.percent(nans)) return random.percent(50) ? double(NAN) : double(INFINITY);
        const double value = random.percent(20) ? -0.0 : 4 * random.uniform() - 2;
        return p.sends ? std::fabs(value) : value;
    };
    auto make = [&](int64_t dtype, int64_t time, int64_t unit, bool input) {
        return Tensor(random, dtype, p.batch, time, p.units * unit, input);
    };
    Tensor choice = make(WHOLE, t, n, true), state = make(p.dtype, 1, n, true), x0 = make(p.dtype, 1, n, true);
    Tensor s = make(p.dtype, 1, n, true), reset(random, BOOL, p.batch, t, 1, true), grad = make(p.dtype, t, n, true);
    Tensor x = make(p.dtype, t, n, false), grad_weights = make(p.dtype, t, n * (n + own), false);
    Tensor grad_state = make(p.dtype, 1, n, false), grad_x0 = make(p.dtype, 1, n, false);
    Tensor grad_s = make(p.dtype, 1, n, false);
    choice.fill([&] { return double(random.below(n + own)); });
    for (Tensor* each : {&state, &x0, &s}) each->fill(level);
    grad.fill([&] { return 4 * random.uniform() - 2; });
    reset.fill([&] { return double(random.percent(resets)); });
    p.choice = choice.rows(), p.state = state.rows(), p.x = x.rows();
    if (own) p.s = s.rows();
    if (resets >= 0) p.reset = reset.rows(), p.x0 = x0.rows();
    if (latchwork_move(&p)) fail("the kernel refused");
    p.grad = grad.rows(), p.grad_weights = grad_weights.rows(), p.grad_state = grad_state.rows();
    if (own) p.grad_s = grad_s.rows();
    if (resets >= 0) p.grad_x0 = grad_x0.rows();
    if (latchwork_move_back(&p)) fail("the kernel refused");
    for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t u = 0; u < p.units; ++u) {
            if (p.dtype == FLOAT64)
                MovesCase<double>{p, choice, state, x0, s, reset, grad, x, grad_weights, grad_state, grad_x0, grad_s}
                    .check(b, u);
            else
                MovesCase<float>{p, choice, state, x0, s, reset, grad, x, grad_weights, grad_state, grad_x0, grad_s}
                    .check(b, u);
        }
    for (Tensor* each : {&x, &grad_weights, &grad_state, &grad_x0, &grad_s})
        if (!each->padding_untouched()) fail("the kernel wrote between rows");
    for (auto kernel : {latchwork_move, latchwork_move_back})
        if (random.percent(10) && !says_when_out_of_memory(random, kernel, &p))
            fail("the kernel does not say that there is no memory");
    // A choice that there is not is said, and read from nowhere.
    const int64_t wrong = random.pick({-1, n + own, int64_t(1) << 40, -(int64_t(1) << 40)});
    std::memcpy(choice.at(random.below(p.batch), random.below(t), random.below(p.units * n)), &wrong, 8);
    if (latchwork_move(&p) != NO_SUCH_CHOICE) fail("the kernel did not say that there is no choice %ld", long(wrong));
}

void run_choice(Random& random, int64_t index) {
    Choice p{};
    p.dtype = draw_dtype(random), p.tokens = 1 + random.below(5), p.threads = 1 + random.below(3);
    p.rows = 1 + random.below(random.percent(90) ? 20 : 1500), p.options = random.pick({2, 2, 3, 4, 5, 6, 7, 8, 9, 17});
    p.temperature = random.percent(50) ? 1.0 : 0.5 + 5 * random.uniform();
    const bool own = random.percent(50);
    const int64_t from_logits = p.options - own;
    std::snprintf(now, sizeof now, "%ld: choice, dtype %ld tokens %ld rows %ld options %ld own %d", long(index),
                  long(p.dtype), long(p.tokens), long(p.rows), long(p.options), own);
    auto make = [&](int64_t dtype, int64_t size, bool input) { return Tensor(random, dtype, p.tokens, 1, p.rows * size, input); };
    Tensor logits = make(p.dtype, from_logits, true), last = make(p.dtype, 1, true), weights = make(p.dtype, p.options, false);
    Tensor choice = make(WHOLE, 1, false), grad = make(p.dtype, p.options, true);
    Tensor grad_logits = make(p.dtype, from_logits, false), grad_own = make(p.dtype, 1, false);
    for (Tensor* each : {&logits, &last}) each->fill([&] { return random.percent(2) ? -300.0 : 20 * random.uniform() - 10; });
    grad.fill([&] { return 4 * random.uniform() - 2; });
    p.logits = logits.rows(), p.weights = weights.rows(), p.choice = choice.rows();
    if (own) p.own = last.rows();
    if (latchwork_choose(&p)) fail("the kernel refused");
    p.grad = grad.rows(), p.grad_logits = grad_logits.rows();
    if (own) p.grad_own = grad_own.rows();
    if (latchwork_choose_back(&p)) fail("the kernel refused");
    for (int64_t b = 0; b < p.tokens; ++b)
        for (int64_t row = 0; row < p.rows; ++row) {
            std::vector<double> z, w, g;
            logits.append(b, 0, row, from_logits, z), grad.append(b, 0, row, p.options, g);
            if (own) last.append(b, 0, row, 1, z);
            const double largest = *std::max_element(z.begin(), z.end());
            double sum = 0, back = 0;
            for (double each : z) sum += std::exp((each - largest) / p.temperature);
            for (int64_t k = 0; k < p.options; ++k) {
                w.push_back(std::exp((z[k] - largest) / p.temperature) / sum);
                near("weights", weights, b, row * p.options + k, w[k], 0.01);
                back += w[k] * g[k];
            }
            const int64_t chosen = whole(choice, b, 0, row);
            if (chosen < 0 || chosen >= p.options || z[chosen] != largest) fail("choice is %ld", long(chosen));
            for (int64_t k = 0; k < p.options; ++k) {
                const bool of_own = k == from_logits;
                near(of_own ? "grad_own" : "grad_logits", of_own ? grad_own : grad_logits, b,
                     of_own ? row : row * from_logits + k, w[k] * (g[k] - back) / p.temperature, 4);
            }
        }
    for (Tensor* each : {&weights, &choice, &grad_logits, &grad_own})
        if (!each->padding_untouched()) fail("the kernel wrote between rows");
    for (auto kernel : {latchwork_choose, latchwork_choose_back})
        if (random.percent(10) && !says_when_out_of_memory(random, kernel, &p))
            fail("the kernel does not say that there is no memory");
}

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 20000, [](Random& random, int64_t index, int64_t) {
        random.percent(70) ? run_moves(random, index) : run_choice(random, index);
    });
}
