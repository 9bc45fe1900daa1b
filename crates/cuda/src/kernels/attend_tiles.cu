// Causal attention of one step over a cache of f16, a part of the keys at a time, by tensor cores: 32 keys at a time lie in
// shared memory, read once for all the heads of a block. Writes what attend.cu writes, and takes the same numbers.
// A block has 8 COLUMNS of the GROUP heads that share a KV head. Scores: keys are the rows of the product, heads its
// columns, two warps for the keys and four for the terms of a sum, queries in registers. Then a warp has a head's weights,
// a lane a key's. Values: elements are the rows, heads the columns, and each warp has every eighth 16 elements. Queries and
// weights are rounded to f16, sums are f32, and the sum of weights is that of the rounded ones.
// LATENT: the value is the front of the key. STAGES tiles are held or under way. SHARED: bytes of shared memory.
// Grid: KV heads x blocks of their heads, PARTS, rows; 256 threads. Blocks of parts without keys end at once.
// Bytes: 2 (KEY + VALUE) a key and block, 2 KEY if LATENT; 4 VALUE a head and part. Operations: 2 (KEY + VALUE) a key and
// head. 80 registers for COLUMNS 1, 126 for 2 (two blocks an SM), 203 for 3; 80 to 96 KB of shared memory for 576 wide lines.
// 64 heads over 2048 picked lines, COLUMNS 2: 128 blocks of 64 keys; 2.4 MB from memory and 9.4 from L2, 4.2 MB of parts, 0.29
// GFLOP, of which an SM has 544 products of a warp. Expected, not measured: look-ups 0.9 us, first tile 1.0, two tiles of
// 0.7 each, parts 0.5. 20 heads over 32 k lines, COLUMNS 3: 128 blocks of 8 tiles, 37.7 MB in 9 us.
#include "common/cache.cuh"
#include "common/mma.cuh"
#include "common/overlap.cuh"
#include "common/parts.cuh"
#include "common/reduce.cuh"

#define WARPS 8
#define SPLIT 4
#define KEY_STEPS ((KEY + 15) / 16)
#define VALUE_STEPS ((VALUE + 15) / 16)
// of a warp
#define STEPS ((KEY_STEPS + SPLIT - 1) / SPLIT)
#define SLABS ((VALUE_STEPS + WARPS - 1) / WARPS)
#define COLS (8 * COLUMNS)
#define HEAD_BLOCKS ((GROUP + COLS - 1) / COLS)
// Elements of a key's line in shared memory: an odd number of 16 bytes, so that eight lines lie in different banks.
#define VALUE_AT (LATENT ? 0 : 16 * KEY_STEPS)
#define LINE (16 * KEY_STEPS + (LATENT ? 0 : 16 * VALUE_STEPS) + 8)
#define SCORE_LINE (TILE_KEYS + 4)
#define WEIGHT_LINE (TILE_KEYS + 8)

struct Tiles {
    u16 line[STAGES][TILE_KEYS][LINE];
    u16 weight[COLS][WEIGHT_LINE];
    float score[SPLIT][COLS][SCORE_LINE];
    float keep[COLS];
};
static_assert(sizeof(Tiles) <= SHARED, "the launch gives less");

// The head of a column of this block, counted from the first one here, or -1.
DI int head_of(int column) {
    int at = blockIdx.x % HEAD_BLOCKS * COLS + column;
    int head = (FIRST_KV + blockIdx.x / HEAD_BLOCKS) * GROUP + at - FIRST;
    return at < GROUP && head >= 0 && head < HEADS ? head : -1;
}

// Two terms of a head's query; zeros of no head and behind the key. The load does not depend on which it is.
DI float2 query_at(const float* q, const float* q_rope, int i, int head, int k) {
    u64 row = (u64)i * HEADS + max(head, 0);
    const float* from = k < KEY - ROPE ? q + row * (KEY - ROPE) + k : q_rope + row * ROPE + (k - (KEY - ROPE));
    bool is = head >= 0 && (KEY == 16 * SPLIT * STEPS || k < KEY);
    float2 v = *(const float2*)(is ? from : q);
    return is ? v : make_float2(0, 0);
}

// The line of the key that this lane's place in a tile is, or -1 behind the last one.
DI int line_at(const int* table, const float* picked, int t, int end) {
    if (t >= end) return -1;
    return (int)cache_line(table, picked ? (int)picked[t] : t);
}

