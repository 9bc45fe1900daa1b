// The second half of the chosen experts: out[i][n] = sum over j of weight_j (down_e[n] . act[i][j]), in the order of
// `picked`; zero where no chosen expert is held here.
// down [COPIES][OUTS] rows of ROW_BYTES in the file's format, of the experts from FIRST on; act [rows][USED][COLS] f32, or rounded
// as quantize.cu says; picked [rows][2 USED]; out [rows][OUTS] f32.
// Grid: OUTS / 8 rounded up, 1, rows; 256 threads, a warp for a row. Bytes: the chosen experts' weights once a row.
#include "common/dot.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* picked, const u8* down, const void* act, const float4* s, float* out) {
    int i = blockIdx.z, n = blockIdx.x * 8 + threadIdx.x / 32;
    if (i >= step_rows(step) || n >= OUTS) return;
    picked += (u64)i * 2 * USED;
    float sum = 0;
    for (int j = 0; j < USED; j++) {
        int e = (int)picked[j] - FIRST;
        if (e < 0 || e >= COPIES) continue;
        Input input[1] = {input_row(act, s, (u64)i * USED + j)};
        float v[1] = {0};
        lane_dots<1>(down + ((u64)e * OUTS + n) * ROW_BYTES, input, v);
        sum += picked[USED + j] * warp_sum(v[0]);
    }
    if (threadIdx.x % 32 == 0) out[(u64)i * OUTS + n] = sum;
}
