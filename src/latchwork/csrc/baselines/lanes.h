// What the baselines' kernels share: functions of vectors, to a few units in the last place, and rows of a tensor.
#pragma once
#include "../abi.h"
#include "../blocks.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define ENTRY(name, structure) \
    extern "C" int JOIN(latchwork_##name##_, LATCHWORK_ISA)(const structure* p) { return LATCHWORK_ISA::name(*p); }

namespace LATCHWORK_ISA {

// 2^x for x up to 126, to two units in the last place; below -126 it is near 0. 2^floor(x) times a polynomial of the rest.
LATCHWORK_INLINE Lanes power_of_two(Lanes x) {
#if defined(__AVX512F__)
    const Lanes rest = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    typedef int32_t Integers __attribute__((vector_size(BYTES)));
    x = x < -126.0f ? all(-126.0f) : x;
    const Lanes shifted = (x - 0.5f) + 12582912.0f, rest = x - (shifted - 12582912.0f);
#endif
    constexpr float series[] = {9.01702698e-3f, 5.57999164e-2f, 2.40164444e-1f, 6.93151295e-1f, 1.0f};
    Lanes e = all(1.86713168e-3f);
    for (float coefficient : series) e = e * rest + coefficient;
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(0xffff, e, x);
#else
    return e * reinterpret_cast<Lanes>((reinterpret_cast<Integers>(shifted) + (127 - 0x4b400000)) << 23);
#endif
}
LATCHWORK_INLINE Lanes sigmoid(Lanes a) { return 1.0f / (1.0f + exponential(-a)); }
LATCHWORK_INLINE Lanes magnitude(Lanes a) { return a < 0.0f ? -a : a; }
LATCHWORK_INLINE Lanes positive(Lanes a) { return a < 0.0f ? Lanes{} : a; }
LATCHWORK_INLINE Lanes hyperbolic_tangent(Lanes a) {
    const Lanes e = exponential(-2.0f * magnitude(a)), t = (1.0f - e) / (1.0f + e);
    return a < 0.0f ? -t : t;
}
// log(1 + e) for e from 0 to 1, by the series of the inverse hyperbolic tangent.
LATCHWORK_INLINE Lanes log_of_one_and(Lanes e) {
    const Lanes z = e / (2.0f + e), square = z * z;
    constexpr float series[] = {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f};
    Lanes total = all(2.0f / 15);
    for (float coefficient : series) total = total * square + coefficient;
    return z * total;
}
LATCHWORK_INLINE Lanes softplus(Lanes a) { return positive(a) + log_of_one_and(exponential(-magnitude(a))); }

inline float* row(const Rows& rows, int64_t b, int64_t t) {
    return static_cast<float*>(rows.data) + b * rows.batch + t * rows.time;
}
// Ask for the numbers of a step before it comes: rows that are read side by side lie too far apart for the processor to guess.
inline void ask_for(const Rows& rows, int64_t b, int64_t t, int64_t time, int64_t width) {
    for (int64_t j = 0; j < width && t >= 0 && t < time; j += 16) __builtin_prefetch(row(rows, b, t) + j);
}
// The same for some steps.
inline void ask_for(const Rows& rows, int64_t b, int64_t begin, int64_t steps, int64_t time, int64_t width) {
    for (int64_t t = begin; t < begin + steps; ++t) ask_for(rows, b, t, time, width);
}
struct Zeros : Scratch<float> {
    explicit Zeros(int64_t size) : Scratch(size) { std::memset(data, 0, size * sizeof(float)); }
};
// The first lanes of a vector, others 0.
LATCHWORK_INLINE Lanes first_of(Lanes value, int64_t lanes) {
#if defined(__AVX512F__)
    return lanes >= LANES ? value : Lanes(_mm512_maskz_mov_ps((1u << lanes) - 1, value));
#else
    return load_part<float>(reinterpret_cast<const float*>(&value), lanes);
#endif
}

// part(i, sums) for i < parts, with zeroed sums of a thread's own, `size` each; then add(sums) for each of them.
template <class Part, class Add>
void with_sums(int64_t parts, int64_t threads, int64_t size, Part part, Add add) {
    threads = threads < 1 ? 1 : threads < parts ? threads : parts;
    size = line(size);
    Scratch<float> memory(threads * size);
    std::memset(memory.data, 0, threads * size * sizeof(float));
    in_parallel(threads, threads, [&](int64_t thread) {
        for (int64_t i = parts * thread / threads; i < parts * (thread + 1) / threads; ++i)
            part(i, memory.data + thread * size);
    });
    for (int64_t thread = 0; thread < threads; ++thread) add(memory.data + thread * size);
}
inline void add_to(const float* from, int64_t size, float* to) {
    if (to)
        for (int64_t j = 0; j < size; ++j) to[j] += from[j];
}

}  // namespace LATCHWORK_ISA
