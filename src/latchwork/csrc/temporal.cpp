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

// x_t = max(min(r_t, x_{t-1}), s_t) along one row, backwards in time with step -1. r or s may be null: then there is no
// minimum, or no maximum.
template <class S>
void latch_row(int64_t time, const S* r, const S* s, S start, int64_t step, S* x) {
    S state = start;
    int64_t t = step > 0 ? 0 : time - 1;
    for (int64_t k = 0; k < time; ++k, t += step) {
        if (r) state = is_nan(r[t]) ? r[t] : (r[t] < state ? r[t] : state);
        if (s) state = is_nan(s[t]) ? s[t] : (s[t] > state ? s[t] : state);
        x[t] = state + S(0);
    }
}

// The gradient of that loop. At a tie it is shared evenly.
template <class S>
void latch_row_back(int64_t time, const S* grad, const S* r, const S* s, const S* x, S start, int64_t step, S* grad_r,
                    S* grad_s) {
    S carry = 0;
    int64_t t = step > 0 ? time - 1 : 0;
    for (int64_t k = 0; k < time; ++k, t -= step) {
        S total = grad[t] + carry;
        const S before = k + 1 < time ? x[t - step] : start;
        const S m = r ? (is_nan(r[t]) || r[t] < before ? r[t] : before) : before;
        if (s) {
            const S shared = m == s[t] ? total * S(0.5) : total;
            grad_s[t] = s[t] < m ? S(0) : shared;
            total = m < s[t] ? S(0) : shared;
        }
        if (r) {
            const S shared = r[t] == before ? total * S(0.5) : total;
            grad_r[t] = r[t] > before ? S(0) : shared;
            total = r[t] < before ? S(0) : shared;
        }
        carry = total;
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
    for (int64_t end = time; end > 0;) {
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

template <class S>
void latch(int64_t batch, int64_t time, const S* r, const S* s, double start, int64_t step, S* x, int64_t threads) {
    in_parallel(batch, threads, [&](int64_t b) {
        latch_row<S>(time, r ? r + b * time : nullptr, s ? s + b * time : nullptr, S(start), step, x + b * time);
    });
}

template <class S>
void latch_back(int64_t batch, int64_t time, const S* grad, const S* r, const S* s, const S* x, double start, int64_t step,
                S* grad_r, S* grad_s, int64_t threads) {
    in_parallel(batch, threads, [&](int64_t b) {
        latch_row_back<S>(time, grad + b * time, r ? r + b * time : nullptr, s ? s + b * time : nullptr, x + b * time,
                          S(start), step, r ? grad_r + b * time : nullptr, s ? grad_s + b * time : nullptr);
    });
}

// each(b, scratch) for every row b, with a Scratch(time) for each thread.
template <class Room, class Each>
void with_room(int64_t batch, int64_t time, int64_t threads, Each each) {
    const int64_t parts = threads < batch ? (threads < 1 ? 1 : threads) : batch;
    in_parallel(parts, parts, [&](int64_t part) {
        Room room(time);
        for (int64_t b = batch * part / parts; b < batch * (part + 1) / parts; ++b) each(b, room);
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
EXPORT int latchwork_latch(int64_t dtype, int64_t batch, int64_t time, const void* r, const void* s, double start,
                            int64_t step, void* x, int64_t threads) {
    EACH_DTYPE(latch<S>(batch, time, (const S*)r, (const S*)s, start, step, (S*)x, threads))
}

EXPORT int latchwork_latch_back(int64_t dtype, int64_t batch, int64_t time, const void* grad, const void* r,
                                 const void* s, const void* x, double start, int64_t step, void* grad_r, void* grad_s,
                                 int64_t threads) {
    EACH_DTYPE(latch_back<S>(batch, time, (const S*)grad, (const S*)r, (const S*)s, (const S*)x, start, step, (S*)grad_r,
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
