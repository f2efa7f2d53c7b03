// Products of small float matrices that lie in the cache, at the speed of the multiply-add units. A BLAS spends half its
// time elsewhere when a width is 90 and not 96; here all inner widths are padded with zeros.
#pragma once
#include <cstring>

#include "numbers.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace LATCHWORK_ISA {

using Lanes = Vector<float>;
constexpr int64_t LANES = Of<float>::LANES;
// A tile of the result is ROWS x PANEL, in 2 ROWS registers; two more hold the right factor.
#if defined(__AVX512F__)
constexpr int64_t ROWS = 12;
#else
constexpr int64_t ROWS = 6;
#endif
constexpr int64_t PANEL = 2 * LANES;

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t panels(int64_t n) { return round_up(n, PANEL); }  // the length of a row of n numbers, with its padding
inline int64_t tiles(int64_t n) { return round_up(n, ROWS); }    // how many rows hold n, with their padding
// The row length of a buffer for n columns that tiles may run over in either direction.
inline int64_t padded(int64_t n) { return round_up(round_up(n, ROWS), PANEL); }

LATCHWORK_INLINE Lanes load(const float* from) { return Memory<float>::load(from); }
LATCHWORK_INLINE void store(float* to, Lanes value) { Memory<float>::store(to, value); }
LATCHWORK_INLINE Lanes all(float value) { return value - Lanes{}; }  // not +, which would cost an addition for -0

// Of four rows of numbers, `apart` from one another, four at a time as columns of a panel. Returns how many of n are done.
inline int64_t transpose([[maybe_unused]] const float* from, [[maybe_unused]] int64_t apart, [[maybe_unused]] int64_t n,
                         [[maybe_unused]] float* to) {
    int64_t i = 0;
#if defined(__SSE__)
    for (; i + 4 <= n; i += 4) {
        __m128 a = _mm_loadu_ps(from + i), b = _mm_loadu_ps(from + apart + i);
        __m128 c = _mm_loadu_ps(from + 2 * apart + i), d = _mm_loadu_ps(from + 3 * apart + i);
        _MM_TRANSPOSE4_PS(a, b, c, d);
        _mm_storeu_ps(to + i * PANEL, a), _mm_storeu_ps(to + (i + 1) * PANEL, b);
        _mm_storeu_ps(to + (i + 2) * PANEL, c), _mm_storeu_ps(to + (i + 3) * PANEL, d);
    }
#endif
    return i;
}

// B (k, n), element (i, j) at b[i * row + j * column], as panels of PANEL columns, the last one filled up with zeros.
inline void pack(const float* b, int64_t k, int64_t n, int64_t row, int64_t column, float* to) {
    for (int64_t panel = 0; panel < n; panel += PANEL, to += k * PANEL) {
        const int64_t columns = n - panel < PANEL ? n - panel : PANEL;
        if (columns < PANEL) std::memset(to, 0, k * PANEL * sizeof(float));
        const float* from = b + panel * column;
        if (column == 1)
            for (int64_t i = 0; i < k; ++i)  // not memcpy: for so few numbers its start would cost more than the copy
                for (int64_t j = 0; j < columns; j += LANES)
                    store_part<float>(to + i * PANEL + j, load_part<float>(from + i * row + j, columns - j), columns - j);
        else  // reads go along the rows of the weight; what is written lies in the nearest cache
            for (int64_t j = 0; j < columns; j += 4) {
                int64_t i = row == 1 && j + 4 <= columns ? transpose(from + j * column, column, k, to + j) : 0;
                for (; i < k; ++i)
                    for (int64_t c = j; c < j + 4 && c < columns; ++c) to[i * PANEL + c] = from[i * row + c * column];
            }
    }
}
inline int64_t packed_size(int64_t k, int64_t n) { return k * round_up(n, PANEL); }

// C = A B + bias for ROWS rows and one panel, of which `columns` columns are written, all if there are more. Unless the
// panel is WHOLE, its second vector of columns is 0. A is (ROWS, k), rows lda apart; bias may be null.
template <bool WHOLE, int64_t ROWS>
LATCHWORK_INLINE void multiply_tile(const float* a, int64_t lda, const float* b, int64_t k, const float* bias, float* c,
                                    int64_t ldc, int64_t columns) {
    Lanes left[ROWS], right[ROWS];
    const Lanes first = bias ? load(bias) : Lanes{}, second = bias && WHOLE ? load(bias + LANES) : Lanes{};
#pragma GCC unroll 12
    for (int64_t m = 0; m < ROWS; ++m) left[m] = first, right[m] = second;
    for (int64_t i = 0; i < k; ++i) {
        const Lanes b0 = load(b + i * PANEL), b1 = WHOLE ? load(b + i * PANEL + LANES) : Lanes{};
#pragma GCC unroll 12
        for (int64_t m = 0; m < ROWS; ++m) {
            const Lanes factor = all(a[m * lda + i]);
            left[m] += factor * b0;
            if (WHOLE) right[m] += factor * b1;
        }
    }
    if (columns >= PANEL) {
#pragma GCC unroll 12
        for (int64_t m = 0; m < ROWS; ++m) store(c + m * ldc, left[m]), store(c + m * ldc + LANES, right[m]);
    } else {
#pragma GCC unroll 12
        for (int64_t m = 0; m < ROWS; ++m) {
            store_part<float>(c + m * ldc, left[m], columns);
            if (columns > LANES) store_part<float>(c + m * ldc + LANES, right[m], columns - LANES);
        }
    }
}

