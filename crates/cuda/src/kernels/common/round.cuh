// Rounding to 8 bits: 32 elements, one a lane, share a scale of their largest magnitude / 127. Beside the codes lies, for
// each 32, {scale, scale x sum of the first 16 codes, of the last 16, 0}.
#include "common/reduce.cuh"

// The lanes of a warp round their elements; q and s are those of the first.
DI void round_warp(float v, i8* q, float4* s) {
    int lane = threadIdx.x % 32;
    float most = warp_max(fabsf(v)), scale = most / 127.0f;
    int code = most > 0 ? __float2int_rn(v * (127.0f / most)) : 0;
    q[lane] = (i8)code;
    int sum = code;
    for (int o = 8; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    int other = __shfl_xor_sync(~0u, sum, 16);
    if (lane == 0) *s = make_float4(scale, scale * (float)sum, scale * (float)other, 0);
}
