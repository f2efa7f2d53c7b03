// What the kernel must compute, as plainly as it can be said: one number at a time, in a loop over time. Nothing is
// shared with the kernel but the names of the dtypes.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi.h"

namespace definition {

// ---- Numbers. A double holds a number of any dtype exactly.

struct Half {  // a type of 16 bits
    int mantissa;  // stored bits of the mantissa
    int lowest;    // the smallest number is 2 ** lowest
    int infinity() const { return 0x7fff >> mantissa << mantissa; }
};
inline Half half(int64_t dtype) { return dtype == BFLOAT16 ? Half{7, -133} : Half{10, -24}; }
inline int64_t bytes(int64_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

// Rounds to nearest, ties to even. The bits of the positive numbers, read as integers, count them from zero upward,
// also across the edge to a larger exponent: so a mantissa that rounds up to too many digits needs no care.
inline uint16_t to_half(Half type, double value) {
    if (std::isnan(value)) return static_cast<uint16_t>(type.infinity() + 1);
    int size = value == 0 ? 0 : type.infinity();
    if (value != 0 && !std::isinf(value)) {
        int exponent;
        std::frexp(value, &exponent);
        const int unit = std::max(exponent - type.mantissa - 1, type.lowest);  // of the last digit that is kept
        const int digits = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -unit)));
        size = std::min(size, ((unit - type.lowest) << type.mantissa) + digits);
    }
    return static_cast<uint16_t>(size | (std::signbit(value) ? 0x8000 : 0));
}
inline double from_half(Half type, uint16_t bits) {
    const int size = bits & 0x7fff, exponent = size >> type.mantissa, digits = size & ((1 << type.mantissa) - 1);
    double value = exponent ? std::ldexp(digits + (1 << type.mantissa), exponent - 1 + type.lowest)
                            : std::ldexp(digits, type.lowest);
    if (size >= type.infinity()) value = digits ? NAN : INFINITY;
    return bits & 0x8000 ? -value : value;
}

inline void write(int64_t dtype, void* to, double value) {
    const float single = static_cast<float>(value);
    const uint16_t bits = to_half(half(dtype), value);
    const void* from = dtype == FLOAT64 ? &value : dtype == FLOAT32 ? static_cast<const void*>(&single) : &bits;
    std::memcpy(to, from, bytes(dtype));
}
inline double read(int64_t dtype, const void* from) {
    double value = 0;
    float single = 0;
    uint16_t bits = 0;
    void* to = dtype == FLOAT64 ? &value : dtype == FLOAT32 ? static_cast<void*>(&single) : &bits;
    std::memcpy(to, from, bytes(dtype));
    return dtype == FLOAT64 ? value : dtype == FLOAT32 ? single : from_half(half(dtype), bits);
}
inline double rounded(int64_t dtype, double value) {
    char stored[8];
    write(dtype, stored, value);
    return read(dtype, stored);
}

// ---- The recurrence. C is the type that is computed in: double for float64, float for all others.

template <class C>
C minimum(C a, C b) {  // a NaN spreads
    return std::isnan(a) || std::isnan(b) ? C(NAN) : a < b ? a : b;
}
template <class C>
C maximum(C a, C b) {
    return std::isnan(a) || std::isnan(b) ? C(NAN) : a > b ? a : b;
}

// after[i] = max(s[i], max_k min(r[i, k], x[k])); degree one is n = 1.
template <class C>
void step(int64_t n, const C* r, const C* s, const C* x, C* after) {
    for (int64_t i = 0; i < n; ++i) {
        after[i] = s[i];
        for (int64_t k = 0; k < n; ++k) after[i] = maximum(after[i], minimum(r[i * n + k], x[k]));
    }
}

// What of g, the gradient of max(a, b) or min(a, b), belongs to a: all, half at a tie, or nothing. At a NaN no
// comparison holds, and all of g goes both ways.
template <class C>
C of_maximum(C a, C b, C g) {
    return a < b ? C(0) : a == b ? g * C(0.5) : g;
}
template <class C>
C of_minimum(C a, C b, C g) {
    return a > b ? C(0) : a == b ? g * C(0.5) : g;
}

// The gradients of one step from g, the gradient of what came `after`.
template <class C>
void step_back_one(C r, C s, C x, C g, C& grad_r, C& grad_s, C& grad_x) {
    const C m = minimum(r, x), grad_m = of_maximum(m, s, g);
    grad_s = of_maximum(s, m, g);
    grad_r = of_minimum(r, x, grad_m);
    grad_x = of_minimum(x, r, grad_m);
}
// Degree n: a row's n minima and its s that attain its value share g evenly. None attains a NaN: then all get a NaN.
template <class C>
void step_back_n(int64_t n, const C* r, const C* s, const C* x, const C* after, const C* g, C* grad_r, C* grad_s,
                 C* grad_x) {
    for (int64_t k = 0; k < n; ++k) grad_x[k] = 0;
    for (int64_t i = 0; i < n; ++i) {
        int64_t attain = s[i] == after[i];
        for (int64_t k = 0; k < n; ++k) attain += minimum(r[i * n + k], x[k]) == after[i];
        const C share = attain ? g[i] / C(attain) : C(NAN);
        grad_s[i] = s[i] == after[i] || !attain ? share : C(0);
        for (int64_t k = 0; k < n; ++k) {
            const C r_ik = r[i * n + k], grad_m = minimum(r_ik, x[k]) == after[i] || !attain ? share : C(0);
            grad_r[i * n + k] = of_minimum(r_ik, x[k], grad_m);
            grad_x[k] += of_minimum(x[k], r_ik, grad_m);  // in the order of i: the kernel adds in the same
        }
    }
}

// One unit (or, of degree one, one lane) of one batch row.
template <class C>
struct Unit {
    int64_t degree, n, time;
    std::vector<C> r, s, grad, state, x0;  // (T, n, n), (T, n), (T, n), (n), (n)
    std::vector<char> reset;               // (T)
    std::vector<C> x, grad_r, grad_s, grad_state, grad_x0;

    void forward(const std::vector<C>& start) {
        x.assign(time * n, 0);
        std::vector<C> before = start;
        for (int64_t t = 0; t < time; ++t) {
            if (reset[t]) before = x0;
            step(n, &r[t * n * n], &s[t * n], before.data(), &x[t * n]);
            before.assign(&x[t * n], &x[t * n] + n);
        }
        for (C& value : x) value += C(0);  // a zero is written as +0
    }
    void backward() {
        grad_r.assign(time * n * n, 0), grad_s.assign(time * n, 0), grad_x0.assign(n, 0);
        std::vector<C> carry(n, 0), g(n);
        for (int64_t t = time - 1; t >= 0; --t) {
            const C* before = reset[t] ? x0.data() : t ? &x[(t - 1) * n] : state.data();
            for (int64_t i = 0; i < n; ++i) g[i] = grad[t * n + i] + carry[i];
            if (degree == 0)
                step_back_one(r[t], s[t], *before, g[0], grad_r[t], grad_s[t], carry[0]);
            else
                step_back_n(n, &r[t * n * n], &s[t * n], before, &x[t * n], g.data(), &grad_r[t * n * n],
                            &grad_s[t * n], carry.data());
            for (int64_t i = 0; i < n && reset[t]; ++i) grad_x0[i] += carry[i], carry[i] = 0;
        }
        grad_state = carry;
    }
};

}  // namespace definition
