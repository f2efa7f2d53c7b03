// Degree n: x[i] = max(s[i], max_k min(r[i, k], x[k])), one vector of units side by side.
// In memory a unit's n * n numbers stand together; here each of them is a plane, a vector with one lane a unit, so that
// all arithmetic is elementwise.
#pragma once
#include "abi.h"
#include "numbers.h"
#include "scratch.h"
#include "transpose.h"

namespace LATCHWORK_ISA {

// y = max(y, max_k min(row[k], x[k])), with x[k] at x[k * stride].
template <class V>
LATCHWORK_INLINE void step_row(const V* row, const V* x, int64_t stride, int64_t n, V& y) {
    auto bad = y != y;
    for (int64_t k = 0; k < n; ++k) {
        V a = row[k], c = x[k * stride];
        V m = a < c ? a : c;
        y = m > y ? m : y;
        bad |= unordered(a, c);
    }
    y = with_nan(y, bad);
}

// after[i] = max(s[i], max_k min(r[i, k], x[k])); s may be after.
template <class V>
LATCHWORK_INLINE void step_n(const V* r, const V* s, const V* x, int64_t n, V* after) {
    for (int64_t i = 0; i < n; ++i) {
        V y = s[i];
        step_row(r + i * n, x, 1, n, y);
        after[i] = y;
    }
}

// One step of the gradient. All arguments that attain x[i] share its g evenly, among them each min(r[i, k], x[k]), which
// shares on evenly. A NaN equals nothing, so nothing attains it: then all get a NaN. `carry` is replaced by the carry for
// the step before.
template <bool Store, class V>
LATCHWORK_INLINE void step_back_n(const V* grad, const V* r, const V* s, const V* x, const V* before, int64_t n,
                                           V* carry, V* share, V* grad_r, V* grad_s) {
    const V one = V{} + 1, half = V{} + 0.5f, nan = V{} + __builtin_nanf("");
    for (int64_t i = 0; i < n; ++i) {
        const auto from_s = s[i] == x[i];
        V count = from_s ? one : V{};
        for (int64_t k = 0; k < n; ++k) {
            V a = r[i * n + k], c = before[k];
            count += (a < c ? a : c) == x[i] ? one : V{};
        }
        share[i] = (grad[i] + carry[i]) / count;
        share[i] = count == V{} ? nan : share[i];
        if constexpr (Store) grad_s[i] = (from_s | (count == V{})) ? share[i] : V{};
    }
    for (int64_t k = 0; k < n; ++k) {
        const V c = before[k];
        V sum = V{};
        for (int64_t i = 0; i < n; ++i) {
            V a = r[i * n + k];
            V g = (((a < c ? a : c) == x[i]) | (x[i] != x[i])) ? share[i] : V{};
            g = a == c ? g * half : g;
            sum += a < c ? V{} : g;
            if constexpr (Store) grad_r[i * n + k] = c < a ? V{} : g;
        }
        carry[k] = sum;
    }
}

// A strip: units [first, first + units) of one batch row, in groups of one vector. The methods run it over steps
// [begin, end). A state is n planes a group.
template <class S, int N>  // N = 0: the degree is known only at run time
struct StripN {
    using C = Compute<S>;
    using V = Vector<S>;
    static constexpr int L = Of<S>::LANES;
    const Problem& p;
    int64_t b, first, units;

    static StripN make(const Problem& p, int64_t index, int64_t strips, int64_t strip_units) {
        int64_t first = index % strips * strip_units;
        return {p, index / strips, first, p.width - first < strip_units ? p.width - first : strip_units};
    }
    int64_t n() const { return N ? N : p.degree; }
    // The last group ends with the last unit and so may overlap the one before; both compute the same there.
    int64_t start(int64_t g) const { return units < L ? 0 : (g + 1) * L <= units ? g * L : units - L; }
    int64_t groups() const { return (units + L - 1) / L; }
    int64_t in_group() const { return units < L ? units : L; }
    int64_t state_size() const { return groups() * n() * L; }
    int64_t pair_size() const { return groups() * n() * (n() + 1) * L + L; }

