// Joins the parts of an attention (common/merge.cuh), as attend.cu leaves them; out [rows][HEADS][VALUE] f32. ROUND: the
// output comes rounded (common/round.cuh), and as it is only where there is an out.
// Grid: HEADS, VALUE / 32 rounded up, rows; 256 threads: an element a lane, a share of the parts a warp. WIDE, where parts are
// few and rows many: VALUE / 256, an element a thread, which adds all shares.
// Bytes: 4 VALUE a part with keys, head and row.
#include "common/merge.cuh"
#include "common/overlap.cuh"
#include "common/round.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* part, float* out, i8* q, float4* s) {
    int i = blockIdx.z, lane = threadIdx.x % 32, keys = i < step_rows(step) ? attended(step, i, KEEP) : 0;
    int k = WIDE ? 256 * blockIdx.y + threadIdx.x : 32 * blockIdx.y + lane;
    in_turn();
    if (keys == 0) return;
    __shared__ float weights[PARTS];
    Merge<PARTS, VALUE> merge;
    merge.begin(part, keys, i, HEADS, blockIdx.x);
    merge.weigh(weights);
    __syncthreads();
#if WIDE
    if (k - lane >= VALUE) return;
    float v = k < VALUE ? merge.share(k, 0) : 0;
#pragma unroll
    for (int n = 1; n < SHARES; n++) v += k < VALUE ? merge.share(k, n) : 0;
#else
    int warp = threadIdx.x / 32;
    __shared__ float shares[SHARES][32];
    float v = k < VALUE ? merge.share(k, warp) : 0;
    shares[warp][lane] = v;
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int n = 1; n < SHARES; n++) v += shares[n][lane];
#endif
    v /= merge.total;
    u64 row = (u64)i * HEADS + blockIdx.x;
    if (out && k < VALUE) out[row * VALUE + k] = v;
#if ROUND
    u64 group = row * VALUE + k - lane;
    round_warp(v, q + group, s + group / 32);
#endif
}
