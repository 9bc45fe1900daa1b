// Matrices over the same rows, or one small matrix a head: out[i][h][n] = W_h[n] . x[i][h] (+ bias[n]).
// W [HEADS][n] rows of ROW_BYTES in the file's format; x [rows][HEADS][COLS] f32, or rounded (common/round.cuh);
// out [rows][HEADS][n] f32. With PARTS > 1, at most 4, there are as many matrices with outputs of their own, matrix p from row
// ENDS[p - 1] to ENDS[p] of all. PAIR: two matrices make one output, silu(a) * b. ANSWER: only the rows that want an
// answer, one behind the other. Each matrix has its w, bias and out.
// Grid: outputs / 8 rounded up, rows / TILE rounded up, HEADS; 256 threads, a warp for a row of W and TILE rows of x.
// Bytes: W once for each TILE rows.
#include "common/dot.cuh"
#include "common/step.cuh"

DI int part_of(int n) {
    const int ends[] = {ENDS};
    int part = 0;
#pragma unroll
    for (int p = 0; p < PARTS - 1; p++) part += n >= ends[p];
    return part;
}

template <class T>
DI T* of(int part, T* a, T* b, T* c, T* d) {
    return PARTS == 1 || part == 0 ? a : part == 1 ? b : part == 2 ? c : d;
}

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const void* x, const float4* s, const u8* w0, const u8* w1, const u8* w2, const u8* w3,
        const float* b0, const float* b1, const float* b2, const float* b3, float* o0, float* o1, float* o2, float* o3) {
    const int ends[] = {ENDS};
    int n = blockIdx.x * 8 + threadIdx.x / 32, head = blockIdx.z, outs = ends[0];
    int first = blockIdx.y * TILE, count = ANSWER ? step_wanted(step) : step_rows(step);
    if (n >= ends[PARTS - 1] || first >= count) return;
    int part = part_of(n);
#pragma unroll
    for (int p = PARTS - 1; p > 0; p--) {
        if (part == p) {
            outs = ends[p] - ends[p - 1];
            n -= ends[p - 1];
        }
    }
    Input input[TILE];
    float sum[TILE], other[TILE];
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        // beyond the last row the last one is taken again, and what comes of it left
        int i = min(first + t, count - 1);
        int row = ANSWER ? step_wanted_row(step, i) : i;
        input[t] = input_row(x, s, (u64)row * HEADS + head);
        sum[t] = other[t] = 0;
    }
    u64 at = ((u64)head * outs + n) * ROW_BYTES;
    lane_dots<TILE>(of(part, w0, w1, w2, w3) + at, input, sum);
    if (PAIR) lane_dots<TILE>(w1 + at, input, other);
    float* out = of(part, o0, o1, o2, o3);
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        float v = warp_sum(sum[t]);
        if (PAIR) v = v / (1 + expf(-v)) * warp_sum(other[t]);
        if (BIAS) v += of(part, b0, b1, b2, b3)[n];
        if (threadIdx.x % 32 == 0 && first + t < count) out[((u64)(first + t) * HEADS + head) * outs + n] = v;
    }
}
