// Banks of latches, and what is read of each, in one pass. Compiled once for each instruction set.
#include "bank.h"

#include "degree_one.h"
#include "product.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

constexpr int64_t STRIP = 8 * LANES;  // pairs at a time: rows of some length, and what belongs to them stays in the cache

// Some neighbouring pairs, at most STRIP, of all batch rows. What belongs to their latches is (K, STRIP) here.
struct BankStrip {
    const Bank& p;
    int64_t first, lanes;

    float* at(const Rows& rows, int64_t b, int64_t t) const {
        return static_cast<float*>(rows.data) + b * rows.batch + t * rows.time + first;
    }
    bool resets(int64_t b, int64_t t) const {
        return p.reset.data && static_cast<const uint8_t*>(p.reset.data)[b * p.reset.batch + t * p.reset.time];
    }
    int64_t room() const { return p.size * STRIP; }
    // From (K, P) into memory of the strip, zero where it has no pairs; and back.
    void gather(const float* from, float* to) const {
        for (int64_t k = 0; k < p.size; ++k)
            for (int64_t j = 0; j < STRIP; ++j) to[k * STRIP + j] = j < lanes ? from[k * p.pairs + j] : 0.0f;
    }
    void scatter(const float* from, float* to) const {
        for (int64_t k = 0; k < p.size; ++k) std::memcpy(to + k * p.pairs, from + k * STRIP, lanes * sizeof(float));
    }

    void forward() const {
        Scratch<float> memory(4 * room());
        float *shift_r = memory.data, *shift_s = shift_r + room(), *weight = shift_s + room(), *state = weight + room();
        gather(p.shift_r + first, shift_r), gather(p.shift_s + first, shift_s), gather(p.weight + first, weight);
        for (int64_t b = 0; b < p.batch; ++b) {
            gather(at(p.state, b, 0), state);
            for (int64_t t = 0; t < p.time; ++t) {
                if (resets(b, t)) gather(at(p.x0, b, 0), state);
                for (int64_t j = 0; j < lanes; j += LANES) step(b, t, j, shift_r + j, shift_s + j, weight + j, state + j);
            }
        }
    }
    LATCHWORK_INLINE void step(int64_t b, int64_t t, int64_t j, const float* shift_r, const float* shift_s,
                               const float* weight, float* state) const {
        const int64_t rest = lanes - j;
        const Lanes r = load_part<float>(at(p.r, b, t) + j, rest), s = load_part<float>(at(p.s, b, t) + j, rest);
        float* to = at(p.x, b, t) + j;
        Lanes total{};
        for (int64_t k = 0; k < p.size; ++k, to += p.pairs) {
            const int64_t own = k * STRIP;
            const Lanes x = advance(r + load(shift_r + own), s + load(shift_s + own), load(state + own)) + 0.0f;
            store(state + own, x);
            store_part<float>(to, x, rest);
            total += load(weight + own) * x;
        }
        store_part<float>(at(p.read, b, t) + j, total, rest);
    }

