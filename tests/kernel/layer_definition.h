// What the kernels of layer, head and loss must compute, as plainly as it can be said: one row at a time, in double
// precision. Nothing is shared with the kernels but the names of the norms.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "abi.h"

namespace definition {

using Numbers = std::vector<double>;

inline Numbers row_of(const Numbers& matrix, int64_t row, int64_t width) {
    return Numbers(matrix.begin() + row * width, matrix.begin() + (row + 1) * width);
}
inline void add(Numbers& to, const Numbers& from, int64_t offset = 0) {
    for (size_t j = 0; j < from.size(); ++j) to[offset + j] += from[j];
}
inline double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }

struct Norm {
    int64_t kind;
    double epsilon;
    Numbers weight, bias, grad_weight, grad_bias;

    double mean(const Numbers& x) const {
        double total = 0;
        for (double each : x) total += each;
        return total / static_cast<double>(x.size());
    }
    Numbers hat(const Numbers& x, double& scale) const {
        const double centre = kind == LAYER_NORM ? mean(x) : 0;
        Numbers centred, squares;
        for (double each : x) centred.push_back(each - centre), squares.push_back((each - centre) * (each - centre));
        scale = 1 / std::sqrt(mean(squares) + epsilon);
        for (double& each : centred) each *= scale;
        return centred;
    }
    Numbers forward(const Numbers& x) const {
        if (kind == NO_NORM) return x;
        double scale;
        Numbers y = hat(x, scale);
        for (size_t j = 0; j < y.size(); ++j) y[j] = y[j] * weight[j] + (kind == LAYER_NORM ? bias[j] : 0);
        return y;
    }
    Numbers backward(const Numbers& x, const Numbers& grad) {
        if (kind == NO_NORM) return grad;
        double scale;
        const Numbers h = hat(x, scale);
        Numbers inner = grad, along = grad;
        for (size_t j = 0; j < h.size(); ++j) {
            grad_weight[j] += grad[j] * h[j];
            if (kind == LAYER_NORM) grad_bias[j] += grad[j];
            inner[j] *= weight[j];
            along[j] = inner[j] * h[j];
        }
        const double centre = kind == LAYER_NORM ? mean(inner) : 0, slope = mean(along);
        for (size_t j = 0; j < h.size(); ++j) inner[j] = (inner[j] - centre - h[j] * slope) * scale;
        return inner;
    }
};

struct Linear {
    int64_t outputs, inputs;
    Numbers weight, bias, grad_weight, grad_bias;

    Numbers forward(const Numbers& x) const {
        Numbers y = bias;
        for (int64_t i = 0; i < outputs; ++i)
            for (int64_t k = 0; k < inputs; ++k) y[i] += weight[i * inputs + k] * x[k];
        return y;
    }
    Numbers backward(const Numbers& x, const Numbers& grad) {
        Numbers grad_x(inputs);
        for (int64_t i = 0; i < outputs; ++i) {
            grad_bias[i] += grad[i];
            for (int64_t k = 0; k < inputs; ++k) {
                grad_weight[i * inputs + k] += grad[i] * x[k];
                grad_x[k] += grad[i] * weight[i * inputs + k];
            }
        }
        return grad_x;
    }
};

// What dropout multiplies element (row, column) with.
inline double kept(uint64_t seed, double dropout, int64_t row, int64_t column) {
    uint64_t a = seed + static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u;
    a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9u;
    a = (a ^ (a >> 27)) * 0x94d049bb133111ebu;
    uint32_t b = static_cast<uint32_t>((a ^ (a >> 31)) >> 32) + static_cast<uint32_t>(column) * 0x9e3779b9u;
    b = (b ^ (b >> 16)) * 0x85ebca6bu;
    b = (b ^ (b >> 13)) * 0xc2b2ae35u;
    const uint32_t drawn = (b ^ (b >> 16)) >> 8;  // of 2 ** 24
    return drawn >= static_cast<uint32_t>(static_cast<double>(static_cast<float>(dropout)) * 0x1p24)
               ? 1 / (1 - dropout)
               : 0;
}

struct LayerRows {
    int64_t batch, time, width, hidden, outputs;
    bool gated_conv, gated_ffn;
    int64_t activation;
    uint64_t seed;
    double dropout;
    Norm norm_conv, norm_ffn, norm_neuron;
    Linear conv, up, down, projection;  // with a gated convolution conv.weight is g, and conv has no bias
    Numbers u, first;                   // first: empty for none
    std::vector<uint8_t> reset;         // empty for none
    Numbers z, grad_z, grad_u, grad_first;
    std::vector<Numbers> v, before, m, pre, a, q;  // by row
    double nearest_kink = INFINITY;                // the smallest |x| whose relu was taken

