// What crosses from Python to C++ for the baselines; baselines/kernel.py mirrors it, and sizes are compared at loading.
// All numbers are float. A Rows without an address stands for nothing.
#pragma once

// Mamba's layer between its two projections, see baselines/mamba_mixer.py. D = width, M = rank + 2 states.
struct MambaMixer {
    int64_t batch, time, width, states, rank, taps, threads;
    Rows mapped, y;                                // (B, T, 2 D), (B, T, D)
    const float *before, *conv, *conv_bias;        // (B, taps - 1, D), (D, taps), (D) or null
    const float *x_proj, *dt_proj, *dt_bias;       // (M, D), (D, rank), (D)
    const float *decay, *skip, *x0;                // (states, D), (D), (B, states, D)
    float* x;                                      // likewise, written by forward: the last state
    float* kept;  // the state before each segment, for backward, or null: (B, segments, states D with D in whole vectors)
    Rows grad_y, grad_mapped;
    float *grad_before, *grad_conv, *grad_conv_bias, *grad_x_proj, *grad_dt_proj, *grad_dt_bias, *grad_decay, *grad_skip, *grad_x0;
    const float* grad_x;  // or null
};

// A linear map of rows, or of `blocks` parts of each row by themselves, and what stands around it, see baselines/linear.py:
// y = residual + dropout(weight z + bias), z = (norm(x) + skip mixed) activation(gate). With grad_y its gradients. Of Rows the
// first stride is that of the rows. All but x and y may be null; without a weight outputs = inputs.
enum GateKind : int64_t { SIGMOID = 0, SILU = 1, GELU = 2 };
struct LinearMap {
    int64_t rows, inputs, outputs, blocks, threads;  // inputs, outputs: of one block, and of one only where z is not x
    int64_t heads, centred, activation;              // heads, centred: of the norm, whose mean is 0 if it is centred
    int64_t seed, drops_before;                      // the dropout is that of x instead
    double epsilon, dropout;
    Rows x, mixed, gate;         // (rows, blocks inputs)
    const float *norm, *skip;    // (inputs)
    const float *weight, *bias;  // (blocks, outputs, inputs), (blocks outputs)
    Rows residual;               // (rows, blocks outputs)
    float* y;                    // likewise
    Rows grad_y, grad_x, grad_mixed, grad_gate;  // grad_x has no gaps where z is x
    Rows added;                                  // to grad_x, where there is a norm; or null
    float *grad_norm, *grad_skip, *grad_weight, *grad_bias;
};

// Two of them, see baselines/feedforward.py: up has a norm, and what it gives are gate and x of down side by side.
struct FeedForward {
    LinearMap up, down;
    int64_t threads;
};

// A GRU, see baselines/gru_scan.py. The gates stand in torch's order: reset, update, new.
struct Gru {
    int64_t batch, time, width, threads;
    Rows drive, y;             // (B, T, 3 width), (B, T, width)
    const float *weight, *bias;  // (3 width, width), (3 width)
    const float* h0;           // (B, width)
    Rows tape;                 // (B, T, 4 width): the gates and what the weight gives the new one; or none
    Rows grad_y, grad_drive;
    Rows grad_hidden;          // (B, T, 3 width), of the product of the weight with h
    float* grad_h0;
};

// Causal attention, see baselines/attention.py: y = softmax(scale q k') v for each head.
struct Attention {
    int64_t batch, time, keys, heads, width, window, threads;  // keys: `time` or more; width: of a head
    double scale;
    Rows q, k, v, y;  // q, y: (B, T, heads width); k, v: (B, keys, heads width)
    float* logs;      // (B, heads, T), of each step the logarithm of what its weights are divided by
    Rows grad_y, grad_q, grad_k, grad_v;
};

