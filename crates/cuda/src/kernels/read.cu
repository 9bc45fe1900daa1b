// Memory that is only read: how fast that is, other kernels are measured by. Each thread adds up what it has read, so that no
// load can be left out.
// from: ROUNDS times PIECES pieces of 16 bytes for each thread of the grid; sums: a word for each thread.
// Grid: some blocks a multiprocessor, 1, 1; 512 threads. Bytes: 16 a piece.
#include "common/overlap.cuh"

#define PIECES 4

extern "C" __global__ void __launch_bounds__(512) run(const uint4* from, u32* sums) {
    in_turn();
    u64 at = (u64)blockIdx.x * 512 + threadIdx.x, threads = (u64)gridDim.x * 512;
    u32 sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint4 v[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; i++) v[i] = from[at + ((u64)round * PIECES + i) * threads];
#pragma unroll
        for (int i = 0; i < PIECES; i++) sum += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    sums[at] = sum;
}
