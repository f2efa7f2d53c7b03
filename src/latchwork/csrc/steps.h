// The recurrence of degree one in float32, over the steps of one row of a batch. In recurrence.cpp, which rounds as torch does.
#pragma once
#include "abi.h"

namespace LATCHWORK_ISA {

// p.width lanes, p.time steps; batch strides are not read. state: before the first step, and then after the last.
void run_steps(const Problem& p, float* state);
// carry: what later steps bring, and then what goes to p.state. grad_x0: what resets bring is added; null without resets.
void run_steps_back(const Problem& p, float* carry, float* grad_x0);

}  // namespace LATCHWORK_ISA
