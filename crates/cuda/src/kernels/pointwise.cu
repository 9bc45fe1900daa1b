// Element by element: silu(a) * b, a + b, or a (a copy).
// a, b, out [rows][WIDTH] f32. Grid: WIDTH / 256 rounded up, 1, rows; 256 threads. Bytes: 12 a element, a copy 8.
#include "common/overlap.cuh"
#include "common/step.cuh"

#define SWIGLU 0
#define ADD 1
#define COPY 2

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* a, const float* b, float* out) {
    int rows = rows_in_turn(step);
    int k = blockIdx.x * 256 + threadIdx.x;
    if (blockIdx.z >= rows || k >= WIDTH) return;
    u64 at = (u64)blockIdx.z * WIDTH + k;
    float v = a[at];
    if (WHAT == SWIGLU) v = v / (1 + expf(-v)) * b[at];
    if (WHAT == ADD) v += b[at];
    out[at] = v;
}
