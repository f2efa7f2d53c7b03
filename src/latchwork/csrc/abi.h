// What crosses from Python to C++: every structure, every entry point and every code that one returns. ops/cpu/abi.py mirrors
// the structures field by field; when the library is loaded, the sizes of both are compared.
#pragma once
#include <cstdint>

constexpr int64_t INTERFACE = 13;  // to be raised, here and in ops/cpu/abi.py, with every change of what is here
enum { DONE = 0, NO_SUCH_DTYPE = 1, NO_SUCH_CHOICE = 2, NO_MEMORY = 3, NO_SUCH_ISA = 4 };

// The recurrence.

// A tensor (batch, time, ...) whose inner dimensions are contiguous. Strides are in elements.
struct Rows {
    void* data;
    int64_t batch, time;
};

enum Dtype : int64_t { FLOAT32 = 0, FLOAT64 = 1, BFLOAT16 = 2, FLOAT16 = 3 };

struct Problem {
    int64_t dtype;
    int64_t batch, time;
    int64_t width;   // D for degree one, U units for degree n
    int64_t degree;  // 0: elementwise, r is (B, T, D). n >= 1: r is (B, T, U, n, n)
    int64_t threads;
    int64_t chunk;  // steps per chunk of T; 0: choose; >= time: one chunk
    Rows r, s, x;   // x: the states, written by forward and read by backward
    Rows state, x0;
    Rows reset;  // bool; data is null where nothing is reset, and then x0 is not read
    Rows grad, grad_r, grad_s, grad_state, grad_x0;
    Rows whole_r, whole_s;  // written by compose: (B, D), (B, D) or (B, U, n, n), (B, U, n)
};

// Units that move whole levels: see ops/moves.py.
struct Moves {
    int64_t dtype;
    int64_t batch, time, units, degree;
    int64_t sends;  // 0: place i takes level choice[i]. 1: level k goes to place choice[k]
    int64_t threads;
    Rows choice;  // int64, (B, T, U, n)
    Rows x;       // the states, written by forward and read by backward
    Rows state, x0, s;  // s.data is null where no place takes a level of its own; else choice may be n
    Rows reset;         // as in Problem
    Rows grad, grad_weights, grad_state, grad_x0, grad_s;  // grad_weights: (B, T, U, n, n), or (B, T, U, n, n + 1) with s
};

// Rows of logits, each a choice: see ops/choice.py. A token is `rows` rows of numbers; Rows::batch is the stride of the
// tokens, Rows::time is not read.
struct Choice {
    int64_t dtype;
    int64_t tokens, rows, options;
    int64_t threads;
    double temperature;
    Rows logits;  // (tokens, rows, options), or one less where own gives the last
    Rows own;     // (tokens, rows); data may be null
    Rows weights, choice;  // written by forward: (tokens, rows, options), and int64 (tokens, rows)
    Rows grad, grad_logits, grad_own;
};

// A layer as one call: see ops/layer.py.

enum Activation : int64_t { RELU = 0, RELU_SQUARED = 1, SWISH = 2 };
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
// norm_conv(u); then x = the states of the recurrence of z = [r, s, gate], and y = u + output(x * sigmoid(gate)). Without
// output.weight it ends with z; without up.weight z is given. Every tensor is contiguous float32.
struct Layer {
    int64_t batch, time, width, hidden, outputs, state, threads;
    int64_t gated_conv;    // conv.weight is then g (width)
    int64_t gated_ffn;     // up has 2 hidden outputs, [gate, value]
    int64_t gated_output;  // without: y = u + output(x), and z = [r, s]
    int64_t activation;
    int64_t seed;          // of the dropout's mask
    double dropout;
    Norm norm_conv, norm_ffn, norm_neuron;
    Linear conv, up, down, projection, output;
    const float *u, *first;    // (B, T, width); (B, width), what v was before u, or null for 0
    const uint8_t* reset;      // (B, T), or null; where it is 1, v before is 0 and the state before is x0
    const int64_t* last;       // (B), the step whose x and v are x_last and v_last; null: the last one
    const float *start, *x0;   // (B, state), the state before, or null for x0; (state)
    float* z;                  // (B, T, outputs), if it is given or all that is wanted
    float* tape;               // (B T, latchwork_layer_tape), for backward, or null
    float *y, *x_last, *v_last;  // (B, T, width), (B, state), (B, width); v_last may be null
    const float *grad_y, *grad_x_last, *grad_v_last;  // the last two may be null
    float* grad_z;               // given without output.weight; written without up.weight
    float *grad_u, *grad_first;  // grad_first may be null
    float *grad_start, *grad_x0;  // (B, state), zero: what comes to each row's start, and to x0 by its resets; may be null
};

