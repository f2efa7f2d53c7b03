// A monitor: a formula as a list of instructions, run step by step for a batch of traces. temporal/program.py makes the
// list and says what the instructions mean; temporal/step.py is the same in torch. State and counters are the caller's.
// Compiled once for each instruction set.
#include <cmath>

#include "abi.h"
#include "numbers.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {
namespace {

enum Op : int64_t {  // as in temporal/program.py
    SIGNAL, CONSTANT, LAG, FILL, LARGEST, SMALLEST, LATCH, SINCE, UNTIL,
    ADD, SUBTRACT, REVERSED, MULTIPLY, DIVIDE, NEGATE, ABS, SQRT, DISTANCE, NEAR, MINIMUM, MAXIMUM, IMPLIES,
};

template <class S>
S least(S a, S b) {  // a NaN spreads
    return a != a ? a : (b < a || b != b ? b : a);
}

template <class S>
S most(S a, S b) {
    return a != a ? a : (b > a || b != b ? b : a);
}

template <class S>
S better(bool minimum, S a, S b) {
    return minimum ? least(a, b) : most(a, b);
}

// A window of `size` steps, kept as a ring that is also a block: `place` of its entries are of the block that is being
// filled, the others, from place on, are the end of the block before. After the ring come the best of each entry to its
// block's end, and the best of the entries filled.
template <class S>
void window(const Instruction& i, bool minimum, int64_t batch, const S* in, S* out, S* ring, int64_t& place) {
    const S none = minimum ? infinity<S>() : -infinity<S>();
    S *ending = ring + i.size * batch, *filled = ending + i.size * batch;
    S* here = ring + place * batch;
    const S* rest = place + 1 < i.size ? ending + (place + 1) * batch : nullptr;
    for (int64_t n = 0; n < batch; ++n) {
        here[n] = in[n];
        filled[n] = place ? better(minimum, filled[n], in[n]) : in[n];
        out[n] = rest ? better(minimum, rest[n], filled[n]) : filled[n];
    }
    if (++place < i.size) return;
    place = 0;
    for (int64_t k = i.size - 1; k >= 0; --k)
        for (int64_t n = 0; n < batch; ++n)
            ending[k * batch + n] =
                better(minimum, k + 1 < i.size ? ending[(k + 1) * batch + n] : none, ring[k * batch + n]);
}

// The last `size` steps of the recurrence from -infinity, forwards (SINCE) or backwards (UNTIL) in time. The block works
// as above, for the composition of steps x -> max(min(r, x), s). State: the rings of r and s; r and s of the composition
// of each entry to its block's end; r and s of the composition of the entries filled.
template <class S>
void recurrence(const Instruction& i, bool backwards, int64_t batch, const S* in_r, const S* in_s, S* out, S* ring,
                int64_t& place) {
    const int64_t rows = i.size * batch;
    S *ring_s = ring + rows, *end_r = ring + 2 * rows, *end_s = ring + 3 * rows, *now_r = ring + 4 * rows;
    S* now_s = now_r + batch;
    const bool rest = place + 1 < i.size;
    const S *rest_r = end_r + (place + 1) * batch, *rest_s = end_s + (place + 1) * batch;
    for (int64_t n = 0; n < batch; ++n) {
        const S r = in_r[n], s = in_s[n];
        ring[place * batch + n] = r;
        ring_s[place * batch + n] = s;
        if (place == 0) now_r[n] = r, now_s[n] = s;
        else if (backwards) now_s[n] = most(now_s[n], least(now_r[n], s)), now_r[n] = least(now_r[n], r);
        else now_s[n] = most(least(r, now_s[n]), s), now_r[n] = least(now_r[n], r);
        if (!rest) out[n] = now_s[n];
        else if (backwards) out[n] = most(least(rest_r[n], now_s[n]), rest_s[n]);
        else out[n] = most(least(now_r[n], rest_s[n]), now_s[n]);
    }
    if (++place < i.size) return;
    place = 0;
    for (int64_t k = i.size - 1; k >= 0; --k)
        for (int64_t n = 0; n < batch; ++n) {
            const int64_t at = k * batch + n, later = at + batch;
            const S r = ring[at], s = ring_s[at];
            if (k + 1 == i.size) end_r[at] = r, end_s[at] = s;
            else if (backwards) end_s[at] = most(s, least(r, end_s[later])), end_r[at] = least(r, end_r[later]);
            else end_s[at] = most(least(end_r[later], s), end_s[later]), end_r[at] = least(end_r[later], r);
        }
}

template <class S, class F>
void each(int64_t batch, const S* __restrict a, const S* __restrict b, S* __restrict out, F f) {
    for (int64_t n = 0; n < batch; ++n) out[n] = f(a[n], b[n]);
}

template <class S>
void pointwise(int64_t op, int64_t batch, const S* a, const S* b, S* out) {
    switch (op) {
        case ADD: return each(batch, a, b, out, [](S p, S q) { return p + q; });
        case SUBTRACT: return each(batch, a, b, out, [](S p, S q) { return p - q; });
        case REVERSED: return each(batch, a, b, out, [](S p, S q) { return q - p; });
        case MULTIPLY: return each(batch, a, b, out, [](S p, S q) { return p * q; });
        case DIVIDE: return each(batch, a, b, out, [](S p, S q) { return p / q; });
        case NEGATE: return each(batch, a, b, out, [](S p, S) { return -p; });
        case ABS: return each(batch, a, b, out, [](S p, S) { return std::fabs(p); });
        case SQRT: return each(batch, a, b, out, [](S p, S) { return std::sqrt(p); });
        case DISTANCE: return each(batch, a, b, out, [](S p, S q) { return std::fabs(p - q); });
        case NEAR: return each(batch, a, b, out, [](S p, S q) { return -std::fabs(p - q); });
        case MINIMUM: return each(batch, a, b, out, [](S p, S q) { return least(p, q); });
        case MAXIMUM: return each(batch, a, b, out, [](S p, S q) { return most(p, q); });
        default: return each(batch, a, b, out, [](S p, S q) { return most(-p, q); });  // IMPLIES
    }
}

template <class S>
void latch(int64_t batch, const S* __restrict r, const S* __restrict s, S* __restrict state, S* __restrict out) {
    for (int64_t n = 0; n < batch; ++n) out[n] = state[n] = most(least(r[n], state[n]), s[n]);
}

template <class S>
void step(const Instruction* program, int64_t length, int64_t batch, S* values, S* state, const S* constants,
          int64_t* counters, const S* input, const void* const* rows, int64_t last, const S** known) {
    const int64_t time = counters[0]++;
    for (int64_t k = 0; k < length; ++k) {
        const Instruction& i = program[k];
        S* out = values + k * batch;
        const S *a = i.a < 0 ? nullptr : known[i.a], *b = i.b < 0 ? a : known[i.b];
        known[k] = out;
        S* own = state + i.state * batch;
        int64_t& place = counters[i.counter];
        switch (i.op) {
            case SIGNAL: known[k] = rows ? (const S*)rows[i.size] : input + i.size * batch; break;
            case CONSTANT: break;  // the caller has filled its row
            case LAG:
                for (int64_t n = 0; n < batch; ++n) out[n] = own[place * batch + n], own[place * batch + n] = a[n];
                if (++place == i.size) place = 0;
                break;
            case FILL: {
                const int64_t position = time - i.size;
                if (position >= 0 && position <= last) known[k] = a;
                else
                    for (int64_t n = 0; n < batch; ++n) out[n] = constants[k];
                break;
            }
            case LARGEST: window<S>(i, false, batch, a, out, own, place); break;
            case SMALLEST: window<S>(i, true, batch, a, out, own, place); break;
            case LATCH: latch<S>(batch, a, b, own, out); break;
            case SINCE: recurrence<S>(i, false, batch, a, b, out, own, place); break;
            case UNTIL: recurrence<S>(i, true, batch, a, b, out, own, place); break;
            default: pointwise<S>(i.op, batch, a, b, out);
        }
    }
}

template <class S>
void run(const Monitor& m) {
    S *values = (S*)m.values, *output = (S*)m.output;
    const S** known = (const S**)m.known;
    for (int64_t t = 0; t < m.steps; ++t) {
        const S* input = (const S*)m.input + t * m.signals * m.batch;
        step<S>(m.program, m.length, m.batch, values, (S*)m.state, (const S*)m.constants, m.counters, input, m.rows,
                m.last, known);
        for (int64_t k = 0; k < m.n_roots; ++k)
            for (int64_t n = 0; n < m.batch; ++n)
                output[(t * m.n_roots + k) * m.batch + n] = known[m.roots[k]][n] + S(0);
    }
}

}  // namespace
}  // namespace LATCHWORK_ISA

extern "C" int JOIN(latchwork_monitor_, LATCHWORK_ISA)(const Monitor* m) {
    if (m->dtype == FLOAT32) LATCHWORK_ISA::run<float>(*m);
    else LATCHWORK_ISA::run<double>(*m);
    return DONE;
}
