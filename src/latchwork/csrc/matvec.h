// A matrix times a few vectors: what decoding spends its time on. The matrix is read once, at the speed of the memory.
// ops/matvec.py mirrors this field by field.
#pragma once
#include <cstdint>

struct Matvec {
    int64_t vectors, outputs, inputs, row;  // row: elements from one row of the weight to the next
    int64_t quantised, threads;
    const void* weight;  // (outputs, inputs): float, or int8 if quantised
    const float* scale;  // (outputs), if quantised: a weight is its int8 times the scale of its row
    const float* bias;   // (outputs), or null
    const float* x;      // (vectors, inputs)
    float* y;            // (vectors, outputs)
};

using MatvecKernel = int (*)(const Matvec*);
