// Degree one: x = max(min(r, x), s), elementwise over D contiguous lanes.
#pragma once
#include "abi.h"
#include "numbers.h"
#include "scratch.h"

namespace LATCHWORK_ISA {

// A tensor's numbers at one time, and how far the next time is.
template <class S>
struct Line {
    S* at;
    int64_t time;
};

// `lanes` lanes in vectors, the last of which ends with the last lane and so may overlap the one before: both compute the
// same there. K > 0: so many vectors, known at compile time. K = 0: less than one vector. K = ANY: known at run time.
constexpr int ANY = -1;
template <class S, int K>
struct Cover {
    static constexpr int L = Of<S>::LANES;
    int64_t lanes;
    LATCHWORK_INLINE int64_t vectors() const { return K > 0 ? K : K == 0 ? 1 : (lanes + L - 1) / L; }
    LATCHWORK_INLINE int64_t at(int64_t k) const { return (k + 1) * L <= lanes ? k * L : lanes - L; }
    template <class T>
    LATCHWORK_INLINE Vector<T> load(const T* from, int64_t k) const {
        if constexpr (K != 0)
            return Memory<T>::load(from + at(k));
        else
            return load_part(from, lanes);
    }
    template <class T>
    LATCHWORK_INLINE void store(T* to, int64_t k, Vector<T> value) const {
        if constexpr (K != 0)
            Memory<T>::store(to + at(k), value);
        else
            store_part(to, value, lanes);
    }
};

// `steps` steps. state[k]: vector k of the state before the first step and, after, of the last.
template <class S, int K>
LATCHWORK_INLINE void forward_steps(Cover<S, K> cover, Line<const S> r, Line<const S> s, Line<S> out, int64_t steps,
                                    Vector<S>* state) {
    for (int64_t t = 0; t < steps; ++t, r.at += r.time, s.at += s.time, out.at += out.time) {
        for (int64_t k = 0; k < cover.vectors(); ++k) {
            Vector<S> x = advance(cover.load(r.at, k), cover.load(s.at, k), state[k]);
            state[k] = x;
            cover.store(out.at, k, x + Compute<S>(0));  // + 0: never -0
        }
    }
}

// The same backward, from the last step. `first` is the state that the first step started from; the others started from
// the x of the step before. The carry comes from later steps and leaves for earlier ones.
template <bool Store, class S, int K>
LATCHWORK_INLINE void backward_steps(Cover<S, K> cover, Line<const S> grad, Line<const S> r, Line<const S> s,
                                     Line<const S> x, Line<S> grad_r, Line<S> grad_s, int64_t steps, const S* first,
                                     Vector<S>* carry) {
    using C = Compute<S>;
    using V = Vector<S>;
    for (int64_t t = steps - 1; t >= 0; --t) {
        const S *g_t = grad.at + t * grad.time, *r_t = r.at + t * r.time, *s_t = s.at + t * s.time;
        const S* before = t ? x.at + (t - 1) * x.time : first;
        S *to_r = Store ? grad_r.at + t * grad_r.time : nullptr, *to_s = Store ? grad_s.at + t * grad_s.time : nullptr;
        for (int64_t k = cover.vectors() - 1; k >= 0; --k) {  // downward like t: the processor sees one stream
            V r_k = cover.load(r_t, k), s_k = cover.load(s_t, k), x_k = cover.load(before, k), m = minimum(r_k, x_k);
            V g = cover.load(g_t, k) + carry[k];
            V shared = m == s_k ? g * C(0.5) : g;  // a tie is shared evenly
            V g_m = m < s_k ? V{} : shared;
            V shared_m = r_k == x_k ? g_m * C(0.5) : g_m;
            carry[k] = r_k < x_k ? V{} : shared_m;
            if constexpr (Store) {
                cover.store(to_s, k, s_k < m ? V{} : shared);
                cover.store(to_r, k, x_k < r_k ? V{} : shared_m);
            }
        }
    }
}

// Calls f(cover, vectors) with the lanes' numbers as vectors, and puts them back after: up to Most in registers, more in
// memory, where a row at a time goes by.
template <class S, int K, class F>
__attribute__((noinline)) void in_registers(int64_t lanes, Compute<S>* numbers, F f) {
    Cover<S, K> cover{lanes};
    Vector<S> vectors[K ? K : 1];
    for (int k = 0; k < cover.vectors(); ++k) vectors[k] = cover.load(numbers, k);
    f(cover, vectors);
    for (int k = 0; k < cover.vectors(); ++k) cover.store(numbers, k, vectors[k]);
}
template <class S, class F>
__attribute__((noinline)) void in_memory(int64_t lanes, Compute<S>* numbers, F f) {
    Cover<S, ANY> cover{lanes};
    Scratch<Vector<S>> vectors(cover.vectors());
    for (int64_t k = 0; k < cover.vectors(); ++k) vectors.data[k] = cover.load(numbers, k);
    f(cover, vectors.data);
    for (int64_t k = 0; k < cover.vectors(); ++k) cover.store(numbers, k, vectors.data[k]);
}
template <class S, int Most, class F>
LATCHWORK_INLINE void with_vectors(int64_t lanes, Compute<S>* numbers, F f) {
    constexpr int L = Of<S>::LANES;
    if (lanes > Most * L)
        in_memory<S>(lanes, numbers, f);
    else if (lanes < L)
        in_registers<S, 0>(lanes, numbers, f);
    else if (lanes > (Most - 1) * L)
        in_registers<S, Most>(lanes, numbers, f);
    else if constexpr (Most > 1)
        with_vectors<S, Most - 1>(lanes, numbers, f);
}

// A strip: lanes [first, first + lanes) of one batch row. The methods run it over steps [begin, end).
template <class S>
struct StripOne {
    using C = Compute<S>;
    static constexpr int L = Of<S>::LANES;
    const Problem& p;
    int64_t b, first, lanes;

