// fuzz [COUNT [SEED [INDEX]]]: runs the kernel on COUNT random cases, or only on case INDEX, and compares every number it
// writes with definition.h. LATCHWORK_ISA in the environment chooses the instruction set.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "definition.h"

extern "C" {
int latchwork_forward(const Problem*);
int latchwork_backward(const Problem*);
int latchwork_compose(const Problem*);
const char* latchwork_isa();
// Only where the sanitizers are linked.
void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));
// Fresh memory is full of NaN: a number that is used before it is written shows.
const char* __asan_default_options() {
    return "detect_leaks=1:detect_stack_use_after_return=1:malloc_fill_byte=255:max_malloc_fill_size=100000000";
}
}

namespace {

#ifdef __FLT16_MANT_DIG__
constexpr int64_t DTYPES = 4;
#else
constexpr int64_t DTYPES = 3;  // a compiler without float16 builds a kernel without it
#endif

struct Random {  // not the distributions of the standard library, which differ between compilers
    std::mt19937_64 engine;
    int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }
    bool percent(int64_t chance) { return below(100) < chance; }
    int64_t pick(std::initializer_list<int64_t> of) { return of.begin()[below(static_cast<int64_t>(of.size()))]; }
    double uniform() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
};

// A tensor (B, T, inner) in a heap block that ends with its last element, so that one element too far is an error that
// the address sanitizer sees. Between rows there is padding: NaN to be read, and not to be written.
struct Tensor {
    int64_t dtype, size, batch, time, inner;  // size: bytes of an element
    int64_t batch_stride = 0, time_stride = 0;
    std::vector<uint8_t> block;

    Tensor(Random& random, int64_t dtype, int64_t batch, int64_t time, int64_t inner, bool input)
        : dtype(dtype), size(definition::bytes(dtype)), batch(batch), time(time), inner(inner) {
        lay_out(random, input);
    }
    Tensor(Random& random, int64_t batch, int64_t time)  // of bool, one a step
        : dtype(-1), size(1), batch(batch), time(time), inner(1) {
        lay_out(random, true);
    }
    void lay_out(Random& random, bool input) {
        const int64_t row = inner + random.pick({0, 0, 1, 3, 8, 13}), gap = random.pick({0, 0, 1, 7, 16});
        batch_stride = row, time_stride = batch * row + gap;  // (T, B, ...) in memory
        if (random.percent(70)) time_stride = row, batch_stride = time * row + gap;
        if (input && random.percent(10)) batch_stride = 0;  // expanded
        if (input && random.percent(5)) time_stride = 0;
        const int64_t last = (batch - 1) * batch_stride + (time - 1) * time_stride;
        block.assign(time ? (last + inner) * size : 0, 0xff);
    }
    Rows rows() { return {block.data(), batch_stride, time_stride}; }
    uint8_t* at(int64_t b, int64_t t, int64_t e) { return &block[(b * batch_stride + t * time_stride + e) * size]; }
    double get(int64_t b, int64_t t, int64_t e) { return definition::read(dtype, at(b, t, e)); }
    bool padding_untouched() const {  // to be asked last: wipes out the rows
        Tensor wiped = *this;
        for (int64_t b = 0; b < batch; ++b)
            for (int64_t t = 0; t < time; ++t) std::memset(wiped.at(b, t, 0), 0xff, inner * size);
        return std::all_of(wiped.block.begin(), wiped.block.end(), [](uint8_t byte) { return byte == 0xff; });
    }
};

enum Kind : int64_t { CONTINUOUS, INTEGER, EXTREME };

struct Data {
    int64_t kind;
    double nan_rate, shift;

