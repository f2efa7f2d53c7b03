// The recurrence for one instruction set. Compiled once for each, with LATCHWORK_ISA naming it.
#include "degree_n.h"
#include "degree_one.h"
#include "plan.h"
#include "steps.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

enum class Task { FORWARD, BACKWARD, COMPOSE };

template <class Strip>
int run(const Problem& p, Task task) {
    Pass<Strip> pass{p, make_plan(p)};
    switch (task) {
        case Task::FORWARD: pass.forward(); break;
        case Task::BACKWARD: pass.backward(); break;
        case Task::COMPOSE: pass.compose(); break;
    }
    return DONE;
}

template <class S>
int run_degree(const Problem& p, Task task) {
    if (p.degree == 0) return run<StripOne<S>>(p, task);
#if defined(__AVX512F__)
    return NO_SUCH_DTYPE;  // dispatch.cpp gives matrix units to AVX2
#else
    if constexpr (UNROLLS<S>) {  // the usual degrees
        switch (p.degree) {
            case 2: return run<StripN<S, 2>>(p, task);
            case 3: return run<StripN<S, 3>>(p, task);
            case 4: return run<StripN<S, 4>>(p, task);
            case 5: return run<StripN<S, 5>>(p, task);
            case 8: return run<StripN<S, 8>>(p, task);
        }
    }
    return run<StripN<S, 0>>(p, task);
#endif
}

int run_dtype(const Problem& p, Task task) {
    switch (p.dtype) {
        case FLOAT32: return run_degree<float>(p, task);
        case FLOAT64: return run_degree<double>(p, task);
        case BFLOAT16: return run_degree<bfloat16>(p, task);
#ifdef __FLT16_MANT_DIG__
        case FLOAT16: return run_degree<float16>(p, task);
#endif
        default: return NO_SUCH_DTYPE;  // this compiler has no such type
    }
}

void run_steps(const Problem& p, float* state) { StripOne<float>{p, 0, 0, p.width}.forward(0, p.time, state); }
void run_steps_back(const Problem& p, float* carry, float* grad_x0) {
    StripOne<float>{p, 0, 0, p.width}.backward<true>(0, p.time, carry, Sum<float>{grad_x0, p.width});
}

}  // namespace LATCHWORK_ISA

extern "C" {
int JOIN(latchwork_forward_, LATCHWORK_ISA)(const Problem* p) {
    return LATCHWORK_ISA::run_dtype(*p, LATCHWORK_ISA::Task::FORWARD);
}
int JOIN(latchwork_backward_, LATCHWORK_ISA)(const Problem* p) {
    return LATCHWORK_ISA::run_dtype(*p, LATCHWORK_ISA::Task::BACKWARD);
}
int JOIN(latchwork_compose_, LATCHWORK_ISA)(const Problem* p) {
    return LATCHWORK_ISA::run_dtype(*p, LATCHWORK_ISA::Task::COMPOSE);
}
}
