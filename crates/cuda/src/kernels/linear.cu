// A matrix, or one small matrix a head, over rows: out[i][h][n] = W_h[n] . x[i][h] (+ bias[n]).
// W [HEADS][OUTS] rows of ROW_BYTES in the file's format; x [rows][HEADS][COLS] f32, or rounded as quantize.cu says;
// out [rows][HEADS][OUTS] f32. ANSWER: only the rows that want an answer, one behind the other.
// Grid: OUTS / 8 rounded up, rows / TILE rounded up, HEADS; 256 threads, a warp for a row of W and TILE rows of x.
// Bytes: W once for each TILE rows.
#include "common/dot.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const u8* w, const void* x, const float4* s, const float* bias, float* out) {
    int n = blockIdx.x * 8 + threadIdx.x / 32, head = blockIdx.z;
    int first = blockIdx.y * TILE, count = ANSWER ? step_wanted(step) : step_rows(step);
    if (n >= OUTS || first >= count) return;
    Input input[TILE];
    float sum[TILE];
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        // beyond the last row the last one is taken again, and what comes of it left
        int i = min(first + t, count - 1);
        int row = ANSWER ? step_wanted_row(step, i) : i;
        input[t] = input_row(x, s, (u64)row * HEADS + head);
        sum[t] = 0;
    }
    lane_dots<TILE>(w + ((u64)head * OUTS + n) * ROW_BYTES, input, sum);
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        float v = warp_sum(sum[t]);
        if (threadIdx.x % 32 == 0 && first + t < count) {
            out[((u64)(first + t) * HEADS + head) * OUTS + n] = BIAS ? v + bias[n] : v;
        }
    }
}
