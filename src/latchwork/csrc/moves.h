// Units whose every step moves whole levels. Taking: x[i] = x[choice[i]], or s[i] where choice[i] is n. Sending: level k
// goes to place choice[k], and of those that meet the largest stays, or 0. Each strip of units is one pass over time.
#pragma once
#include "abi.h"
#include "plan.h"
#include "numbers.h"
#include "scratch.h"

namespace LATCHWORK_ISA {

// to[k] = a * b[k] for k < n, in whole vectors where they end before `end`: what is too much is written over by what
// comes after. b may be read up to a whole vector.
template <class S, class C = Compute<S>>
LATCHWORK_INLINE void put_product(C a, const C* b, int64_t n, S* to, const S* end) {
    constexpr int64_t L = Of<S>::LANES;
    for (int64_t k = 0; k < n; k += L) {
        const Vector<S> product = a * Memory<C>::load(b + k);
        if (end - (to + k) >= L)
            Memory<S>::store(to + k, product);
        else
            store_part(to + k, product, n - k);
    }
}

enum class Move { TAKE, TAKE_OR_OWN, SEND };

// Units [first, first + units) of one batch row. All states are `units * n` numbers in the type they are computed in.
template <class S, int N, Move MOVE>  // N = 0: the degree is known only at run time
struct MoveStrip {
    using C = Compute<S>;
    static constexpr int64_t L = Of<S>::LANES;
    static constexpr bool OWN = MOVE == Move::TAKE_OR_OWN;
    static constexpr int64_t AHEAD = 2;  // steps
    const Moves& p;
    int64_t b, first, units;

    int64_t n() const { return N ? N : p.degree; }
    int64_t count() const { return units * n(); }
    int64_t room() const { return count() + L; }  // for reading and writing whole vectors
    template <class A>
    A* at(const Rows& rows, int64_t t, int64_t size) const {
        return static_cast<A*>(rows.data) + b * rows.batch + t * rows.time + first * size;
    }
    bool resets(int64_t t) const {
        return p.reset.data && static_cast<const uint8_t*>(p.reset.data)[b * p.reset.batch + t * p.reset.time];
    }
    void load(const Rows& rows, int64_t t, C* to) const {
        const S* from = at<S>(rows, t, n());
        for (int64_t k = 0; k < count(); k += L) Memory<C>::store(to + k, load_part(from + k, count() - k));
    }
    void put(const Rows& rows, int64_t t, const C* from) const {
        S* to = at<S>(rows, t, n());
        for (int64_t k = 0; k < count(); k += L) store_part(to + k, Memory<C>::load(from + k), count() - k);
    }
    // Asks for a row ahead of its use, WRITE: for writing. A processor foresees poorly what is visited downward.
    template <class A, int WRITE>
    void fetch(const Rows& rows, int64_t t, int64_t size) const {
        const A* from = at<A>(rows, t, size);
        for (int64_t k = units * size - 1; k >= 0; k -= 64 / int64_t(sizeof(A))) __builtin_prefetch(from + k, WRITE);
    }
    static void clear(C* a, int64_t size) {
        for (int64_t k = 0; k < size; ++k) a[k] = C(0);
    }
    // Where place i of the unit that begins at `unit` takes from, seen from the states: `own` is where s stands. Without
    // a branch, which no processor could foresee.
    static int64_t source(int64_t choice, int64_t n, int64_t unit, int64_t i, int64_t own) {
        const int64_t takes_own = OWN ? -int64_t(choice == n) : 0;
        return ((unit + choice) & ~takes_own) | ((own + i) & takes_own);
    }

    // Writes every x. Returns whether every choice was one of those there are; another is taken for 0.
    bool forward() const {
        const int64_t n = this->n(), options = n + OWN;
        Scratch<C> scratch(3 * room());
        C *now = scratch.data, *after = now + room(), *s = after + room();
        bool bad = false;
        load(p.state, 0, now);
        if (OWN) load(p.s, 0, s);
        for (int64_t t = 0; t < p.time; ++t) {
            if (resets(t)) load(p.x0, 0, now);
            const int64_t* choice = at<const int64_t>(p.choice, t, n);
            if (MOVE == Move::SEND) clear(after, count());
            for (int64_t unit = 0; unit < count(); unit += n)
                for (int64_t i = unit; i < unit + n; ++i) {
                    const bool wrong = uint64_t(choice[i]) >= uint64_t(options);
                    const int64_t chosen = wrong ? 0 : choice[i];
                    bad |= wrong;
                    if (MOVE == Move::SEND) {
                        const C there = after[unit + chosen];
                        after[unit + chosen] = now[i] <= there ? there : now[i];
                        if (there != there) after[unit + chosen] = there;  // a NaN wins
                    } else {
                        after[i] = now[source(chosen, n, unit, i, s - now)];
                    }
                }
            for (int64_t k = 0; k < count(); ++k) after[k] += C(0);  // never -0
            put(p.x, t, after);
            C* swap = now;
            now = after, after = swap;
        }
        return !bad;
    }

