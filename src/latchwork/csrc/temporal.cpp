// The operators of temporal logic over rows of numbers: the recurrence of one state scalar, and the best of a sliding
// window. ops/temporal.py calls them and has the same in plain torch. Everything here is linear in time.
#include <cstdint>
#include <limits>

#include "abi.h"
#define LATCHWORK_ISA any_isa  // compiled once: the rows are sequential, and no instruction set makes them faster
#include "scratch.h"

namespace {

using any_isa::in_parallel;
using any_isa::Scratch;

template <class S>
bool is_nan(S a) {
    return a != a;
}

// The larger, or with MIN the smaller; a NaN spreads. The best so far comes first.
template <class S, bool MIN>
S better(S best, S a) {
    if (is_nan(a)) return a;
    if (MIN) return a < best ? a : best;
    return a > best ? a : best;
}

template <class S>
S least(S a, S b) {
    return better<S, true>(a, b);
}
template <class S>
S most(S a, S b) {
    return better<S, false>(a, b);
}

// x_t = max(min(r_t, x_{t-1}), s_t) from -infinity along one row, backwards in time with step -1.
template <class S>
void latch_row(int64_t time, const S* r, const S* s, int64_t step, S* x) {
    S state = -std::numeric_limits<S>::infinity();
    int64_t t = step > 0 ? 0 : time - 1;
    for (int64_t k = 0; k < time; ++k, t += step) {
        state = is_nan(r[t]) ? r[t] : (r[t] < state ? r[t] : state);
        state = is_nan(s[t]) ? s[t] : (s[t] > state ? s[t] : state);
        x[t] = state + S(0);
    }
}

// The gradient of that loop. At a tie it is shared evenly.
template <class S>
void latch_row_back(int64_t time, const S* grad, const S* r, const S* s, const S* x, int64_t step, S* grad_r, S* grad_s) {
    S carry = 0;
    int64_t t = step > 0 ? time - 1 : 0;
    for (int64_t k = 0; k < time; ++k, t -= step) {
        S total = grad[t] + carry;
        const S before = k + 1 < time ? x[t - step] : -std::numeric_limits<S>::infinity();
        const S m = is_nan(r[t]) || r[t] < before ? r[t] : before;
        const S above = m == s[t] ? total * S(0.5) : total;
        grad_s[t] = s[t] < m ? S(0) : above;
        total = m < s[t] ? S(0) : above;
        const S below = r[t] == before ? total * S(0.5) : total;
        grad_r[t] = r[t] > before ? S(0) : below;
        carry = r[t] < before ? S(0) : below;
    }
}

// Steps x -> max(min(r, x), s) in a row are one map: x clamped to what they make of -infinity and of +infinity. Where the
// result is not x, each step of them does what it does from that infinity. Where it is x, it is x after every step; a
// step can tie only if x is `low` or `high`, and `at_low` and `at_high` are the part of the gradient that x gets then.
template <class S>
struct Span {
    S low, high;
    double at_low, at_high;
    static Span step(S r, S s) { return {s, most(s, r), r < s ? 0 : r == s ? 0.25 : 0.5, 0.5}; }
    S operator()(S x) const { return most(least(high, x), low); }
    double passes(S x) const { return x == low ? at_low : x == high ? at_high : 1; }
    Span then(const Span& next) const {
        Span both{next(low), next(high), 0, 0};
        if ((*this)(both.low) == both.low) both.at_low = passes(both.low) * next.passes(both.low);
        if ((*this)(both.high) == both.high) both.at_high = passes(both.high) * next.passes(both.high);
        return both;
    }
};

// The gradient of a span's result y, by the x it came from: below y, above y, or equal to y and to `low` or `high`.
struct Shares {
    double below = 0, above = 0, at_low = 0, at_high = 0;
    // Take the gradient of span(x) = y and return the part that x gets.
    template <class S>
    double take(double grad, const Span<S>& span, S x, S y) {
        if (x < y) return below += grad, 0;
        if (x > y) return above += grad, 0;
        if (y == span.low) at_low += grad;
        else if (y == span.high) at_high += grad;
        return grad * span.passes(y);
    }
    // Give the gradient of both = first.then(second) to the two.
    template <class S>
    void split(const Span<S>& both, const Span<S>& first, const Span<S>& second, Shares& to_first, Shares& to_second) const {
        if (below != 0) to_first.below += to_second.take(below, second, first.low, both.low);
        if (above != 0) to_first.above += to_second.take(above, second, first.high, both.high);
        if (at_low != 0) to_first.take(to_second.take(at_low, second, first(both.low), both.low), first, both.low, both.low);
        if (at_high != 0)
            to_first.take(to_second.take(at_high, second, first(both.high), both.high), first, both.high, both.high);
    }
    // Give the gradient of a single step to its r and s.
    template <class S>
    void give(S r, S s, S& grad_r, S& grad_s) const {
        const double of_s = r > s ? 0 : r == s ? 0.5 : 1;
        grad_s += S(below + above * of_s + at_low * (r < s ? 1 : 0.5));
        grad_r += S(above * (1 - of_s) + (r == s ? at_low * 0.25 : at_high * 0.5));
    }
};

// The recurrence over the last `width` steps alone, from -infinity. Blocks of that width: what the end of one block makes
// of -infinity goes through the start of the next. r of a window's first step is not read, unless the window is cut off.
template <class S>
void span_row(int64_t time, const S* r, const S* s, int64_t step, int64_t width, S* x, S* ending) {
    r += step > 0 ? 0 : time - 1, s += step > 0 ? 0 : time - 1, x += step > 0 ? 0 : time - 1;
    for (int64_t first = 0; first < time; first += width) {
        const int64_t size = first + width < time ? width : time - first;
        S low, high;
        for (int64_t k = 0; k < size; ++k) {
            const S cap = r[(first + k) * step], own = s[(first + k) * step];
            high = k ? most(least(cap, high), own) : most(own, cap);
            low = k ? most(least(cap, low), own) : own;
            const S before = first && k + 1 < width ? ending[k + 1] : -std::numeric_limits<S>::infinity();
            x[(first + k) * step] = (k + 1 < width ? most(least(high, before), low) : low) + S(0);
        }
        for (int64_t k = size - 1; k >= 0; --k) {
            const S own = s[(first + k) * step], other = most(own, r[(first + k) * step]);
            const S next = k + 1 < size ? most(least(high, other), low) : other;
            ending[k] = low = k + 1 < size ? most(least(high, own), low) : own;
            high = next;
        }
    }
}

template <class S>
struct Spans {  // of a block's steps, each up to there, and of the steps of the block before, each to its end
    Scratch<Span<S>> room;
    Scratch<double> rest;
    Span<S>*starting, *ending;
    double* grad;
    explicit Spans(int64_t width)
        : room(2 * width), rest(width), starting(room.data), ending(starting + width), grad(rest.data) {}
};

// The gradient of span_row: that of its loop, window by window.
template <class S>
void span_row_back(int64_t time, const S* grad, const S* r, const S* s, const S* x, int64_t step, int64_t width, S* grad_r,
                   S* grad_s, Spans<S>& w) {
    const int64_t base = step > 0 ? 0 : time - 1;
    auto own = [&](int64_t k) { return Span<S>::step(r[base + k * step], s[base + k * step]); };
    auto give = [&](const Shares& to, int64_t k) {
        const int64_t t = base + k * step;
        to.give(r[t], s[t], grad_r[t], grad_s[t]);
    };
    for (int64_t t = 0; t < time; ++t) grad_r[t] = grad_s[t] = 0;
    for (int64_t first = 0; first < time; first += width) {
        const int64_t size = first + width < time ? width : time - first;
        for (int64_t k = 0; k < size; ++k) w.starting[k] = k ? w.starting[k - 1].then(own(first + k)) : own(first);
        for (int64_t k = 0; k < width; ++k) w.grad[k] = 0;
        Shares shares;
        for (int64_t k = size - 1; k >= 0; --k) {
            const int64_t t = base + (first + k) * step;
            const bool before = first && k + 1 < width;
            const S start = before ? w.ending[k + 1].low : -std::numeric_limits<S>::infinity();
            const double rest = is_nan(x[t]) ? 0 : shares.take(double(grad[t]), w.starting[k], start, x[t]);
            if (before) w.grad[k + 1] = rest;
            Shares to_step, to_rest;
            if (k) shares.split(w.starting[k], w.starting[k - 1], own(first + k), to_rest, to_step);
            give(k ? to_step : shares, first + k);
            shares = to_rest;
        }
        shares = Shares();
        for (int64_t k = 0; first && k < width; ++k) {
            shares.below += w.grad[k];
            Shares to_step, to_rest;
            const bool more = k + 1 < width;
            if (more) shares.split(w.ending[k], own(first - width + k), w.ending[k + 1], to_step, to_rest);
            give(more ? to_step : shares, first - width + k);
            shares = to_rest;
        }
        for (int64_t k = size - 1; k >= 0; --k)
            w.ending[k] = k + 1 < size ? own(first + k).then(w.ending[k + 1]) : own(first + k);
    }
}

// y_t is the best of x over the steps t + low to t + high that are in the row; `none` if there is no such step.
// Blocks of the window's width: a window ends one block and begins the next, so its best is the better of the best from
// its first step to the end of that block, and of the best from the start of the next block to its last step.
template <class S, bool MIN>
void window_row(int64_t time, int64_t low, int64_t high, const S* x, S* y, S* ending) {
    const S none = MIN ? std::numeric_limits<S>::infinity() : -std::numeric_limits<S>::infinity();
    const int64_t width = high - low + 1;
    auto clamp = [&](int64_t t, int64_t least) { return t < least ? least : (t > time ? time : t); };
    const int64_t before = clamp(-high, 0);          // up to here the window is before the row
    const int64_t opening = clamp(1 - low, before);  // up to here it begins at or before the row's first step
    const int64_t whole = clamp(time - high, opening);
    const int64_t closing = clamp(time - low, whole);  // up to here it begins within the row
    for (int64_t end = opening < time ? time : 0; end > 0;) {  // not read where no window begins within the row
        const int64_t first = (end - 1) / width * width;
        S best = none;
        for (int64_t t = end - 1; t >= first; --t) ending[t] = best = better<S, MIN>(best, x[t]);
        end = first;
    }
    int64_t next = 0, place = 0;  // the next step that enters, and its place in its block
    S best = none;
    auto enter = [&] {
        if (place == width) place = 0, best = none;
        best = better<S, MIN>(best, x[next++]);
        ++place;
    };
    int64_t t = 0;
    for (; t < before; ++t) y[t] = none;
    for (; t < opening; ++t) {
        while (next <= t + high && next < time) enter();
        y[t] = best;
    }
    while (next < t + high && next < time) enter();
    for (; t < whole; ++t) {
        enter();
        y[t] = better<S, MIN>(ending[t + low], best);
    }
    while (next < time && t < closing) enter();
    for (; t < closing; ++t) {
        const bool one_block = (t + low) / width == (time - 1) / width;
        y[t] = one_block ? ending[t + low] : better<S, MIN>(ending[t + low], best);
    }
    for (; t < time; ++t) y[t] = none;
}

template <class S>
bool attains(S a, S best) {
    return a == best || (is_nan(a) && is_nan(best));
}

template <class S>
struct Windows {  // what the backward of a row needs: the best from each step to its block's end and from its start
    Scratch<S> best;
    Scratch<int64_t> count;
    Scratch<double> grad;
    S *ending, *starting;
    int64_t *ending_count, *starting_count;  // how many attain it
    double *ending_grad, *starting_grad;
    explicit Windows(int64_t time)
        : best(2 * time), count(2 * time), grad(2 * time), ending(best.data), starting(ending + time),
          ending_count(count.data), starting_count(ending_count + time), ending_grad(grad.data),
          starting_grad(ending_grad + time) {}
};

// The gradient of window_row, shared evenly by all steps of a window that attain its best.
template <class S, bool MIN>
void window_row_back(int64_t time, int64_t low, int64_t high, const S* grad, const S* x, S* grad_x, Windows<S>& w) {
    const int64_t width = high - low + 1;
    for (int64_t first = 0; first < time; first += width) {
        const int64_t end = first + width < time ? first + width : time;
        for (int64_t t = first; t < end; ++t) {
            const bool fresh = t == first;
            w.starting[t] = fresh ? x[t] : better<S, MIN>(w.starting[t - 1], x[t]);
            const bool same = !fresh && attains(w.starting[t - 1], w.starting[t]);
            w.starting_count[t] = (same ? w.starting_count[t - 1] : 0) + attains(x[t], w.starting[t]);
        }
        for (int64_t t = end - 1; t >= first; --t) {
            const bool fresh = t == end - 1;
            w.ending[t] = fresh ? x[t] : better<S, MIN>(w.ending[t + 1], x[t]);
            const bool same = !fresh && attains(w.ending[t + 1], w.ending[t]);
            w.ending_count[t] = (same ? w.ending_count[t + 1] : 0) + attains(x[t], w.ending[t]);
        }
    }
    for (int64_t t = 0; t < time; ++t) w.ending_grad[t] = w.starting_grad[t] = 0;
    for (int64_t t = 0; t < time; ++t) {
        const int64_t i = t + low, j = t + high < time ? t + high : time - 1;
        if (j < 0 || i >= time) continue;
        if (i <= 0) {
            w.starting_grad[j] += double(grad[t]) / double(w.starting_count[j]);
        } else if (i / width == j / width) {
            w.ending_grad[i] += double(grad[t]) / double(w.ending_count[i]);
        } else {
            const S best = better<S, MIN>(w.ending[i], w.starting[j]);
            const bool left = attains(w.ending[i], best), right = attains(w.starting[j], best);
            const double share =
                double(grad[t]) / double((left ? w.ending_count[i] : 0) + (right ? w.starting_count[j] : 0));
            if (left) w.ending_grad[i] += share;
            if (right) w.starting_grad[j] += share;
        }
    }
    for (int64_t first = 0; first < time; first += width) {
        const int64_t end = first + width < time ? first + width : time;
        double sum = 0;
        for (int64_t t = end - 1; t >= first; --t) {  // of all prefixes from t on that have the same best
            sum += w.starting_grad[t];
            grad_x[t] = attains(x[t], w.starting[t]) ? S(sum) : S(0);
            if (t > first && !attains(w.starting[t - 1], w.starting[t])) sum = 0;
        }
        sum = 0;
        for (int64_t t = first; t < end; ++t) {
            sum += w.ending_grad[t];
            if (attains(x[t], w.ending[t])) grad_x[t] += S(sum);
            if (t + 1 < end && !attains(w.ending[t + 1], w.ending[t])) sum = 0;
        }
    }
}

// each(b, room) for every row b, with a Room(size) for each thread.
template <class Room, class Each>
void with_room(int64_t batch, int64_t size, int64_t threads, Each each) {
    const int64_t parts = threads < batch ? (threads < 1 ? 1 : threads) : batch;
    in_parallel(parts, parts, [&](int64_t part) {
        Room room(size);
        for (int64_t b = batch * part / parts; b < batch * (part + 1) / parts; ++b) each(b, room);
    });
}

template <class S>
void latch(int64_t batch, int64_t time, const S* r, const S* s, int64_t step, int64_t width, S* x, int64_t threads) {
    with_room<Scratch<S>>(batch, width, threads, [&](int64_t b, Scratch<S>& ending) {
        const int64_t row = b * time;
        if (width) span_row<S>(time, r + row, s + row, step, width, x + row, ending.data);
        else latch_row<S>(time, r + row, s + row, step, x + row);
    });
}

template <class S>
void latch_back(int64_t batch, int64_t time, const S* grad, const S* r, const S* s, const S* x, int64_t step, int64_t width,
                S* grad_r, S* grad_s, int64_t threads) {
    with_room<Spans<S>>(batch, width, threads, [&](int64_t b, Spans<S>& room) {
        const int64_t row = b * time;
        if (width) span_row_back<S>(time, grad + row, r + row, s + row, x + row, step, width, grad_r + row, grad_s + row, room);
        else latch_row_back<S>(time, grad + row, r + row, s + row, x + row, step, grad_r + row, grad_s + row);
    });
}

template <class S, bool MIN>
void window(int64_t batch, int64_t time, int64_t low, int64_t high, const S* x, S* y, int64_t threads) {
    with_room<Scratch<S>>(batch, time, threads, [&](int64_t b, Scratch<S>& ending) {
        window_row<S, MIN>(time, low, high, x + b * time, y + b * time, ending.data);
    });
}

template <class S, bool MIN>
void window_back(int64_t batch, int64_t time, int64_t low, int64_t high, const S* grad, const S* x, S* grad_x,
                 int64_t threads) {
    with_room<Windows<S>>(batch, time, threads, [&](int64_t b, Windows<S>& room) {
        window_row_back<S, MIN>(time, low, high, grad + b * time, x + b * time, grad_x + b * time, room);
    });
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define EACH_DTYPE(CALL)                                  \
    try {                                                 \
        if (dtype == FLOAT32) { using S = float; CALL; }  \
        else { using S = double; CALL; }                  \
    } catch (...) {                                       \
        return NO_MEMORY;                                 \
    }                                                     \
    return DONE;

// Each returns a code. Rows are contiguous, (batch, time). dtype: 0 float32, 1 float64. step: 1 or -1, the direction of time.
// width: 0, or the number of last steps that count, at most time.
EXPORT int latchwork_latch(int64_t dtype, int64_t batch, int64_t time, const void* r, const void* s, int64_t step,
                            int64_t width, void* x, int64_t threads) {
    EACH_DTYPE(latch<S>(batch, time, (const S*)r, (const S*)s, step, width, (S*)x, threads))
}

EXPORT int latchwork_latch_back(int64_t dtype, int64_t batch, int64_t time, const void* grad, const void* r,
                                 const void* s, const void* x, int64_t step, int64_t width, void* grad_r, void* grad_s,
                                 int64_t threads) {
    EACH_DTYPE(latch_back<S>(batch, time, (const S*)grad, (const S*)r, (const S*)s, (const S*)x, step, width, (S*)grad_r,
                             (S*)grad_s, threads))
}

EXPORT int latchwork_window(int64_t dtype, int64_t batch, int64_t time, int64_t low, int64_t high, int64_t minimum,
                             const void* x, void* y, int64_t threads) {
    EACH_DTYPE((minimum ? window<S, true>(batch, time, low, high, (const S*)x, (S*)y, threads)
                        : window<S, false>(batch, time, low, high, (const S*)x, (S*)y, threads)))
}

EXPORT int latchwork_window_back(int64_t dtype, int64_t batch, int64_t time, int64_t low, int64_t high, int64_t minimum,
                                  const void* grad, const void* x, void* grad_x, int64_t threads) {
    EACH_DTYPE((minimum ? window_back<S, true>(batch, time, low, high, (const S*)grad, (const S*)x, (S*)grad_x, threads)
                        : window_back<S, false>(batch, time, low, high, (const S*)grad, (const S*)x, (S*)grad_x,
                                                threads)))
}
