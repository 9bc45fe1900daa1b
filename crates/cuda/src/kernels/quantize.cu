// Rounds rows to 8 bits (common/round.cuh): x f32 -> q [rows][WIDTH] int8, s [rows][WIDTH / 32]. A row of x is runs of UNIT elements,
// of which RUN from START on are taken.
// Grid: WIDTH / 256 rounded up, 1, rows; 256 threads, a warp for 32 elements. Bytes: 5.5 an element.
#include "common/overlap.cuh"
#include "common/round.cuh"
#include "common/step.cuh"

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* x, i8* q, float4* s) {
    int rows = rows_in_turn(step);
    int i = blockIdx.z, at = blockIdx.x * 256 + threadIdx.x;
    if (i >= rows || at >= WIDTH) return;
    u64 place = (u64)i * WIDTH + at, first = place - threadIdx.x % 32;
    round_warp(x[((u64)i * (WIDTH / RUN) + at / RUN) * UNIT + START + at % RUN], q + first, s + first / 32);
}
