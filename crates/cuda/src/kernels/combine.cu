// Joins the parts of an attention (common/merge.cuh). part [rows][HEADS][PARTS][VALUE + 2] as attend.cu leaves it;
// out [rows][HEADS][VALUE] f32. ROUND: the output comes rounded (common/round.cuh), and as it is only where there is an out.
// Grid: HEADS, 1, rows; 128 threads. Bytes: 4 PARTS (VALUE + 2) a head and row.
#include "common/merge.cuh"
#include "common/round.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(128) run(const int* step, const float* part, float* out, i8* q, float4* s) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    u64 row = (u64)i * HEADS + blockIdx.x;
    Merge<PARTS, VALUE> merge(part + row * PARTS * (VALUE + 2));
    for (int k = threadIdx.x; k < VALUE; k += 128) {
        float v = merge.at(k);
        if (out) out[row * VALUE + k] = v;
#if ROUND
        u64 group = row * VALUE + k - threadIdx.x % 32;
        round_warp(v, q + group, s + group / 32);
#endif
    }
}
