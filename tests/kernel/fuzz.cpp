// fuzz [COUNT [SEED [INDEX]]]: runs the kernel on COUNT random cases, or only on case INDEX, and compares every number
// it writes with definition.h. LATCHWORK_ISA in the environment chooses the instruction set.
#include <cstdio>
#include <cstdlib>

#include "tensors.h"

namespace {

struct Data {
    enum { CONTINUOUS, INTEGER, EXTREME };
    int64_t kind;
    double nan_rate, shift;

    double draw(Random& random, int64_t dtype) const {
        if (nan_rate > 0 && random.uniform() < nan_rate) return NAN;
        if (kind == CONTINUOUS) return 4 * random.uniform() - 2 + shift;
        if (kind == INTEGER) return random.percent(5) ? -0.0 : static_cast<double>(random.below(5) - 2) + shift;
        const int digits = dtype == FLOAT64 ? 53 : dtype == FLOAT32 ? 24 : dtype == BFLOAT16 ? 8 : 11;
        const int top = dtype == FLOAT64 ? 1024 : dtype == FLOAT16 ? 16 : 128, bottom = 3 - top;
        const double largest = std::ldexp(2 - std::ldexp(1, 1 - digits), top - 1), few = 1.0 + random.percent(50);
        const double denormal = std::ldexp(random.uniform(), bottom - 1), smallest = std::ldexp(few, bottom - digits);
        const double of[] = {0, 1, INFINITY, largest, denormal, smallest, random.uniform()};
        const double value = of[random.below(7)];
        return random.percent(50) ? -value : value;
    }
};

// dtype, sizes, threads and chunk. Most cases are small. Some are large enough for more threads than one, with several
// strips in a row; a few are so long that the kernel cuts them into chunks by itself; some have no step at all.
Problem draw_sizes(Random& random) {
    Problem p{};
#ifdef __FLT16_MANT_DIG__
    p.dtype = random.below(4);
#else
    p.dtype = random.below(3);  // such a compiler builds a kernel without float16
#endif
    p.degree = random.percent(45) ? 0 : random.pick({1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 2, 3, 3, 4, 4, 5, 5, 8});
    p.width = random.percent(30) ? 1 + random.below(100)
                                 : random.pick({1, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 66, 72, 73, 90});
    p.batch = 1 + random.below(3);
    p.threads = 1 + random.below(3);
    p.chunk = random.pick({0, 1, 2, 5, 70, 1000});
    int64_t numbers = random.percent(60) ? 1000 : 4000, longest = 12, shortest = 1;  // numbers in r; steps
    const int64_t lot = random.below(1000);
    if (lot < 3) {
        p.batch = 1, p.width = 1 + random.below(9), p.degree = random.pick({0, 0, 2}), p.chunk = 0;
        numbers = 60000, longest = 6000, shortest = 1600;
    } else if (lot < 25) {
        numbers = 40000, longest = 300;
        if (random.percent(50)) p.width += 200 + random.below(300);
    }
    const int64_t in_unit = std::max<int64_t>(p.degree * p.degree, 1);
    p.width = std::min(p.width, std::max<int64_t>(90, numbers / (p.batch * in_unit)));
    longest = std::min(longest, numbers / (p.batch * p.width * in_unit));
    p.time = lot >= 990 ? 0 : shortest + random.below(std::max<int64_t>(1, longest - shortest + 1));
    return p;
}

struct Case {
    Problem p;
    int64_t n;
    int64_t resets;  // percent of the steps; -1: reset is null
    Data data;
    Tensor r, s, grad, state, x0, reset, x, grad_r, grad_s, grad_state, grad_x0, whole_r, whole_s;

    static Case draw(Random& random) {
        const Problem p = draw_sizes(random);
        const int64_t n = std::max<int64_t>(p.degree, 1), t = p.time, resets = random.pick({-1, -1, 0, 5, 30, 100});
        const Data data{random.below(3), random.pick({0, 0, 1, 40}) / 1e3, static_cast<double>(random.pick({0, 1, 3}))};
        auto input = [&](int64_t time, int64_t unit, Data from) {
            Tensor a(random, p.dtype, p.batch, time, p.width * unit, true);
            a.fill([&] { return from.draw(random, p.dtype); });
            return a;
        };
        auto output = [&](int64_t time, int64_t unit) {
            return Tensor(random, p.dtype, p.batch, time, p.width * unit, false);
        };
        const Data above = data, below{data.kind, data.nan_rate, -data.shift}, around{data.kind, data.nan_rate, 0};
        const Data any{random.percent(50) ? 0 : data.kind, data.nan_rate, 0};
        Case c{p, n, resets, data,
               // r above s lets states and gradients pass through many steps
               input(t, n * n, above), input(t, n, below), input(t, n, any), input(1, n, around), input(1, n, around),
               Tensor(random, BOOL, p.batch, t, 1, true),
               output(t, n), output(t, n * n), output(t, n), output(1, n), output(1, n),  // x, of r, of s, of starts
               output(1, n * n), output(1, n)};
        c.reset.fill([&] { return random.percent(resets); });
        return c;
    }

