// Products of small float matrices that lie in the cache, at the speed of the multiply-add units. A BLAS spends half its
// time elsewhere when a width is 90 and not 96; here all inner widths are padded with zeros.
#pragma once
#include <cstring>
#include <utility>

#include "numbers.h"

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

// Of two vectors, their lanes in turn: the first halves, and the second.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LATCHWORK_SHUFFLES
template <size_t... L>
LATCHWORK_INLINE void interleave(Lanes a, Lanes b, Lanes* to, std::index_sequence<L...>) {
    to[0] = __builtin_shufflevector(a, b, (L / 2 + L % 2 * LANES)...);
    to[1] = __builtin_shufflevector(a, b, (LANES / 2 + L / 2 + L % 2 * LANES)...);
}
#endif
#endif
#if !defined(LATCHWORK_SHUFFLES)
template <class Sequence>
inline void interleave(Lanes a, Lanes b, Lanes* to, Sequence) {
    for (int64_t l = 0; l < 2 * LANES; ++l) to[l / LANES][l % LANES] = (l % 2 ? b : a)[l / 2];
}
#endif
// LANES rows of LANES numbers become columns: in each round the first half of the rows is interleaved with the second.
LATCHWORK_INLINE void transpose(Lanes* a) {
    Lanes b[LANES];
#pragma GCC unroll 4
    for (int64_t round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < LANES / 2; ++i)
            interleave(a[i], a[i + LANES / 2], b + 2 * i, std::make_index_sequence<LANES>{});
#pragma GCC unroll 16
        for (int64_t i = 0; i < LANES; ++i) a[i] = b[i];
    }
}

// B (k, n), element (i, j) at b[i * row + j * column], as panels of PANEL columns, the last one filled up with zeros. One of
// row and column is 1.
inline void pack(const float* b, int64_t k, int64_t n, int64_t row, int64_t column, float* to) {
    for (int64_t j = 0; j < round_up(n, PANEL); j += LANES) {
        float* out = to + j / PANEL * PANEL * k + j % PANEL;
        const int64_t columns = n - j;
        if (columns <= 0)
            for (int64_t i = 0; i < k; ++i) store(out + i * PANEL, Lanes{});
        else if (column == 1)
            for (int64_t i = 0; i < k; ++i) store(out + i * PANEL, load_part<float>(b + i * row + j, columns));
        else
            for (int64_t i = 0; i < k; i += LANES) {  // reads go along the rows of the weight
                Lanes square[LANES];
#pragma GCC unroll 16
                for (int64_t c = 0; c < LANES; ++c)
                    square[c] = c < columns ? load_part<float>(b + (j + c) * column + i, k - i) : Lanes{};
                transpose(square);
                for (int64_t r = 0; r < LANES && i + r < k; ++r) store(out + (i + r) * PANEL, square[r]);
            }
    }
}
inline int64_t packed_size(int64_t k, int64_t n) { return k * round_up(n, PANEL); }

// C = A B + bias for ROWS rows and one panel, of which `columns` columns are written, all if there are more. Unless the
// panel is WHOLE, its second vector of columns is 0. A is (ROWS, k), rows lda apart; bias may be null. `ahead`: what is
// needed later, a `step` of it in each round.
template <bool WHOLE, int64_t ROWS>
LATCHWORK_INLINE void multiply_tile(const float* a, int64_t lda, const float* b, int64_t k, const float* bias, float* c,
                                    int64_t ldc, int64_t columns, const float* ahead, int64_t step) {
    Lanes left[ROWS], right[ROWS];
    const Lanes first = bias ? load(bias) : Lanes{}, second = bias && WHOLE ? load(bias + LANES) : Lanes{};
#pragma GCC unroll 12
    for (int64_t m = 0; m < ROWS; ++m) left[m] = first, right[m] = second;
    for (int64_t i = 0; i < k; ++i) {
        __builtin_prefetch(ahead + i * step, 0, 2);
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
// What is written behind a row, and belongs to the next, is written before that one is. Panels are taken from the last to
// the first, and while one is used, what lies before it comes nearer: the weights may be too many for the nearer caches.
template <int64_t TILE = ROWS>
inline void multiply(const float* a, int64_t lda, const float* b, int64_t rows, int64_t k, int64_t n, const float* bias,
                     float* c, int64_t ldc, bool narrow = false) {
    const int64_t step = rows ? (PANEL * TILE + rows - 1) / rows : 0;
    for (int64_t j = (n - 1) / PANEL * PANEL; j >= 0; j -= PANEL)
        for (int64_t i = 0; i < rows; i += TILE)
            (n - j > LANES ? multiply_tile<true, TILE> : multiply_tile<false, TILE>)(
                a + i * lda, lda, b + j * k, k, bias ? bias + j : nullptr, c + i * ldc + j, ldc, narrow ? n - j : PANEL,
                b + (j - PANEL) * k + i / TILE * k * step, step);
}

// C (m, n) += G' X for one tile of TILE rows. `ahead`: the tile of C that comes next.
template <bool WHOLE, int64_t TILE>
LATCHWORK_INLINE void accumulate_tile(const float* g, int64_t ldg, const float* x, int64_t ldx, int64_t rows, float* c,
                                      int64_t ldc, const float* ahead) {
    Lanes left[TILE], right[TILE];
#pragma GCC unroll 12
    for (int64_t q = 0; q < TILE; ++q) left[q] = load(c + q * ldc), right[q] = WHOLE ? load(c + q * ldc + LANES) : Lanes{};
    for (int64_t q = 0; q < TILE; ++q)
        for (int64_t l = 0; l < PANEL; l += 16) __builtin_prefetch(ahead + q * ldc + l, 1);
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
            const float* ahead = i + ROWS < m ? c + (i + ROWS) * ldc + j : c + j + PANEL;
            (n - j > LANES ? few ? accumulate_tile<true, ROWS / 2> : accumulate_tile<true, ROWS>
                           : few ? accumulate_tile<false, ROWS / 2> : accumulate_tile<false, ROWS>)(
                g + i, ldg, x + j, ldx, rows, c + i * ldc + j, ldc, ahead);
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
