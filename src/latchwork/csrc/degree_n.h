// Degree n: x[i] = max(s[i], max_k min(r[i, k], x[k])), W units side by side.
// In memory a unit's n*n numbers stand together; here each of them is a plane of W lanes, one lane a unit, so that all
// arithmetic is elementwise over lanes. A strip takes W units in a row of all B * U, whatever their batch rows.
#pragma once
#include "numbers.h"
#include "problem.h"
#include "scratch.h"
#include "transpose.h"

namespace LATCHWORK_ISA {

template <class S>
struct StripN {
    using C = Compute<S>;
    using V = Vector<S>;
    static constexpr int W = 16, L = Of<S>::LANES;
    const Problem& p;
    int64_t lanes;             // units in this strip; the others repeat the last one and are never written
    int64_t b[W], unit[W];     // where each lane's unit is

    int64_t n() const { return p.degree; }
    int64_t state_size() const { return n() * W; }
    int64_t pair_size() const { return ((n() + 1) * n() + 1) * W; }

    static StripN make(const Problem& p, int64_t index, int64_t, int64_t) {
        StripN strip{p, 0, {}, {}};
        int64_t first = index * W, units = p.batch * p.width;
        strip.lanes = units - first < W ? units - first : W;
        for (int l = 0; l < W; ++l) {
            int64_t each = first + (l < strip.lanes ? l : strip.lanes - 1);
            strip.b[l] = each / p.width;
            strip.unit[l] = each % p.width;
        }
        return strip;
    }

    // Pointers to each lane's numbers, `size` of them a unit, at time 0.
    struct Lanes {
        S* of[W];
        int64_t time;
    };
    Lanes find(const Rows& rows, int64_t size) const {
        Lanes found{{}, rows.time};
        for (int l = 0; l < W; ++l) found.of[l] = static_cast<S*>(rows.data) + b[l] * rows.batch + unit[l] * size;
        return found;
    }
    __attribute__((noinline)) void load(const Lanes& from, int64_t t, int64_t size, C* planes) const {
        const S* rows[W];
        for (int l = 0; l < W; ++l) rows[l] = from.of[l] + t * from.time;
        gather_planes<S, W>(rows, size, planes);
    }
    __attribute__((noinline)) void put(const Lanes& to, int64_t t, int64_t size, const C* planes) const {
        S* rows[W];
        for (int l = 0; l < W; ++l) rows[l] = to.of[l] + t * to.time;
        scatter_planes<S, W>(planes, size, lanes, rows);
    }

    bool resets(int64_t t, bool* which) const {
        if (!p.reset.data) return false;
        bool any = false;
        for (int l = 0; l < W; ++l) {
            which[l] = static_cast<const uint8_t*>(p.reset.data)[b[l] * p.reset.batch + t * p.reset.time];
            any |= which[l];
        }
        return any;
    }
    void replace(C* state, const C* by, const bool* which) const {
        for (int64_t k = 0; k < n(); ++k)
            for (int l = 0; l < W; ++l) state[k * W + l] = which[l] ? by[k * W + l] : state[k * W + l];
    }

    void load_state(C* state, const Rows& rows) const { load(find(rows, n()), 0, n(), state); }
    void store(const Rows& rows, const C* values) const { put(find(rows, n()), 0, n(), values); }

    // after[i] = max(s[i], max_k min(r[i, k], x[k])) for all lanes. `stride` is the distance of x[k] from x[k + 1].
    static __attribute__((noinline)) void step(const C* r, const C* s, const C* x, int64_t stride, int64_t n, C* after) {
        for (int64_t i = 0; i < n; ++i)
            for (int l = 0; l < W; l += L) {
                V y = at(s + i * W + l);
                auto good = y == y;
                for (int64_t k = 0; k < n; ++k) {
                    V a = at(r + (i * n + k) * W + l), c = at(x + k * stride + l);
                    V m = a < c ? a : c;
                    y = m > y ? m : y;
                    good &= (a == a) & (c == c);
                }
                at(after + i * W + l) = good ? y + C(0) : V{} + not_a_number<C>();  // + 0: never -0
            }
    }
    static const V& at(const C* plane) { return *reinterpret_cast<const V*>(plane); }
    static V& at(C* plane) { return *reinterpret_cast<V*>(plane); }

