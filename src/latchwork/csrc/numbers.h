// Storage types, vectors of the type that each is computed in, and the step x -> max(min(r, x), s) on them.
// Everything lives in a namespace of its instruction set: the same source is compiled once for each, and no inline
// function of one may be linked into another.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define LATCHWORK_INLINE inline __attribute__((always_inline))

namespace LATCHWORK_ISA {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;  // SSE2, NEON
#endif

// Whether common widths and degrees are compiled apart for numbers of the type S, with their loops unrolled. That takes
// most of the compiler's time: it is for float, and not for an x86 processor without AVX (before 2012). The other types
// lose up to 7% in a forward pass.
template <class S>
#if defined(__x86_64__) && !defined(__AVX__)
constexpr bool UNROLLS = false;
#else
constexpr bool UNROLLS = sizeof(S) == 4;
#endif

struct bfloat16 {
    uint16_t bits;
};
#if defined(__FLT16_MANT_DIG__) && defined(__aarch64__)
using float16 = __fp16;  // GCC 12 has no _Float16 for C++ there
#elif defined(__FLT16_MANT_DIG__)
using float16 = _Float16;
#endif

// The type C that S is computed in, its vector, and vectors of as many S.
template <class S, class C, class Bits>
struct Types {
    using Compute = C;
    static constexpr int LANES = BYTES / sizeof(C);
    typedef C Vector __attribute__((vector_size(BYTES)));
    typedef Bits Stored __attribute__((vector_size(LANES * sizeof(S)), aligned(alignof(S)), may_alias));
};
template <class S>
struct Of : Types<S, float, S> {};
template <>
struct Of<double> : Types<double, double, double> {};
template <>
struct Of<bfloat16> : Types<bfloat16, float, uint16_t> {};

template <class S>
using Compute = typename Of<S>::Compute;
template <class S>
using Vector = typename Of<S>::Vector;
typedef uint32_t Word __attribute__((vector_size(BYTES)));

// One vector from memory and to it. Reading widens exactly; writing rounds to nearest, ties to even.
template <class S>
struct Memory {
    static LATCHWORK_INLINE Vector<S> load(const S* from) {
        typename Of<S>::Stored stored = *reinterpret_cast<const typename Of<S>::Stored*>(from);
        return __builtin_convertvector(stored, Vector<S>);
    }
    static LATCHWORK_INLINE void store(S* to, Vector<S> value) {
        typedef typename Of<S>::Stored Stored;
        if constexpr (sizeof(S) == sizeof(value[0]))
            std::memcpy(to, &value, sizeof value);
        else
            *reinterpret_cast<Stored*>(to) = __builtin_convertvector(value, Stored);
    }
};
template <>
struct Memory<bfloat16> {
    typedef Of<bfloat16>::Stored Stored;
    static LATCHWORK_INLINE Vector<bfloat16> load(const bfloat16* from) {
        Word bits = __builtin_convertvector(*reinterpret_cast<const Stored*>(from), Word) << 16;
        return reinterpret_cast<Vector<bfloat16>>(bits);
    }
    static LATCHWORK_INLINE void store(bfloat16* to, Vector<bfloat16> value) {
        Word bits = reinterpret_cast<Word>(value);
        Word rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        Word narrow = reinterpret_cast<Word>(value != value) ? Word{} + 0x7fc0u : rounded;
        *reinterpret_cast<Stored*>(to) = __builtin_convertvector(narrow, Stored);
    }
};

// The same for the first `lanes` lanes only.
template <class S>
LATCHWORK_INLINE Vector<S> load_part(const S* from, int64_t lanes) {
    if (lanes >= Of<S>::LANES) return Memory<S>::load(from);
#if defined(__AVX512F__)
    if constexpr (sizeof(S) == 4) return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1 << lanes) - 1), from);
#endif
    S part[Of<S>::LANES] = {};
    for (int64_t l = 0; l < lanes; ++l) part[l] = from[l];
    return Memory<S>::load(part);
}
template <class S>
LATCHWORK_INLINE void store_part(S* to, Vector<S> value, int64_t lanes) {
    if (lanes >= Of<S>::LANES) return Memory<S>::store(to, value);
#if defined(__AVX512F__)
    if constexpr (sizeof(S) == 4)
        return _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1 << lanes) - 1), value);
#endif
    S part[Of<S>::LANES];
    Memory<S>::store(part, value);
    for (int64_t l = 0; l < lanes; ++l) to[l] = part[l];
}

template <class C>
LATCHWORK_INLINE C infinity() {
    return static_cast<C>(__builtin_inf());
}
// All ones in the lanes where a or b is a NaN: a mask, and as a number a NaN.
template <class V>
LATCHWORK_INLINE auto unordered(V a, V b) {
#if defined(__AVX__) && !defined(__AVX512F__)
    if constexpr (sizeof(a[0]) == 4)
        return reinterpret_cast<decltype(a != a)>(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    else
        return reinterpret_cast<decltype(a != a)>(_mm256_cmp_pd(a, b, _CMP_UNORD_Q));
#else
    return (a != a) | (b != b);
#endif
}
template <class Mask>
LATCHWORK_INLINE bool any(Mask mask) {
#if defined(__AVX512F__)
    if constexpr (sizeof mask == 64) return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX__)
    if constexpr (sizeof mask == 32) return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#endif
    bool found = false;
    for (int l = 0; l < int(sizeof mask / sizeof mask[0]); ++l) found |= mask[l] != 0;
    return found;
}
// The first lane of a float's mask that is set; there is one.
template <class Mask>
LATCHWORK_INLINE int64_t first_set(Mask mask) {
#if defined(__AVX512F__)
    return __builtin_ctz(_mm512_test_epi32_mask((__m512i)mask, (__m512i)mask));
#elif defined(__AVX__)
    return __builtin_ctz(_mm256_movemask_ps((__m256)mask));
#else
    int64_t lane = 0;
    while (!mask[lane]) ++lane;
    return lane;
#endif
}
template <class V, class Mask>
LATCHWORK_INLINE V with_nan(V a, Mask where) {
    return reinterpret_cast<V>(reinterpret_cast<Mask>(a) | where);
}

// Minimum and maximum that let a NaN through. As it is written, a < b ? a : b is one instruction and gives b for a NaN.
template <class V>
LATCHWORK_INLINE V minimum(V a, V b) {
    return with_nan(a < b ? a : b, unordered(a, b));
}
template <class V>
LATCHWORK_INLINE V maximum(V a, V b) {
    return with_nan(a > b ? a : b, unordered(a, b));
}

// max(min(r, x), s). Choosing like this, a NaN in x comes through; one in r or s is put in at the end.
template <class V>
LATCHWORK_INLINE V advance(V r, V s, V x) {
    V m = r < x ? r : x;
    V y = s > m ? s : m;
    return with_nan(y, unordered(r, s));
}

}  // namespace LATCHWORK_ISA