    bool begins(int64_t row) const { return !reset.empty() && reset[row]; }

    double act(double x) const {
        const double positive = x < 0 ? 0 : x;
        return activation == SWISH ? x * sigmoid(x) : activation == RELU_SQUARED ? positive * positive : positive;
    }
    double slope(double x) const {
        const double open = sigmoid(x);
        if (activation == SWISH) return open * (1 + x * (1 - open));
        return activation == RELU_SQUARED ? (x < 0 ? 0 : 2 * x) : x <= 0 ? 0 : 1;
    }
    Numbers activate(const Numbers& x) {
        Numbers y;
        for (int64_t j = 0; j < hidden; ++j) {
            nearest_kink = std::min(nearest_kink, std::isnan(x[j]) ? INFINITY : std::fabs(x[j]));
            y.push_back(gated_ffn ? act(x[j]) * x[hidden + j] : act(x[j]));
        }
        return y;
    }
    Numbers activate_back(const Numbers& x, const Numbers& grad) const {
        Numbers grad_x(x.size());
        for (int64_t j = 0; j < hidden; ++j) {
            grad_x[j] = grad[j] * slope(x[j]) * (gated_ffn ? x[hidden + j] : 1);
            if (gated_ffn) grad_x[hidden + j] = grad[j] * act(x[j]);
        }
        return grad_x;
    }
    Numbers both(int64_t row) const {
        Numbers pair = before[row];
        pair.insert(pair.end(), v[row].begin(), v[row].end());
        return pair;
    }
    void forward() {
        for (int64_t row = 0; row < batch * time; ++row) {
            const Numbers input = row_of(u, row, width);
            v.push_back(norm_conv.forward(input));
            before.emplace_back(width);
            if (!begins(row) && row % time)
                before[row] = v[row - 1];
            else if (!begins(row) && !first.empty())
                before[row] = row_of(first, row / time, width);
            Numbers mixed(width);
            for (int64_t j = 0; gated_conv && j < width; ++j) {
                const double gate = sigmoid(conv.weight[j]);
                mixed[j] = gate * before[row][j] + (1 - gate) * v[row][j];
            }
            if (!gated_conv) mixed = conv.forward(both(row));
            add(mixed, input);
            m.push_back(mixed);
            pre.push_back(up.forward(norm_ffn.forward(mixed)));
            a.push_back(activate(pre[row]));
            Numbers f = down.forward(a[row]);
            for (int64_t j = 0; dropout > 0 && j < width; ++j) f[j] *= kept(seed, dropout, row, j);
            add(f, mixed);
            q.push_back(f);
            const Numbers out = projection.forward(norm_neuron.forward(f));
            z.insert(z.end(), out.begin(), out.end());
        }
    }
    void backward() {
        grad_u.assign(u.size(), 0), grad_first.assign(batch * width, 0);
        std::vector<Numbers> grad_v(batch * time, Numbers(width));
        for (int64_t row = batch * time - 1; row >= 0; --row) {
            Numbers grad_m = norm_neuron.backward(
                q[row], projection.backward(norm_neuron.forward(q[row]), row_of(grad_z, row, outputs)));
            Numbers grad_f = grad_m;
            for (int64_t j = 0; dropout > 0 && j < width; ++j) grad_f[j] *= kept(seed, dropout, row, j);
            const Numbers grad_pre = activate_back(pre[row], down.backward(a[row], grad_f));
            add(grad_m, norm_ffn.backward(m[row], up.backward(norm_ffn.forward(m[row]), grad_pre)));
            Numbers grad_pair(2 * width);
            for (int64_t j = 0; gated_conv && j < width; ++j) {
                const double gate = sigmoid(conv.weight[j]);
                conv.grad_weight[j] += grad_m[j] * (before[row][j] - v[row][j]) * gate * (1 - gate);
                grad_pair[j] = grad_m[j] * gate, grad_pair[width + j] = grad_m[j] * (1 - gate);
            }
            if (!gated_conv) grad_pair = conv.backward(both(row), grad_m);
            add(grad_v[row], row_of(grad_pair, 1, width));
            if (!begins(row) && row % time) add(grad_v[row - 1], row_of(grad_pair, 0, width));
            if (!begins(row) && row % time == 0) add(grad_first, row_of(grad_pair, 0, width), row / time * width);
            add(grad_u, norm_conv.backward(row_of(u, row, width), grad_v[row]), row * width);
            add(grad_u, grad_m, row * width);
        }
    }
};

