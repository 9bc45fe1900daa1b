// Rounds rows to 8 bits: 32 elements share a scale of their largest magnitude / 127.
// x [rows][WIDTH] f32 -> q [rows][WIDTH] int8, s [rows][WIDTH / 32] of {scale, scale x sum of the first 16, of the last 16, 0}.
// Grid: WIDTH / 256 rounded up, 1, rows; 256 threads, a warp for 32 elements. Bytes: 5.5 a element.
#include "common/reduce.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* x, i8* q, float4* s) {
    int i = blockIdx.z, at = blockIdx.x * 256 + threadIdx.x;
    if (i >= step_rows(step) || at >= WIDTH) return;
    float v = x[(u64)i * WIDTH + at];
    float most = warp_max(fabsf(v));
    float scale = most / 127.0f;
    int code = most > 0 ? __float2int_rn(v * (127.0f / most)) : 0;
    q[(u64)i * WIDTH + at] = (i8)code;
    int sum = code;
    for (int o = 8; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    int other = __shfl_xor_sync(~0u, sum, 16);
    if (threadIdx.x % 32 == 0) {
        s[((u64)i * WIDTH + at) / 32] = make_float4(scale, scale * (float)sum, scale * (float)other, 0);
    }
}