    // One pass downward in time. Sums are taken as the loop takes them: over the places of a unit upward, over time
    // downward.
    void backward() const {
        const int64_t n = this->n(), width = n + OWN;
        Scratch<C> scratch(6 * room());
        C *total = scratch.data, *before = total + room(), *carry = before + room(), *grad_x0 = carry + room();
        C *grad_s = grad_x0 + room(), *s = grad_s + room();
        clear(scratch.data, 6 * room());
        if (OWN) load(p.s, 0, s);
        for (int64_t t = p.time - 1; t >= 0; --t) {
            const bool reset = resets(t);
            const int64_t* choice = at<const int64_t>(p.choice, t, n);
            if (t >= AHEAD) {
                fetch<int64_t, 0>(p.choice, t - AHEAD, n);
                fetch<S, 0>(p.grad, t - AHEAD, n);
                fetch<S, 0>(p.x, t - AHEAD, n);
                fetch<S, 1>(p.grad_weights, t - AHEAD, n * width);
            }
            load(p.grad, t, total);
            for (int64_t k = 0; k < count(); ++k) total[k] += carry[k];
            load(reset ? p.x0 : t ? p.x : p.state, reset || !t ? 0 : t - 1, before);
            weights(total, before, s, at<S>(p.grad_weights, t, n * width));
            if (MOVE != Move::SEND) clear(carry, count());
            for (int64_t unit = 0; unit < count(); unit += n)
                for (int64_t i = unit; i < unit + n; ++i) {
                    if (MOVE == Move::SEND)
                        carry[i] = total[unit + choice[i]];
                    else
                        carry[source(choice[i], n, unit, i, grad_s - carry)] += total[i];
                }
            if (!reset) continue;
            for (int64_t k = 0; k < count(); ++k) grad_x0[k] += carry[k];
            clear(carry, count());
        }
        put(p.grad_state, 0, carry);
        if (OWN) put(p.grad_s, 0, grad_s);
        if (p.reset.data) put(p.grad_x0, 0, grad_x0);
    }
    // The gradients of the weights of one step: what came to each place times what each choice would have brought it.
    void weights(const C* total, const C* before, const C* s, S* to) const {
        const int64_t n = this->n(), width = n + OWN;
        const S* end = to + count() * width;
        for (int64_t unit = 0; unit < count(); unit += n)
            for (int64_t i = unit; i < unit + n; ++i, to += width) {
                if (MOVE == Move::SEND)
                    put_product<S>(before[i], total + unit, n, to, end);
                else
                    put_product<S>(total[i], before + unit, n, to, end);
                if (OWN) store_part<S>(to + n, total[i] * s[i] - Vector<S>{}, 1);  // not +, which would lose a -0
            }
    }
};

template <class S, int N, Move MOVE>
int run_move(const Moves& p, bool back) {
    Problem shape{};
    shape.batch = p.batch, shape.time = p.time, shape.width = p.units, shape.degree = p.degree;
    shape.threads = p.threads, shape.chunk = p.time;
    const Plan plan = make_plan(shape);
    int code = DONE;
    in_parallel(plan.strips, plan.threads, [&](int64_t i) {
        const int64_t first = i % plan.strips_in_row * plan.strip_width, rest = p.units - first;
        const int64_t units = rest < plan.strip_width ? rest : plan.strip_width;
        const MoveStrip<S, N, MOVE> strip{p, i / plan.strips_in_row, first, units};
        if (back)
            strip.backward();
        else if (!strip.forward())
            __atomic_store_n(&code, NO_SUCH_CHOICE, __ATOMIC_RELAXED);
    });
    return code;
}

template <class S, int N>
int run_moves(const Moves& p, bool back) {
    if (p.sends) return run_move<S, N, Move::SEND>(p, back);
    return p.s.data ? run_move<S, N, Move::TAKE_OR_OWN>(p, back) : run_move<S, N, Move::TAKE>(p, back);
}

template <class S>
int run_moves_degree([[maybe_unused]] const Moves& p, [[maybe_unused]] bool back) {
#if defined(__AVX512F__)
    return NO_SUCH_DTYPE;  // dispatch.cpp gives units of a few numbers to AVX2
#else
    if constexpr (UNROLLS<S>) {  // the usual degrees
        switch (p.degree) {
            case 2: return run_moves<S, 2>(p, back);
            case 3: return run_moves<S, 3>(p, back);
            case 4: return run_moves<S, 4>(p, back);
            case 5: return run_moves<S, 5>(p, back);
            case 8: return run_moves<S, 8>(p, back);
        }
    }
    return run_moves<S, 0>(p, back);
#endif
}

inline int run_moves_dtype(const Moves& p, bool back) {
    switch (p.dtype) {
        case FLOAT32: return run_moves_degree<float>(p, back);
        case FLOAT64: return run_moves_degree<double>(p, back);
        case BFLOAT16: return run_moves_degree<bfloat16>(p, back);
#ifdef __FLT16_MANT_DIG__
        case FLOAT16: return run_moves_degree<float16>(p, back);
#endif
        default: return NO_SUCH_DTYPE;
    }
}

}  // namespace LATCHWORK_ISA
