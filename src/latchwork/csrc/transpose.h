// Between units as they stand in memory (a row of numbers each) and planes of W lanes (a number of W units each).
#pragma once
#include "numbers.h"

namespace LATCHWORK_ISA {

// The definitions. Any storage type, any size.
template <class S, int W>
inline void gather_planes(const S* const* rows, int64_t size, Compute<S>* planes) {
    S plane[W];
    for (int64_t e = 0; e < size; ++e) {
        for (int l = 0; l < W; ++l) plane[l] = rows[l][e];
        for (int l = 0; l < W; l += Of<S>::LANES) store<Compute<S>>(planes + e * W + l, load<S>(plane + l, W), W);
    }
}
template <class S, int W>
inline void scatter_planes(const Compute<S>* planes, int64_t size, int64_t lanes, S* const* rows) {
    S plane[W];
    for (int64_t e = 0; e < size; ++e) {
        for (int l = 0; l < W; l += Of<S>::LANES) store<S>(plane + l, load<Compute<S>>(planes + e * W + l, W), W);
        for (int64_t l = 0; l < lanes; ++l) rows[l][e] = plane[l];
    }
}

#if defined(__AVX__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
// The same for float: four numbers of eight units at a time, transposed in registers. A size that is not a multiple of
// four ends with a group that overlaps the one before.
typedef float Four __attribute__((vector_size(16)));
typedef float Eight __attribute__((vector_size(32)));
typedef float UnalignedFour __attribute__((vector_size(16), aligned(4)));

#define SHUFFLE __builtin_shufflevector
struct Square {
    Eight a, b, c, d;
};
inline Square transpose(Square in) {  // in each half: rows to columns of a 4 x 4 square; its own inverse
    Eight low_ab = SHUFFLE(in.a, in.b, 0, 8, 1, 9, 4, 12, 5, 13), high_ab = SHUFFLE(in.a, in.b, 2, 10, 3, 11, 6, 14, 7, 15);
    Eight low_cd = SHUFFLE(in.c, in.d, 0, 8, 1, 9, 4, 12, 5, 13), high_cd = SHUFFLE(in.c, in.d, 2, 10, 3, 11, 6, 14, 7, 15);
    return {SHUFFLE(low_ab, low_cd, 0, 1, 8, 9, 4, 5, 12, 13), SHUFFLE(low_ab, low_cd, 2, 3, 10, 11, 6, 7, 14, 15),
            SHUFFLE(high_ab, high_cd, 0, 1, 8, 9, 4, 5, 12, 13), SHUFFLE(high_ab, high_cd, 2, 3, 10, 11, 6, 7, 14, 15)};
}
inline Eight load_halves(const float* low, const float* high) {
    Four a = *reinterpret_cast<const UnalignedFour*>(low), b = *reinterpret_cast<const UnalignedFour*>(high);
    return SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
inline void store_halves(Eight value, float* low, float* high) {
    *reinterpret_cast<UnalignedFour*>(low) = SHUFFLE(value, value, 0, 1, 2, 3);
    *reinterpret_cast<UnalignedFour*>(high) = SHUFFLE(value, value, 4, 5, 6, 7);
}
#undef SHUFFLE

template <>
inline void gather_planes<float, 16>(const float* const* rows, int64_t size, float* planes) {
    if (size < 4) {
        for (int64_t e = 0; e < size; ++e)
            for (int l = 0; l < 16; ++l) planes[e * 16 + l] = rows[l][e];
        return;
    }
    for (int64_t group = 0; group < size; group += 4) {
        const int64_t e = group + 4 <= size ? group : size - 4;
        for (int l = 0; l < 16; l += 8) {
            const float* const* row = rows + l;
            Square q = transpose({load_halves(row[0] + e, row[4] + e), load_halves(row[1] + e, row[5] + e),
                                  load_halves(row[2] + e, row[6] + e), load_halves(row[3] + e, row[7] + e)});
            Eight* plane = reinterpret_cast<Eight*>(planes + e * 16 + l);
            plane[0] = q.a, plane[2] = q.b, plane[4] = q.c, plane[6] = q.d;
        }
    }
}
template <>
inline void scatter_planes<float, 16>(const float* planes, int64_t size, int64_t lanes, float* const* rows) {
    if (size < 4 || lanes < 16) {
        for (int64_t l = 0; l < lanes; ++l)
            for (int64_t e = 0; e < size; ++e) rows[l][e] = planes[e * 16 + l];
        return;
    }
    for (int64_t group = 0; group < size; group += 4) {
        const int64_t e = group + 4 <= size ? group : size - 4;
        for (int l = 0; l < 16; l += 8) {
            const Eight* plane = reinterpret_cast<const Eight*>(planes + e * 16 + l);
            Square q = transpose({plane[0], plane[2], plane[4], plane[6]});
            float* const* row = rows + l;
            store_halves(q.a, row[0] + e, row[4] + e), store_halves(q.b, row[1] + e, row[5] + e);
            store_halves(q.c, row[2] + e, row[6] + e), store_halves(q.d, row[3] + e, row[7] + e);
        }
    }
}
#endif
#endif

}  // namespace LATCHWORK_ISA
