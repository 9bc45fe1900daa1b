// Causal attention of one step over the cache, a part of the keys at a time: for each row, head and part the weighted sum
// of values, the largest score and the sum of weights; combine.cu joins the parts.
// A key is KEY elements of a line of `keys` (STRIDE_K elements long), at KEY x the KV head; its value VALUE elements of a
// line of `values` (STRIDE_V), at VALUE x the KV head. Grouped-query attention: GROUP query heads read one KV head, and
// FIRST and FIRST_KV are the first ones here. Latent attention: one KV head, the value is the front of the key, and
// the query comes in two parts, the second of ROPE elements. PICKED: only the positions in `picked` are read.
// q [rows][HEADS][KEY - ROPE], q_rope [rows][HEADS][ROPE], picked [rows][KEEP] f32; part: {largest, sum of weights}
// [MAX_ROWS][HEADS][PARTS], then sums [rows][HEADS][PARTS][VALUE] f32, of parts with keys.
// Grid: HEADS, PARTS, rows; 128 threads, a warp for a key at a time. Bytes: the lines read, once for each head.
#include "common/cache.cuh"
#include "common/overlap.cuh"
#include "common/parts.cuh"
#include "common/reduce.cuh"

#define WARPS 4
#define LANE_KEYS ((KEY + 31) / 32)
#define LANE_VALUES ((VALUE + 31) / 32)

DI int position_at(const float* picked, int t) { return PICKED ? (int)picked[t] : t; }

extern "C" __global__ void __launch_bounds__(128)
    run(const int* step, const float* q, const float* q_rope, const Element* keys, const Element* values, const float* picked,
        float* part) {
    int i = blockIdx.z, head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int count = i < step_rows(step) ? attended(step, i, KEEP) : 0;
    int size = part_size(count, PARTS), first = blockIdx.y * size, end = min(count, first + size);
    in_turn();
    if (first >= end) return;
    const int* table = step_table(step, i);
    picked += (u64)i * KEEP;
    int kv = (FIRST + head) / GROUP - FIRST_KV;
    float query[LANE_KEYS], sum[LANE_VALUES], most = -INFINITY_F, weights = 0;
    u64 row = (u64)i * HEADS + head;
#pragma unroll
    for (int j = 0; j < LANE_KEYS; j++) {
        int k = lane + 32 * j;
        query[j] = k < KEY - ROPE ? q[row * (KEY - ROPE) + k] : k < KEY ? q_rope[row * ROPE + k - (KEY - ROPE)] : 0;
    }
#pragma unroll
    for (int j = 0; j < LANE_VALUES; j++) sum[j] = 0;
    for (int t = first + warp; t < end; t += WARPS) {
        u64 line = cache_line(table, position_at(picked, t));
        const Element* key = keys + line * STRIDE_K + kv * KEY;
        float dot = 0;
#pragma unroll
        for (int j = 0; j < LANE_KEYS; j++) {
            int k = lane + 32 * j;
            if (k < KEY) dot += query[j] * element_to_float(key[k]);
        }
        float score = warp_sum(dot) * SCALE, above = fmaxf(most, score);
        float keep = expf(most - above), weight = expf(score - above);
        const Element* value = values + line * STRIDE_V + kv * VALUE;
#pragma unroll
        for (int j = 0; j < LANE_VALUES; j++) {
            int k = lane + 32 * j;
            if (k < VALUE) sum[j] = sum[j] * keep + weight * element_to_float(value[k]);
        }
        weights = weights * keep + weight;
        most = above;
    }
    // the warps' parts, in their order
    __shared__ float sums[WARPS][VALUE], mosts[WARPS], totals[WARPS];
#pragma unroll
    for (int j = 0; j < LANE_VALUES; j++) {
        if (lane + 32 * j < VALUE) sums[warp][lane + 32 * j] = sum[j];
    }
    if (lane == 0) {
        mosts[warp] = most;
        totals[warp] = weights;
    }
    __syncthreads();
    float all = fmaxf(fmaxf(mosts[0], mosts[1]), fmaxf(mosts[2], mosts[3]));
    u64 at = row * PARTS + blockIdx.y;
    float* to = part + part_sums(HEADS, PARTS) + at * VALUE;
    float factor[WARPS], total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        factor[w] = mosts[w] == -INFINITY_F ? 0 : expf(mosts[w] - all);
        total += factor[w] * totals[w];
    }
    for (int k = threadIdx.x; k < VALUE; k += 128) {
        float v = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v += factor[w] * sums[w][k];
        to[k] = v;
    }
    if (threadIdx.x == 0) ((float2*)part)[at] = make_float2(all, total);
}