    double draw(Random& random, int64_t dtype) const {
        if (nan_rate > 0 && random.uniform() < nan_rate) return NAN;
        if (kind == CONTINUOUS) return 4 * random.uniform() - 2 + shift;
        if (kind == INTEGER) return random.percent(5) ? -0.0 : static_cast<double>(random.below(5) - 2) + shift;
        const int digits = dtype == FLOAT64 ? 53 : dtype == FLOAT32 ? 24 : dtype == BFLOAT16 ? 8 : 11;
        const int top = dtype == FLOAT64 ? 1024 : dtype == FLOAT16 ? 16 : 128, bottom = 3 - top;  // exponents
        double value = 0;
        switch (random.below(7)) {
            case 0: value = INFINITY; break;
            case 1: value = std::ldexp(1 + random.below(3), bottom - digits); break;  // the smallest denormals
            case 2: value = std::ldexp(random.uniform(), bottom - 1); break;
            case 3: value = std::ldexp(2 - std::ldexp(1, 1 - digits), top - 1); break;  // the largest number
            case 4: value = 1; break;
            case 5: value = random.uniform(); break;
        }
        return random.percent(50) ? -value : value;
    }
    void fill(Random& random, Tensor& tensor) const {
        for (int64_t b = 0; b < tensor.batch; ++b)
            for (int64_t t = 0; t < tensor.time; ++t)
                for (int64_t e = 0; e < tensor.inner; ++e)
                    definition::write(tensor.dtype, tensor.at(b, t, e), draw(random, tensor.dtype));
    }
};

std::string now;  // the case that runs, for whoever reports an error

void say_case() { std::fprintf(stderr, "in case %s\n", now.c_str()); }

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    say_case();
    std::exit(1);
}

struct Sizes {
    int64_t dtype, batch, time, width, degree, chunk, threads, n;
};

Sizes draw_sizes(Random& random) {
    Sizes z{};
    z.dtype = random.below(DTYPES);
    z.degree = random.percent(45) ? 0 : random.pick({1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 2, 3, 3, 4, 4, 5, 5, 8});
    z.n = std::max<int64_t>(z.degree, 1);
    z.width = random.percent(30) ? 1 + random.below(100)
                                 : random.pick({1, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65, 66, 72, 73, 90});
    z.batch = 1 + random.below(3);
    z.threads = 1 + random.below(3);
    z.chunk = random.pick({0, 1, 2, 5, 70, 1000});
    // Most cases are small. Some are large enough for more threads than one, with several strips in a row; a few are so
    // long that the kernel cuts them into chunks by itself.
    int64_t numbers = random.percent(60) ? 1000 : 4000, longest = 12;
    const int64_t large = random.below(1000);
    if (large < 20) {
        numbers = 40000, longest = 300;
        if (random.percent(50)) z.width += 200 + random.below(300);
        z.width = std::min(z.width, 1 + numbers / (z.batch * z.n * z.n));
    } else if (large < 23) {
        z.batch = 1, z.width = 1 + random.below(9), z.degree = random.pick({0, 0, 2}), z.n = z.degree ? 2 : 1;
        z.chunk = 0, numbers = 60000, longest = 6000;
    }
    const int64_t most = numbers / (z.batch * z.width * z.n * z.n);
    z.time = 1 + random.below(std::max<int64_t>(1, std::min(longest, most)));
    if (large >= 990) z.time = 0;
    if (large >= 20 && large < 23) z.time = std::max<int64_t>(1, std::min(longest, most) - random.below(100));
    return z;
}