// A language model's head and its loss, with their gradients: see ops/cross_entropy.py.
struct Head {
    int64_t rows, width, classes, threads;
    double share;              // of one row in the mean: 1 / the number of rows that count
    const float *x, *weight;   // (rows, width), (classes, width)
    const int64_t* targets;    // (rows); one outside 0 .. classes - 1 is left out
    float* losses;             // (rows), 0 where left out
    float *grad_x, *grad_weight;  // of the mean of the losses; null where not wanted
};

// The largest logit of each row of norm(x) weight': see ops/cross_entropy.py.
struct Best {
    int64_t rows, width, classes, threads;
    Norm norm;
    const float *x, *weight;  // (rows, width), (classes, width)
    int64_t* best;            // (rows): its number, the first of equal ones, or -1 where a logit is a NaN
};

// A matrix times a few vectors: see ops/matvec.py.
struct Matvec {
    int64_t vectors, outputs, inputs, row;  // row: elements from one row of the weight to the next
    int64_t quantised, threads;
    const void* weight;  // (outputs, inputs): float, or int8 if quantised
    const float* scale;  // (outputs), if quantised: a weight is its int8 times the scale of its row
    const float* bias;   // (outputs), or null
    const float* x;      // (vectors, inputs)
    float* y;            // (vectors, outputs)
};

// A monitor of temporal formulas and its instructions: see temporal/program.py.
struct Instruction {
    int64_t op;
    int64_t a, b;     // the instructions whose values it takes; -1: none
    int64_t size;     // steps that it keeps; of FILL the delay of its operand; of SIGNAL its row
    int64_t state;    // where its numbers are, in rows of the batch
    int64_t counter;  // which counter it has
};

struct Monitor {
    int64_t dtype;  // FLOAT32 or FLOAT64
    const Instruction* program;
    int64_t length, batch, signals, steps;
    void *values, *state;   // values: (length, batch); the rows of constants come filled, the others are scratch
    const void* constants;  // (length)
    int64_t* counters;      // counters[0] is the time
    const void* input;      // (steps, signals, batch)
    const int64_t* roots;
    int64_t n_roots;
    void* output;  // (steps, n_roots, batch)
    int64_t last;  // the last step of the trace; what is behind it is absent
    const void* const* rows;  // of one step: where each signal is, instead of input; may be null
    const void** known;       // (length), scratch: where the value of each instruction is
};

#include "baselines/abi.h"

#define STRUCTURES(EACH) \
    BASELINE_STRUCTURES(EACH) \
    EACH(Rows) EACH(Problem) EACH(Moves) EACH(Choice) EACH(Norm) EACH(Linear) EACH(Layer) EACH(Head) \
    EACH(Best) EACH(Matvec) EACH(Instruction) EACH(Monitor)

// EACH(isa, name, structure, degree): latchwork_<name> takes a const structure* p and returns a code. degree: of the units
// of a few numbers that it works on, or 0.
#define ENTRIES(EACH, isa)                                                                          \
    EACH(isa, forward, Problem, p->degree)                                                          \
    EACH(isa, backward, Problem, p->degree)                                                         \
    EACH(isa, compose, Problem, p->degree)                                                          \
    EACH(isa, move, Moves, p->degree)                                                               \
    EACH(isa, move_back, Moves, p->degree)                                                          \
    EACH(isa, choose, Choice, p->options)                                                           \
    EACH(isa, choose_back, Choice, p->options)                                                      \
    EACH(isa, layer_forward, Layer, 0)                                                              \
    EACH(isa, layer_backward, Layer, 0)                                                             \
    EACH(isa, head, Head, 0)                                                                        \
    EACH(isa, best, Best, 0)                                                                        \
    EACH(isa, matvec, Matvec, 0)                                                                    \
    EACH(isa, monitor, Monitor, 0)                                                                  \
    BASELINE_ENTRIES(EACH, isa)
