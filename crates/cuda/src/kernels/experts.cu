// The first half of the chosen experts: out[i][j][n] = silu(gate_e[n] . x[i]) * (up_e[n] . x[i]) for the j-th expert e of
// row i. gate, up [COPIES][OUTS] rows in the formats m0 and m1, of the experts from FIRST on; x [rows][cols] f32 at x, rounded
// at xq and xs; picked [rows][2 USED] as common/route.cuh leaves it; CHOOSE: each block chooses for itself, from the router's
// logits [rows][EXPERTS] and bias [EXPERTS], and the first writes `picked`; out [rows][USED][OUTS] f32 or, with ROUND, rounded to q and s
// (common/round.cuh); untouched for experts held elsewhere.
// Grid: OUTS / OWN rounded up, USED, rows; BLOCK threads. Bytes: the chosen
// experts' weights once a row.
#include "common/overlap.cuh"
#include "common/round.cuh"
#include "common/route.cuh"
#include "common/side.cuh"
#include "common/step.cuh"

template <class M>
DI typename M::Row row_of(const float* x, const i8* q, const float4* s, u64 i) {
    return M::row(M::rounds ? (const void*)q : x, s, i);
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_HELD)
    run(const int* step, const float* logits, const float* bias, float* picked, const u8* gate, const u8* up, const float* x, const i8* xq, const float4* xs,
        float* out, i8* q, float4* s) {
#if CHOOSE
    fetch_ahead(bias, 4 * EXPERTS);
#endif
    int rows = rows_in_turn(step);
    int i = blockIdx.z, j = blockIdx.y;
    if (i >= rows) return;
    picked += (u64)i * 2 * USED;
#if CHOOSE
    // what a block that chooses for all would take to tell the others is more than this takes
    __shared__ float choice[2 * USED];
    Routing<ROUTING>::choose<BLOCK>(logits + (u64)i * EXPERTS, bias, choice);
    __syncthreads();
    if (blockIdx.x == 0 && j == 0 && threadIdx.x < 2 * USED) picked[threadIdx.x] = choice[threadIdx.x];
    int e = (int)choice[j] - FIRST;
#else
    int e = (int)picked[j] - FIRST;
#endif
    if (e < 0 || e >= COPIES) return;
    int n = blockIdx.x * OWN, own = min(OWN, OUTS - n), pass = 0;
    typedef Side<GATE, UP, true, OWN, BLOCK / 32, 1> S;
    __shared__ S::Sums sums;
    S side(threadIdx.x / 32);
    auto begin = [&]() { return side.fetch(gate, up, (u64)e * OUTS + n, own, pass); };
    bool any = begin();
    GATE::Row for_gate[1] = {row_of<GATE>(x, xq, xs, i)};
    UP::Row for_up[1] = {row_of<UP>(x, xq, xs, i)};
    for (; any; pass += S::depth, any = begin()) side.dots(for_gate, for_up, sums);
    __syncthreads();
    for (int r = threadIdx.x; r < own; r += BLOCK) {
        float2 sum = S::sum(sums, 0, r);
        float v = sum.x / (1 + expf(-sum.x)) * sum.y;
        u64 to = ((u64)i * USED + j) * OUTS + n + r;
#if ROUND
        // whole warps are here, as rows that are rounded are dealt by 32
        u64 group = to - r % 32;
        round_warp(v, q + group, s + group / 32);
#else
        out[to] = v;
#endif
    }
}
