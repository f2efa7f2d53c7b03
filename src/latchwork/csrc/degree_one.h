// Degree one: x = max(min(r, x), s), elementwise over D contiguous lanes.
#pragma once
#include "numbers.h"
#include "problem.h"

namespace LATCHWORK_ISA {

// A tensor's numbers at one time, and how far the next time is.
template <class S>
struct Line {
    S* at;
    int64_t time;
};

// K vectors of lanes over `steps` steps, their states in registers; `lanes` is less than K vectors only where K = 1.
// x is the state before the first step and, after, of the last.
template <class S, int K>
__attribute__((noinline)) void forward_lanes(Line<const S> r, Line<const S> s, Line<S> out, int64_t steps, int64_t lanes,
                                             Compute<S>* x) {
    constexpr int L = Of<S>::LANES;
    using C = Compute<S>;
    Vector<S> state[K];
    for (int k = 0; k < K; ++k) state[k] = load<C>(x + k * L, lanes);
    for (int64_t t = 0; t < steps; ++t, r.at += r.time, s.at += s.time, out.at += out.time) {
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
            state[k] = advance(load<S>(r.at + k * L, lanes), load<S>(s.at + k * L, lanes), state[k]);
            store<S>(out.at + k * L, state[k] + C(0), lanes);  // + 0: never -0
        }
    }
    for (int k = 0; k < K; ++k) store<C>(x + k * L, state[k], lanes);
}

// The same backward, from the last step. `first` is the state that the first step started from; the others started from
// the x of the step before. The carry comes from later steps and leaves for earlier ones.
template <class S, int K, bool Store>
__attribute__((noinline)) void backward_lanes(Line<const S> grad, Line<const S> r, Line<const S> s, Line<const S> x,
                                              Line<S> grad_r, Line<S> grad_s, int64_t steps, int64_t lanes,
                                              const S* first, Compute<S>* carry) {
    constexpr int L = Of<S>::LANES;
    using C = Compute<S>;
    using V = Vector<S>;
    V carried[K];
    for (int k = 0; k < K; ++k) carried[k] = load<C>(carry + k * L, lanes);
    for (int64_t t = steps - 1; t >= 0; --t) {
        const S *g_t = grad.at + t * grad.time, *r_t = r.at + t * r.time, *s_t = s.at + t * s.time;
        const S* before = t ? x.at + (t - 1) * x.time : first;
        S *to_r = Store ? grad_r.at + t * grad_r.time : nullptr, *to_s = Store ? grad_s.at + t * grad_s.time : nullptr;
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
            V r_k = load<S>(r_t + k * L, lanes), s_k = load<S>(s_t + k * L, lanes), x_k = load<S>(before + k * L, lanes);
            V m = minimum(r_k, x_k);
            V g = load<S>(g_t + k * L, lanes) + carried[k];
            V shared = m == s_k ? g * C(0.5) : g;  // a tie is shared evenly
            V g_m = m < s_k ? V{} : shared;
            V shared_m = r_k == x_k ? g_m * C(0.5) : g_m;
            carried[k] = r_k < x_k ? V{} : shared_m;
            if constexpr (Store) {
                store<S>(to_s + k * L, s_k < m ? V{} : shared, lanes);
                store<S>(to_r + k * L, x_k < r_k ? V{} : shared_m, lanes);
            }
        }
    }
    for (int k = 0; k < K; ++k) store<C>(carry + k * L, carried[k], lanes);
}

// Calls f(integral K, first lane, lanes) for pieces of Most, Most / 2, ... 1 vectors, and a part of one, that cover `lanes`.
template <int K>
struct Vectors {
    static constexpr int count = K;
};
template <int L, int K, class F>
LATCHWORK_INLINE void for_pieces(int64_t lanes, int64_t first, F&& f) {
    for (; lanes >= K * L; lanes -= K * L, first += K * L) f(Vectors<K>{}, first, int64_t(K * L));
    if constexpr (K > 1)
        for_pieces<L, K / 2>(lanes, first, f);
    else if (lanes)
        f(Vectors<1>{}, first, lanes);
}

// A strip: lanes [first, first + lanes) of one batch row. The methods run it over steps [begin, end).
template <class S>
struct StripOne {
    using C = Compute<S>;
    static constexpr int L = Of<S>::LANES;
    const Problem& p;
    int64_t b, first, lanes;
    int64_t tile;  // steps that all pieces take before the next, so that a row's cache lines meet them all

    static StripOne make(const Problem& p, int64_t index, int64_t strips, int64_t strip_lanes) {
        int64_t first = index % strips * strip_lanes;
        int64_t lanes = p.width - first < strip_lanes ? p.width - first : strip_lanes;
        int64_t tile = 4096 / lanes;
        return {p, index / strips, first, lanes, tile < 2 ? 2 : tile};
    }
    int64_t state_size() const { return lanes; }
    int64_t pair_size() const { return 3 * lanes; }

