// Scores of the lightning indexer: score[i][t] = sum over heads of g_h relu(q_h . k_t) x FACTOR, for the positions t up to
// each row's own; nothing where all positions are kept anyway. Scores are counted in `bins` (common/bins.cuh),
// which lie around the keys `around` [rows].
// q [rows][HEADS][WIDTH], gate [rows][HEADS] f32, keys lines of WIDTH; score [rows][step_context] f32.
// Grid: any number, 1, rows; 256 threads, a warp for a key at a time. Bytes: each row's keys once.
#include "common/bins.cuh"
#include "common/cache.cuh"
#include "common/overlap.cuh"
#include "common/reduce.cuh"

#define LANE_KEYS ((WIDTH + 31) / 32)

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* q, const float* gate, const Element* keys, float* score, u32* bins, const u32* around) {
    int i = blockIdx.z, lane = threadIdx.x % 32, count = i < step_rows(step) ? step_position(step, i) + 1 : 0;
    const int* table = step_table(step, i);
    in_turn();
    if (count <= KEEP) return;
    Binning bin(around[i]);
    __shared__ float query[HEADS * WIDTH], gates[HEADS];
    for (int k = threadIdx.x; k < HEADS * WIDTH; k += 256) query[k] = q[(u64)i * HEADS * WIDTH + k];
    for (int h = threadIdx.x; h < HEADS; h += 256) gates[h] = gate[(u64)i * HEADS + h];
    __syncthreads();
    for (int t = blockIdx.x * 8 + threadIdx.x / 32; t < count; t += gridDim.x * 8) {
        const Element* line = keys + cache_line(table, t) * WIDTH;
        float key[LANE_KEYS];
#pragma unroll
        for (int j = 0; j < LANE_KEYS; j++) key[j] = lane + 32 * j < WIDTH ? element_to_float(line[lane + 32 * j]) : 0;
        float sum = 0;
        for (int h = 0; h < HEADS; h++) {
            float dot = 0;
#pragma unroll
            for (int j = 0; j < LANE_KEYS; j++) {
                if (lane + 32 * j < WIDTH) dot += query[h * WIDTH + lane + 32 * j] * key[j];
            }
            sum += gates[h] * fmaxf(warp_sum(dot), 0);
        }
        if (lane > 0) continue;
        // not -0, which would order below 0
        float v = sum * FACTOR + 0.0f;
        score[i * step_context(step) + t] = v;
        count_score(bins, bin, i, v);
    }
}
