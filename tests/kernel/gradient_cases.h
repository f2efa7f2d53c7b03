// A random case of a kernel with gradients: what forward writes is compared with a definition in double, and all gradients
// at once with the slope of that definition along a random direction.
#pragma once
#include <cmath>
#include <functional>
#include <vector>

#include "cases.h"

using Block = std::vector<float>;  // exactly of its size, so that the address sanitizer sees one element too far
using Numbers = std::vector<double>;
using Given = std::vector<Numbers>;

// Inputs that the kernel reads, gradients that it writes, and the definition of y. `uncertain`: some number stands so near to
// where the slope jumps that it is not to be compared.
struct Case {
    Random& random;
    std::vector<Block> in, grads;
    Block y, grad_y;
    bool uncertain = false;
    double worst = 0;
    explicit Case(Random& random) : random(random) { in.reserve(20), grads.reserve(20); }  // addresses stay
    Block draw(int64_t size, double scale = 1) {
        Block block(size);
        for (float& each : block) each = static_cast<float>((2 * random.uniform() - 1) * scale);
        return block;
    }
    // An input, and the place for its gradient.
    float* input(int64_t size, double scale = 1, double add = 0) {
        in.push_back(draw(size, scale));
        for (float& each : in.back()) each += static_cast<float>(add);
        grads.emplace_back(size, NAN);
        return in.back().data();
    }
    float* grad() { return grads.back().data(); }
    // The same for rows (B, T, width); and for a weight, whose gradient is added to what stands there.
    void put(Rows& to, Rows& of, int64_t B, int64_t T, int64_t width, double scale = 1) {
        to = {input(B * T * width, scale), T * width, width}, of = {grad(), T * width, width};
    }
    void put(const float*& to, float*& of, int64_t size, double scale = 1, double add = 0) {
        to = input(size, scale, add), of = grad();
        std::fill_n(of, size, 0.0f);
    }
    void output(int64_t size) { y = Block(size, NAN), grad_y = draw(size); }

    template <class Structure, class Definition>
    void check(Structure& p, int (*forward)(const Structure*), int (*backward)(const Structure*), Rows& given, Rows rows,
               Definition definition, bool compares = true) {
        const std::vector<Block> before = in;
        p.threads = 1 + random.below(3);
        if (const int code = forward(&p)) fail("forward returned %d", code);
        const Block found = y;
        for (float each : found)
            if (each != each) fail("forward left a number out");
        given = rows;
        if (const int code = backward(&p)) fail("backward returned %d", code);
        for (size_t i = 0; i < in.size(); ++i) {
            if (before[i] != in[i]) fail("input %zu was written to", i);
            for (float each : grads[i])
                if (each != each) fail("backward left a number of gradient %zu out", i);
        }
        Given at, direction, up, down;
        double slope = 0, size = 1, expected = 0;
        constexpr double step = 1e-6;
        for (size_t i = 0; i < in.size(); ++i) {
            at.emplace_back(in[i].begin(), in[i].end());
            direction.emplace_back();
            for (size_t j = 0; j < in[i].size(); ++j) {
                direction[i].push_back(2 * random.uniform() - 1);
                slope += direction[i][j] * grads[i][j], size += std::fabs(direction[i][j] * grads[i][j]);
            }
        }
        up = down = at;
        for (size_t i = 0; i < at.size(); ++i)
            for (size_t j = 0; j < at[i].size(); ++j)
                up[i][j] += step * direction[i][j], down[i][j] -= step * direction[i][j];
        const Numbers wanted = definition(at), above = definition(up), below = definition(down);
        double largest = 1;
        for (double each : wanted) largest = std::max(largest, std::fabs(each));
        for (size_t i = 0; i < wanted.size() && compares; ++i) {
            if (!(std::fabs(found[i] - wanted[i]) <= 1e-4 * largest))
                fail("y[%zu] is %.9g, must be %.9g (largest %g)", i, found[i], wanted[i], largest);
            expected += grad_y[i] * (above[i] - below[i]) / (2 * step);
        }
        if (compares && !uncertain && !(std::fabs(slope - expected) <= 1e-3 * size))
            fail("the slope is %.9g, must be %.9g (size %g)", slope, expected, size);
        given = Rows{};
        if (random.percent(20) && !says_when_out_of_memory(random, forward, &p)) fail("forward hides that there is no memory");
    }
};

inline Rows rows(float* data, int64_t time, int64_t width) { return {data, time * width, width}; }
inline double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
inline double silu(double a) { return a * sigmoid(a); }
struct Sizes {
    int64_t B, T, D;
    explicit Sizes(Random& random, int64_t most_steps = 80)
        : B(1 + random.below(random.percent(20) ? 20 : 4)), T(1 + random.below(random.percent(50) ? 12 : most_steps)),
          D(random.percent(40) ? random.pick({1, 8, 15, 16, 17, 24, 32, 33, 48}) : 1 + random.below(40)) {}
    void say(const char* kind, const char* number, int64_t more = 0) const {
        std::snprintf(now, sizeof now, "%s: %s B %ld T %ld D %ld (%ld)", number, kind, long(B), long(T), long(D), long(more));
    }
};
