// Elements moved: LEN elements from FROM on of each run of UNIT, to TO on of each run of OUT_UNIT.
// x [rows][RUNS][UNIT], out [rows][RUNS][OUT_UNIT] f32.
// Grid: RUNS x LEN / 256 rounded up, 1, rows; 256 threads. Bytes: 8 a element moved.
#include "common/overlap.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* x, float* out) {
    int rows = rows_in_turn(step);
    int at = blockIdx.x * 256 + threadIdx.x;
    if (blockIdx.z >= rows || at >= RUNS * LEN) return;
    int r = at / LEN, k = at % LEN;
    u64 first = (u64)blockIdx.z * RUNS + r;
    out[first * OUT_UNIT + TO + k] = x[first * UNIT + FROM + k];
}
