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

// Over all THREADS of the block; ends with a barrier.
template <int THREADS>
DI float block_sum(float v) {
    __shared__ float part[THREADS / 32];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    __syncthreads();
    return sum;
}

template <int THREADS>
DI float block_max(float v) {
    __shared__ float part[THREADS / 32];
    v = warp_max(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float most = part[0];
    for (int i = 1; i < THREADS / 32; i++) most = fmaxf(most, part[i]);
    __syncthreads();
    return most;
}
