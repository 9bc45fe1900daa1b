// Joins the parts of an attention, in their order: out[i][h] = sum over parts of exp(most_p - most) sum_p, divided by the
// sum of weights. part [rows][HEADS][PARTS][VALUE + 2] as attend.cu leaves it; out [rows][HEADS][VALUE] f32. ROUND: the
// output also comes rounded (common/round.cuh).
// Grid: HEADS, 1, rows; 128 threads. Bytes: 4 PARTS (VALUE + 2) a head and row.
#include "common/round.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(128) run(const int* step, const float* part, float* out, i8* q, float4* s) {
    int i = blockIdx.z;
    if (i >= step_rows(step)) return;
    u64 row = (u64)i * HEADS + blockIdx.x;
    part += row * PARTS * (VALUE + 2);
    float most = -INFINITY_F;
    for (int p = 0; p < PARTS; p++) most = fmaxf(most, part[p * (VALUE + 2) + VALUE]);
    float total = 0;
    for (int p = 0; p < PARTS; p++) {
        float m = part[p * (VALUE + 2) + VALUE];
        if (m != -INFINITY_F) total += expf(m - most) * part[p * (VALUE + 2) + VALUE + 1];
    }
    for (int k = threadIdx.x; k < VALUE; k += 128) {
        float v = 0;
        for (int p = 0; p < PARTS; p++) {
            float m = part[p * (VALUE + 2) + VALUE];
            if (m != -INFINITY_F) v += expf(m - most) * part[p * (VALUE + 2) + k];
        }
        v /= total;
        out[row * VALUE + k] = v;
#if ROUND
        u64 group = row * VALUE + k - threadIdx.x % 32;
        round_warp(v, q + group, s + group / 32);
#endif
    }
}
