// The structure that the recurrence's functions take. ops/cpu.py mirrors it field by field.
#pragma once
#include <cstdint>

// To be raised, here and in ops/cpu.py, with every change of a structure that crosses from Python to C++.
constexpr int64_t INTERFACE = 5;

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
    double blur;    // backward of degree one: within it numbers share the gradient; 0: only where equal
    Rows r, s, x;   // x: the states, written by forward and read by backward
    Rows state, x0;
    Rows reset;  // bool; data is null where nothing is reset, and then x0 is not read
    Rows grad, grad_r, grad_s, grad_state, grad_x0;
    Rows whole_r, whole_s;  // written by compose: (B, D), (B, D) or (B, U, n, n), (B, U, n)
};

using Kernel = int (*)(const Problem*);

// Units that move whole levels: see ops/moves.py, whose moves_cpu.py mirrors this field by field.
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

using MovesKernel = int (*)(const Moves*);

// Rows of logits, each a choice: see ops/choice.py, which mirrors this field by field. A token is `rows` rows of numbers;
// Rows::batch is the stride of the tokens, Rows::time is not read.
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

using ChoiceKernel = int (*)(const Choice*);
enum { NO_SUCH_DTYPE = 1, NO_SUCH_CHOICE = 2 };  // what a kernel returns that could not do its work
