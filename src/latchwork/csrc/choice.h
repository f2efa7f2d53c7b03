// Of each short row of logits the softmax at a temperature and the place of the largest, in one pass; and the gradient
// of the softmax.
// Rows stand side by side, one a lane (transpose.h), so that all arithmetic is elementwise.
#pragma once
#include <cmath>

#include "abi.h"
#include "plan.h"
#include "blocks.h"
#include "scratch.h"
#include "transpose.h"

namespace LATCHWORK_ISA {

LATCHWORK_INLINE Vector<float> exp_below_zero(Vector<float> x) {
    return x < -87.0f ? Vector<float>{} : exponential(x);  // a NaN comes through
}
inline Vector<double> exp_below_zero(Vector<double> x) {
    for (int l = 0; l < Of<double>::LANES; ++l) x[l] = std::exp(x[l]);
    return x;
}

template <class S>
struct ChoiceRows {
    using V = Vector<S>;
    static constexpr int64_t L = Of<S>::LANES;
    const Choice& p;
    int64_t from_logits() const { return p.options - (p.own.data ? 1 : 0); }
    template <class A>
    static A* at(const Rows& rows, int64_t token, int64_t offset) {
        return static_cast<A*>(rows.data) + token * rows.batch + offset;
    }

    void forward(int64_t token, V* planes) const {
        const int64_t options = p.options, n = from_logits();
        const V temperature = V{} + Compute<S>(p.temperature);
        for (int64_t row = 0; row < p.rows; row += L) {
            const int64_t lanes = p.rows - row < L ? p.rows - row : L;
            Planes<S>::gather(at<const S>(p.logits, token, row * n), n, lanes, planes);
            if (n < options) planes[n] = load_part(at<const S>(p.own, token, row), lanes);
            V largest = planes[0], place = V{}, sum = V{};
            for (int64_t k = 1; k < options; ++k) {
                const auto better = (planes[k] > largest) | ((planes[k] != planes[k]) & (largest == largest));
                largest = better ? planes[k] : largest;  // the first NaN counts as the largest
                place = better ? V{} + Compute<S>(k) : place;
            }
            for (int64_t k = 0; k < options; ++k) {
                planes[k] = exp_below_zero((planes[k] - largest) / temperature);
                sum += planes[k];
            }
            for (int64_t k = 0; k < options; ++k) planes[k] = planes[k] / sum;
            Planes<S>::scatter(planes, options, lanes, at<S>(p.weights, token, row * options));
            int64_t* choice = at<int64_t>(p.choice, token, row);
            for (int64_t l = 0; l < lanes; ++l) choice[l] = static_cast<int64_t>(place[l]);
        }
    }

    // The gradient of logit k is w[k] (g[k] - sum_j w[j] g[j]) / temperature.
    void backward(int64_t token, V* planes) const {
        const int64_t options = p.options, n = from_logits();
        const V temperature = V{} + Compute<S>(p.temperature);
        V* grad = planes + options;
        for (int64_t row = 0; row < p.rows; row += L) {
            const int64_t lanes = p.rows - row < L ? p.rows - row : L;
            Planes<S>::gather(at<const S>(p.weights, token, row * options), options, lanes, planes);
            Planes<S>::gather(at<const S>(p.grad, token, row * options), options, lanes, grad);
            V sum = V{};
            for (int64_t k = 0; k < options; ++k) sum += planes[k] * grad[k];
            for (int64_t k = 0; k < options; ++k) grad[k] = planes[k] * (grad[k] - sum) / temperature;
            Planes<S>::scatter(grad, n, lanes, at<S>(p.grad_logits, token, row * n));
            if (n < options) store_part(at<S>(p.grad_own, token, row), grad[n], lanes);
        }
    }
};

template <class S>
int run_choice([[maybe_unused]] const Choice& p, [[maybe_unused]] bool back) {
#if defined(__AVX512F__)
    return NO_SUCH_DTYPE;  // dispatch.cpp gives these to AVX2
#else
    const bool small = p.tokens * p.rows * p.options < SMALL || p.threads < 1;
    const int64_t threads = small ? 1 : p.threads;
    in_parallel(threads, threads, [&](int64_t part) {
        Scratch<Vector<S>> planes(2 * p.options);
        for (int64_t token = p.tokens * part / threads; token < p.tokens * (part + 1) / threads; ++token) {
            if (back)
                ChoiceRows<S>{p}.backward(token, planes.data);
            else
                ChoiceRows<S>{p}.forward(token, planes.data);
        }
    });
    return DONE;
#endif
}

inline int run_choice_dtype(const Choice& p, bool back) {
    switch (p.dtype) {
        case FLOAT32: return run_choice<float>(p, back);
        case FLOAT64: return run_choice<double>(p, back);
        case BFLOAT16: return run_choice<bfloat16>(p, back);
#ifdef __FLT16_MANT_DIG__
        case FLOAT16: return run_choice<float16>(p, back);
#endif
        default: return NO_SUCH_DTYPE;
    }
}

}  // namespace LATCHWORK_ISA
