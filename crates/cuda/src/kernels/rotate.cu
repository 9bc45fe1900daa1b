// Rotary position embedding of the first ROTATED elements of each head; the rest passes. The angle of pair p is
// position x freqs[p] (divided by divisors[p] where DIVISORS).
// x, out [rows][HEADS][WIDTH], freqs and divisors [ROTATED / 2] f32. INTERLEAVED: a pair is two neighbours, otherwise
// elements p and p + ROTATED / 2. Grid: HEADS, 1, rows; 128 threads. Bytes: 8 a element.
#include "common/overlap.cuh"
#include "common/rotate.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(128)
    run(const int* step, const float* x, const float* freqs, const float* divisors, float* out) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z;
    if (i >= rows) return;
    u64 at = ((u64)i * HEADS + blockIdx.x) * WIDTH;
    x += at;
    out += at;
    for (int k = ROTATED + threadIdx.x; k < WIDTH; k += 128) out[k] = x[k];
    for (int p = threadIdx.x; p < ROTATED / 2; p += 128) {
        float freq = DIVISORS ? freqs[p] / divisors[p] : freqs[p];
        int a = INTERLEAVED ? 2 * p : p, b = INTERLEAVED ? 2 * p + 1 : p + ROTATED / 2;
        float2 turned = rotated(x[a], x[b], (float)step_position(step, i) * freq, MAGNITUDE);
        out[a] = turned.x;
        out[b] = turned.y;
    }
}
