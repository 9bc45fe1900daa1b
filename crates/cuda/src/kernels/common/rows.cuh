// Rows of weights times a few rows of activations, the weights streamed through shared memory.
//
// A row is cut into steps of 32 chunks, a lane a chunk. `warps` warps share a row, each has `each` steps of it one after the
// other; so a block has 8 / warps rows under way. A lane adds its chunks in order, then lanes are added, then warps: the order
// follows from the shape alone, whatever runs beside it and however many rows of activations there are.
// TILE: rows of activations, at most 4: a thread holds its share of them in registers.
#include "common/chunk.cuh"
#include "common/overlap.cuh"
#include "common/reduce.cuh"
#include "common/ring.cuh"

// Registers of a thread for a row of activations.
#define ROWS_HELD 24
// Rows of weights between two barriers, and bytes of shared memory in all.
#define ROWS_BATCH 32
#define ROWS_SHARED (46 << 10)

DI constexpr int rows_warps(int steps) {
    int warps = 1;
    while (warps < 8 && (steps + warps - 1) / warps * CHUNK_HELD > ROWS_HELD) warps *= 2;
    return warps;
}

// The largest divisor of n that is at most `most`, at least 1.
DI constexpr int rows_divisor(int n, int most) {
    int d = most < 1 ? 1 : most < n ? most : n;
    while (n % d) d--;
    return d;
}

// How a row is shared out, and what lies in shared memory.
struct Shape {
    static constexpr int chunks = COLS / CHUNK, steps = (chunks + 31) / 32;
    static constexpr int warps = rows_warps(steps), teams = 8 / warps, each = (steps + warps - 1) / warps;
    // a step's bytes, with what lies around them
    static constexpr int room = (chunk_offset(chunks < 32 ? chunks : 32) + 15) / 16 * 16 + 16;
    static constexpr int ring = (ROWS_SHARED - 4 * TILE * warps * ROWS_BATCH) / 8;
    // steps that are waited for together, and how often that is for a row
    static constexpr int together = rows_divisor(each, ring / 3 / room), rounds = each / together;
    static constexpr int stage = together * room, stages = ring / stage > 8 ? 8 : ring / stage;
    static_assert(stages > 0 && TILE <= 4, "a stage is held, and a tile");
};

// Of n rows that all blocks share, the first of block b.
DI int rows_first(int n, int b) { return (int)((u64)n * b / gridDim.x); }

// Rows `first` to `last` of w times the activations input(t). `finish(n, in, t, sum)` gets the sums from whole warps, a lane a
// row, of which those that are not `in` are beyond the last.
template <class Activations, class Finish>
DI void each_row(const u8* w, int first, int last, Activations input, Finish finish) {
    typedef Shape S;
    __shared__ __align__(128) u8 ring[8][S::stages][S::stage];
    __shared__ __align__(8) u64 full[8][S::stages];
    __shared__ float part[S::warps][TILE][ROWS_BATCH];
    let_later_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = warp % S::warps, team = warp / S::warps;
    int rows = first + team < last ? (last - first - team + S::teams - 1) / S::teams : 0, turns = rows * S::rounds;
    if (lane < S::stages) ring_init(&full[warp][lane], S::together);
    ring_ready();

    // where a step of a row begins
    auto begins = [&](int n, int step) { return w + (u64)n * ROW_BYTES + chunk_offset(32 * step); };
    // lane p asks for step p of those together
    auto fill = [&](int turn) {
        if (turn >= turns) return;
        int step = slice * S::each + turn % S::rounds * S::together + lane, stage = turn % S::stages;
        const u8* from = nullptr;
        u32 bytes = 0;
        if (lane < S::together && step < S::steps) {
            from = begins(first + team + turn / S::rounds * S::teams, step);
            u32 around = (u32)(u64)from & 15;
            from -= around;
            bytes = (chunk_offset(min(32, S::chunks - 32 * step)) + around + 15) / 16 * 16;
        }
        ring_fill<S::together, S::room>(ring[warp][stage], &full[warp][stage], from, bytes);
    };
#pragma unroll
    for (int turn = 0; turn < S::stages; turn++) fill(turn);
    await_earlier();

    auto chunk_of = [&](int j) { return (slice * S::each + j) * 32 + lane; };
    Given held[S::each][TILE];
#pragma unroll
    for (int j = 0; j < S::each; j++) {
#pragma unroll
        for (int t = 0; t < TILE; t++) {
            if (chunk_of(j) < S::chunks) held[j][t] = given(input(t), chunk_of(j));
        }
    }

    int turn = 0;
    for (int base = first; base < last; base += ROWS_BATCH) {
        int end = min(last, base + ROWS_BATCH);
        for (int n = base + team; n < end; n += S::teams) {
            float sum[TILE] = {};
#pragma unroll
            for (int r = 0; r < S::rounds; r++, turn++) {
                int stage = turn % S::stages;
                ring_wait(&full[warp][stage], S::together, turn / S::stages);
#pragma unroll
                for (int g = 0; g < S::together; g++) {
                    int j = r * S::together + g;
                    if (chunk_of(j) >= S::chunks) continue;
                    const u8* at = ring[warp][stage] + g * S::room;
                    if (ROW_BYTES % 16 || chunk_offset(32) % 16) at += (u32)(u64)begins(n, slice * S::each + j) & 15;
#pragma unroll
                    for (int t = 0; t < TILE; t++) sum[t] += chunk_dot(at, lane, held[j][t]);
                }
                __syncwarp();
                fill(turn + S::stages);
            }
#pragma unroll
            for (int t = 0; t < TILE; t++) {
                float v = warp_sum(sum[t]);
                if (lane == 0) part[slice][t][n - base] = v;
            }
        }
        __syncthreads();
        if (warp < TILE) {
            float v = part[0][warp][lane];
#pragma unroll
            for (int s = 1; s < S::warps; s++) v += part[s][warp][lane];
            finish(base + lane, base + lane < last, warp, v);
        }
        __syncthreads();
    }
}
