// What a layer does before its recurrence, as one call. ops/layer_cpu.py mirrors this field by field.
#pragma once
#include <cstdint>

enum NormKind : int64_t { NO_NORM = 0, LAYER_NORM = 1, RMS_NORM = 2 };

struct Norm {
    int64_t kind;
    double epsilon;
    const float *weight, *bias;      // bias: null for RMS_NORM
    float *grad_weight, *grad_bias;  // written by backward
};

struct Linear {
    const float *weight, *bias;  // (outputs, inputs), (outputs)
    float *grad_weight, *grad_bias;
};

// z = projection(norm_neuron(q)), with q = m + dropout(down(act(up(norm_ffn(m))))), m = u + conv(v before, v), v =
// norm_conv(u). Every tensor is contiguous float32.
struct Layer {
    int64_t batch, time, width, hidden, outputs, threads;
    int64_t gated_conv;  // conv.weight is then g (width)
    int64_t gated_ffn;   // up has 2 hidden outputs, [gate, value]
    int64_t squared;     // act is relu^2, not relu
    int64_t seed;        // of the dropout's mask
    double dropout;
    Norm norm_conv, norm_ffn, norm_neuron;
    Linear conv, up, down, projection;
    const float *u, *first;  // (B, T, width); (B, width), what v was before u, or null for 0
    const uint8_t* reset;    // (B, T), or null; where it is 1, v before is 0
    float* z;                // (B, T, outputs)
    float* tape;             // (B T, latchwork_layer_tape), for backward, or null
    const float* grad_z;
    float *grad_u, *grad_first;  // grad_first may be null
};

using LayerKernel = int (*)(const Layer*);

// What a layer does after its recurrence: y = u + output(x * sigmoid(gate)), the gate being the last columns of z.
struct Response {
    int64_t rows, width, state, outputs, threads;  // width: of u and y; state: of x; outputs: of z
    int64_t gated;                                 // without: y = u + output(x), and z is not read
    const float *x, *z, *u;
    Linear output;
    float* y;
    const float* grad_y;
    float *grad_x, *grad_z;  // grad_z: only its last columns are written
};

using ResponseKernel = int (*)(const Response*);