    void forward(int64_t begin, int64_t end, C* state) const {
        const int64_t n = this->n();
        Scratch<C> planes((n * n + 3 * n) * W);
        C *r = planes.data, *s = r + n * n * W, *after = s + n * W, *x0 = after + n * W, *x = state;
        const Lanes at_r = find(p.r, n * n), at_s = find(p.s, n), at_x = find(p.x, n);
        bool which[W] = {};
        if (p.reset.data) load_state(x0, p.x0);
        for (int64_t t = begin; t < end; ++t) {
            load(at_r, t, n * n, r);
            load(at_s, t, n, s);
            if (resets(t, which)) replace(x, x0, which);
            step(r, s, x, W, n, after);
            put(at_x, t, n, after);
            C* swap = x;
            x = after;
            after = swap;
        }
        if (x != state)
            for (int64_t k = 0; k < n * W; ++k) state[k] = x[k];
    }

    // As for degree one; pair = the composed r (n * n planes), s (n planes), closed (one plane).
    void compose(int64_t begin, int64_t end, bool early, C* pair) const {
        const int64_t n = this->n();
        Scratch<C> planes((2 * n * n + 4 * n) * W);
        C *r = planes.data, *s = r + n * n * W, *column = s + n * W, *x0 = column + n * W, *r_new = x0 + n * W,
          *s_new = r_new + n * n * W;
        C *whole_r = pair, *whole_s = pair + n * n * W, *closed = whole_s + n * W;
        const Lanes at_r = find(p.r, n * n), at_s = find(p.s, n);
        bool which[W] = {};
        for (int64_t i = 0; i < n; ++i)
            for (int64_t k = 0; k < n; ++k)
                for (int l = 0; l < W; ++l) whole_r[(i * n + k) * W + l] = i == k ? infinity<C>() : -infinity<C>();
        for (int64_t i = 0; i < n * W; ++i) whole_s[i] = -infinity<C>();
        for (int l = 0; l < W; ++l) closed[l] = C(0);
        if (p.reset.data) load_state(x0, p.x0);
        for (int64_t t = end - 1; t >= begin; --t) {
            load(at_r, t, n * n, r);
            load(at_s, t, n, s);
            step(whole_r, whole_s, s, W, n, s_new);
            for (int64_t j = 0; j < n; ++j) {  // whole_r (x) r, a column at a time; -inf stands for no s
                for (int64_t i = 0; i < n * W; ++i) column[i] = -infinity<C>();
                step(whole_r, column, r + j * W, n * W, n, column);
                for (int64_t i = 0; i < n; ++i)
                    for (int l = 0; l < W; ++l) r_new[(i * n + j) * W + l] = column[i * W + l];
            }
            keep_closed(closed, n * n, r_new, whole_r);
            keep_closed(closed, n, s_new, whole_s);
            if (resets(t, which)) {
                step(whole_r, whole_s, x0, W, n, s_new);
                keep_closed(closed, n, s_new, s);  // s: the constants of the lanes that this reset closes
                for (int l = 0; l < W; ++l)
                    if (which[l] && closed[l] == C(0)) {
                        closed[l] = C(1);
                        for (int64_t i = 0; i < n; ++i) whole_s[i * W + l] = s[i * W + l];
                        for (int64_t i = 0; i < n * n; ++i) whole_r[i * W + l] = -infinity<C>();
                    }
            }
            if (early && constant(whole_r, whole_s)) return;
        }
    }
    static void keep_closed(const C* closed, int64_t planes, const C* from, C* to) {
        for (int64_t i = 0; i < planes; ++i)
            for (int l = 0; l < W; ++l) to[i * W + l] = closed[l] != C(0) ? to[i * W + l] : from[i * W + l];
    }
    bool constant(const C* whole_r, const C* whole_s) const {  // no r above its s: no state comes through
        int open = 0;
        for (int64_t i = 0; i < n(); ++i)
            for (int64_t k = 0; k < n(); ++k)
                for (int l = 0; l < W; ++l) open |= whole_r[(i * n() + k) * W + l] > whole_s[i * W + l];
        return !open;
    }
    void apply(const C* pair, const C* state, C* after) const {
        const C *whole_s = pair + n() * n() * W, *closed = whole_s + n() * W;
        step(pair, whole_s, state, W, n(), after);
        for (int64_t i = 0; i < n(); ++i)
            for (int l = 0; l < W; ++l)
                after[i * W + l] = closed[l] != C(0) ? whole_s[i * W + l] : after[i * W + l];
    }
    void store_pair(const C* pair) const {
        put(find(p.whole_r, n() * n()), 0, n() * n(), pair);
        put(find(p.whole_s, n()), 0, n(), pair + n() * n() * W);
    }

