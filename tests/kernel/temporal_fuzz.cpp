// temporal_fuzz [COUNT [SEED [INDEX]]]: the rows and the monitors of temporal logic on COUNT random cases, or only on case
// INDEX, against nested loops straight from the semantics.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cases.h"

extern "C" {
int latchwork_latch(int64_t dtype, int64_t batch, int64_t time, const void* r, const void* s, int64_t step, int64_t width,
                    void* x, int64_t threads);
int latchwork_latch_back(int64_t dtype, int64_t batch, int64_t time, const void* grad, const void* r, const void* s,
                         const void* x, int64_t step, int64_t width, void* grad_r, void* grad_s, int64_t threads);
int latchwork_window(int64_t dtype, int64_t batch, int64_t time, int64_t low, int64_t high, int64_t minimum,
                     const void* x, void* y, int64_t threads);
int latchwork_window_back(int64_t dtype, int64_t batch, int64_t time, int64_t low, int64_t high, int64_t minimum,
                          const void* grad, const void* x, void* grad_x, int64_t threads);
}

namespace {

void differs(const char* what, int64_t place, double got, double expected) {
    fail("%s at %ld: got %.17g, expected %.17g", what, long(place), got, expected);
}

template <class S>
using Row = std::vector<S>;

template <class S>
bool same(S a, S b) {
    return (a == b && !(a == 0 && std::signbit(a))) || (a != a && b != b);
}
template <class S>
bool close(S a, double b) {
    return std::fabs(a - b) <= (sizeof(S) == 4 ? 1e-5 : 1e-13) * (1 + std::fabs(b));
}

// Both spread a NaN.
template <class S>
S least(S a, S b) {
    return a != a || b != b ? S(NAN) : b < a ? b : a;
}
template <class S>
S most(S a, S b) {
    return a != a || b != b ? S(NAN) : b > a ? b : a;
}

template <class S>
Row<S> draw(Random& random, int64_t size, int64_t nans) {
    Row<S> row(size);
    const bool integers = random.percent(60);  // which tie
    for (S& each : row) {
        each = integers ? S(random.below(7) - 3) : S(4 * random.uniform() - 2);
        if (random.percent(3)) each = random.percent(50) ? S(INFINITY) : -S(INFINITY);
        if (random.percent(3)) each = -S(0);
        if (random.below(1000) < nans) each = S(NAN);
    }
    return row;
}

// r since s at step t: the best over every step k from `first` on of s_k and all r after it; and of -infinity and all r,
// where the window begins before the trace.
template <class S>
S since(const Row<S>& r, const Row<S>& s, int64_t first, int64_t t) {
    S best = -S(INFINITY);
    for (int64_t j = 0; first < 0 && j <= t; ++j) best = least(best, r[j]);
    for (int64_t k = std::max<int64_t>(first, 0); k <= t; ++k) {
        S value = s[k];
        for (int64_t j = k + 1; j <= t; ++j) value = least(value, r[j]);
        best = most(best, value);
    }
    return best;
}

template <class S>
void latches(Random& random) {
    const int64_t batch = 1 + random.below(3), time = random.below(20), step = random.percent(50) ? 1 : -1;
    const int64_t dtype = sizeof(S) == 4 ? FLOAT32 : FLOAT64, threads = 1 + random.below(2), nans = random.pick({0, 20});
    const int64_t width = random.percent(30) ? 0 : random.below(time + 1);
    const Row<S> r = draw<S>(random, batch * time, nans), s = draw<S>(random, batch * time, nans);
    Row<S> x(batch * time), grad(batch * time), grad_r(batch * time), grad_s(batch * time);
    for (S& each : grad) each = S(random.below(9) - 4);
    int code = latchwork_latch(dtype, batch, time, r.data(), s.data(), step, width, x.data(), threads);
    if (code != DONE) differs("code", 0, code, DONE);
    code = latchwork_latch_back(dtype, batch, time, grad.data(), r.data(), s.data(), x.data(), step, width, grad_r.data(),
                                grad_s.data(), threads);
    if (code != DONE) differs("code", 0, code, DONE);
    for (int64_t b = 0; b < batch; ++b) {
        auto at = [&](int64_t t) { return b * time + (step > 0 ? t : time - 1 - t); };  // t in the direction of `step`
        Row<S> own_r(time), own_s(time);
        for (int64_t t = 0; t < time; ++t) own_r[t] = r[at(t)], own_s[t] = s[at(t)];
        Row<double> to_r(time), to_s(time);
        for (int64_t t = 0; t < time; ++t) {
            const int64_t first = width ? t - width + 1 : -1;
            const S expected = since(own_r, own_s, first, t);
            if (!same(x[at(t)], expected)) differs("latch", at(t), double(x[at(t)]), double(expected));
            // Each output sends its gradient back through its loop by itself; a tie halves it.
            double share = double(grad[at(t)]);
            for (int64_t k = t; k >= 0 && k >= first && share != 0; --k) {
                const S before = k && k > first ? since(own_r, own_s, first, k - 1) : -S(INFINITY), m = least(own_r[k], before);
                if (own_s[k] >= m) {
                    if (own_s[k] == m) share /= 2;
                    to_s[k] += share;
                    if (own_s[k] > m) break;
                }
                if (own_r[k] <= before) {
                    if (own_r[k] == before) share /= 2;
                    to_r[k] += share;
                    if (own_r[k] < before) break;
                }
            }
        }
        if (nans) continue;
        for (int64_t t = 0; t < time; ++t) {
            if (!close(grad_r[at(t)], to_r[t])) differs("grad_r", at(t), double(grad_r[at(t)]), to_r[t]);
            if (!close(grad_s[at(t)], to_s[t])) differs("grad_s", at(t), double(grad_s[at(t)]), to_s[t]);
        }
    }
}

template <class S>
void windows(Random& random) {
    const int64_t batch = 1 + random.below(3), time = 1 + random.below(30), minimum = random.below(2);
    const int64_t low = random.below(2 * time + 9) - time - 4, high = low + random.below(time + 5);
    const int64_t dtype = sizeof(S) == 4 ? FLOAT32 : FLOAT64, threads = 1 + random.below(2), nans = random.pick({0, 20});
    const Row<S> x = draw<S>(random, batch * time, nans);
    Row<S> y(batch * time), grad(batch * time), grad_x(batch * time);
    for (S& each : grad) each = S(random.below(9) - 4);
    const bool out = random.percent(10);
    if (out) latchwork_fail_allocation(random.below(2));
    int code = latchwork_window(dtype, batch, time, low, high, minimum, x.data(), y.data(), threads);
    if (out) {  // says so, and does its work when asked again
        const bool failed = latchwork_fail_allocation(-1) < 0;
        if (failed != (code == NO_MEMORY)) differs("code without memory", 0, code, NO_MEMORY);
        code = latchwork_window(dtype, batch, time, low, high, minimum, x.data(), y.data(), threads);
    }
    if (code != DONE) differs("code", 0, code, DONE);
    code = latchwork_window_back(dtype, batch, time, low, high, minimum, grad.data(), x.data(), grad_x.data(), threads);
    if (code != DONE) differs("code", 0, code, DONE);
    for (int64_t b = 0; b < batch; ++b) {
        const S* row = x.data() + b * time;
        Row<double> expected(time);
        for (int64_t t = 0; t < time; ++t) {
            S best = minimum ? S(INFINITY) : -S(INFINITY);
            int64_t attaining = 0;
            const int64_t first = std::max<int64_t>(t + low, 0), last = std::min(t + high, time - 1);
            for (int64_t k = first; k <= last; ++k) best = minimum ? least(best, row[k]) : most(best, row[k]);
            const S got = y[b * time + t];
            if (!(got == best || (got != got && best != best))) differs("window", t, double(got), double(best));
            auto attains = [&](int64_t k) { return row[k] == best || (row[k] != row[k] && best != best); };
            for (int64_t k = first; k <= last; ++k) attaining += attains(k);
            for (int64_t k = first; k <= last; ++k)
                if (attains(k)) expected[k] += double(grad[b * time + t]) / double(attaining);
        }
        for (int64_t t = 0; t < time; ++t)
            if (!close(grad_x[b * time + t], expected[t]))
                differs("window's gradient", t, double(grad_x[b * time + t]), expected[t]);
    }
}

// As in csrc/monitor.cpp.
enum { SIGNAL, CONSTANT, LAG, FILL, LARGEST, SMALLEST, LATCH, SINCE, UNTIL, ADD, DIVIDE = 13, IMPLIES = 21 };

// A random program over two signals, and the values of every instruction at every step, from the whole history of those
// it takes.
template <class S>
struct Machine {
    int64_t batch, time, rows = 0;
    std::vector<Instruction> program;
    Row<S> constants;
    Row<S> starts;  // of the rows of state
    std::vector<std::vector<Row<S>>> values;  // [instruction][step][trace]

