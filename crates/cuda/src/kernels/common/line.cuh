// Runs of a row on their way from a projection to where they are wanted: normed, rotated, then a value of their own or a
// part of a cache line. What attention needs beside its matrices, in blocks that ride with a launch.
#include "common/cache.cuh"
#include "common/norm.cuh"
#include "common/rotate.cuh"

#define LINE_RMS 1
#define LINE_LAYER 2
// Addresses that come with a line: input, weight and bias of the norm, frequencies and their divisors, where it goes,
// where a spoiled row is noted and as which op.
#define LINE_ARGS 8

// Run r of row i: Width elements from In + r InUnit on of a row of InRow, to Out + r OutUnit on of one of OutRow, which is
// the line of the row's position where Cached. Norm: none or one of the above. Rotated: so many elements from the first
// on turn, Interleaved as in rotate.cu, by divided frequencies where Divided. Eps and Magnitude are bits of floats.
template <int Runs, int Width, int InRow, int InUnit, int In, int Norm, u32 Eps, int Rotated, bool Interleaved, bool Divided,
          u32 Magnitude, bool Cached, int OutRow, int OutUnit, int Out>
struct Line {
    enum { runs = Runs };

    static DI float turned(const float* row, int k, int position, const float* freqs, const float* divisors) {
        int p = Interleaved ? k / 2 : k % (Rotated > 1 ? Rotated / 2 : 1);
        int a = Interleaved ? 2 * p : p, b = Interleaved ? 2 * p + 1 : p + Rotated / 2;
        float freq = Divided ? freqs[p] / divisors[p] : freqs[p];
        float2 pair = rotated(row[a], row[b], (float)position * freq, __uint_as_float(Magnitude));
        return k == a ? pair.x : pair.y;
    }

    template <int Threads>
    static DI void make(const int* step, int i, int r, const void* const* args) {
        // all but the row is known while earlier kernels run
        const float *x = (const float*)args[0] + (u64)i * InRow + r * InUnit + In, *freqs = (const float*)args[3];
        const float* divisors = (const float*)args[4];
        void* out = (void*)args[5];
        int position = step_position(step, i);
        u64 line = Cached ? cache_line(step_table(step, i), position) : (u64)i;
        const int each = (Width + Threads - 1) / Threads;
        float v[1][each];
        auto read = [&]() {
            await_earlier();
#pragma unroll
            for (int e = 0; e < each; e++) v[0][e] = threadIdx.x + Threads * e < Width ? x[threadIdx.x + Threads * e] : 0;
        };
        if constexpr (Norm != 0) {
            Affine<Width, Threads, Norm == LINE_RMS> affine((const float*)args[1], (const float*)args[2]);
            read();
            check(v[0], (int*)args[6] + i, *(const int*)args[7]);
            norm(v, __uint_as_float(Eps), affine);
        } else {
            read();
        }
        __shared__ float row[Width];
        __syncthreads();
#pragma unroll
        for (int e = 0; e < each; e++) {
            if (threadIdx.x + Threads * e < Width) row[threadIdx.x + Threads * e] = v[0][e];
        }
        __syncthreads();
        u64 to = line * OutRow + r * OutUnit + Out;
        for (int k = threadIdx.x; k < Width; k += Threads) {
            float y = row[k];
            if (k < Rotated) y = turned(row, k, position, freqs, divisors);
            if (Cached) {
                ((Element*)out)[to + k] = float_to_element(y);
            } else {
                ((float*)out)[to + k] = y;
            }
        }
    }
};

// Makes run `at` of all the runs of some lines; the kernel then has waited for earlier ones.
template <int Threads, class First, class... Rest>
DI void make_line(int at, const int* step, int i, const void* const* args) {
    if (at < First::runs) return First::template make<Threads>(step, i, at, args);
    if constexpr (sizeof...(Rest) > 0) make_line<Threads, Rest...>(at - First::runs, step, i, args + LINE_ARGS);
}
