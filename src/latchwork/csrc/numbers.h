// Storage types, vectors of the type that each is computed in, and the step x -> max(min(r, x), s) on them.
// Everything lives in a namespace of its instruction set: the same source is compiled once for each, and no inline
// function of one may be linked into another.
#pragma once
#include <cstdint>
#include <cstring>

#define LATCHWORK_INLINE inline __attribute__((always_inline))

namespace LATCHWORK_ISA {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;  // SSE2, NEON
#endif

struct bfloat16 {
    uint16_t bits;
};
#ifdef __FLT16_MANT_DIG__
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
LATCHWORK_INLINE Vector<S> load(const S* from, int64_t lanes) {
    if (lanes >= Of<S>::LANES) return Memory<S>::load(from);
    S part[Of<S>::LANES] = {};
    for (int64_t l = 0; l < lanes; ++l) part[l] = from[l];
    return Memory<S>::load(part);
}
template <class S>
LATCHWORK_INLINE void store(S* to, Vector<S> value, int64_t lanes) {
    if (lanes >= Of<S>::LANES) return Memory<S>::store(to, value);
    S part[Of<S>::LANES];
    Memory<S>::store(part, value);
    for (int64_t l = 0; l < lanes; ++l) to[l] = part[l];
}

template <class C>
LATCHWORK_INLINE C infinity() {
    return static_cast<C>(__builtin_inf());
}
template <class C>
LATCHWORK_INLINE C not_a_number() {
    return static_cast<C>(__builtin_nan(""));
}

// Minimum and maximum that let a NaN through, of numbers or vectors.
template <class V>
LATCHWORK_INLINE V minimum(V a, V b) {
    return (a < b) | (a != a) ? a : b;
}
template <class V>
LATCHWORK_INLINE V maximum(V a, V b) {
    return (a > b) | (a != a) ? a : b;
}

// max(min(r, x), s). Choosing like this, a NaN in x comes through; one in r or s is put in by the last line.
template <class V>
LATCHWORK_INLINE V advance(V r, V s, V x) {
    V m = r < x ? r : x;
    V y = s > m ? s : m;
    return (r == r) & (s == s) ? y : V{} + __builtin_nanf("");
}

}  // namespace LATCHWORK_ISA
