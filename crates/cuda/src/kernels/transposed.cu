// One small matrix a head, the other way round: out[i][h][n] = sum over k of W_h[k][n] x[i][h][k].
// W [HEADS][COLS] rows of ROW_BYTES, OUTS elements each, in the file's format; x [rows][HEADS][COLS], out [rows][HEADS][OUTS] f32.
// Grid: HEADS, 1, rows; 256 threads, one for 32 elements of out. An old layout of files: correct, not fast.
#include "common/overlap.cuh"
#include "common/quant.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const u8* w, const float* x, float* out) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z, head = blockIdx.x;
    if (i >= rows) return;
    const float* in = x + ((u64)i * HEADS + head) * COLS;
    float* to = out + ((u64)i * HEADS + head) * OUTS;
    const u8* first = w + (u64)head * COLS * ROW_BYTES;
#if QUANT_PLAIN
    for (int n = threadIdx.x; n < OUTS; n += 256) {
        float sum = 0;
        for (int k = 0; k < COLS; k++) sum += plain_at(first + (u64)k * ROW_BYTES, n) * in[k];
        to[n] = sum;
    }
#else
    for (int group = threadIdx.x; group < OUTS / 32; group += 256) {
        float sum[32];
#pragma unroll
        for (int j = 0; j < 32; j++) sum[j] = 0;
        for (int k = 0; k < COLS; k++) {
            Codes c;
            codes(first + (u64)k * ROW_BYTES, group, c);
#pragma unroll
            for (int j = 0; j < 32; j++) {
                sum[j] += (c.s[j / 16] * (float)(i8)(c.q[j / 4] >> 8 * (j % 4)) + c.m[j / 16]) * in[k];
            }
        }
#pragma unroll
        for (int j = 0; j < 32; j++) to[32 * group + j] = sum[j];
    }
#endif
}
