// Rounding to 8 bits: 32 elements, one a lane, share a scale of their largest magnitude / 127. Beside the codes lies, for
// each 16, {scale, scale x sum of the 16 codes}.
#include "common/reduce.cuh"

// The lanes of a warp round their elements; q and s are those of the first.
DI void round_warp(float v, i8* q, float4* s) {
    int lane = threadIdx.x % 32;
    // magnitudes order as their bits do
    float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fabsf(v)))), scale = most / 127.0f;
    int code = most > 0 ? __float2int_rn(v * (127.0f / most)) : 0;
    q[lane] = (i8)code;
    // both sums at once, each of 16 numbers below 256
    u32 sums = __reduce_add_sync(~0u, (u32)(code + 128) << (lane < 16 ? 0 : 16));
    float first = (float)((int)(sums & 0xffff) - 2048), second = (float)((int)(sums >> 16) - 2048);
    if (lane == 0) *s = make_float4(scale, scale * first, scale, scale * second);
}
