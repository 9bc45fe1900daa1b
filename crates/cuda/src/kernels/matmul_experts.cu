// One half of the chosen experts for many rows, by tensor cores (common/tiles.cuh): for ask number a of expert e (group.cu) out[a][n] =
// W_e[n] . x[a / PER]. PART: what `tile_part` takes: of the first half gated, and x a row's, so that PER is its asks; of the
// second plain, and x an ask's. W [COPIES][Outs] rows in the file's format, `second` those of the gate's other half; x rounded at xq
// and xs (common/round.cuh); out f32, or rounded at q and s. What belongs to asks of experts held elsewhere is untouched.
// Grid: any number; 256 threads. Blocks take tiles in turn, those of SPAN outputs after each other, so that one expert's weights
// are read at one time. Bytes: the chosen experts' weights once for TILE asks. Operations: 2 cols an ask and output.
#include "common/overlap.cuh"
#include "common/step.cuh"
#include "common/tiles.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    run(const int* asks, const int4* tiles, const u8* w, const void* second, const i8* xq, const float4* xs, float* out, i8* q,
        float4* s) {
    in_turn();
    __shared__ __align__(128) Tile tile;
    int all = tiles[0].x * BLOCKS;
#pragma unroll 1
    for (int work = blockIdx.x; work < all; work += gridDim.x) {
        int4 of = tiles[1 + work / BLOCKS];
        for (int t = threadIdx.x; t < TILE; t += 256) {
            int ask = t < of.z ? asks[of.y + t] : -1;
            tile.from[t] = ask < 0 ? -1 : ask / PER;
            tile.to[t] = ask;
        }
        __syncthreads();
        tile_part<PART>(tile, work % BLOCKS, of.x, w, second, {xq, xs}, (of.z + 15) / 16, {out, q, s});
        __syncthreads();
    }
}
