// The scores of index.cu over a cache of f16, by tensor cores: a warp takes 16 keys at a time as the rows of a product, of
// which the heads are the columns. Keys go from memory to registers and are read once; queries are rounded to f16, sums
// are f32. WIDTH is a multiple of 32.
// The order of a sum's terms is free as long as both sides agree: each lane of four takes eight elements in a row, which are
// its terms of two products.
// Grid: any number, 1, rows; 256 threads. Bytes: 2 WIDTH a key, 4 HEADS WIDTH a block. Operations: 2 HEADS WIDTH a key. With
// 32 heads of 128 over 64 k keys: 16.8 MB and 4 MB of queries from L2; two tiles a warp of 264 blocks, two blocks an SM, each
// warp with its 8 KB under way.
#include "common/bins.cuh"
#include "common/cache.cuh"
#include "common/mma.cuh"
#include "common/overlap.cuh"
#include "common/reduce.cuh"

#define ROWS 16
#define CHUNKS (WIDTH / 32)
#define COLUMNS ((HEADS + 7) / 8)
// lines of two heads in different banks
#define LINE (WIDTH + 32)

struct Queries {
    __align__(16) u16 head[8 * COLUMNS][LINE];
    float gate[8 * COLUMNS];
};

// Every head's query as f16, scaled by a power of two which its gate undoes.
DI void queries(Queries& s, const float* q, const float* gate) {
    int lane = threadIdx.x % 32, first = threadIdx.x / 32;
    float v[COLUMNS][CHUNKS];
    // all are asked for at once
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int head = first + 8 * n;
            v[n][j] = head < HEADS ? q[head * WIDTH + 32 * j + lane] : 0;
        }
    }
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        int head = first + 8 * n;
        float most = 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) most = fmaxf(most, fabsf(v[n][j]));
        float scale = half_scale(warp_max(most));
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) s.head[head][32 * j + lane] = float_to_half(v[n][j] * scale);
        if (lane == 0) s.gate[head] = head < HEADS ? gate[head] * half_unscale(scale) : 0;
    }
}

// This lane's elements of rows lane / 4 and lane / 4 + 8 of a tile.
DI void fetch(uint4 (&key)[CHUNKS][2], const Element* keys, const int* table, int first, int count) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int t = first + lane / 4 + 8 * half;
        const Element* line = keys + (t < count ? cache_line(table, t) : 0) * WIDTH + 8 * (lane % 4);
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) key[j][half] = t < count ? *(const uint4*)(line + 32 * j) : uint4{0, 0, 0, 0};
    }
}

// Sums of rows lane / 4 and lane / 4 + 8; all four lanes of a row get it.
DI float2 sums(const uint4 (&key)[CHUNKS][2], const Queries& s) {
    int lane = threadIdx.x % 32;
    float2 sum = make_float2(0, 0);
// queries stay in shared memory, and registers are left for keys
#pragma unroll 2
    for (int n = 0; n < COLUMNS; n++) {
        float d[4] = {0, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            uint4 query = *(const uint4*)&s.head[8 * n + lane / 4][32 * j + 8 * (lane % 4)];
            uint4 low = key[j][0], high = key[j][1];
            mma(d, {low.x, high.x, low.y, high.y}, query.x, query.y);
            mma(d, {low.z, high.z, low.w, high.w}, query.z, query.w);
        }
        float2 gate = *(const float2*)&s.gate[8 * n + lane % 4 * 2];
        sum.x += gate.x * fmaxf(d[0], 0) + gate.y * fmaxf(d[1], 0);
        sum.y += gate.x * fmaxf(d[2], 0) + gate.y * fmaxf(d[3], 0);
    }
#pragma unroll
    for (int o = 1; o < 4; o <<= 1) {
        sum.x += __shfl_xor_sync(~0u, sum.x, o);
        sum.y += __shfl_xor_sync(~0u, sum.y, o);
    }
    return sum;
}

// Scores of a tile of positions from t on.
DI void leave(const int* step, int i, int t, int count, float2 sum, float* score, OwnBins& own, const Binning& bin) {
    int lane = threadIdx.x % 32, at = t + lane / 4 + 8 * (lane % 4);
    if (lane % 4 > 1 || at >= count) return;
    // not -0, which would order below 0
    float v = (lane % 4 ? sum.y : sum.x) * FACTOR + 0.0f;
    score[i * step_context(step) + at] = v;
    count_score(own, bin, v);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    run(const int* step, const float* q, const float* gate, const Element* keys, float* score, u32* bins, const u32* around) {
    int i = blockIdx.z, count = i < step_rows(step) ? step_position(step, i) + 1 : 0;
    int stride = gridDim.x * 8 * ROWS;
    const int* table = step_table(step, i);
    __shared__ Queries s;
    __shared__ OwnBins own;
    clear_bins<256>(own);
    uint4 key[2][CHUNKS][2];
    // neighbouring tiles go to different blocks, which few tiles then keep as busy as many
    int first = (blockIdx.x + gridDim.x * (threadIdx.x / 32)) * ROWS;
    // keys of earlier steps are there already: a sequence's rows in a step are positions one behind the other
    bool before = count > KEEP && first + stride + ROWS <= count - step_rows(step);
    auto begin = [&]() {
        fetch(key[0], keys, table, first, count);
        fetch(key[1], keys, table, first + stride, count);
    };
    if (before) begin();
    in_turn();
    if (count <= KEEP) return;
    Binning bin(around[i]);
    if (!before) begin();
    queries(s, q + (u64)i * HEADS * WIDTH, gate + (u64)i * HEADS);
    __syncthreads();
    // a tile is under way while the one before it is multiplied
#pragma unroll 1
    for (int t = first; t < count; t += 2 * stride) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            int at = t + n * stride;
            float2 sum = sums(key[n], s);
            if (at + 2 * stride < count) fetch(key[n], keys, table, at + 2 * stride, count);
            if (at < count) leave(step, i, at, count, sum, score, own, bin);
        }
    }
    add_bins<256>(own, bins, i);
}