// C (rows, n) = A (rows, k) B + bias, B packed; rows is a multiple of TILE. C has room for whole panels, unless `narrow`.
// What is written behind a row, and belongs to the next, is written before that one is.
template <int64_t TILE = ROWS>
inline void multiply(const float* a, int64_t lda, const float* b, int64_t rows, int64_t k, int64_t n, const float* bias,
                     float* c, int64_t ldc, bool narrow = false) {
    for (int64_t j = (n - 1) / PANEL * PANEL; j >= 0; j -= PANEL)
        for (int64_t i = 0; i < rows; i += TILE)
            (n - j > LANES ? multiply_tile<true, TILE> : multiply_tile<false, TILE>)(
                a + i * lda, lda, b + j * k, k, bias ? bias + j : nullptr, c + i * ldc + j, ldc, narrow ? n - j : PANEL);
}

// C (m, n) += G' X for one tile of TILE rows.
template <bool WHOLE, int64_t TILE>
LATCHWORK_INLINE void accumulate_tile(const float* g, int64_t ldg, const float* x, int64_t ldx, int64_t rows, float* c,
                                      int64_t ldc) {
    Lanes left[TILE], right[TILE];
#pragma GCC unroll 12
    for (int64_t q = 0; q < TILE; ++q) left[q] = load(c + q * ldc), right[q] = WHOLE ? load(c + q * ldc + LANES) : Lanes{};
    for (int64_t r = 0; r < rows; ++r) {
        const Lanes x0 = load(x + r * ldx), x1 = WHOLE ? load(x + r * ldx + LANES) : Lanes{};
#pragma GCC unroll 12
        for (int64_t q = 0; q < TILE; ++q) {
            const Lanes factor = all(g[r * ldg + q]);
            left[q] += factor * x0;
            if (WHOLE) right[q] += factor * x1;
        }
    }
#pragma GCC unroll 12
    for (int64_t q = 0; q < TILE; ++q) {
        store(c + q * ldc, left[q]);
        if (WHOLE) store(c + q * ldc + LANES, right[q]);
    }
}

// C (m, n) += G' X, for G (rows, m) and X (rows, n): the gradient of a weight. C and X have room for whole tiles, and
// after G up to ROWS - 1 numbers are read, which may be anything. The last rows of C are a smaller tile if they fit one.
inline void accumulate(const float* g, int64_t ldg, const float* x, int64_t ldx, int64_t rows, int64_t m, int64_t n,
                       float* c, int64_t ldc) {
    for (int64_t j = 0; j < n; j += PANEL)
        for (int64_t i = 0; i < m; i += ROWS) {
            const bool few = m - i <= ROWS / 2;
            (n - j > LANES ? few ? accumulate_tile<true, ROWS / 2> : accumulate_tile<true, ROWS>
                           : few ? accumulate_tile<false, ROWS / 2> : accumulate_tile<false, ROWS>)(
                g + i, ldg, x + j, ldx, rows, c + i * ldc + j, ldc);
        }
}

// The same by copies in which what is read together lies together: where rows are far apart and many, that costs less than
// reading them. room: for as many numbers as copies_room says, or null: then as above.
constexpr int64_t COLUMNS = 512;  // of X, copied at a time
inline int64_t copied(int64_t n) { return n < COLUMNS ? round_up(n, PANEL) : COLUMNS; }
inline int64_t copies_room(int64_t rows, int64_t n) { return rows * (copied(n) + ROWS); }
inline void accumulate(const float* g, int64_t ldg, const float* x, int64_t ldx, int64_t rows, int64_t m, int64_t n,
                       float* c, int64_t ldc, float* room) {
    if (!room) return accumulate(g, ldg, x, ldx, rows, m, n, c, ldc);
    float* tile = room + rows * copied(n);
    for (int64_t begin = 0; begin < n; begin += COLUMNS) {
        const int64_t columns = n - begin < COLUMNS ? n - begin : COLUMNS;
        for (int64_t j = 0; j < columns; j += PANEL)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t k = 0; k < PANEL && j + k < columns; k += LANES)
                    store(room + j * rows + r * PANEL + k, load(x + r * ldx + begin + j + k));
        for (int64_t i = 0; i < m; i += ROWS) {
            for (int64_t r = 0; r < rows; ++r) std::memcpy(tile + r * ROWS, g + r * ldg + i, ROWS * sizeof(float));
            for (int64_t j = 0; j < columns; j += PANEL)
                accumulate(tile, ROWS, room + j * rows, PANEL, rows, m - i < ROWS ? m - i : ROWS,
                           columns - j < PANEL ? columns - j : PANEL, c + i * ldc + begin + j, ldc);
        }
    }
}

}  // namespace LATCHWORK_ISA