    template <bool Blurred>
    void backward() const {
        Scratch<float> memory(7 * room());
        float* place[7];
        for (int64_t n = 0; n < 7; ++n) place[n] = memory.data + n * room();
        auto [shift_r, shift_s, weight, carry, grad_shift_r, grad_shift_s, grad_weight] = place;
        gather(p.shift_r + first, shift_r), gather(p.shift_s + first, shift_s), gather(p.weight + first, weight);
        std::memset(grad_shift_r, 0, 3 * room() * sizeof(float));
        for (int64_t b = 0; b < p.batch; ++b) {
            std::memset(carry, 0, room() * sizeof(float));
            for (int64_t t = p.time - 1; t >= 0; --t) {
                const bool reset = resets(b, t);
                const float* before = reset ? at(p.x0, b, 0) : t ? at(p.x, b, t - 1) : at(p.state, b, 0);
                for (int64_t j = 0; j < lanes; j += LANES)
                    step_back<Blurred>(b, t, j, shift_r + j, shift_s + j, weight + j, before + j, carry + j,
                                       grad_shift_r + j, grad_shift_s + j, grad_weight + j);
                if (reset) give_to_x0(b, carry);
            }
            scatter(carry, at(p.grad_state, b, 0));
        }
        scatter(grad_shift_r, p.grad_shift_r + first), scatter(grad_shift_s, p.grad_shift_s + first);
        scatter(grad_weight, p.grad_weight + first);
    }
    template <bool Blurred>
    LATCHWORK_INLINE Lanes of_first(Lanes a, Lanes b) const {  // of max(a, b), or min(b, a): see `share`
        if constexpr (Blurred) return share<float>(a, b, static_cast<float>(0.5 / p.blur));
        return a == b ? all(0.5f) : a > b ? all(1.0f) : Lanes{};
    }
    template <bool Blurred>
    LATCHWORK_INLINE void step_back(int64_t b, int64_t t, int64_t j, const float* shift_r, const float* shift_s,
                                    const float* weight, const float* before, float* carry, float* grad_shift_r,
                                    float* grad_shift_s, float* grad_weight) const {
        const int64_t rest = lanes - j;
        const Lanes r = load_part<float>(at(p.r, b, t) + j, rest), s = load_part<float>(at(p.s, b, t) + j, rest);
        const Lanes g = load_part<float>(at(p.grad, b, t) + j, rest);
        const float *now = at(p.x, b, t) + j, *more = p.grad_x.data ? at(p.grad_x, b, t) + j : nullptr;
        Lanes total_r{}, total_s{};
        for (int64_t k = 0; k < p.size; ++k, now += p.pairs, before += p.pairs) {
            const int64_t own = k * STRIP;
            const Lanes r_k = r + load(shift_r + own), s_k = s + load(shift_s + own);
            const Lanes x = load_part<float>(before, rest);
            Lanes grad = g * load(weight + own) + load(carry + own);
            if (more) grad += load_part<float>(more + k * p.pairs, rest);
            const Lanes of_s = of_first<Blurred>(s_k, minimum(r_k, x)), of_r = of_first<Blurred>(x, r_k);
            const Lanes grad_s = grad * of_s, grad_m = grad * (1.0f - of_s), grad_r = grad_m * of_r;
            store(carry + own, grad_m * (1.0f - of_r));
            store(grad_shift_r + own, load(grad_shift_r + own) + grad_r);
            store(grad_shift_s + own, load(grad_shift_s + own) + grad_s);
            store(grad_weight + own, load(grad_weight + own) + g * load_part<float>(now, rest));
            total_r += grad_r;
            total_s += grad_s;
        }
        store_part<float>(at(p.grad_r, b, t) + j, total_r, rest);
        store_part<float>(at(p.grad_s, b, t) + j, total_s, rest);
    }
    void give_to_x0(int64_t b, float* carry) const {
        float* to = at(p.grad_x0, b, 0);
        for (int64_t k = 0; k < p.size; ++k)
            for (int64_t j = 0; j < lanes; ++j) to[k * p.pairs + j] += carry[k * STRIP + j];
        std::memset(carry, 0, room() * sizeof(float));
    }
};

// Strips share nothing: the result does not depend on the number of threads.
template <class F>
int over_strips(const Bank& p, F run) {
    const int64_t strips = (p.pairs + STRIP - 1) / STRIP, threads = p.threads < strips ? p.threads : strips;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < strips; ++n) {
        const int64_t first = n * STRIP, rest = p.pairs - first;
        run(BankStrip{p, first, rest < STRIP ? rest : STRIP});
    }
    return 0;
}

}  // namespace LATCHWORK_ISA

extern "C" {
int JOIN(latchwork_bank_, LATCHWORK_ISA)(const Bank* p) {
    return LATCHWORK_ISA::over_strips(*p, [](const auto& strip) { strip.forward(); });
}
int JOIN(latchwork_bank_back_, LATCHWORK_ISA)(const Bank* p) {  // grad_x0 comes zeroed
    return LATCHWORK_ISA::over_strips(*p, [p](const auto& strip) {
        p->blur > 0 ? strip.template backward<true>() : strip.template backward<false>();
    });
}
}
