// What a rank adds to a sum of the library, as bf16, and the sum as f32 again.
// x, y (where ADDENDS is 2: the summand is x + y) [rows][WIDTH] f32 and out [rows][WIDTH] bf16; where ADDENDS is 0, x is bf16 and out f32.
// Grid: WIDTH / 256 rounded up, 1, rows; 256 threads. Bytes: 6 a element, of two addends 10.
#include "common/overlap.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const void* x, const float* y, void* out) {
    int rows = rows_in_turn(step);
    int k = blockIdx.x * 256 + threadIdx.x;
    if (blockIdx.z >= rows || k >= WIDTH) return;
    u64 at = (u64)blockIdx.z * WIDTH + k;
    if (ADDENDS == 0) {
        ((float*)out)[at] = bf16_to_float(((const u16*)x)[at]);
    } else {
        float v = ((const float*)x)[at];
        if (ADDENDS == 2) v += y[at];
        ((u16*)out)[at] = float_to_bf16(v);
    }
}
