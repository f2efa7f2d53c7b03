// Degree one: x = max(min(r, x), s), elementwise over D contiguous lanes.
#pragma once
#include "numbers.h"
#include "problem.h"
#include "scratch.h"

namespace LATCHWORK_ISA {

// A tensor's numbers at one time, and how far the next time is.
template <class S>
struct Line {
    S* at;
    int64_t time;
};

// A piece: `lanes` lanes in K vectors, the last of which ends with the last lane and so may overlap the one before. Both
// compute the same there. K = 0: fewer lanes than one vector has.
template <class S, int K>
struct Piece {
    static constexpr int L = Of<S>::LANES, vectors = K ? K : 1;
    int64_t lanes;
    LATCHWORK_INLINE int64_t at(int k) const { return k + 1 < K ? k * L : K ? lanes - L : 0; }
    template <class T>
    LATCHWORK_INLINE Vector<T> load(const T* from, int k) const {
        if constexpr (K > 0)
            return Memory<T>::load(from + at(k));
        else
            return load_part(from, lanes);
    }
    template <class T>
    LATCHWORK_INLINE void store(T* to, int k, Vector<T> value) const {
        if constexpr (K > 0)
            Memory<T>::store(to + at(k), value);
        else
            store_part(to, value, lanes);
    }
};

// A piece over `steps` steps, its state in registers. x is the state before the first step and, after, of the last.
template <class S, int K>
__attribute__((noinline)) void forward_piece(Piece<S, K> piece, Line<const S> r, Line<const S> s, Line<S> out,
                                             int64_t steps, Compute<S>* x) {
    using C = Compute<S>;
    Vector<S> state[piece.vectors];
    for (int k = 0; k < piece.vectors; ++k) state[k] = piece.template load<C>(x, k);
    for (int64_t t = 0; t < steps; ++t, r.at += r.time, s.at += s.time, out.at += out.time) {
#pragma GCC unroll 16
        for (int k = 0; k < piece.vectors; ++k) {
            state[k] = advance(piece.template load<S>(r.at, k), piece.template load<S>(s.at, k), state[k]);
            piece.template store<S>(out.at, k, state[k] + C(0));  // + 0: never -0
        }
    }
    for (int k = 0; k < piece.vectors; ++k) piece.template store<C>(x, k, state[k]);
}

// The same backward, from the last step. `first` is the state that the first step started from; the others started from
// the x of the step before. The carry comes from later steps and leaves for earlier ones.
template <bool Store, class S, int K>
__attribute__((noinline)) void backward_piece(Piece<S, K> piece, Line<const S> grad, Line<const S> r, Line<const S> s,
                                              Line<const S> x, Line<S> grad_r, Line<S> grad_s, int64_t steps,
                                              const S* first, Compute<S>* carry) {
    using C = Compute<S>;
    using V = Vector<S>;
    V carried[piece.vectors];
    for (int k = 0; k < piece.vectors; ++k) carried[k] = piece.template load<C>(carry, k);
    for (int64_t t = steps - 1; t >= 0; --t) {
        const S *g_t = grad.at + t * grad.time, *r_t = r.at + t * r.time, *s_t = s.at + t * s.time;
        const S* before = t ? x.at + (t - 1) * x.time : first;
        S *to_r = Store ? grad_r.at + t * grad_r.time : nullptr, *to_s = Store ? grad_s.at + t * grad_s.time : nullptr;
#pragma GCC unroll 16
        for (int k = 0; k < piece.vectors; ++k) {
            V r_k = piece.template load<S>(r_t, k), s_k = piece.template load<S>(s_t, k);
            V x_k = piece.template load<S>(before, k), m = minimum(r_k, x_k);
            V g = piece.template load<S>(g_t, k) + carried[k];
            V shared = m == s_k ? g * C(0.5) : g;  // a tie is shared evenly
            V g_m = m < s_k ? V{} : shared;
            V shared_m = r_k == x_k ? g_m * C(0.5) : g_m;
            carried[k] = r_k < x_k ? V{} : shared_m;
            if constexpr (Store) {
                piece.template store<S>(to_s, k, s_k < m ? V{} : shared);
                piece.template store<S>(to_r, k, x_k < r_k ? V{} : shared_m);
            }
        }
    }
    for (int k = 0; k < piece.vectors; ++k) piece.template store<C>(carry, k, carried[k]);
}

// Calls f(piece, first lane) for pieces that cover `lanes`: of Most vectors while a whole vector is left after them, and
// the rest.
template <class S, int K, class F>
LATCHWORK_INLINE void rest_piece(int64_t lanes, int64_t first, F&& f) {
    if ((lanes - first + Of<S>::LANES - 1) / Of<S>::LANES == K) return f(Piece<S, K>{lanes - first}, first);
    if constexpr (K > 1) rest_piece<S, K - 1>(lanes, first, f);
}
template <class S, int Most, class F>
LATCHWORK_INLINE void for_pieces(int64_t lanes, F&& f) {
    constexpr int L = Of<S>::LANES;
    int64_t first = 0;
    if (lanes < L) return f(Piece<S, 0>{lanes}, first);
    for (; lanes - first >= (Most + 1) * L; first += Most * L) f(Piece<S, Most>{Most * L}, first);
    rest_piece<S, Most + 1>(lanes, first, f);
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
    int64_t pair_size() const { return 2 * lanes + 1; }

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
            for (next = t + 1; next < end && next < t + tile && !resets(next);) ++next;
            for_pieces<S, 8>(lanes, [&](auto piece, int64_t d) {
                forward_piece(piece, read(p.r, t, d), read(p.s, t, d), line(p.x, t, d), next - t, state + d);
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
            for_pieces<S, 4>(lanes, [&](auto piece, int64_t d) {
                backward_piece<Store>(piece, read(p.grad, t, d), read(p.r, t, d), read(p.s, t, d), read(p.x, t, d),
                                      line(p.grad_r, t, d), line(p.grad_s, t, d), next - t, before + d, carry + d);
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
