// What the chosen experts give a row, weighed and added in the order of `picked`: out[i][n] = sum over j of weight_j part[i][j][n], of
// experts held here, COPIES from FIRST on. BESIDE: and then + beside[i][n]. part [rows][USED][WIDTH] f32, picked
// [rows][2 USED] as common/route.cuh leaves it, beside and out [rows][WIDTH] f32.
// Grid: WIDTH / 256 rounded up, 1, rows; 256 threads. Bytes: 4 an expert and element, 4 written.
#include "common/overlap.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* picked, const float* part, const float* beside, float* out) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z, n = blockIdx.x * 256 + threadIdx.x;
    if (i >= rows || n >= WIDTH) return;
    picked += (u64)i * 2 * USED;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < USED; j++) {
        int e = (int)picked[j] - FIRST;
        if (e >= 0 && e < COPIES) sum = fmaf(picked[USED + j], part[((u64)i * USED + j) * WIDTH + n], sum);
    }
    if (BESIDE) sum += beside[(u64)i * WIDTH + n];
    out[(u64)i * WIDTH + n] = sum;
}
