// Cross-entropy of x weight' with the targets: logits, softmax and both gradients for a few rows at a time, while they
// are in the cache; and the largest of the logits. Compiled once for each instruction set.
#include <cmath>

#include "norm.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

struct PreparedHead {
    const Head& p;
    const int64_t D, V;  // row lengths with padding
    Scratch<float> memory;
    float *forward, *backward;
    explicit PreparedHead(const Head& p)
        : p(p), D(padded(p.width)), V(padded(p.classes)), memory(2 * packed_room(p.classes, p.width)) {
        forward = memory.data;
        backward = memory.data + packed_room(p.classes, p.width);
        pack(p.weight, p.width, p.classes, 1, p.width, forward);
        if (p.grad_x) pack(p.weight, p.classes, p.width, p.width, 1, backward);
    }
    // The loss of one row, whose logits (V) become their gradient.
    float softmax(float* logits, int64_t target) const {
        const int64_t last = (p.classes - 1) / LANES * LANES;
        const Mask mask = tail_mask(p.classes);
        for (int64_t j = p.classes; j < last + LANES; ++j) logits[j] = -__builtin_inff();
        Lanes most = load(logits);
        for (int64_t j = LANES; j <= last; j += LANES) {
            const Lanes a = load(logits + j);
            most = a > most ? a : most;
        }
        const float best = largest(most), right = logits[target];
        Lanes total{};
        for (int64_t j = 0; j < last; j += LANES) {
            const Lanes e = exponential(load(logits + j) - best);
            total += e;
            store(logits + j, e);
        }
        const Lanes e = keep(exponential(load(logits + last) - best), mask);
        store(logits + last, e);
        const float whole = sum(total + e), share = static_cast<float>(p.share);
        for (int64_t j = 0; j <= last; j += LANES) store(logits + j, load(logits + j) * (share / whole));
        logits[target] -= share;
        return std::log(whole) + (best - right);
    }
};

inline void head_rows(const PreparedHead& w, int64_t begin, int64_t end, float* sums) {
    const Head& p = w.p;
    Scratch<float> memory(BLOCK * (w.V + 2 * w.D));
    Arena arena{memory.data};
    float *logits = arena.take(BLOCK * w.V), *x = arena.take(BLOCK * w.D), *grad_x = arena.take(BLOCK * w.D);
    std::memset(memory.data, 0, BLOCK * (w.V + 2 * w.D) * sizeof(float));
    for (int64_t row = begin; row < end; row += BLOCK) {
        const int64_t rows = end - row < BLOCK ? end - row : BLOCK, whole = round_up(rows, ROWS);
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(x + r * w.D, p.x + (row + r) * p.width, p.width * sizeof(float));
        multiply(x, w.D, w.forward, whole, p.width, p.classes, nullptr, logits, w.V);
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t target = p.targets[row + r];
            if (target >= 0 && target < p.classes) {
                p.losses[row + r] = w.softmax(logits + r * w.V, target);
            } else {
                p.losses[row + r] = 0;
                std::memset(logits + r * w.V, 0, w.V * sizeof(float));
            }
        }
        if (p.grad_weight) accumulate(logits, w.V, x, w.D, rows, p.classes, p.width, sums, w.D);
        if (!p.grad_x) continue;
        multiply(logits, w.V, w.backward, whole, p.classes, p.width, nullptr, grad_x, w.D);
        for (int64_t r = 0; r < rows; ++r)
            std::memcpy(p.grad_x + (row + r) * p.width, grad_x + r * w.D, p.width * sizeof(float));
    }
}

int head(const Head& p) {
    const PreparedHead w(p);
    const int64_t most = p.rows / (2 * BLOCK);
    int64_t threads = p.threads < most ? p.threads : most;
    threads = threads < 1 ? 1 : threads;
    const int64_t size = p.grad_weight ? line(w.V * w.D) : 0;
    Scratch<float> memory(threads * size);
    if (size) std::memset(memory.data, 0, threads * size * sizeof(float));
    in_parallel(threads, threads, [&](int64_t part) {
        head_rows(w, p.rows * part / threads, p.rows * (part + 1) / threads, memory.data + part * size);
    });
    for (int64_t part = 0; part < threads && size; ++part)
        add_matrix(memory.data + part * size, w.D, p.classes, p.width, p.grad_weight, part == 0);
    return DONE;
}

// The first of the largest numbers of a row, or -1 if one is a NaN. mask: of its last vector, which is whole in memory.
inline int64_t first_of_largest(const float* row, int64_t n, Mask mask) {
    const int64_t last = (n - 1) / LANES * LANES;
    Lanes most = mask ? load(row + last) : all(-__builtin_inff());
    Mask wrong = most != most;
    for (int64_t j = 0; j < last; j += LANES) {
        const Lanes a = load(row + j);
        wrong |= a != a;
        most = a > most ? a : most;
    }
    if (any(wrong)) return -1;
    const float best = largest(most);
    int64_t found = 0;
    while (!any(load(row + found) == best)) found += LANES;
    return found + first_set(load(row + found) == best);
}

int best(const Best& p) {
    const int64_t D = panels(p.width), V = panels(p.classes);
    Scratch<float> shared(2 * line(D) + packed_room(p.classes, p.width));
    Arena arena{shared.data};
    const Normaliser norm = normaliser(p.norm, p.width, arena);
    const Mask mask = tail_mask(p.classes);
    float* weight = arena.take(packed_room(p.classes, p.width));
    pack(p.weight, p.width, p.classes, 1, p.width, weight);
    const int64_t most = p.rows / (2 * BLOCK), threads = p.threads < most ? p.threads : most < 1 ? 1 : most;
    in_parallel(threads, threads, [&](int64_t part) {
        const int64_t end = p.rows * (part + 1) / threads;
        Scratch<float> memory(BLOCK * (D + V) + Normaliser::TOGETHER * D);
        Arena own{memory.data};
        float *x = own.take(BLOCK * D), *logits = own.take(BLOCK * V), *last = own.take(Normaliser::TOGETHER * D);
        for (int64_t row = p.rows * part / threads; row < end; row += BLOCK) {
            const int64_t rows = end - row < BLOCK ? end - row : BLOCK;
            norm.each(rows, [&](int64_t r) {
                const float* from = p.x + (row + r) * p.width;
                if ((row + r) * p.width + round_up(p.width, LANES) > p.rows * p.width) {  // the norm reads whole vectors
                    float* padded = last + r % Normaliser::TOGETHER * D;
                    copy_padded(from, p.width, D, padded), from = padded;
                }
                return Normaliser::Row{from, nullptr, x + r * D};
            });
            multiply(x, D, weight, round_up(rows, ROWS), p.width, p.classes, nullptr, logits, V);
            for (int64_t r = 0; r < rows; ++r) p.best[row + r] = first_of_largest(logits + r * V, p.classes, mask);
        }
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

extern "C" int JOIN(latchwork_head_, LATCHWORK_ISA)(const Head* p) { return LATCHWORK_ISA::head(*p); }
extern "C" int JOIN(latchwork_best_, LATCHWORK_ISA)(const Best* p) { return LATCHWORK_ISA::best(*p); }