    void describe(int64_t index, int64_t seed) const {
        std::snprintf(now, sizeof now,
                      "%ld of seed %ld, %s: dtype %ld B %ld T %ld width %ld degree %ld chunk %ld threads %ld "
                      "resets %ld%% data %ld nan %g shift %g strides r %ld,%ld s %ld,%ld x %ld,%ld state %ld x0 %ld",
                      long(index), long(seed), latchwork_isa(), long(p.dtype), long(p.batch), long(p.time),
                      long(p.width), long(p.degree), long(p.chunk), long(p.threads), long(resets),
                      long(data.kind), data.nan_rate, data.shift, long(r.batch_stride), long(r.time_stride), long(s.batch_stride),
                      long(s.time_stride), long(x.batch_stride), long(x.time_stride), long(state.batch_stride),
                      long(x0.batch_stride));
    }

    // As ops/cpu/scan.py calls: what a function does not need is null, and without a step there is only compose.
    void call() {
        Tensor* const inputs[] = {&r, &s, &grad, &state, &x0, &reset};
        std::vector<std::vector<uint8_t>> before;
        for (Tensor* each : inputs) before.push_back(each->block);
        p.r = r.rows(), p.s = s.rows(), p.whole_r = whole_r.rows(), p.whole_s = whole_s.rows();
        if (resets >= 0) p.reset = reset.rows(), p.x0 = x0.rows();
        bool refused = latchwork_compose(&p);
        p.state = state.rows(), p.x = x.rows();
        if (p.time) refused |= latchwork_forward(&p);
        p.grad = grad.rows(), p.grad_r = grad_r.rows(), p.grad_s = grad_s.rows(), p.grad_state = grad_state.rows();
        if (resets >= 0) p.grad_x0 = grad_x0.rows();
        if (p.time) refused |= latchwork_backward(&p);
        if (refused) fail("the kernel refused the dtype");
        for (size_t i = 0; i < before.size(); ++i)
            if (inputs[i]->block != before[i]) fail("the kernel wrote to its input %zu", i);
    }

    // Bit for bit but for the kind of a NaN.
    static bool same(double a, double b) {
        return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
    }
    template <class C>
    void compare(const char* name, Tensor& got, int64_t b, int64_t t, int64_t unit, int64_t count, const C* wanted) {
        for (int64_t e = 0; e < count; ++e) {
            const double is = definition::read(p.dtype, got.at(b, t, unit * count + e));
            const double must = definition::rounded(p.dtype, wanted[e]);
            if (same(is, must)) continue;
            fail("%s[%ld, %ld, %ld, %ld] is %.17g, must be %.17g", name, long(b), long(t), long(unit), long(e), is,
                 must);
        }
    }
    template <class C>
    void check_unit(Random& random, int64_t b, int64_t u) {
        definition::Unit<C> unit{p.degree, n, p.time, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
        for (int64_t t = 0; t < p.time; ++t) {
            r.append(b, t, u, n * n, unit.r), s.append(b, t, u, n, unit.s), grad.append(b, t, u, n, unit.grad);
            unit.reset.push_back(resets >= 0 && *reset.at(b, t, 0));
        }
        state.append(b, 0, u, n, unit.state), x0.append(b, 0, u, n, unit.x0);
        if (p.time) {
            unit.forward(unit.state);
            unit.backward();
            for (int64_t t = 0; t < p.time; ++t) {
                compare("x", x, b, t, u, n, &unit.x[t * n]);
                compare("grad_r", grad_r, b, t, u, n * n, &unit.grad_r[t * n * n]);
                compare("grad_s", grad_s, b, t, u, n, &unit.grad_s[t * n]);
            }
            compare("grad_state", grad_state, b, 0, u, n, unit.grad_state.data());
            if (resets >= 0) compare("grad_x0", grad_x0, b, 0, u, n, unit.grad_x0.data());
        }
        // Two pairs may differ and yet be one map, so compose is judged by what its pair makes of some states.
        std::vector<C> composed_r, composed_s, from(n), after(n);
        whole_r.append(b, 0, u, n * n, composed_r), whole_s.append(b, 0, u, n, composed_s);
        for (int64_t trial = 0; trial < 2; ++trial) {
            for (C& x : from) x = C(definition::rounded(p.dtype, Data{data.kind, 0, 0}.draw(random, p.dtype)));
            definition::step(n, composed_r.data(), composed_s.data(), from.data(), after.data());
            unit.forward(from);
            for (int64_t i = 0; i < n; ++i) {
                const C is = after[i] + C(0), must = (p.time ? unit.x[(p.time - 1) * n + i] : from[i]) + C(0);
                if (!same(is, must))
                    fail("compose[%ld, %ld, %ld] makes %g, must make %g", long(b), long(u), long(i), is, must);
            }
        }
    }
    // Afterwards the outputs hold nothing.
    void starve(Random& random) {
        for (auto kernel : {latchwork_compose, latchwork_forward, latchwork_backward})
            if (random.percent(10) && p.time && !says_when_out_of_memory(random, kernel, &p))
                fail("the kernel does not say that there is no memory");
    }
    void check(Random& random) {
        for (int64_t b = 0; b < p.batch; ++b)
            for (int64_t u = 0; u < p.width; ++u)
                p.dtype == FLOAT64 ? check_unit<double>(random, b, u) : check_unit<float>(random, b, u);
        for (Tensor* each : {&x, &grad_r, &grad_s, &grad_state, &grad_x0, &whole_r, &whole_s})
            if (!each->padding_untouched()) fail("the kernel wrote between rows");
    }
};

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 100000, [](Random& random, int64_t index, int64_t seed) {
        Case each = Case::draw(random);
        each.describe(index, seed);
        each.call();
        each.check(random);
        each.starve(random);
    });
}