    static StripOne make(const Problem& p, int64_t index, int64_t strips, int64_t strip_lanes) {
        int64_t first = index % strips * strip_lanes;
        return {p, index / strips, first, p.width - first < strip_lanes ? p.width - first : strip_lanes};
    }
    int64_t state_size() const { return lanes; }
    int64_t pair_size() const { return 2 * lanes + 1; }

    S* at(const Rows& rows, int64_t t) const {
        return static_cast<S*>(rows.data) + b * rows.batch + t * rows.time + first;
    }
    Line<S> line(const Rows& rows, int64_t t) const { return {at(rows, t), rows.time}; }
    Line<const S> read(const Rows& rows, int64_t t) const { return {at(rows, t), rows.time}; }
    bool resets(int64_t t) const {
        return p.reset.data && static_cast<const uint8_t*>(p.reset.data)[b * p.reset.batch + t * p.reset.time];
    }

    void load_state(C* state, const Rows& rows) const {
        const S* from = at(rows, 0);
        for (int64_t d = 0; d < lanes; d += L) store_part<C>(state + d, load_part<S>(from + d, lanes - d), lanes - d);
    }
    void store(const Rows& rows, const C* values) const {
        S* to = at(rows, 0);
        for (int64_t d = 0; d < lanes; d += L) store_part<S>(to + d, load_part<C>(values + d, lanes - d), lanes - d);
    }

    // Writes every x and leaves the last in `state`, which comes in as the state before `begin`.
    void forward(int64_t begin, int64_t end, C* state) const {
        for (int64_t t = begin, next; t < end; t = next) {
            if (resets(t)) load_state(state, p.x0);
            for (next = t + 1; next < end && !resets(next);) ++next;
            with_vectors<S, UNROLLS<S> ? 9 : 1>(lanes, state, [&](auto cover, Vector<S>* vectors) {
                forward_steps(cover, read(p.r, t), read(p.s, t), line(p.x, t), next - t, vectors);
            });
        }
    }

    // Runs the steps backward. At a reset the carry belongs to x0: it is given to `sink` and starts again at zero.
    template <bool Store, class Sink>
    void backward(int64_t begin, int64_t end, C* carry, Sink&& sink) const {
        for (int64_t t, next = end; next > begin; next = t) {
            for (t = next - 1; t > begin && !resets(t);) --t;
            const bool reset = resets(t);
            const S* before = reset ? at(p.x0, 0) : t ? at(p.x, t - 1) : at(p.state, 0);
            with_vectors<S, UNROLLS<S> ? 5 : 1>(lanes, carry, [&](auto cover, Vector<S>* vectors) {
                backward_steps<Store>(cover, read(p.grad, t), read(p.r, t), read(p.s, t), read(p.x, t),
                                      line(p.grad_r, t), line(p.grad_s, t), next - t, before, vectors);
            });
            if (reset) {
                sink(carry);
                for (int64_t d = 0; d < lanes; ++d) carry[d] = C(0);
            }
        }
    }

    // Composes the steps, last one first, into pair = (high, low, constant): x -> max(min(high, x), low), low <= high; or,
    // after a reset, constant is not zero and the map is x -> low. `early` may stop as soon as all lanes are constant:
    // right for every state but a NaN in a step that was not read, which the caller must look for.
    void compose(int64_t begin, int64_t end, bool early, C* pair) const {
        C *high = pair, *low = pair + lanes, &constant = pair[2 * lanes];
        constant = C(0);
        for (int64_t d = 0; d < lanes; ++d) high[d] = infinity<C>(), low[d] = -infinity<C>();
        for (int64_t t = end - 1; t >= begin; --t) {
            const S *r = at(p.r, t), *s = at(p.s, t);
            bool open = false;
            for (int64_t d = 0; d < lanes; d += L) open |= compose_vector(r + d, s + d, high + d, low + d, lanes - d);
            if (resets(t)) {
                Scratch<C> x0(lanes);
                load_state(x0.data, p.x0);
                clamp(pair, x0.data, low);
                for (int64_t d = 0; d < lanes; ++d) high[d] = low[d];
                constant = C(1);
                return;
            }
            if (early && !open) return;
        }
    }
    static bool compose_vector(const S* r, const S* s, C* high, C* low, int64_t count) {
        using V = Vector<S>;
        V r_d = load_part<S>(r, count), s_d = load_part<S>(s, count);
        V high_d = load_part<C>(high, count), low_d = load_part<C>(low, count);
        V at_low = r_d == r_d ? s_d : r_d, at_high = maximum(r_d, s_d);  // the step's values at -inf and +inf
        at_low = maximum(minimum(high_d, at_low), low_d);
        at_high = maximum(minimum(high_d, at_high), low_d);
        store_part<C>(high, at_high, count);
        store_part<C>(low, at_low, count);
        return any(at_low < at_high);
    }
    void apply(const C* pair, const C* state, C* after) const {
        const C *low = pair + lanes, constant = pair[2 * lanes];
        clamp(pair, state, after);
        for (int64_t d = 0; constant != C(0) && d < lanes; ++d) after[d] = low[d];
    }
    void clamp(const C* pair, const C* state, C* after) const {
        for (int64_t d = 0; d < lanes; d += L) {
            auto high = load_part<C>(pair + d, lanes - d), low = load_part<C>(pair + lanes + d, lanes - d);
            store_part<C>(after + d, maximum(minimum(high, load_part<C>(state + d, lanes - d)), low), lanes - d);
        }
    }
    void store_pair(const C* pair) const {
        store(p.whole_r, pair);
        store(p.whole_s, pair + lanes);
    }
};

}  // namespace LATCHWORK_ISA
