// The first half of the chosen experts: out[i][j][n] = silu(gate_e[n] . x[i]) * (up_e[n] . x[i]) for the j-th expert e of
// row i. gate, up [COPIES][OUTS] rows in the formats m0 and m1, of the experts from FIRST on; x [rows][cols] f32 at x, rounded
// at xq and xs; picked [rows][2 USED] as common/route.cuh leaves it; out [rows][USED][OUTS] f32 or, with ROUND, rounded to q and s
// (common/round.cuh); untouched for experts held elsewhere.
// Grid: OUTS / OWN rounded up, USED, rows; BLOCK threads, whose warps deal the rows of both among them. Bytes: the chosen
// experts' weights once a row.
#include "common/round.cuh"
#include "common/side.cuh"
#include "common/step.cuh"

template <class M>
DI typename M::Row row_of(const float* x, const i8* q, const float4* s, u64 i) {
    return M::row(M::rounds ? (const void*)q : x, s, i);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    run(const int* step, const float* picked, const u8* gate, const u8* up, const float* x, const i8* xq, const float4* xs,
        float* out, i8* q, float4* s) {
    int i = blockIdx.z, j = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i >= step_rows(step)) return;
    int e = (int)picked[(u64)i * 2 * USED + j] - FIRST;
    if (e < 0 || e >= COPIES) return;
    GATE::Row for_gate[1] = {row_of<GATE>(x, xq, xs, i)};
    UP::Row for_up[1] = {row_of<UP>(x, xq, xs, i)};
#if ROUND
    __shared__ float own[OWN];
#endif
    u64 to = ((u64)i * USED + j) * OUTS + blockIdx.x * OWN, first = (u64)e * OUTS + blockIdx.x * OWN;
    int count = min(OWN, OUTS - (int)blockIdx.x * OWN);
    typedef Side<GATE, UP, true, OWN, BLOCK / 32, 1> S;
    for (int of = warp * S::rows; of < count; of += BLOCK / 32 * S::rows) {
        float a[1][1] = {}, b[1][1] = {};
        S::dots(gate, up, first + of, first + count - 1, for_gate, for_up, a, b);
        int r = of + lane / S::lanes;
        if (r >= count || lane % S::lanes) continue;
        float v = a[0][0] / (1 + expf(-a[0][0])) * b[0][0];
#if ROUND
        own[r] = v;
#else
        out[to + r] = v;
#endif
    }
#if ROUND
    __syncthreads();
    if (warp < OWN / 32 && blockIdx.x * OWN + 32 * warp < OUTS) {
        u64 group = to + 32 * warp;
        round_warp(own[32 * warp + lane], q + group, s + group / 32);
    }
#endif
}