template <int WIDTH>
DI void copy_line(u16* to, const Element* from, bool is) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 256) {
        if (k + 8 * lane < WIDTH) copy_start(to + k + 8 * lane, from + k + 8 * lane, is);
    }
}

// Has a tile copied. What lies behind the last key becomes zero: it is multiplied with weights of zero.
DI void fetch(u16 (*to)[LINE], int line, const Element* keys, const Element* values) {
    int warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < TILE_KEYS / WARPS; j++) {
        int n = warp + WARPS * j, from = __shfl_sync(~0u, line, n);
        copy_line<KEY>(to[n], keys + (u64)max(from, 0) * STRIDE_K, from >= 0);
        if (!LATENT) copy_line<VALUE>(to[n] + VALUE_AT, values + (u64)max(from, 0) * STRIDE_V, from >= 0);
    }
}

// A warp's terms of the queries, and for its two columns of each product what undoes their scaling, times SCALE.
DI void queries(u32 (&query)[COLUMNS][STEPS][2], float (&undo)[COLUMNS][2], const float* q, const float* q_rope, int i) {
    int lane = threadIdx.x % 32, split = threadIdx.x / 64, c = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        int head = head_of(8 * n + lane / 4);
        float2 term[STEPS][2];
        float most = 0;
#pragma unroll
        for (int k = 0; k < 2 * STEPS; k++) {
            float2 v = query_at(q, q_rope, i, head, 16 * split * STEPS + 8 * k + c);
            term[k / 2][k % 2] = v;
            most = fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y)));
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        float scale = half_scale(most);
#pragma unroll
        for (int k = 0; k < 2 * STEPS; k++) {
            float2 v = term[k / 2][k % 2];
            query[n][k / 2][k % 2] = halves(v.x * scale, v.y * scale);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) undo[n][j] = SCALE * half_unscale(__shfl_sync(~0u, scale, 4 * (c + j)));
    }
}

// This warp's terms of the scores of its 16 keys.
DI void scores(Tiles& s, const u16 (*tile)[LINE], const u32 (&query)[COLUMNS][STEPS][2], const float (&undo)[COLUMNS][2]) {
    int lane = threadIdx.x % 32, split = threadIdx.x / 64, first = threadIdx.x / 32 % 2 * 16;
    float d[COLUMNS][4];
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        int at = split * STEPS + k;
        if (KEY_STEPS % SPLIT && at >= KEY_STEPS) break;
        u32 a[4];
        load_matrices(a, &tile[first + lane % 16][16 * at + lane / 16 * 8]);
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) mma(d[n], a, query[n][k][0], query[n][k][1]);
    }
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s.score[split][8 * n + lane % 4 * 2 + j % 2][first + lane / 4 + j / 2 * 8] = d[n][j] * undo[n][j % 2];
        }
    }
}

// The weights of a tile's keys, of which `count` are there: relative to the largest score so far, by whose growth all
// that was summed before shrinks.
DI void weigh(Tiles& s, int count, float (&most)[COLUMNS], float (&total)[COLUMNS]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        int column = WARPS * n + warp;
        float score = 0;
#pragma unroll
        for (int part = 0; part < SPLIT; part++) score += s.score[part][column][lane];
        if (lane >= count) score = -INFINITY_F;
        float above = fmaxf(most[n], warp_max(score)), keep = expf(most[n] - above);
        u16 weight = float_to_half(expf(score - above));
        s.weight[column][lane] = weight;
        total[n] = total[n] * keep + half_to_float(weight);
        most[n] = above;
        if (lane == 0) s.keep[column] = keep;
    }
}

// Adds the values of a tile, by their weights.
DI void add_values(float (&sum)[SLABS][COLUMNS][4], const Tiles& s, const u16 (*tile)[LINE]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 weight[COLUMNS][4];
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        load_matrices(weight[n], &s.weight[8 * n + lane % 8][lane / 8 * 8]);
        float keep[2] = {s.keep[8 * n + lane % 4 * 2], s.keep[8 * n + lane % 4 * 2 + 1]};
#pragma unroll
        for (int m = 0; m < SLABS; m++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sum[m][n][j] *= keep[j % 2];
        }
    }