// An sLSTM and what drives its gates, see baselines/slstm_scan.py. d = width of a head; the gates stand as i, f, z, o.
struct Slstm {
    int64_t batch, time, heads, width, taps, threads;
    Rows mapped, y;                          // (B, T, heads d)
    const float *before, *conv, *conv_bias;  // (B, taps - 1, heads d), (heads d, taps), (heads d) or null
    const float *maps, *bias, *recurrent;    // (heads, d, 4, d), (heads, 4, d), (heads, d, 4, d)
    const float *y0, *c0, *n0, *m0;          // (heads, B, d)
    float *c, *n, *m;                        // the last ones
    Rows tape;                               // (B, T, heads 6 d), or none
    Rows grad_y, grad_mapped;
    float *grad_before, *grad_conv, *grad_conv_bias, *grad_maps, *grad_bias, *grad_recurrent;
    float *grad_y0, *grad_c0, *grad_n0;
    const float *grad_c, *grad_n;            // or null
};

// An mLSTM, see baselines/mlstm_scan.py.
struct Mlstm {
    int64_t batch, time, heads, keys, values, threads;
    double scale, epsilon;  // of k; of the denominator
    Rows q, k, v;        // (B, T, heads keys), likewise, (B, T, heads values)
    Rows i, f;           // (B, T, heads)
    Rows y;              // (B, T, heads values)
    const float *c0, *n0, *m0;  // (B, heads, keys, values), (B, heads, keys), (B, heads)
    float *c, *n, *m;           // the last ones
    float* tape;                // c, n and m before each chunk: (B, heads, chunks, keys (values + 1) + 1); or null
    Rows grad_y, grad_q, grad_k, grad_v, grad_i, grad_f;
    const float *grad_c, *grad_n;  // or null
    float *grad_c0, *grad_n0;
};

// The mLSTM and what stands around it in its layer, see baselines/mlstm_mixer.py. W = heads width.
struct MlstmMixer {
    int64_t batch, time, heads, width, taps, threads;  // width: of a head, a multiple of 4
    double scale, epsilon, norm_epsilon;
    Rows mapped, y;                          // (B, T, 2 W), (B, T, W)
    const float *before, *conv, *conv_bias;  // (B, taps - 1, W), (W, taps), (W)
    const float *of_q, *of_k, *of_v;         // (W / 4, 4, 4), outputs before inputs
    const float *gates, *gate_bias;          // (2 heads, 2 W), (2 heads)
    const float *norm, *skip;                // (W)
    const float *c0, *n0, *m0;               // as of Mlstm, and all that follows
    float *c, *n, *m, *tape;
    Rows grad_y, grad_mapped;
    float *grad_before, *grad_conv, *grad_conv_bias, *grad_of_q, *grad_of_k, *grad_of_v, *grad_gates, *grad_gate_bias;
    float *grad_norm, *grad_skip;
    const float *grad_c, *grad_n;
    float *grad_c0, *grad_n0;
};

#define BASELINE_STRUCTURES(EACH) \
    EACH(MambaMixer) EACH(LinearMap) EACH(FeedForward) EACH(Gru) EACH(Attention) EACH(Slstm) EACH(Mlstm) EACH(MlstmMixer)
#define BASELINE_ENTRIES(EACH, isa)                      \
    EACH(isa, mamba_mixer, MambaMixer, 0)                \
    EACH(isa, mamba_mixer_back, MambaMixer, 0)           \
    EACH(isa, linear, LinearMap, 0)                      \
    EACH(isa, feedforward, FeedForward, 0)               \
    EACH(isa, gru, Gru, 0)                               \
    EACH(isa, gru_back, Gru, 0)                          \
    EACH(isa, attention, Attention, 0)                   \
    EACH(isa, attention_back, Attention, 0)              \
    EACH(isa, slstm, Slstm, 0)                           \
    EACH(isa, slstm_back, Slstm, 0)                      \
    EACH(isa, mlstm, Mlstm, 0)                           \
    EACH(isa, mlstm_back, Mlstm, 0)                      \
    EACH(isa, mlstm_mixer, MlstmMixer, 0)                \
    EACH(isa, mlstm_mixer_back, MlstmMixer, 0)
