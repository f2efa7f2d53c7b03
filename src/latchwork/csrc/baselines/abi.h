// What crosses from Python to C++ for the baselines; baselines/kernel.py mirrors it, and sizes are compared at loading.
// All numbers are float. A Rows without an address stands for nothing.
#pragma once

// Mamba's recurrence, see baselines/selective_scan.py: x_t = exp(d_t decay) x_{t-1} + write_t d_t u_t with d = softplus(dt),
// y_t = (<read_t, x_t> + skip u_t) silu(gate_t).
struct SelectiveScan {
    int64_t batch, time, width, states, threads;
    Rows u, dt, gate, y;      // (B, T, width)
    Rows write, read;         // (B, T, states)
    const float *decay, *skip;  // (states, width), (width)
    const float* x0;          // (B, states, width)
    float* x;                 // likewise, written by forward: the last state
    float* kept;              // (B, segments, states, width): the state before each segment, for backward, or null
    Rows grad_y, grad_u, grad_dt, grad_gate, grad_write, grad_read;
    const float* grad_x;
    float *grad_decay, *grad_skip, *grad_x0;
};

// A causal convolution of each channel by itself, see baselines/causal_conv.py, and silu of it.
struct CausalConv {
    int64_t batch, time, width, taps, silu, threads;
    Rows u, y;               // (B, T, width)
    const float* before;     // (B, taps - 1, width)
    const float *weight, *bias;  // (width, taps), (width) or null
    Rows grad_y, grad_u;
    float *grad_before, *grad_weight, *grad_bias;
};

#define BASELINE_STRUCTURES(EACH) EACH(SelectiveScan) EACH(CausalConv)
#define BASELINE_ENTRIES(EACH, isa)                      \
    EACH(isa, selective_scan, SelectiveScan, 0)          \
    EACH(isa, selective_scan_back, SelectiveScan, 0)     \
    EACH(isa, causal_conv, CausalConv, 0)                \
    EACH(isa, causal_conv_back, CausalConv, 0)
