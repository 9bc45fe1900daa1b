// A 64-bit hash of rows of WIDTH words, one row behind the other, added to `out`: every word times an odd number that
// tells its place (common/hash.cuh).
// Grid: any number of blocks, 1, 1; 256 threads. Bytes: 4 a word.
#include "common/hash.cuh"
#include "common/overlap.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const u32* rows, const u32* words, u64* out) {
    in_turn();
    u64 count = (u64)rows[0] * WIDTH, sum = 0;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < count; i += (u64)gridDim.x * 256) {
        sum += words[i] * place(i);
    }
    add_hash(sum, out);
}
