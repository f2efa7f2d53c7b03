// Banks of latches of degree one, each bank driven by one pair of signals. ops/bank.py mirrors this field by field.
#pragma once
#include "problem.h"

// Latch k of pair i: x = max(min(r + shift_r, x), s + shift_s); what is read of pair i is the sum of weight x over its K
// latches. All is float32. Of a step the K P states are the P first latches, then the P second ones, and so on.
struct Bank {
    int64_t batch, time, pairs, size;  // size: K
    int64_t threads;
    double blur;  // as in Problem
    Rows r, s;    // (B, T, P)
    const float *shift_r, *shift_s, *weight;  // (K, P)
    Rows x, read;                             // (B, T, K P), (B, T, P): written by forward, x read by backward
    Rows state, x0, reset;                    // as in Problem
    Rows grad, grad_x;                        // of what is read; of the states, whose data may be null
    Rows grad_r, grad_s, grad_state, grad_x0;
    float *grad_shift_r, *grad_shift_s, *grad_weight;
};

using BankKernel = int (*)(const Bank*);
