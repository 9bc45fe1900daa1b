// Groups what the rows of a step ask of experts by expert, for matmul_experts.cu. An ask is number i * USED + j: the j-th expert
// of row i. picked [rows][2 USED] as common/route.cuh leaves it; held are COPIES experts from FIRST on.
// asks: those of held experts, one expert's behind another's, in any order. tiles: how many there are, then for each
// {expert, place of its first ask, asks, 0}: an expert's asks, TILE at a time.
// Grid: one block; 1024 threads. Bytes: twice 4 an ask, and 4 written.
#include "common/overlap.cuh"
#include "common/step.cuh"

DI int asked(const float* picked, int ask) { return (int)picked[(u64)(ask / USED) * 2 * USED + ask % USED] - FIRST; }

extern "C" __global__ void __launch_bounds__(1024) run(const int* step, const float* picked, int* asks, int4* tiles) {
    __shared__ int count[COPIES], next[COPIES];
    int all = rows_in_turn(step) * USED;
    for (int e = threadIdx.x; e < COPIES; e += 1024) count[e] = 0;
    __syncthreads();
    for (int n = threadIdx.x; n < all; n += 1024) {
        int e = asked(picked, n);
        if (e >= 0 && e < COPIES) atomicAdd(&count[e], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < COPIES; e += 1024) {
        int place = 0, tile = 1;
        for (int before = 0; before < e; before++) {
            place += count[before];
            tile += (count[before] + TILE - 1) / TILE;
        }
        next[e] = place;
        for (int done = 0; done < count[e]; done += TILE) {
            tiles[tile++] = make_int4(e, place + done, min(TILE, count[e] - done), 0);
        }
        if (e == COPIES - 1) tiles[0] = make_int4(tile - 1, 0, 0, 0);
    }
    __syncthreads();
    for (int n = threadIdx.x; n < all; n += 1024) {
        int e = asked(picked, n);
        if (e >= 0 && e < COPIES) asks[atomicAdd(&next[e], 1)] = n;
    }
}
