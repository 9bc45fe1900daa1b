// The parts of a 64-bit hash that blocks add up in any order, as `hash.rs` of the crate `model` has it.
#include "common/types.cuh"

DI u64 spread(u64 n) {
    n *= 0x9e3779b97f4a7c15ull;
    return n ^ n >> 32;
}

// What a word is multiplied with.
DI u64 place(u64 word) {
    return (u64)((u32)spread(word % 1024 + 1) | 1) * (spread(word / 1024 + 1025) | 1);
}

// Adds the sums of all 256 threads of a block to `out`.
DI void add_hash(u64 sum, u64* out) {
    __shared__ u64 part[256];
    part[threadIdx.x] = sum;
    for (int o = 128; o > 0; o >>= 1) {
        __syncthreads();
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
