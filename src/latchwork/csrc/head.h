// A language model's head and its loss, with their gradients. ops/cross_entropy.py mirrors this field by field.
#pragma once
#include <cstdint>

struct Head {
    int64_t rows, width, classes, threads;
    double share;              // of one row in the mean: 1 / the number of rows that count
    const float *x, *weight;   // (rows, width), (classes, width)
    const int64_t* targets;    // (rows); one outside 0 .. classes - 1 is left out
    float* losses;             // (rows), 0 where left out
    float *grad_x, *grad_weight;  // of the mean of the losses; null where not wanted; grad_weight comes zeroed
};

using HeadKernel = int (*)(const Head*);
