// A 64-bit hash of rows of WIDTH words, one row behind the other, added to `out`: every word times an odd number that
// tells its place, in any order, as `hash.rs` of the crate `model` has it.
// Grid: any number of blocks, 1, 1; 256 threads. Bytes: 4 a word.
#include "common/overlap.cuh"
#include "common/types.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const u32* rows, const u32* words, u64* out) {
    in_turn();
    u64 count = (u64)rows[0] * WIDTH, sum = 0;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < count; i += (u64)gridDim.x * 256) {
        u64 k = (i + 1) * 0x9e3779b97f4a7c15ull;
        sum += (u64)words[i] * ((u32)(k ^ k >> 32) | 1);
    }
    __shared__ u64 part[256];
    part[threadIdx.x] = sum;
    for (int o = 128; o > 0; o >>= 1) {
        __syncthreads();
        if (threadIdx.x < o) part[threadIdx.x] += part[threadIdx.x + o];
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
