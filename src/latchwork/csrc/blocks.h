// What the passes over a layer's rows share: how many rows at a time, padded copies, sums, places in one allocation.
#pragma once
#include "abi.h"
#include "product.h"
#include "scratch.h"

namespace LATCHWORK_ISA {

constexpr int64_t BLOCK = 96;  // rows at a time; a multiple of ROWS

#if defined(__AVX__)
// Of a vector, the sums of its lanes 4 apart from one another.
LATCHWORK_INLINE __m128 quarter(Lanes a) {
#if defined(__AVX512F__)
    __m256 halves[2];
    std::memcpy(halves, &a, sizeof a);
    const __m256 eight = _mm256_add_ps(halves[0], halves[1]);
#else
    const __m256 eight = a;
#endif
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}
#endif
inline float sum(Lanes a) {
#if defined(__AVX__)
    __m128 four = quarter(a);
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
    float total = 0;
    for (int64_t l = 0; l < LANES; ++l) total += a[l];
    return total;
#endif
}
// The same of some vectors; of four together it takes little longer than of one.
template <int64_t COUNT>
LATCHWORK_INLINE void sums(const Lanes* a, float* to) {
#if defined(__AVX__)
    if constexpr (COUNT == 4) {
        __m128 b0 = quarter(a[0]), b1 = quarter(a[1]), b2 = quarter(a[2]), b3 = quarter(a[3]);
        _MM_TRANSPOSE4_PS(b0, b1, b2, b3);
        return _mm_storeu_ps(to, _mm_add_ps(_mm_add_ps(b0, b2), _mm_add_ps(b1, b3)));
    }
#endif
    for (int64_t i = 0; i < COUNT; ++i) to[i] = sum(a[i]);
}

inline float largest(Lanes a) {
    typedef float Four __attribute__((vector_size(16)));
    Four parts[BYTES / 16];
    std::memcpy(parts, &a, sizeof a);
    Four most = parts[0];
    for (int64_t i = 1; i < BYTES / 16; ++i) most = parts[i] > most ? parts[i] : most;
    const float even = most[0] > most[2] ? most[0] : most[2], odd = most[1] > most[3] ? most[1] : most[3];
    return even > odd ? even : odd;
}

// exp(x) within 2 units in the last place, x being taken into [-87, 87] first; a NaN comes through.
LATCHWORK_INLINE Lanes exponential(Lanes x) {
    typedef int32_t Integers __attribute__((vector_size(BYTES)));
    x = x < -87.0f ? all(-87.0f) : x;
    x = x > 87.0f ? all(87.0f) : x;
    const Lanes shifted = x * 1.44269504f + 12582912.0f;  // its last bits are the nearest integer to x / ln 2
    const Lanes n = shifted - 12582912.0f;
    const Lanes rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    constexpr float series[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    Lanes e = all(1.9875691500e-4f);
    for (float coefficient : series) e = e * rest + coefficient;
    e = e * rest * rest + rest + 1.0f;
    const Integers power = (reinterpret_cast<Integers>(shifted) + (127 - 0x4b400000)) << 23;
    return e * reinterpret_cast<Lanes>(power);
}

// The lanes of the last vector of a row that belong to it.
typedef int32_t Mask __attribute__((vector_size(BYTES)));
inline Mask tail_mask(int64_t width) {
    Mask mask{};
    for (int64_t l = 0; l < LANES; ++l) mask[l] = l < (width - 1) % LANES + 1 ? -1 : 0;
    return mask;
}
LATCHWORK_INLINE Lanes keep(Lanes a, Mask mask) { return reinterpret_cast<Lanes>(reinterpret_cast<Mask>(a) & mask); }

inline void copy_padded(const float* from, int64_t n, int64_t size, float* to) {
    if (!from) n = 0;
    if (n) std::memcpy(to, from, n * sizeof(float));
    for (int64_t j = n; j < size; ++j) to[j] = 0.0f;
}
// to[j] = f(j, lanes) for whole vectors of n numbers; f reads and gives as many lanes as there are.
template <class F>
LATCHWORK_INLINE void each_part(int64_t n, float* to, F f) {
    for (int64_t j = 0; j < n; j += LANES) store_part<float>(to + j, f(j, n - j), n - j);
}
inline void add_rows(const float* g, int64_t ld, int64_t rows, int64_t size, float* to) {
    for (int64_t j = 0; j < size; j += LANES) {
        Lanes total = load(to + j);
        for (int64_t r = 0; r < rows; ++r) total += load(g + r * ld + j);
        store(to + j, total);
    }
}

// The mask of the dropout is a function of the seed, the row and the column: backward draws it again.
inline uint32_t row_key(uint64_t seed, uint64_t row) {
    uint64_t x = seed + row * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
}
inline void draw_mask(uint32_t key, float dropout, int64_t size, float* mask) {
    const uint32_t least = static_cast<uint32_t>(static_cast<double>(dropout) * 0x1p24);
    const float scale = 1.0f / (1.0f - dropout);
    for (int64_t j = 0; j < size; ++j) {
        uint32_t x = key + static_cast<uint32_t>(j) * 0x9e3779b9u;
        x = (x ^ (x >> 16)) * 0x85ebca6bu;
        x = (x ^ (x >> 13)) * 0xc2b2ae35u;
        mask[j] = ((x ^ (x >> 16)) >> 8) >= least ? scale : 0.0f;
    }
}

// Rows of numbers, and how far one is from the next.
struct Place {
    float* at;
    int64_t apart;
    float* row(int64_t r) const { return at + r * apart; }
    Place rows_from(int64_t r) const { return {row(r), apart}; }
    void prefetch(int64_t r) const {  // a row may be one that is not there
        for (int64_t j = 0; j < apart; j += 16) __builtin_prefetch(row(r) + j);
    }
    void copy(Place from, int64_t rows) const {  // from: as far apart
        if (apart) std::memcpy(at, from.at, rows * apart * sizeof(float));
    }
};

// A place in one allocation for each buffer.
inline int64_t line(int64_t size) { return round_up(size, 16); }
struct Arena {
    float* next;
    float* take(int64_t size) {
        float* taken = next;
        next += line(size);
        return taken;
    }
};

// Rows of a layer at a time, multiples of ROWS: few, so that what lies between the parts stays in the cache beside the
// weights; twice as many backward, since each block reads and writes the sums for the weights; and where the weights are too
// many for the cache, enough that reading them is worth it. Measured with a cache of 1 MB a core.
inline int64_t weights_of(const Layer& p) { return p.width * (2 * p.width + 3 * p.hidden + p.outputs + p.state); }
inline bool are_many(int64_t weights) { return weights >= 400'000; }
inline int64_t rows_at_a_time(const Layer& p, bool backward) {
    const int64_t weights = weights_of(p);
    return !are_many(weights) ? backward ? 96 : 48 : weights < 2'000'000 ? 96 : 192;
}
// For the gradient of a weight with so many inputs at the most; none where all lies in the cache.
inline int64_t room_for_copies(const Layer& p, int64_t block, int64_t inputs) {
    return are_many(weights_of(p)) ? copies_room(block, inputs) : 0;
}

// A thread's sums into a gradient (rows, columns): those of the first part are written, the others added.
inline void add_matrix(const float* from, int64_t ld, int64_t rows, int64_t columns, float* to, bool first) {
    for (int64_t i = 0; i < rows; ++i)
        if (first)
            std::memcpy(to + i * columns, from + i * ld, columns * sizeof(float));
        else
            for (int64_t j = 0; j < columns; ++j) to[i * columns + j] += from[i * ld + j];
}

inline float* padded_bias(const Linear& linear, int64_t outputs, int64_t size, Arena& arena) {
    float* to = arena.take(size);
    copy_padded(linear.bias, outputs, size, to);
    return to;
}
// Forward multiplies by the transposed weight, backward by the weight.
inline int64_t packed_room(int64_t outputs, int64_t inputs) {
    const int64_t forward = packed_size(inputs, outputs), backward = packed_size(outputs, inputs);
    return line(forward > backward ? forward : backward);
}
inline float* packed_weight(const Linear& linear, int64_t outputs, int64_t inputs, Arena& arena, bool backward) {
    float* to = arena.take(backward ? packed_size(outputs, inputs) : packed_size(inputs, outputs));
    if (backward)
        pack(linear.weight, outputs, inputs, inputs, 1, to);
    else
        pack(linear.weight, inputs, outputs, 1, inputs, to);
    return to;
}
}  // namespace LATCHWORK_ISA