    // One step of the gradient. All arguments that attain x[i] share its g evenly, among them each min(r[i, k], x[k]),
    // which shares on evenly. A NaN equals nothing, so nothing attains it: then all get a NaN.
    template <bool Store>
    static __attribute__((noinline)) void step_back(const C* grad, const C* r, const C* s, const C* x, const C* before,
                                                    int64_t n, const C* carry, C* next, C* grad_r, C* grad_s) {
        for (int l = 0; l < W; l += L) {
            for (int64_t k = 0; k < n; ++k) at(next + k * W + l) = V{};
            for (int64_t i = 0; i < n; ++i) {
                const V x_i = at(x + i * W + l), s_i = at(s + i * W + l);
                V count = s_i == x_i ? V{} + C(1) : V{};
                for (int64_t k = 0; k < n; ++k) {
                    V a = at(r + (i * n + k) * W + l), c = at(before + k * W + l);
                    count += (a < c ? a : c) == x_i ? V{} + C(1) : V{};
                }
                const V share = (at(grad + i * W + l) + at(carry + i * W + l)) / count;
                const V other = count == C(0) ? V{} + not_a_number<C>() : V{};
                if constexpr (Store) at(grad_s + i * W + l) = s_i == x_i ? share : other;
                for (int64_t k = 0; k < n; ++k) {
                    V a = at(r + (i * n + k) * W + l), c = at(before + k * W + l);
                    V g = (a < c ? a : c) == x_i ? share : other;
                    g = a == c ? g * C(0.5) : g;
                    at(next + k * W + l) += a < c ? V{} : g;
                    if constexpr (Store) at(grad_r + (i * n + k) * W + l) = c < a ? V{} : g;
                }
            }
        }
    }

    template <bool Store, class Sink>
    void backward(int64_t begin, int64_t end, C* carry, Sink&& sink) const {
        const int64_t n = this->n();
        Scratch<C> planes((2 * n * n + 8 * n) * W);
        C *r = planes.data, *grad_r = r + n * n * W, *s = grad_r + n * n * W, *x = s + n * W, *prior = x + n * W,
          *before = prior + n * W, *grad = before + n * W, *next = grad + n * W, *grad_s = next + n * W,
          *x0 = grad_s + n * W;
        const Lanes at_r = find(p.r, n * n), at_s = find(p.s, n), at_x = find(p.x, n), at_grad = find(p.grad, n);
        const Lanes to_r = find(p.grad_r, n * n), to_s = find(p.grad_s, n);
        bool which[W] = {};
        if (p.reset.data) load_state(x0, p.x0);
        if (begin < end) load(at_x, end - 1, n, x);
        for (int64_t t = end - 1; t >= begin; --t) {
            load(at_r, t, n * n, r);
            load(at_s, t, n, s);
            load(at_grad, t, n, grad);
            if (t) load(at_x, t - 1, n, prior);
            else load_state(prior, p.state);
            bool reset = resets(t, which);
            for (int64_t k = 0; k < n * W; ++k) before[k] = prior[k];
            if (reset) replace(before, x0, which);
            step_back<Store>(grad, r, s, x, before, n, carry, next, grad_r, grad_s);
            if (Store) {
                put(to_r, t, n * n, grad_r);
                put(to_s, t, n, grad_s);
            }
            for (int64_t k = 0; k < n * W; ++k) carry[k] = next[k];
            if (reset) {
                for (int64_t k = 0; k < n; ++k)
                    for (int l = 0; l < W; ++l) {
                        next[k * W + l] = which[l] ? carry[k * W + l] : C(0);
                        carry[k * W + l] = which[l] ? C(0) : carry[k * W + l];
                    }
                sink(next);
            }
            C* swap = x;
            x = prior;
            prior = swap;
        }
    }
};

}  // namespace LATCHWORK_ISA