struct ResponseRows {
    int64_t rows, width, state, outputs;
    bool gated;
    Numbers x, z, u;
    Linear output;
    Numbers y, grad_y, grad_x, grad_gate;  // grad_gate: (rows, state)

    double gate(int64_t row, int64_t j) const { return gated ? sigmoid(z[(row + 1) * outputs - state + j]) : 1; }
    Numbers behind_gate(int64_t row) const {
        Numbers open = row_of(x, row, state);
        for (int64_t j = 0; gated && j < state; ++j) open[j] *= gate(row, j);
        return open;
    }
    void forward() {
        y = u;
        for (int64_t row = 0; row < rows; ++row) add(y, output.forward(behind_gate(row)), row * width);
    }
    void backward() {
        for (int64_t row = 0; row < rows; ++row) {
            const Numbers open = behind_gate(row), grad = output.backward(open, row_of(grad_y, row, width));
            for (int64_t j = 0; j < state; ++j) {
                grad_x.push_back(gated ? grad[j] * gate(row, j) : grad[j]);
                grad_gate.push_back(grad[j] * open[j] * (1 - gate(row, j)));
            }
        }
    }
};

struct HeadRows {
    int64_t rows, width, classes;
    double share;
    Numbers x, weight;
    std::vector<int64_t> targets;  // one outside 0 .. classes - 1 is left out
    Numbers losses, grad_x, grad_weight;

    void run() {
        grad_weight.assign(weight.size(), 0);
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t target = targets[row];
            const bool counts = target >= 0 && target < classes;
            Numbers logits(classes), grad(width);
            for (int64_t i = 0; i < classes; ++i)
                for (int64_t k = 0; k < width; ++k) logits[i] += weight[i * width + k] * x[row * width + k];
            const double best = *std::max_element(logits.begin(), logits.end());
            double total = 0;
            for (double each : logits) total += std::exp(each - best);
            losses.push_back(counts ? std::log(total) + best - logits[target] : 0);
            for (int64_t i = 0; i < classes; ++i) {
                const double slope = counts ? share * (std::exp(logits[i] - best) / total - (i == target)) : 0;
                for (int64_t k = 0; k < width; ++k) {
                    grad_weight[i * width + k] += slope * x[row * width + k];
                    grad[k] += slope * weight[i * width + k];
                }
            }
            grad_x.insert(grad_x.end(), grad.begin(), grad.end());
        }
    }
};

// Every state and the gradients of the recurrence of degree one, as they are written in ops/reference.py. A tie is shared.
struct States {
    const Layer& p;
    const std::vector<float> &z, &start, &x0;
    std::vector<float> x;
    Numbers grad_r, grad_s, grad_start, grad_x0;

    float at(int64_t row, int64_t column) const { return z[row * p.outputs + column]; }
    float before(int64_t row, int64_t j) const {
        if (p.reset && p.reset[row]) return x0[j];
        if (row % p.time) return x[(row - 1) * p.state + j];
        return start.empty() ? x0[j] : start[row / p.time * p.state + j];
    }
    void forward() {
        for (int64_t row = 0; row < p.batch * p.time; ++row)
            for (int64_t j = 0; j < p.state; ++j)
                x.push_back(std::max(std::min(at(row, j), before(row, j)), at(row, p.state + j)));
    }
    void backward(const Numbers& grad_x) {
        grad_r.resize(x.size()), grad_s.resize(x.size()), grad_start.resize(p.batch * p.state), grad_x0 = grad_start;
        for (int64_t j = 0; j < p.state; ++j) {
            double carry = 0;
            for (int64_t row = p.batch * p.time - 1; row >= 0; --row) {
                const float r = at(row, j), s = at(row, p.state + j), b = before(row, j), m = std::min(r, b);
                const double g = grad_x[row * p.state + j] + carry;
                const double of_m = m < s ? 0 : m == s ? g / 2 : g, i = row / p.time * p.state + j;
                grad_s[row * p.state + j] = s < m ? 0 : m == s ? g / 2 : g;
                grad_r[row * p.state + j] = b < r ? 0 : b == r ? of_m / 2 : of_m;
                carry = r < b ? 0 : b == r ? of_m / 2 : of_m;
                if (p.reset && p.reset[row])
                    grad_x0[static_cast<size_t>(i)] += carry, carry = 0;
                else if (row % p.time == 0)
                    grad_start[static_cast<size_t>(i)] += carry;
                if (row % p.time == 0) carry = 0;
            }
        }
    }
};

}  // namespace definition
