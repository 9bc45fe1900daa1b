// Norms (common/norm.cuh) of each run of WIDTH: RMS or layer norm; with ADDENDS the stream is added up first.
// x, out [rows][RUNS][WIDTH] f32; w, b [WIDTH] f32. A row that holds a NaN or an infinity has `spoiled` lowered to `op`.
// Grid: RUNS, 1, rows; BLOCK threads. Bytes: 8 an element, 4 for each addend, 1.5 rounded.
#include "common/norm.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
    run(const int* step, float* x, const float* w, const float* b, float* out, int* spoiled, const int* op,
        const float* first, const float* second, const float* third, i8* q, float4* s) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    Stream of = {x, w, b, out, spoiled, op, first, second, third, q, s};
    norm_row<WIDTH, BLOCK, RMS, true, ADDENDS, ROUND>(of, i, ((u64)i * RUNS + blockIdx.x) * WIDTH, EPS);
}
