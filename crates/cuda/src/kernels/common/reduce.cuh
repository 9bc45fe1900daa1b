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

// The least power of two that is not below n.
DI constexpr int power_of_two(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

// The same of Count numbers at once, a power of two of at most Lanes, in as many steps: lanes hand half of what they have to each other, so
// that in the end the n-th sum is with the n-th of Count runs of lanes. Each is added as `lanes_sum` does it.
template <int Lanes, int Count>
DI float lanes_sums(float (&v)[Count]) {
    int left = Count;
#pragma unroll
    for (int o = Lanes / 2; o > 0; o >>= 1) {
        if (left == 1) {
            v[0] += __shfl_xor_sync(~0u, v[0], o);
            continue;
        }
        left /= 2;
        bool high = threadIdx.x & o;
#pragma unroll
        for (int n = 0; n < Count / 2; n++) {
            if (n >= left) break;
            float keep = high ? v[n + left] : v[n], hand = high ? v[n] : v[n + left];
            v[n] = keep + __shfl_xor_sync(~0u, hand, o);
        }
    }
    return v[0];
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