#pragma unroll
    for (int m = 0; m < SLABS; m++) {
        if (VALUE_STEPS % WARPS && warp + WARPS * m >= VALUE_STEPS) break;
        int value = VALUE_AT + 16 * (warp + WARPS * m) + lane / 8 % 2 * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 a[4];
            load_transposed(a, &tile[16 * half + lane / 16 * 8 + lane % 8][value]);
#pragma unroll
            for (int n = 0; n < COLUMNS; n++) mma(sum[m][n], a, weight[n][2 * half], weight[n][2 * half + 1]);
        }
    }
}

// What a block leaves of its part.
DI void leave(float* part, int i, const float (&sum)[SLABS][COLUMNS][4], const float (&most)[COLUMNS],
              const float (&total)[COLUMNS]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        float all = warp_sum(total[n]);
        int head = head_of(WARPS * n + warp);
        u64 at = ((u64)i * HEADS + head) * PARTS + blockIdx.y;
        if (head >= 0 && lane == 0) ((float2*)part)[at] = make_float2(most[n], all);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int own = head_of(8 * n + lane % 4 * 2 + c);
            float* to = part + part_sums(HEADS, PARTS) + (((u64)i * HEADS + own) * PARTS + blockIdx.y) * VALUE;
#pragma unroll
            for (int m = 0; m < SLABS; m++) {
                int value = 16 * (warp + WARPS * m) + lane / 4;
                if (own >= 0 && value < VALUE) to[value] = sum[m][n][c];
                if (own >= 0 && value + 8 < VALUE) to[value + 8] = sum[m][n][c + 2];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    run(const int* step, const float* q, const float* q_rope, const Element* keys, const Element* values, const float* picked,
        float* part) {
    int i = blockIdx.z, lane = threadIdx.x % 32, count = i < step_rows(step) ? attended(step, i, KEEP) : 0;
    int size = part_size(count, PARTS), first = blockIdx.y * size, end = min(count, first + size);
    const int* table = step_table(step, i);
    let_later_begin();
    // where the keys lie, which were not picked in this step, is known before all else
    if (first >= end) return await_earlier();
    DYNAMIC_SHARED(shared);
    Tiles& s = *(Tiles*)shared;
    // a row that keeps all its positions has them in order
    picked = PICKED && step_position(step, i) >= KEEP ? picked + (u64)i * KEEP : 0;
    keys += blockIdx.x / HEAD_BLOCKS * KEY;
    values += blockIdx.x / HEAD_BLOCKS * VALUE;
#if KEY % 16
    // what fills a key up to whole steps
    for (int n = threadIdx.x; n < STAGES * TILE_KEYS; n += 256) {
        *(uint4*)&s.line[n / TILE_KEYS][n % TILE_KEYS][KEY] = uint4{0, 0, 0, 0};
    }
#endif
    // all lines are looked up at once
    int line[STAGES + 1];
    if (picked) await_earlier();
#pragma unroll
    for (int n = 0; n <= STAGES; n++) line[n] = line_at(table, picked, first + TILE_KEYS * n + lane, end);
    // lines of earlier steps are there already: a sequence's rows in a step are positions one behind the other
    bool before = !picked && min(end, first + STAGES * TILE_KEYS) <= count - step_rows(step);
    if (!picked && !before) await_earlier();
#pragma unroll
    for (int n = 0; n < STAGES; n++) {
        if (first + TILE_KEYS * n < end) fetch(s.line[n], line[n], keys, values);
        copy_commit();
    }
    if (before) await_earlier();
    int next = line[STAGES];
    u32 query[COLUMNS][STEPS][2];
    float undo[COLUMNS][2], most[COLUMNS], total[COLUMNS], sum[SLABS][COLUMNS][4];
    queries(query, undo, q, q_rope, i);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        most[n] = -INFINITY_F;
        total[n] = 0;
#pragma unroll
        for (int m = 0; m < SLABS; m++) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
    }
    int stage = 0;
    for (int t = first; t < end; t += TILE_KEYS) {
        copy_wait<STAGES - 1>();
        __syncthreads();
        scores(s, s.line[stage], query, undo);
        __syncthreads();
        weigh(s, end - t, most, total);
        __syncthreads();
        add_values(sum, s, s.line[stage]);
        __syncthreads();
        if (t + STAGES * TILE_KEYS < end) fetch(s.line[stage], next, keys, values);
        copy_commit();
        next = line_at(table, picked, t + (STAGES + 1) * TILE_KEYS + lane, end);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    leave(part, i, sum, most, total);
}
