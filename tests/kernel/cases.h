// What the fuzz programs share: CASES SEED, or one case INDEX, on the instruction set that LATCHWORK_ISA names.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>

#include "abi.h"

extern "C" {
#define DECLARE(isa, name, structure, degree) int latchwork_##name(const structure*);
ENTRIES(DECLARE, _)
int64_t latchwork_layer_tape(const Layer*);
const char* latchwork_isa();
int64_t latchwork_fail_allocation(int64_t);
void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));  // null without the sanitizers
// Fresh memory is full of NaN: a number that is used before it is written shows. Each program has this header once.
const char* __asan_default_options() {
    return "detect_leaks=1:detect_stack_use_after_return=1:malloc_fill_byte=255:max_malloc_fill_size=100000000";
}
}

struct Random {  // not the distributions of the standard library, which differ between compilers
    std::mt19937_64 engine;
    int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); }
    bool percent(int64_t chance) { return below(100) < chance; }
    int64_t pick(std::initializer_list<int64_t> of) { return of.begin()[below(static_cast<int64_t>(of.size()))]; }
    double uniform() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
};

inline char now[500];  // the case that runs, for whoever reports an error
inline void say_case() { std::fprintf(stderr, "in case %s\n", now); }

template <class... Values>
[[noreturn]] void fail(const char* format, Values... values) {
    std::fprintf(stderr, format, values...);
    std::fprintf(stderr, "\n");
    say_case();
    std::exit(1);
}

// Whether a kernel that finds no memory says so. What it has written until then is of no use; the address sanitizer sees
// what it did not give back.
template <class Structure>
bool says_when_out_of_memory(Random& random, int (*kernel)(const Structure*), const Structure* p) {
    latchwork_fail_allocation(random.below(4));
    const int code = kernel(p);
    const bool failed = latchwork_fail_allocation(-1) < 0;
    return failed == (code == NO_MEMORY);
}

// Run `each(random, index, seed)` for every case. The program's exit code: 77 if the processor lacks the instructions.
template <class Each>
int run_cases(int count, char** arguments, int64_t otherwise, Each each) {
    auto argument = [&](int i, int64_t value) { return i < count ? std::atoll(arguments[i]) : value; };
    const int64_t seed = argument(2, 0), first = argument(3, 0), end = count > 3 ? first + 1 : argument(1, otherwise);
    const char* isa = std::getenv("LATCHWORK_ISA");
    if (!latchwork_isa()) {
        std::fprintf(stderr, "%s: not on this processor\n", isa);
        return 77;
    }
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say_case);
    for (int64_t index = first; index < end; ++index) {
        std::seed_seq both{seed, index};
        Random random{std::mt19937_64(both)};
        each(random, index, seed);
        if ((index + 1) % 1000 == 0) std::fprintf(stderr, "%s: %ld cases\n", latchwork_isa(), long(index + 1));
    }
    std::printf("%ld passed, 0 failed\n", long(end - first));
    return 0;
}
