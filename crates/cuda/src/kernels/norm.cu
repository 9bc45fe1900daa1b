// Norms. RMS: each run of WIDTH, x / sqrt(mean(x^2) + EPS) * w. Otherwise (x - mean) / sqrt(var + EPS) * w + b.
// x, out [rows][RUNS][WIDTH] f32; w, b [WIDTH] f32. A row that holds a NaN or an infinity has `spoiled` lowered to `op`.
// Grid: RUNS, 1, rows; 256 threads. Bytes: 8 a element.
#include "common/reduce.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* x, const float* w, const float* b, float* out, int* spoiled,
        const int* op) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    u64 at = ((u64)i * RUNS + blockIdx.x) * WIDTH;
    x += at;
    out += at;
    float mean = 0, square = 0;
#if !RMS
    float sum = 0;
    for (int k = threadIdx.x; k < WIDTH; k += 256) sum += x[k];
    mean = block_sum<256>(sum) / WIDTH;
#endif
    bool bad = false;
    for (int k = threadIdx.x; k < WIDTH; k += 256) {
        float v = x[k] - mean;
        square += v * v;
        bad |= !(fabsf(x[k]) < __int_as_float(0x7f800000));
    }
    if (bad) atomicMin(spoiled + i, *op);
    float root = sqrtf(block_sum<256>(square) / WIDTH + EPS);
    for (int k = threadIdx.x; k < WIDTH; k += 256) {
        float v = (x[k] - mean) / root * w[k];
        out[k] = RMS ? v : v + b[k];
    }
}
