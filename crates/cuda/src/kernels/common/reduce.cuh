// Sums and maxima over a warp and a block, in one order whatever runs beside them. Every thread gets the result.
#include "common/types.cuh"

#ifndef EMULATED

DI float warp_sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

DI float warp_max(float v) {
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

#endif

// Over Lanes lanes in a row, a power of two.
template <int Lanes>
DI float lanes_sum(float v) {
    if constexpr (Lanes == 32) {
        return warp_sum(v);
    } else {
#pragma unroll
        for (int o = Lanes / 2; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
        return v;
    }
}

// What the warps of a block have found, folded in their order; ends with a barrier.
template <int THREADS, class F>
DI float fold(float v, F f) {
    __shared__ float part[THREADS / 32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float all = part[0];
    for (int i = 1; i < THREADS / 32; i++) all = f(all, part[i]);
    __syncthreads();
    return all;
}

// Over all THREADS of the block.
template <int THREADS>
DI float block_sum(float v) {
    return fold<THREADS>(warp_sum(v), [](float a, float b) { return a + b; });
}

template <int THREADS>
DI float block_max(float v) {
    return fold<THREADS>(warp_max(v), [](float a, float b) { return fmaxf(a, b); });
}
