// Norms. RMS: each run of WIDTH, x / sqrt(mean(x^2) + EPS) * w. Otherwise (x - mean) / sqrt(var + EPS) * w + b.
// x, out [rows][RUNS][WIDTH] f32; w, b [WIDTH] f32. A row that holds a NaN or an infinity has `spoiled` lowered to `op`.
// ADDENDS = 2 or 3: first x = first + (second + third), which is the stream with what was added to it. ROUND: the output
// also comes rounded (common/round.cuh).
// A thread holds its elements in registers, so that all loads are under way together.
// Grid: RUNS, 1, rows; BLOCK threads. Bytes: 8 an element, 4 for each addend, 1.5 rounded.
#include "common/round.cuh"
#include "common/step.cuh"

#define EACH ((WIDTH + BLOCK - 1) / BLOCK)

extern "C" __global__ void __launch_bounds__(BLOCK)
    run(const int* step, float* x, const float* w, const float* b, float* out, int* spoiled, const int* op,
        const float* first, const float* second, const float* third, i8* q, float4* s) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    u64 at = ((u64)i * RUNS + blockIdx.x) * WIDTH;
    float v[EACH], scale[EACH], sum = 0, square = 0, mean = 0;
    bool bad = false;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int k = threadIdx.x + BLOCK * e;
        bool in = k < WIDTH;
        scale[e] = in ? w[k] : 0;
#if ADDENDS
        float added = in ? second[at + k] : 0;
        if (ADDENDS > 2 && in) added += third[at + k];
        v[e] = in ? first[at + k] + added : 0;
#else
        v[e] = in ? x[at + k] : 0;
#endif
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (ADDENDS && threadIdx.x + BLOCK * e < WIDTH) x[at + threadIdx.x + BLOCK * e] = v[e];
        bad |= !(fabsf(v[e]) < INFINITY_F);
        sum += v[e];
    }
    if (bad) atomicMin(spoiled + i, *op);
    if (!RMS) mean = block_sum<BLOCK>(sum) / WIDTH;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        float off = threadIdx.x + BLOCK * e < WIDTH ? v[e] - mean : 0;
        square += off * off;
    }
    float root = sqrtf(block_sum<BLOCK>(square) / WIDTH + EPS);
    // when the sum is there, all has been read: the output may lie where an addend lay
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int k = threadIdx.x + BLOCK * e;
        if (k >= WIDTH) break;
        float y = (v[e] - mean) / root * scale[e];
        if (!RMS) y += b[k];
        out[at + k] = y;
#if ROUND
        u64 group = at + k - threadIdx.x % 32;
        round_warp(y, q + group, s + group / 32);
#endif
    }
}
