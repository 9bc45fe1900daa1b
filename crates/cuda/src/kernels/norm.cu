// Norms (common/norm.cuh) of each run of WIDTH: RMS or layer norm; with ADDENDS the stream is added up first.
// x, out [rows][RUNS][WIDTH] f32; w, b [WIDTH] f32. A row that holds a NaN or an infinity has `spoiled` lowered to `op`.
// RECEIVE: what is added is the sum over ranks (common/exchange.cuh), of which `second` (+ `third`) is this rank's summand, pushed
// before.
// SHARES: blocks for a run; each adds up all of it and writes its share.
// Grid: RUNS SHARES, 1, rows; BLOCK threads. Bytes: 8 an element, 4 for each addend, 1.5 rounded.
#include "common/norm.cuh"
#include "common/overlap.cuh"
#if RECEIVE
#include "common/exchange.cuh"
#define ADDED 2
#else
#define ADDED ADDENDS
#endif
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    run(const int* step, float* x, const float* w, const float* b, float* out, int* spoiled, const int* op,
        const float* first, const float* second, const float* third, i8* q, float4* s, void* inbox, void* wait) {
#if RECEIVE
    // in registers they would be in the way of what comes
    fetch_ahead(w, 4 * WIDTH);
#else
    Affine<WIDTH, BLOCK, RMS> affine(w, b, SHARES == 1 ? -1 : (int)(blockIdx.x % SHARES));
#endif
    int rows = rows_in_turn(step);
    int i = blockIdx.z;
    if (i >= rows) return;
    u64 at = ((u64)i * RUNS + blockIdx.x / SHARES) * WIDTH;
#if RECEIVE
    __shared__ __align__(16) float total[WIDTH];
    u64 base = at / VEC;
    receive_packets<ADDENDS == 3>(second, third, (uint4*)inbox, base + threadIdx.x, BLOCK, base + WIDTH / VEC, base, total,
                                  (Wait*)wait, *op);
    __syncthreads();
    second = total - at;
    Affine<WIDTH, BLOCK, RMS> affine(w, b);
#endif
    Stream of = {ADDED > 0 ? first : x, second, third, x, out, spoiled, op, q, s};
    norm_row<WIDTH, BLOCK, RMS, ADDED, ROUND, SHARES == 1>(of, affine, i, at, EPS, blockIdx.x % SHARES);
}