    S* at(const Rows& rows, int64_t t, int64_t g, int64_t size) const {
        return static_cast<S*>(rows.data) + b * rows.batch + t * rows.time + (first + start(g)) * size;
    }
    LATCHWORK_INLINE void load(const Rows& rows, int64_t t, int64_t g, int64_t size, V* planes) const {
        Planes<S>::gather(at(rows, t, g, size), size, in_group(), planes);
    }
    LATCHWORK_INLINE void put(const Rows& rows, int64_t t, int64_t g, int64_t size, const V* planes) const {
        Planes<S>::scatter(planes, size, in_group(), at(rows, t, g, size));
    }
    // Asks for all matrices of time t ahead of their use, Write: for writing. A processor foresees them poorly: they are
    // visited downward, a few numbers of each unit in turn.
    template <int Write>
    void fetch(const Rows& rows, int64_t t) const {
        const int64_t size = n() * n();
        const S* from = at(rows, t, 0, size);
        for (int64_t k = units * size - 1; k >= 0; k -= 64 / int64_t(sizeof(S))) __builtin_prefetch(from + k, Write);
    }
    bool resets(int64_t t) const {
        return p.reset.data && static_cast<const uint8_t*>(p.reset.data)[b * p.reset.batch + t * p.reset.time];
    }
    static V* planes(C* state) { return reinterpret_cast<V*>(state); }
    static const V* planes(const C* state) { return reinterpret_cast<const V*>(state); }

    void load_state(C* state, const Rows& rows) const {
        for (int64_t g = 0; g < groups(); ++g) load(rows, 0, g, n(), planes(state) + g * n());
    }
    void store(const Rows& rows, const C* values) const {
        for (int64_t g = 0; g < groups(); ++g) put(rows, 0, g, n(), planes(values) + g * n());
    }

    // Writes every x and leaves the last in `state`, which comes in as the state before `begin`.
    void forward(int64_t begin, int64_t end, C* state) const {
        const int64_t n = this->n();
        Scratch<V> scratch(n * n + 2 * n);
        V *r = scratch.data, *s = r + n * n, *after = s + n;
        for (int64_t t = begin; t < end; ++t) {
            if (resets(t)) load_state(state, p.x0);
            for (int64_t g = 0; g < groups(); ++g) {
                V* x = planes(state) + g * n;
                load(p.r, t, g, n * n, r);
                load(p.s, t, g, n, s);
                step_n(r, s, x, n, after);
                for (int64_t i = 0; i < n; ++i) x[i] = after[i], after[i] += C(0);  // + 0: never -0
                put(p.x, t, g, n, after);
            }
        }
    }

    // Runs the steps backward. At a reset the carry belongs to x0: it is given to `sink` and starts again at zero.
    template <bool Store, class Sink>
    void backward(int64_t begin, int64_t end, C* carry, Sink&& sink) const {
        const int64_t n = this->n();
        Scratch<V> scratch(2 * n * n + 6 * n);
        V *r = scratch.data, *grad_r = r + n * n, *s = grad_r + n * n, *x = s + n, *before = x + n, *grad = before + n,
          *share = grad + n, *grad_s = share + n;
        for (int64_t t = end - 1; t >= begin; --t) {
            const bool reset = resets(t);
            if (t > begin) {
                fetch<0>(p.r, t - 1);
                if constexpr (Store) fetch<1>(p.grad_r, t - 1);
            }
            for (int64_t g = groups() - 1; g >= 0; --g) {  // downward like t: the processor sees one stream
                load(p.r, t, g, n * n, r);
                load(p.s, t, g, n, s);
                load(p.x, t, g, n, x);
                load(p.grad, t, g, n, grad);
                load(reset ? p.x0 : t ? p.x : p.state, reset || !t ? 0 : t - 1, g, n, before);
                step_back_n<Store>(grad, r, s, x, before, n, planes(carry) + g * n, share, grad_r, grad_s);
                if constexpr (Store) {
                    put(p.grad_r, t, g, n * n, grad_r);
                    put(p.grad_s, t, g, n, grad_s);
                }
            }
            if (reset) {
                sink(carry);
                for (int64_t k = 0; k < state_size(); ++k) carry[k] = C(0);
            }
        }
    }

