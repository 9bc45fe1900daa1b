// The first half of the chosen experts: out[i][j][n] = silu(gate_e[n] . x[i]) * (up_e[n] . x[i]) for the j-th expert e of
// row i, or one product alone where the two weights differ in type.
// gate, up [COPIES][OUTS] rows of ROW_BYTES in the file's format, of the experts from FIRST on; x [rows][COLS] f32, or rounded as
// quantize.cu says; picked [rows][2 USED] as route.cu leaves it; out [rows][USED][OUTS] f32, untouched for experts held elsewhere.
// Grid: OUTS / 8 rounded up, USED, rows; 256 threads, a warp for a row of both. Bytes: the chosen experts' weights once a row.
#include "common/dot.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* picked, const u8* gate, const u8* up, const void* x, const float4* s, float* out) {
    int i = blockIdx.z, j = blockIdx.y, n = blockIdx.x * 8 + threadIdx.x / 32;
    if (i >= step_rows(step) || n >= OUTS) return;
    int e = (int)picked[(u64)i * 2 * USED + j] - FIRST;
    if (e < 0 || e >= COPIES) return;
    u64 row = ((u64)e * OUTS + n) * ROW_BYTES;
    Input input[1] = {input_row(x, s, i)};
    float a[1] = {0}, b[1] = {0};
    lane_dots<1>(gate + row, input, a);
    if (PAIR) lane_dots<1>(up + row, input, b);
    float v = warp_sum(a[0]);
    if (PAIR) v = v / (1 + expf(-v)) * warp_sum(b[0]);
    if (threadIdx.x % 32 == 0) out[((u64)i * USED + j) * OUTS + n] = v;
}
