// The library's entry points: pick the widest instruction set that was compiled and that this processor has.
#include <cstdlib>
#include <cstring>

#include "bank.h"
#include "head.h"
#include "layer.h"
#include "matvec.h"
#include "problem.h"

#if defined(__x86_64__)
#define ISAS(EACH) EACH(avx512) EACH(avx2) EACH(baseline)
#else
#define ISAS(EACH) EACH(baseline)  // on ARM the baseline has NEON
#endif

#define DECLARE(isa)                                                    \
    extern "C" int latchwork_forward_##isa(const Problem*);             \
    extern "C" int latchwork_backward_##isa(const Problem*);            \
    extern "C" int latchwork_compose_##isa(const Problem*);             \
    extern "C" int latchwork_bank_##isa(const Bank*);                   \
    extern "C" int latchwork_bank_back_##isa(const Bank*);              \
    extern "C" int latchwork_move_##isa(const Moves*);                  \
    extern "C" int latchwork_move_back_##isa(const Moves*);             \
    extern "C" int latchwork_choose_##isa(const Choice*);               \
    extern "C" int latchwork_choose_back_##isa(const Choice*);          \
    extern "C" int latchwork_layer_forward_##isa(const Layer*);         \
    extern "C" int latchwork_layer_backward_##isa(const Layer*);        \
    extern "C" int64_t latchwork_layer_tape_##isa(const Layer*);        \
    extern "C" int latchwork_respond_##isa(const Response*);            \
    extern "C" int latchwork_respond_back_##isa(const Response*);       \
    extern "C" int latchwork_matvec_##isa(const Matvec*);               \
    extern "C" int latchwork_head_##isa(const Head*);
ISAS(DECLARE)

namespace {

struct Isa {
    const char* name;
    Kernel forward, backward, compose;
    BankKernel bank, bank_back;
    MovesKernel move, move_back;
    ChoiceKernel choose, choose_back;
    LayerKernel layer_forward, layer_backward;
    int64_t (*layer_tape)(const Layer*);
    ResponseKernel respond, respond_back;
    MatvecKernel matvec;
    HeadKernel head;
};
#define ROW(isa)                                                                                               \
    {#isa, latchwork_forward_##isa, latchwork_backward_##isa, latchwork_compose_##isa,                         \
     latchwork_bank_##isa, latchwork_bank_back_##isa,                                                          \
     latchwork_move_##isa, latchwork_move_back_##isa, latchwork_choose_##isa, latchwork_choose_back_##isa,     \
     latchwork_layer_forward_##isa, latchwork_layer_backward_##isa, latchwork_layer_tape_##isa,                \
     latchwork_respond_##isa, latchwork_respond_back_##isa, latchwork_matvec_##isa,                     \
     latchwork_head_##isa},
const Isa isas[] = {ISAS(ROW)};

bool runs_here(const char* name) {
#if defined(__x86_64__)
    if (!std::strcmp(name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!std::strcmp(name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#endif
    return !std::strcmp(name, "baseline");
}

const Isa& choose() {
    const char* wanted = std::getenv("LATCHWORK_ISA");  // for tests and measurements
    for (const Isa& isa : isas)
        if (wanted && !std::strcmp(wanted, isa.name) && runs_here(isa.name)) return isa;
    for (const Isa& isa : isas)
        if (runs_here(isa.name)) return isa;
    std::abort();  // the baseline runs everywhere
}

const Isa& chosen() {
    static const Isa& isa = choose();
    return isa;
}

// Matrix units are transposed in registers eight at a time (transpose.h), which AVX2 has and AVX-512 would not speed up.
const Isa& chosen_for(int64_t degree) {
    for (const Isa& isa : isas)
        if (degree && !std::strcmp(chosen().name, "avx512") && !std::strcmp(isa.name, "avx2")) return isa;
    return chosen();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int latchwork_forward(const Problem* p) { return chosen_for(p->degree).forward(p); }
EXPORT int latchwork_backward(const Problem* p) { return chosen_for(p->degree).backward(p); }
EXPORT int latchwork_compose(const Problem* p) { return chosen_for(p->degree).compose(p); }
EXPORT int latchwork_bank(const Bank* p) { return chosen().bank(p); }
EXPORT int latchwork_bank_back(const Bank* p) { return chosen().bank_back(p); }
EXPORT int latchwork_move(const Moves* p) { return chosen_for(p->degree).move(p); }
EXPORT int latchwork_move_back(const Moves* p) { return chosen_for(p->degree).move_back(p); }
EXPORT int latchwork_choose(const Choice* p) { return chosen_for(p->options).choose(p); }
EXPORT int latchwork_choose_back(const Choice* p) { return chosen_for(p->options).choose_back(p); }
EXPORT int latchwork_layer_forward(const Layer* p) { return chosen().layer_forward(p); }
EXPORT int latchwork_layer_backward(const Layer* p) { return chosen().layer_backward(p); }
EXPORT int64_t latchwork_layer_tape(const Layer* p) { return chosen().layer_tape(p); }
EXPORT int latchwork_respond(const Response* p) { return chosen().respond(p); }
EXPORT int latchwork_respond_back(const Response* p) { return chosen().respond_back(p); }
EXPORT int latchwork_matvec(const Matvec* p) { return chosen().matvec(p); }
EXPORT int latchwork_head(const Head* p) { return chosen().head(p); }
EXPORT const char* latchwork_isa() { return chosen().name; }
EXPORT int64_t latchwork_interface() { return INTERFACE; }
