// Between units as they stand in memory and planes. A unit is `size` numbers in a row, its neighbour the next `size`; plane
// e holds number e of up to LANES units, one a lane.
#pragma once
#include "numbers.h"

namespace LATCHWORK_ISA {

// The definitions: any storage type, any size. Lanes from `units` on repeat the last unit, and are not written.
template <class S>
struct Planes {
    static constexpr int L = Of<S>::LANES;
    static LATCHWORK_INLINE void gather(const S* from, int64_t size, int64_t units, Vector<S>* planes) {
        S plane[L];
        for (int64_t e = 0; e < size; ++e) {
            for (int64_t l = 0; l < L; ++l) plane[l] = from[(l < units ? l : units - 1) * size + e];
            planes[e] = Memory<S>::load(plane);
        }
    }
    static LATCHWORK_INLINE void scatter(const Vector<S>* planes, int64_t size, int64_t units, S* to) {
        S plane[L];
        for (int64_t e = 0; e < size; ++e) {
            Memory<S>::store(plane, planes[e]);
            for (int64_t l = 0; l < units; ++l) to[l * size + e] = plane[l];
        }
    }
};

#if defined(__AVX__) && !defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
// The same for float and eight lanes: four numbers of eight units at a time, transposed in registers.
typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float UnalignedFour __attribute__((vector_size(16), aligned(4), may_alias));

#define SHUFFLE __builtin_shufflevector
struct Square {  // two squares of 4 x 4, side by side
    Eight a, b, c, d;
};
LATCHWORK_INLINE Square transpose(Square in) {
    Eight low_ab = SHUFFLE(in.a, in.b, 0, 8, 1, 9, 4, 12, 5, 13), high_ab = SHUFFLE(in.a, in.b, 2, 10, 3, 11, 6, 14, 7, 15);
    Eight low_cd = SHUFFLE(in.c, in.d, 0, 8, 1, 9, 4, 12, 5, 13), high_cd = SHUFFLE(in.c, in.d, 2, 10, 3, 11, 6, 14, 7, 15);
    return {SHUFFLE(low_ab, low_cd, 0, 1, 8, 9, 4, 5, 12, 13), SHUFFLE(low_ab, low_cd, 2, 3, 10, 11, 6, 7, 14, 15),
            SHUFFLE(high_ab, high_cd, 0, 1, 8, 9, 4, 5, 12, 13), SHUFFLE(high_ab, high_cd, 2, 3, 10, 11, 6, 7, 14, 15)};
}
LATCHWORK_INLINE Four four(const float* at) { return *reinterpret_cast<const UnalignedFour*>(at); }
LATCHWORK_INLINE void put_four(float* at, Four value) { *reinterpret_cast<UnalignedFour*>(at) = value; }
LATCHWORK_INLINE Eight join(Four low, Four high) { return SHUFFLE(low, high, 0, 1, 2, 3, 4, 5, 6, 7); }
LATCHWORK_INLINE Four low_half(Eight value) { return SHUFFLE(value, value, 0, 1, 2, 3); }
LATCHWORK_INLINE Four high_half(Eight value) { return SHUFFLE(value, value, 4, 5, 6, 7); }
// Number 4 - size first: what the last unit of eight looks like when its four numbers end with it.
LATCHWORK_INLINE Four rotate(Four value, int64_t size) {
    return size == 3 ? SHUFFLE(value, value, 1, 2, 3, 0) : SHUFFLE(value, value, 2, 3, 0, 1);
}
#undef SHUFFLE

template <>
struct Planes<float> {
    static LATCHWORK_INLINE void gather(const float* from, int64_t size, int64_t units, Eight* planes) {
        if (size < 4) return gather_small(from, size, units, planes);
        const float* unit[8];
        for (int64_t l = 0; l < 8; ++l) unit[l] = from + (l < units ? l : units - 1) * size;
        // Downward, since the backward pass, which moves most, goes downward in time; the last four may overlap others.
        for (int64_t group = (size - 1) / 4 * 4; group >= 0; group -= 4) {
            const int64_t e = group + 4 <= size ? group : size - 4;
            Square q = transpose({join(four(unit[0] + e), four(unit[4] + e)), join(four(unit[1] + e), four(unit[5] + e)),
                                  join(four(unit[2] + e), four(unit[6] + e)), join(four(unit[3] + e), four(unit[7] + e))});
            planes[e] = q.a, planes[e + 1] = q.b, planes[e + 2] = q.c, planes[e + 3] = q.d;
        }
    }
    static LATCHWORK_INLINE void scatter(const Eight* planes, int64_t size, int64_t units, float* to) {
        if (size < 4) return scatter_small(planes, size, units, to);
        for (int64_t group = (size - 1) / 4 * 4; group >= 0; group -= 4) {
            const int64_t e = group + 4 <= size ? group : size - 4;
            Square q = transpose({planes[e], planes[e + 1], planes[e + 2], planes[e + 3]});
            put_units(q, to + e, size, units);
        }
    }

    static LATCHWORK_INLINE void put_units(Square q, float* to, int64_t size, int64_t units) {
        put_four(to, low_half(q.a));
        if (units > 1) put_four(to + size, low_half(q.b));
        if (units > 2) put_four(to + 2 * size, low_half(q.c));
        if (units > 3) put_four(to + 3 * size, low_half(q.d));
        if (units > 4) put_four(to + 4 * size, high_half(q.a));
        if (units > 5) put_four(to + 5 * size, high_half(q.b));
        if (units > 6) put_four(to + 6 * size, high_half(q.c));
        if (units > 7) put_four(to + 7 * size, high_half(q.d));
    }

    // Units of two or three numbers: four are read and written at a time, the last of them the next unit's, which
    // comes after; the eighth unit has no next.
    static LATCHWORK_INLINE void gather_small(const float* from, int64_t size, int64_t units, Eight* planes) {
        if (size == 1 || units < 8) {
            for (int64_t e = 0; e < size; ++e)
                for (int64_t l = 0; l < 8; ++l) planes[e][l] = from[(l < units ? l : units - 1) * size + e];
            return;
        }
        const Four last = rotate(four(from + 8 * size - 4), size);
        Square q = transpose({join(four(from), four(from + 4 * size)), join(four(from + size), four(from + 5 * size)),
                              join(four(from + 2 * size), four(from + 6 * size)), join(four(from + 3 * size), last)});
        planes[0] = q.a, planes[1] = q.b;
        if (size == 3) planes[2] = q.c;
    }
    static LATCHWORK_INLINE void scatter_small(const Eight* planes, int64_t size, int64_t units, float* to) {
        if (size == 1 || units < 8) {
            for (int64_t e = 0; e < size; ++e)
                for (int64_t l = 0; l < units; ++l) to[l * size + e] = planes[e][l];
            return;
        }
        Square q = transpose({planes[0], planes[1], size == 3 ? planes[2] : planes[1], planes[1]});
        put_units(q, to, size, 7);
        const Four last = high_half(q.d);
        for (int64_t e = 0; e < size; ++e) to[7 * size + e] = last[e];
    }
};
#endif
#endif

}  // namespace LATCHWORK_ISA
