// The KEEP best positions of each row by score: larger first, then lower position; written ascending, as numbers. Rows
// with no more than KEEP positions keep all; the rest of their list is -1.
// score [rows][CONTEXT], out [rows][KEEP] f32. Grid: 1, 1, rows; 512 threads. Bytes: a row's scores five times.
#include "common/select.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(512) run(const int* step, const float* score, float* out) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    int count = step_position(step, i) + 1;
    score += (u64)i * CONTEXT;
    out += (u64)i * KEEP;
    for (int n = count + threadIdx.x; n < KEEP; n += 512) out[n] = -1;
    each_kept<512>(count, KEEP, [=](int t) { return ordered(score[t]); }, [=](int n, int t) { out[n] = (float)t; });
}
