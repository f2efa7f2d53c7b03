// The physical limit: loops that do nothing but move memory. Compiled by stream.py when the benchmark runs.

// STREAM's triad: two reads and one write an element, as the forward scan.
extern "C" void triad(long n, int threads, const float* __restrict b, const float* __restrict c, float* __restrict a) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (long i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}

// Four reads and two writes an element, as the backward scan.
extern "C" void four_two(long n, int threads, const float* __restrict b, const float* __restrict c,
                         const float* __restrict d, const float* __restrict e, float* __restrict a,
                         float* __restrict f) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (long i = 0; i < n; ++i) {
        a[i] = b[i] + 3.0f * c[i];
        f[i] = d[i] + 3.0f * e[i];
    }
}

#ifdef __AVX__
typedef float vector __attribute__((vector_size(32), aligned(4)));
#else
typedef float vector __attribute__((vector_size(16), aligned(4)));
#endif

// Any proportion: read `reads` and write `writes` times `size` floats, both in the order of their addresses.
extern "C" void mix(long size, int reads, int writes, int threads, const float* in, float* out) {
    constexpr int width = 4 * sizeof(vector) / sizeof(float);
    const long blocks = size / width;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long block = 0; block < blocks; ++block) {
        const vector* from = reinterpret_cast<const vector*>(in + block * reads * width);
        vector* to = reinterpret_cast<vector*>(out + block * writes * width);
        vector a = from[0], b = from[1], c = from[2], d = from[3];
        for (int k = 1; k < reads; ++k) {
            from += 4;
            a += from[0], b += from[1], c += from[2], d += from[3];
        }
        for (int k = 0; k < writes; ++k, to += 4) to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    }
}