bool same(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// The tensors of a case. The starts (B, ...) are tensors of one time.
struct Case {
    Sizes z;
    int64_t resets;  // 0: null
    Data data;
    Tensor r, s, grad, state, x0, reset, x, grad_r, grad_s, grad_state, grad_x0, whole_r, whole_s;

    static Case draw(Random& random) {
        const Sizes z = draw_sizes(random);
        auto tensor = [&](int64_t time, int64_t unit, bool input) {
            return Tensor(random, z.dtype, z.batch, time, z.width * unit, input);
        };
        const int64_t n = z.n, t = z.time;
        Case c{z,
               random.pick({0, 0, 5, 30, 100}),
               {random.below(3), random.pick({0, 0, 1, 40}) / 1000.0, random.pick({0, 1, 3}) / 1.0},
               tensor(t, n * n, true), tensor(t, n, true), tensor(t, n, true), tensor(1, n, true), tensor(1, n, true),
               Tensor(random, z.batch, t),
               tensor(t, n, false), tensor(t, n * n, false), tensor(t, n, false), tensor(1, n, false),
               tensor(1, n, false), tensor(1, n * n, false), tensor(1, n, false)};
        // r above s lets states and gradients pass through many steps.
        Data{c.data.kind, c.data.nan_rate, c.data.shift}.fill(random, c.r);
        Data{c.data.kind, c.data.nan_rate, -c.data.shift}.fill(random, c.s);
        Data{random.percent(50) ? CONTINUOUS : c.data.kind, c.data.nan_rate, 0}.fill(random, c.grad);
        for (Tensor* start : {&c.state, &c.x0}) Data{c.data.kind, c.data.nan_rate, 0}.fill(random, *start);
        for (int64_t b = 0; b < z.batch; ++b)
            for (int64_t t = 0; t < z.time; ++t) *c.reset.at(b, t, 0) = random.percent(c.resets);
        return c;
    }

    std::string describe() {
        std::string text = "dtype " + std::to_string(z.dtype) + " B " + std::to_string(z.batch) + " T " +
                           std::to_string(z.time) + " width " + std::to_string(z.width) + " degree " +
                           std::to_string(z.degree) + " chunk " + std::to_string(z.chunk) + " threads " +
                           std::to_string(z.threads) + " kind " + std::to_string(data.kind) + " resets " +
                           std::to_string(resets) + "% nan " + std::to_string(data.nan_rate) + " shift " +
                           std::to_string(data.shift) + " strides";
        for (Tensor* each : {&r, &s, &grad, &state, &x0, &reset, &x, &grad_r, &grad_s})
            text += " " + std::to_string(each->batch_stride) + "," + std::to_string(each->time_stride);
        return text;
    }

    // Calls the kernel as ops/cpu.py does, each function with what it needs and null for the rest.
    void call() {
        const std::vector<Tensor> inputs{r, s, grad, state, x0, reset};
        Problem start{};
        start.dtype = z.dtype, start.batch = z.batch, start.time = z.time, start.width = z.width;
        start.degree = z.degree, start.threads = z.threads, start.chunk = z.chunk;
        start.r = r.rows(), start.s = s.rows();
        if (resets) start.reset = reset.rows(), start.x0 = x0.rows();
        Problem forward = start;
        forward.state = state.rows(), forward.x = x.rows();
        Problem backward = forward;
        backward.grad = grad.rows(), backward.grad_r = grad_r.rows(), backward.grad_s = grad_s.rows();
        backward.grad_state = grad_state.rows();
        if (resets) backward.grad_x0 = grad_x0.rows();
        Problem compose = start;
        compose.chunk = 0, compose.whole_r = whole_r.rows(), compose.whole_s = whole_s.rows();
        if (z.time && (latchwork_forward(&forward) || latchwork_backward(&backward))) fail("the kernel refused");
        if (latchwork_compose(&compose)) fail("the kernel refused");
        const Tensor* after[] = {&r, &s, &grad, &state, &x0, &reset};
        for (size_t i = 0; i < inputs.size(); ++i)
            if (after[i]->block != inputs[i].block) fail("the kernel wrote to its input " + std::to_string(i));
    }

    void compare(const char* name, Tensor& got, int64_t b, int64_t t, int64_t e, double wanted) {
        wanted = definition::rounded(z.dtype, wanted);
        const double value = got.get(b, t, e);
        if (same(value, wanted)) return;
        char text[200];
        std::snprintf(text, sizeof text, "%s[%lld, %lld, %lld] is %.17g, must be %.17g", name, static_cast<long long>(b),
                      static_cast<long long>(t), static_cast<long long>(e), value, wanted);
        fail(text);
    }

    template <class C>
    void check_unit(Random& random, int64_t b, int64_t u) {
        const int64_t n = z.n;
        definition::Unit<C> unit{z.degree, n, z.time, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
        auto take = [&](Tensor& from, int64_t t, int64_t count, std::vector<C>& to) {
            for (int64_t e = 0; e < count; ++e) to.push_back(static_cast<C>(from.get(b, t, u * count + e)));
        };
        for (int64_t t = 0; t < z.time; ++t) {
            take(r, t, n * n, unit.r), take(s, t, n, unit.s), take(grad, t, n, unit.grad);
            unit.reset.push_back(resets && *reset.at(b, t, 0));
        }
        take(state, 0, n, unit.state), take(x0, 0, n, unit.x0);
        unit.forward(unit.state);
        if (z.time) {
            unit.backward();
            for (int64_t t = 0; t < z.time; ++t) {
                for (int64_t e = 0; e < n; ++e) compare("x", x, b, t, u * n + e, unit.x[t * n + e]);
                for (int64_t e = 0; e < n; ++e) compare("grad_s", grad_s, b, t, u * n + e, unit.grad_s[t * n + e]);
                for (int64_t e = 0; e < n * n; ++e)
                    compare("grad_r", grad_r, b, t, u * n * n + e, unit.grad_r[t * n * n + e]);
            }
            for (int64_t e = 0; e < n; ++e) {
                compare("grad_state", grad_state, b, 0, u * n + e, unit.grad_state[e]);
                if (resets) compare("grad_x0", grad_x0, b, 0, u * n + e, unit.grad_x0[e]);
            }
        }
        check_composed(random, unit, b, u);
    }

    // Pairs may differ and yet be the same map: compare what they make of some states.
    template <class C>
    void check_composed(Random& random, definition::Unit<C>& unit, int64_t b, int64_t u) {
        const int64_t n = z.n;
        std::vector<C> whole_r_, whole_s_, from(n), after(n);
        for (int64_t e = 0; e < n * n; ++e) whole_r_.push_back(static_cast<C>(whole_r.get(b, 0, u * n * n + e)));
        for (int64_t e = 0; e < n; ++e) whole_s_.push_back(static_cast<C>(whole_s.get(b, 0, u * n + e)));
        for (int64_t trial = 0; trial < 2; ++trial) {
            for (C& value : from) {
                const double drawn = Data{data.kind, 0, 0}.draw(random, z.dtype);
                value = static_cast<C>(definition::rounded(z.dtype, drawn));
            }
            definition::step(n, whole_r_.data(), whole_s_.data(), from.data(), after.data());
            unit.forward(from);
            for (int64_t e = 0; e < n; ++e) {
                const C wanted = z.time ? unit.x[(z.time - 1) * n + e] : from[e];
                if (!same(after[e] + C(0), wanted + C(0)))
                    fail("compose[" + std::to_string(b) + ", " + std::to_string(u * n + e) + "] makes " +
                         std::to_string(after[e]) + ", must make " + std::to_string(wanted));
            }
        }
    }

    void check(Random& random) {
        for (int64_t b = 0; b < z.batch; ++b)
            for (int64_t u = 0; u < z.width; ++u)
                z.dtype == FLOAT64 ? check_unit<double>(random, b, u) : check_unit<float>(random, b, u);
        for (Tensor* each : {&x, &grad_r, &grad_s, &grad_state, &grad_x0, &whole_r, &whole_s})
            if (!each->padding_untouched()) fail("the kernel wrote between rows");
    }
};

void run(int64_t seed, int64_t index) {
    std::seed_seq both{seed, index};
    Random random{std::mt19937_64(both)};
    Case each = Case::draw(random);
    now = std::to_string(index) + " of seed " + std::to_string(seed) + ", " + latchwork_isa() + ": " + each.describe();
    each.call();
    each.check(random);
}

}  // namespace

int main(int count, char** arguments) {
    auto argument = [&](int i, int64_t otherwise) { return i < count ? std::atoll(arguments[i]) : otherwise; };
    const int64_t seed = argument(2, 0), first = argument(3, 0), last = count > 3 ? first + 1 : argument(1, 100000);
    const char* isa = std::getenv("LATCHWORK_ISA");
    if (isa && std::strcmp(isa, latchwork_isa())) {
        std::fprintf(stderr, "this processor does not have %s\n", isa);
        return 77;
    }
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_case);
    for (int64_t index = first; index < last; ++index) {
        run(seed, index);
        const long long done = index + 1;
        if (done % 10000 == 0) std::fprintf(stderr, "%s: %lld cases\n", latchwork_isa(), done);
    }
    std::printf("%lld passed, 0 failed\n", static_cast<long long>(last - first));
}
