// Norms. RMS: each run of WIDTH, x / sqrt(mean(x^2) + EPS) * w. Otherwise (x - mean) / sqrt(var + EPS) * w + b.
// x, out [rows][RUNS][WIDTH] f32; w, b [WIDTH] f32. A row that holds a NaN or an infinity has `spoiled` lowered to `op`.
// ADDENDS = 2 or 3: first x = first + (second + third), which is the stream with what was added to it. ROUND: the output
// also comes rounded (common/round.cuh).
// Grid: RUNS, 1, rows; 256 threads. Bytes: 8 an element, 4 for each addend, 1.5 rounded.
#include "common/round.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, float* x, const float* w, const float* b, float* out, int* spoiled, const int* op,
        const float* first, const float* second, const float* third, i8* q, float4* s) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    u64 at = ((u64)i * RUNS + blockIdx.x) * WIDTH;
    x += at;
    float mean = 0, square = 0;
    bool bad = false;
#if ADDENDS
    for (int k = threadIdx.x; k < WIDTH; k += 256) {
        float v = second[at + k];
        if (ADDENDS > 2) v += third[at + k];
        x[k] = first[at + k] + v;
    }
#endif
#if !RMS
    float sum = 0;
    for (int k = threadIdx.x; k < WIDTH; k += 256) sum += x[k];
    mean = block_sum<256>(sum) / WIDTH;
#endif
    for (int k = threadIdx.x; k < WIDTH; k += 256) {
        float v = x[k] - mean;
        square += v * v;
        bad |= !(fabsf(x[k]) < INFINITY_F);
    }
    if (bad) atomicMin(spoiled + i, *op);
    float root = sqrtf(block_sum<256>(square) / WIDTH + EPS);
    // when the sum is there, all has been read: the output may lie where an addend lay
    for (int k = threadIdx.x; k < WIDTH; k += 256) {
        float v = (x[k] - mean) / root * w[k];
        if (!RMS) v += b[k];
        out[at + k] = v;
#if ROUND
        u64 group = at + k - threadIdx.x % 32;
        round_warp(v, q + group, s + group / 32);
#endif
    }
}
