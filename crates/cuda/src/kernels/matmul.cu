// Matrices over the same many rows, or one small matrix a head, by tensor cores (common/tiles.cuh): out[i][h][n] = W_h[n] .
// x[i][h] (+ bias[n]). There are PARTS matrices, at most 4. PART0 to PART3 are what `tile_part` takes of each, END0 to END3 the
// blocks up to its end; each has its w, a second pointer and its out, and one of them may come rounded, at q and s.
// W [HEADS][Outs] rows in the file's format; x [rows][HEADS][cols] rounded at xq and xs; out [rows][HEADS][Outs] f32.
// ANSWER: only the rows that want an answer, one behind the other.
// Grid: rows / TILE, all parts' Outs / SPAN, HEADS; 256 threads. Bytes: W once, for all tiles that run at a time; x once for
// SPAN outputs. Operations: 2 cols a row and output.
#include "common/overlap.cuh"
#include "common/step.cuh"
#include "common/tiles.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
    run(const int* step, const i8* xq, const float4* xs, const u8* w0, const u8* w1, const u8* w2, const u8* w3, const void* v0,
        const void* v1, const void* v2, const void* v3, float* o0, float* o1, float* o2, float* o3, i8* q, float4* s) {
    in_turn();
    __shared__ __align__(128) Tile tile;
    int first = blockIdx.x * TILE, count = (ANSWER ? step_wanted(step) : step_rows(step)) - first, head = blockIdx.z;
    if (count <= 0) return;
    for (int t = threadIdx.x; t < TILE; t += 256) {
        int i = first + t, row = ANSWER && t < count ? step_wanted_row(step, i) : i;
        tile.from[t] = t < count ? row * HEADS + head : -1;
        tile.to[t] = t < count ? i * HEADS + head : -1;
    }
    __syncthreads();
    Activations x = {xq, xs};
    int b = blockIdx.y, strips = (min(count, TILE) + 15) / 16;
    if (b < END0) {
        tile_part<PART0>(tile, b, head, w0, v0, x, strips, {o0, q, s});
#if PARTS > 1
    } else if (b < END1) {
        tile_part<PART1>(tile, b - END0, head, w1, v1, x, strips, {o1, q, s});
#endif
#if PARTS > 2
    } else if (b < END2) {
        tile_part<PART2>(tile, b - END1, head, w2, v2, x, strips, {o2, q, s});
#endif
#if PARTS > 3
    } else {
        tile_part<PART3>(tile, b - END2, head, w3, v3, x, strips, {o3, q, s});
#endif
    }
}
