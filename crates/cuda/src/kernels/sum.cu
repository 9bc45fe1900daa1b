// The ranks' summands, each as it would arrive (WIRE), added in rank order: out[i][k] = part_0 + part_1 + ...
// `parts` holds the address of each rank's rows of WIDTH, `outs` that of each rank's result; all on one card.
// Grid: WIDTH / 256 rounded up, 1, rows; 256 threads. Bytes: 4 (RANKS + RANKS) a element.
#include "common/overlap.cuh"
#include "common/step.cuh"

#define F32 0
#define BF16 1

DI float sent(float v) { return WIRE == BF16 ? bf16_to_float(float_to_bf16(v)) : v; }

extern "C" __global__ void __launch_bounds__(256) run(const int* step, const float* const* parts, float* const* outs) {
    int rows = rows_in_turn(step);
    int k = blockIdx.x * 256 + threadIdx.x;
    if (blockIdx.z >= rows || k >= WIDTH) return;
    u64 at = (u64)blockIdx.z * WIDTH + k;
    float sum = sent(parts[0][at]);
    for (int r = 1; r < RANKS; r++) sum += sent(parts[r][at]);
    for (int r = 0; r < RANKS; r++) outs[r][at] = sum;
}
