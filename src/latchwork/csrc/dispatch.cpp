// The library's entry points: pick the widest instruction set that was compiled and that this processor has. No exception
// leaves them.
#include <cstdlib>
#include <cstring>

#include "abi.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define ISAS(EACH) EACH(avx512) EACH(avx2) EACH(baseline)
#else
#define ISAS(EACH) EACH(baseline)  // on ARM the baseline has NEON
#endif

#define DECLARE_ENTRY(isa, name, structure, degree) extern "C" int latchwork_##name##_##isa(const structure*);
#define DECLARE(isa)               \
    ENTRIES(DECLARE_ENTRY, isa)    \
    extern "C" int64_t latchwork_layer_tape_##isa(const Layer*);
ISAS(DECLARE)

namespace {

#define MEMBER(isa, name, structure, degree) int (*name)(const structure*);
struct Isa {
    const char* name;
    int64_t (*layer_tape)(const Layer*);
    ENTRIES(MEMBER, _)
};
#define ADDRESS(isa, name, structure, degree) latchwork_##name##_##isa,
#define ROW(isa) {#isa, latchwork_layer_tape_##isa, ENTRIES(ADDRESS, isa)},
const Isa isas[] = {ISAS(ROW)};

#if defined(__x86_64__)
bool supports_f16c() {  // clang 14 has no __builtin_cpu_supports("f16c")
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

// Whether the processor has, and the system saves, all that the objects of this name are compiled with: see CMakeLists.txt.
bool runs_here(const char* name) {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && supports_f16c();
    if (!std::strcmp(name, "avx2")) return avx2;
    if (!std::strcmp(name, "avx512"))
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return !std::strcmp(name, "baseline");
}

// The one that LATCHWORK_ISA names, or null where it names none that runs here; without it, the first that does.
const Isa* choose() {
    const char* wanted = std::getenv("LATCHWORK_ISA");
    const bool any = !wanted || !*wanted;
    for (const Isa& isa : isas)
        if ((any || !std::strcmp(wanted, isa.name)) && runs_here(isa.name)) return &isa;
    return nullptr;
}

const Isa* chosen() {
    static const Isa* const isa = choose();
    return isa;
}

// Matrix units are transposed in registers eight at a time (transpose.h), which AVX2 has and AVX-512 would not speed up.
const Isa* chosen_for(int64_t degree) {
    for (const Isa& isa : isas)
        if (degree && chosen() && !std::strcmp(chosen()->name, "avx512") && !std::strcmp(isa.name, "avx2")) return &isa;
    return chosen();
}

template <class Structure>
int run(const Isa* isa, int (*Isa::*kernel)(const Structure*), const Structure* p) {
    if (!isa) return NO_SUCH_ISA;
    try {
        return (isa->*kernel)(p);
    } catch (...) {  // std::bad_alloc: the kernels throw nothing else
        return NO_MEMORY;
    }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define EXPORT_ENTRY(isa, name, structure, degree) \
    EXPORT int latchwork_##name(const structure* p) { return run(chosen_for(degree), &Isa::name, p); }
ENTRIES(EXPORT_ENTRY, _)
EXPORT int64_t latchwork_layer_tape(const Layer* p) { return chosen() ? chosen()->layer_tape(p) : 0; }

EXPORT const char* latchwork_isa() { return chosen() ? chosen()->name : nullptr; }
// The place-th instruction set that was compiled, or null; and whether it runs here.
EXPORT const char* latchwork_compiled_isa(int64_t place) {
    return place < static_cast<int64_t>(sizeof isas / sizeof *isas) ? isas[place].name : nullptr;
}
EXPORT int latchwork_runs_here(const char* name) { return runs_here(name); }

EXPORT int64_t latchwork_interface() { return INTERFACE; }
EXPORT int64_t latchwork_size(const char* structure) {
#define SIZE(each) \
    if (!std::strcmp(structure, #each)) return sizeof(each);
    STRUCTURES(SIZE)
    return -1;
}
