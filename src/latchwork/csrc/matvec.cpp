// See matvec.h. Several rows at a time keep several streams from memory going, where one alone does not fill it.
// Compiled once for each instruction set.
#include "matvec.h"

#include "product.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace LATCHWORK_ISA {

constexpr int64_t STREAMS = 6;  // rows at a time

LATCHWORK_INLINE Lanes load_as_float(const float* from) { return load(from); }
LATCHWORK_INLINE Lanes load_as_float(const int8_t* from) {
#if defined(__AVX2__) && !defined(__AVX512F__)
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

// COUNT outputs from `first` on, for one vector.
template <int64_t COUNT, class W>
inline void rows(const Matvec& p, const W* weight, const float* x, float* y, int64_t first) {
    Lanes sums[COUNT] = {}, more[COUNT] = {};
    const W* w = weight + first * p.row;
    int64_t k = 0;
    for (; k + 2 * LANES <= p.inputs; k += 2 * LANES) {
        const Lanes x0 = load(x + k), x1 = load(x + k + LANES);
#pragma GCC unroll 6
        for (int64_t i = 0; i < COUNT; ++i) {
            sums[i] += load_as_float(w + i * p.row + k) * x0;
            more[i] += load_as_float(w + i * p.row + k + LANES) * x1;
        }
    }
    for (int64_t i = 0; i < COUNT; ++i) {
        float sum = total(sums[i] + more[i]);
        for (int64_t j = k; j < p.inputs; ++j) sum += static_cast<float>(w[i * p.row + j]) * x[j];
        if (p.quantised) sum *= p.scale[first + i];
        y[first + i] = p.bias ? sum + p.bias[first + i] : sum;
    }
}

template <class W>
int run(const Matvec& p) {
    const W* weight = static_cast<const W*>(p.weight);
    const int64_t blocks = (p.outputs + STREAMS - 1) / STREAMS;
    const int64_t threads = p.outputs * p.inputs < (1 << 16) || p.threads < 1 ? 1 : p.threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * STREAMS;
        for (int64_t v = 0; v < p.vectors; ++v) {  // the rows are in the cache from the second vector on
            const float* x = p.x + v * p.inputs;
            float* y = p.y + v * p.outputs;
            if (first + STREAMS <= p.outputs)
                rows<STREAMS>(p, weight, x, y, first);
            else
                for (int64_t i = first; i < p.outputs; ++i) rows<1>(p, weight, x, y, i);
        }
    }
    return 0;
}

}  // namespace LATCHWORK_ISA

extern "C" int JOIN(latchwork_matvec_, LATCHWORK_ISA)(const Matvec* p) {
    return p->quantised ? LATCHWORK_ISA::run<int8_t>(*p) : LATCHWORK_ISA::run<float>(*p);
}