    void keep(int64_t count, S value) { rows += count, starts.insert(starts.end(), count, value); }
    void add(Random& random, const std::vector<std::vector<Row<S>>>& signals, int64_t last) {
        const int64_t number = int64_t(program.size());
        const int64_t op = number < 2 ? int64_t(SIGNAL) : 1 + random.below(IMPLIES);
        const int64_t size = op == SIGNAL ? number : op == FILL ? random.below(3) : 1 + random.below(6);
        Instruction made{op, -1, -1, size, rows, number + 1};
        const S high = S(INFINITY), low = -high;
        if (op > CONSTANT) made.a = random.below(number);
        if (op >= LATCH) made.b = random.below(op == DIVIDE ? 2 : number);  // by a signal: of two zeros either may be the best
        constants.push_back(op == LATCH ? low : S(random.below(5) - 2));
        if (op == LAG) keep(size, low);
        if (op == LARGEST || op == SMALLEST) keep(2 * size + 1, op == SMALLEST ? high : low);
        if (op == LATCH) keep(1, low);
        if (op == SINCE || op == UNTIL)  // rings, compositions, the composition of the entries filled: r and s of each
            keep(size, high), keep(size, low), keep(size, high), keep(size, low), keep(1, high), keep(1, low);
        program.push_back(made);
        std::vector<Row<S>> found(time, Row<S>(batch));
        for (int64_t t = 0; t < time; ++t)
            for (int64_t n = 0; n < batch; ++n) {
                auto of = [&](int64_t which, int64_t at) { return values[which][at][n]; };
                const int64_t first = std::max<int64_t>(0, t - size + 1);
                S best = op == SMALLEST ? high : low;
                switch (op) {
                    case SIGNAL: best = signals[number][t][n]; break;
                    case CONSTANT: best = constants[number]; break;
                    case LAG: best = t >= size ? of(made.a, t - size) : low; break;
                    case FILL: best = t >= size && t - size <= last ? of(made.a, t) : constants[number]; break;
                    case LARGEST:
                        for (int64_t k = first; k <= t; ++k) best = most(best, of(made.a, k));
                        break;
                    case SMALLEST:
                        for (int64_t k = first; k <= t; ++k) best = least(best, of(made.a, k));
                        break;
                    case LATCH:
                        for (int64_t k = 0; k <= t; ++k) best = most(least(of(made.a, k), best), of(made.b, k));
                        break;
                    case SINCE:  // what comes before the trace is r = inf, s = -inf: it changes nothing
                        for (int64_t k = first; k <= t; ++k) best = most(least(of(made.a, k), best), of(made.b, k));
                        break;
                    case UNTIL:
                        for (int64_t k = t; k >= first; --k) best = most(least(of(made.a, k), best), of(made.b, k));
                        break;
                    default: best = pointwise(op, of(made.a, t), of(made.b, t));
                }
                found[t][n] = best;
            }
        values.push_back(found);
    }
    // Timed since and until read one r fewer than the recurrence from -inf does, so that a NaN in it may not show.
    bool compares(int64_t trace) const {
        bool timed = false, nan = false;
        for (int64_t k = 0; k < int64_t(program.size()); ++k) {
            timed |= program[k].op == SINCE || program[k].op == UNTIL;
            for (const Row<S>& row : values[k]) nan |= row[trace] != row[trace];
        }
        return !(timed && nan);
    }
    static S pointwise(int64_t op, S p, S q) {
        const S of[] = {p + q, p - q, q - p, p * q, p / q, -p, std::fabs(p), std::sqrt(p), std::fabs(p - q),
                        -std::fabs(p - q), least(p, q), most(p, q), most(-p, q)};
        return of[op - ADD];
    }
};

template <class S>
void monitors(Random& random) {
    Machine<S> machine;
    machine.batch = random.pick({1, 1, 2, 5, 16, 33}), machine.time = random.below(20);
    const int64_t batch = machine.batch, time = machine.time, last = random.percent(30) ? random.below(20) : 1 << 20;
    const int64_t length = 2 + random.below(9), nans = random.pick({0, 0, 20});
    std::vector<std::vector<Row<S>>> signals(2);
    Row<S> input;
    for (int64_t t = 0; t < time; ++t)
        for (auto& signal : signals) {
            signal.push_back(draw<S>(random, batch, nans));
            input.insert(input.end(), signal[t].begin(), signal[t].end());
        }
    for (int64_t k = 0; k < length; ++k) machine.add(random, signals, last);
    Row<S> values(length * batch), state(machine.rows * batch), output(time * 2 * batch);
    for (int64_t row = 0; row < machine.rows; ++row)
        for (int64_t n = 0; n < batch; ++n) state[row * batch + n] = machine.starts[row];
    for (int64_t k = 0; k < length * batch; ++k) values[k] = machine.constants[k / batch];
    std::vector<int64_t> counters(length + 1);
    std::vector<const void*> known(length);
    const int64_t roots[] = {random.below(length), length - 1};
    for (int64_t t = 0, steps; t < time; t += steps) {  // in chunks; a chunk of one step may say where its rows are
        steps = 1 + random.below(time - t);
        const S* from = input.data() + t * 2 * batch;
        const void* rows[] = {from, from + batch};
        Monitor m{sizeof(S) == 4 ? FLOAT32 : FLOAT64, machine.program.data(), length, batch, 2, steps,
                  values.data(), state.data(), machine.constants.data(), counters.data(), from, roots, 2,
                  output.data() + t * 2 * batch, last, steps == 1 && random.percent(50) ? rows : nullptr, known.data()};
        const int code = latchwork_monitor(&m);
        if (code != DONE) differs("code", 0, code, DONE);
    }
    for (int64_t t = 0; t < time; ++t)
        for (int64_t k = 0; k < 2; ++k)
            for (int64_t n = 0; n < batch; ++n) {
                const S got = output[(t * 2 + k) * batch + n], expected = machine.values[roots[k]][t][n];
                if (machine.compares(n) && !same(got, expected)) differs("monitor", t, double(got), double(expected));
            }
}

}  // namespace

int main(int count, char** arguments) {
    return run_cases(count, arguments, 1000, [](Random& random, int64_t index, int64_t seed) {
        std::snprintf(now, sizeof now, "temporal_fuzz 1 %ld %ld (%s)", long(seed), long(index), latchwork_isa());
        const bool single = random.percent(50);
        switch (random.below(3)) {
            case 0: single ? latches<float>(random) : latches<double>(random); break;
            case 1: single ? windows<float>(random) : windows<double>(random); break;
            default: single ? monitors<float>(random) : monitors<double>(random);
        }
    });
}