    // Composes the steps, last one first, into one pair: for each group r (n * n planes), then s (n planes); at the end,
    // not zero where a reset made the map constant (then r is -inf). `early` as for degree one.
    void compose(int64_t begin, int64_t end, bool early, C* pair) const {
        const int64_t n = this->n(), size = n * (n + 1);
        Scratch<V> scratch(n * n + 3 * n);
        V *r = scratch.data, *s = r + n * n, *row = s + n, *x0 = row + n;
        C& constant = pair[groups() * size * L];
        constant = C(0);
        const V high = V{} + infinity<C>(), low = -high;
        // No steps: the identity. It is not composed with, since min(-inf, NaN) would spread a NaN to other rows.
        for (int64_t g = 0; g < groups(); ++g)
            for (int64_t i = 0; i < size; ++i) planes(pair)[g * size + i] = i < n * n && i % (n + 1) == 0 ? high : low;
        for (int64_t t = end - 1; t >= begin && constant == C(0); --t) {
            constant = resets(t) ? C(1) : C(0);
            bool open = t + 1 == end;
            for (int64_t g = 0; g < groups(); ++g) {
                V *whole_r = planes(pair) + g * size, *whole_s = whole_r + n * n;
                if (t + 1 == end) {
                    load(p.r, t, g, n * n, whole_r);
                    load(p.s, t, g, n, whole_s);
                } else {
                    load(p.r, t, g, n * n, r);
                    load(p.s, t, g, n, s);
                    open |= compose_step(r, s, n, row, whole_r, whole_s);
                }
                if (constant == C(0)) continue;
                load(p.x0, 0, g, n, x0);
                step_n(whole_r, whole_s, x0, n, whole_s);
                for (int64_t i = 0; i < n * n; ++i) whole_r[i] = low;
            }
            if (early && !open) return;
        }
    }
    // Puts the step (r, s) before the pair. Returns whether any state still comes through.
    static bool compose_step(const V* r, const V* s, int64_t n, V* row, V* whole_r, V* whole_s) {
        const V low = V{} - infinity<C>();  // for no s
        bool open = false;
        step_n(whole_r, whole_s, s, n, whole_s);
        for (int64_t i = 0; i < n; ++i) {  // row i of whole_r (x) r, each column of r as a state
            for (int64_t j = 0; j < n; ++j) row[j] = low, step_row(whole_r + i * n, r + j, n, n, row[j]);
            for (int64_t j = 0; j < n; ++j) whole_r[i * n + j] = row[j], open |= any(row[j] > whole_s[i]);
        }
        return open;
    }
    void apply(const C* pair, const C* state, C* after) const {
        const int64_t n = this->n(), size = n * (n + 1);
        const bool constant = pair[groups() * size * L] != C(0);
        for (int64_t g = 0; g < groups(); ++g) {
            const V *whole_r = planes(pair) + g * size, *whole_s = whole_r + n * n;
            V* to = planes(after) + g * n;
            if (constant)
                for (int64_t i = 0; i < n; ++i) to[i] = whole_s[i];
            else
                step_n(whole_r, whole_s, planes(state) + g * n, n, to);
        }
    }
    void store_pair(const C* pair) const {
        const int64_t n = this->n(), size = n * (n + 1);
        for (int64_t g = 0; g < groups(); ++g) {
            put(p.whole_r, 0, g, n * n, planes(pair) + g * size);
            put(p.whole_s, 0, g, n, planes(pair) + g * size + n * n);
        }
    }
};

}  // namespace LATCHWORK_ISA