    S* at(const Rows& rows, int64_t t) const {
        return static_cast<S*>(rows.data) + b * rows.batch + t * rows.time + first;
    }
    Line<S> line(const Rows& rows, int64_t t, int64_t lane) const { return {at(rows, t) + lane, rows.time}; }
    Line<const S> read(const Rows& rows, int64_t t, int64_t lane) const { return {at(rows, t) + lane, rows.time}; }
    bool resets(int64_t t) const {
        return p.reset.data && static_cast<const uint8_t*>(p.reset.data)[b * p.reset.batch + t * p.reset.time];
    }

    void load_state(C* state, const Rows& rows) const {
        const S* from = at(rows, 0);
        for (int64_t d = 0; d < lanes; d += L) LATCHWORK_ISA::store<C>(state + d, load<S>(from + d, lanes - d), lanes - d);
    }
    void store(const Rows& rows, const C* values) const {
        S* to = at(rows, 0);
        for (int64_t d = 0; d < lanes; d += L) LATCHWORK_ISA::store<S>(to + d, load<C>(values + d, lanes - d), lanes - d);
    }

    // Writes every x and leaves the last in `state`, which comes in as the state before `begin`.
    void forward(int64_t begin, int64_t end, C* state) const {
        for (int64_t t = begin, next; t < end; t = next) {
            if (resets(t)) load_state(state, p.x0);
            for (next = t + 1; next < end && next < t + tile && !resets(next);) ++next;
            for_pieces<L, 8>(lanes, 0, [&](auto vectors, int64_t d, int64_t count) {
                forward_lanes<S, vectors.count>(read(p.r, t, d), read(p.s, t, d), line(p.x, t, d), next - t, count,
                                                state + d);
            });
        }
    }

    // Runs the steps backward. At a reset the carry belongs to x0: it is given to `sink` and starts again at zero.
    template <bool Store, class Sink>
    void backward(int64_t begin, int64_t end, C* carry, Sink&& sink) const {
        for (int64_t t, next = end; next > begin; next = t) {
            for (t = next - 1; t > begin && t > next - tile && !resets(t);) --t;
            const bool reset = resets(t);
            const S* before = reset ? at(p.x0, 0) : t ? at(p.x, t - 1) : at(p.state, 0);
            for_pieces<L, 4>(lanes, 0, [&](auto vectors, int64_t d, int64_t count) {
                backward_lanes<S, vectors.count, Store>(read(p.grad, t, d), read(p.r, t, d), read(p.s, t, d),
                                                        read(p.x, t, d), line(p.grad_r, t, d), line(p.grad_s, t, d),
                                                        next - t, count, before + d, carry + d);
            });
            if (reset) {
                sink(carry);
                for (int64_t d = 0; d < lanes; ++d) carry[d] = C(0);
            }
        }
    }

    // Composes the steps, last one first, into pair = (high, low, closed): x -> max(min(high, x), low), low <= high; or,
    // where a reset closed the lanes, the constant low. `early` may stop as soon as the map is constant in every lane:
    // right for every state but a NaN in a step that was not read, which the caller must look for.
    void compose(int64_t begin, int64_t end, bool early, C* pair) const {
        C *high = pair, *low = pair + lanes, *closed = low + lanes;
        for (int64_t d = 0; d < lanes; ++d) high[d] = infinity<C>(), low[d] = -infinity<C>(), closed[d] = C(0);
        for (int64_t t = end - 1; t >= begin; --t) {
            const S *r = at(p.r, t), *s = at(p.s, t);
            bool open = false;
            for (int64_t d = 0; d < lanes; d += L) open |= compose_vector(r + d, s + d, high + d, low + d, lanes - d);
            if (resets(t)) {
                load_state(closed, p.x0);
                for (int64_t d = 0; d < lanes; ++d) {
                    high[d] = low[d] = maximum(minimum(high[d], closed[d]), low[d]);
                    closed[d] = C(1);
                }
                return;
            }
            if (early && !open) return;
        }
    }
    static bool compose_vector(const S* r, const S* s, C* high, C* low, int64_t count) {
        using V = Vector<S>;
        V r_d = load<S>(r, count), s_d = load<S>(s, count), high_d = load<C>(high, count), low_d = load<C>(low, count);
        V at_low = r_d == r_d ? s_d : r_d, at_high = maximum(r_d, s_d);  // the step's values at -inf and +inf
        at_low = maximum(minimum(high_d, at_low), low_d);
        at_high = maximum(minimum(high_d, at_high), low_d);
        LATCHWORK_ISA::store<C>(high, at_high, count);
        LATCHWORK_ISA::store<C>(low, at_low, count);
        auto open = at_low < at_high;
        bool any = false;
        for (int l = 0; l < L; ++l) any |= open[l] != 0 && l < count;
        return any;
    }
    void apply(const C* pair, const C* state, C* after) const {
        const C *high = pair, *low = pair + lanes, *closed = low + lanes;
        for (int64_t d = 0; d < lanes; ++d)
            after[d] = closed[d] != C(0) ? low[d] : maximum(minimum(high[d], state[d]), low[d]);
    }
    void store_pair(const C* pair) const {
        store(p.whole_r, pair);
        store(p.whole_s, pair + lanes);
    }
};

}  // namespace LATCHWORK_ISA
