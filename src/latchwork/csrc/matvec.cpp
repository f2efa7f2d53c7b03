// A matrix times a few vectors, read once, at the speed of the memory: what decoding spends its time on. A processor
// fetches ahead along a few streams at once, and one alone does not fill the memory: a thread reads four rows at a time,
// far apart, each the beginning of a long stretch of its own. This gains 1.4 over one stream. Compiled once for each
// instruction set.
#include "abi.h"
#include "product.h"
#include "scratch.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

constexpr int64_t STREAMS = 4;

LATCHWORK_INLINE Lanes load_as_float(const float* from) { return load(from); }
LATCHWORK_INLINE Lanes load_as_float(const int8_t* from) {
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
    typedef int8_t Bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
    typedef int32_t Integers __attribute__((vector_size(BYTES)));
    return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const Bytes*>(from), Integers), Lanes);
#endif
}

inline float total(Lanes a) {
    float sum = 0;
    for (int64_t l = 0; l < LANES; ++l) sum += a[l];
    return sum;
}

// COUNT outputs, `apart` from each other, for one vector.
template <int64_t COUNT, class W>
inline void rows(const Matvec& p, const float* x, float* y, int64_t first, int64_t apart) {
    const W* w = static_cast<const W*>(p.weight) + first * p.row;
    const int64_t step = apart * p.row;
    Lanes sums[COUNT] = {}, more[COUNT] = {};
    int64_t k = 0;
    for (; k + 2 * LANES <= p.inputs; k += 2 * LANES) {
        const Lanes x0 = load(x + k), x1 = load(x + k + LANES);
#pragma GCC unroll 4
        for (int64_t i = 0; i < COUNT; ++i) {
            sums[i] += load_as_float(w + i * step + k) * x0;
            more[i] += load_as_float(w + i * step + k + LANES) * x1;
        }
    }
    for (int64_t i = 0; i < COUNT; ++i) {
        const int64_t output = first + i * apart;
        float sum = total(sums[i] + more[i]);
        for (int64_t j = k; j < p.inputs; ++j) sum += static_cast<float>(w[i * step + j]) * x[j];
        if (p.quantised) sum *= p.scale[output];
        y[output] = p.bias ? sum + p.bias[output] : sum;
    }
}

template <class W>
inline void part(const Matvec& p, int64_t begin, int64_t end) {
    const int64_t apart = (end - begin) / STREAMS;
    for (int64_t i = begin; i < begin + apart; ++i)
        for (int64_t v = 0; v < p.vectors; ++v)  // the rows are in the cache from the second vector on
            rows<STREAMS, W>(p, p.x + v * p.inputs, p.y + v * p.outputs, i, apart);
    for (int64_t i = begin + STREAMS * apart; i < end; ++i)
        for (int64_t v = 0; v < p.vectors; ++v) rows<1, W>(p, p.x + v * p.inputs, p.y + v * p.outputs, i, 0);
}

template <class W>
int run(const Matvec& p) {
    const int64_t threads = p.outputs * p.inputs < (1 << 16) || p.threads < 1 ? 1 : p.threads;
    in_parallel(threads, threads, [&](int64_t thread) {
        part<W>(p, p.outputs * thread / threads, p.outputs * (thread + 1) / threads);
    });
    return DONE;
}

}  // namespace LATCHWORK_ISA

extern "C" int JOIN(latchwork_matvec_, LATCHWORK_ISA)(const Matvec* p) {
    return p->quantised ? LATCHWORK_ISA::run<int8_t>(*p) : LATCHWORK_ISA::run<float>(*p);
}
